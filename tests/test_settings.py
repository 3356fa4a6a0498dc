"""Settings: every mistake at once, no secret repeated, defaults that work."""

from __future__ import annotations

from datetime import timedelta

import pytest

from worker import settings
from worker.settings import SettingsError, load

URL = "postgresql://ada:s3cret@db.example/night"
SECRET = "0123456789abcdef0123456789abcdef"


def test_an_address_alone_is_enough_for_the_jobs_process() -> None:
    got = load({"DATABASE_URL": URL})
    assert (got.database_url, got.listen_url, got.is_pooled) == (URL, URL, False)
    assert (got.slots, got.lease, got.poll) == (8, timedelta(seconds=30), timedelta(seconds=5))


def test_every_mistake_is_told_at_once() -> None:
    wrong = {
        "JOBS_SLOTS": "many",
        "JOBS_LEASE_SECONDS": "nan",
        "JOBS_POLL_SECONDS": "0",
        "JOBS_GRACE_SECONDS": "-1",
        "LOG_LEVEL": "LOUD",
        "SECURE_COOKIES": "maybe",
        "SECRET_KEY": "short",
        "DATABASE_DIRECT_URL": "mysql://x",
    }
    with pytest.raises(SettingsError) as caught:
        load(wrong, web=True)
    assert len(caught.value.problems) == len(wrong) + 1
    for name in [*wrong, "DATABASE_URL"]:
        assert sum(problem.startswith(name) for problem in caught.value.problems) == 1


@pytest.mark.parametrize("url", ["mysql://ada:s3cret@db/x", "ada:s3cret@db", "s3cret"])
def test_no_secret_is_repeated(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({"DATABASE_URL": url, "DATABASE_DIRECT_URL": url, "SECRET_KEY": "s3cret"}, web=True)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(caught.value)


def test_the_old_scheme_of_an_address_is_understood() -> None:
    assert load({"DATABASE_URL": "postgres://db/night"}).database_url == "postgresql://db/night"


def test_a_pooler_takes_a_direct_address_or_none() -> None:
    pooled = load({"DATABASE_URL": URL, "DATABASE_DIRECT_URL": "postgresql://direct/night"})
    assert (pooled.listen_url, pooled.is_pooled) == ("postgresql://direct/night", True)
    alone = load({"DATABASE_URL": URL, "DATABASE_DIRECT_URL": "none"})
    assert (alone.listen_url, alone.is_pooled) == (None, True)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("JOBS_SLOTS", "1", "256"), ("JOBS_LEASE_SECONDS", "2", "3600"), ("JOBS_POLL_SECONDS", "0.1", "300")],
)
def test_the_bounds_themselves_are_taken_and_what_lies_beyond_is_not(name: str, low: str, high: str) -> None:
    for value in (low, high):
        load({"DATABASE_URL": URL, name: value})
    for value in ("0", "100000", "1e9", "inf", "-5", "", " "):
        if value:
            with pytest.raises(SettingsError, match=name):
                load({"DATABASE_URL": URL, name: value})


@pytest.mark.parametrize("text", ["0", "65536", "-1", "http", "8000.0", "²"])
def test_a_port_is_a_number_that_a_port_can_have(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PORT", text)
    with pytest.raises(SettingsError, match="PORT must be"):
        settings.port()


def test_a_secret_key_has_to_be_random_where_it_is_needed() -> None:
    for key in ("", "a" * 64, "ab" * 32):
        with pytest.raises(SettingsError, match="SECRET_KEY"):
            load({"DATABASE_URL": URL, "SECRET_KEY": key}, web=True)
    assert load({"DATABASE_URL": URL, "SECRET_KEY": SECRET}, web=True).secret_key == SECRET
    assert load({"DATABASE_URL": URL}).secret_key == ""
