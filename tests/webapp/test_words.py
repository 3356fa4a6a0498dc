from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webapp import filters, words
from webapp.night import Failed, Signs, judge
from webapp.queries.kind import Cursor
from webapp.queries.overview import counts
from worker.engine.kinds import KindHealth

NOW = datetime(2026, 12, 1, 3, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (89, "89 s"),
        (90, "1 min"),
        (5399, "89 min"),
        (5400, "1 h 30 min"),
        (7200, "2 h"),
        (40_000, "11 h"),
        (129_600, "1 d"),
    ],
)
def test_spans(seconds: int, text: str) -> None:
    assert words.span(timedelta(seconds=seconds)) == text


@given(st.integers(-(10**9), 10**9))
def test_any_time_has_words(seconds: int) -> None:
    text = words.ago(NOW - timedelta(seconds=seconds), NOW)
    assert text == "now" or text.endswith(" ago") == (seconds > 0)


def test_exact_times_and_durations() -> None:
    assert words.exact(datetime(2026, 3, 29, 1, 2, 3, 4567, tzinfo=UTC)) == "2026-03-29 01:02:03.004 UTC"
    assert [words.duration(ms) for ms in (0, 999, 59_949, 200_000, 7_500_000)] == [
        "0 ms",
        "999 ms",
        "59.9 s",
        "3 min 20 s",
        "2 h 5 min",
    ]
    assert words.capped(1001) == "1,000+"
    assert words.capped(1000) == "1,000"


def test_counts_keep_every_digit_and_survive_anything() -> None:
    assert counts('{"id": 9007199254740993, "ok": true, "deep": {"x": 1}, "f": 0.1}') == [
        ("id", "9,007,199,254,740,993"),
        ("ok", "True"),
        ("f", "0.1"),
    ]
    for odd in ("[1]", "null", '{"cut": 1', "", None, "NaN"):
        assert counts(odd) == []


def test_the_headline_of_a_traceback_is_the_error_itself() -> None:
    trace = 'Traceback (most recent call last):\n  File "x.py", line 1, in run\n    f()\nValueError: no\nDETAIL: more'
    assert filters.headline(trace) == "ValueError: no"
    assert filters.headline("overran its deadline") == "overran its deadline"
    assert filters.headline("cut\n    here") == "here"
    assert filters.headline(" \n ") == ""


@given(st.datetimes(timezones=st.just(UTC)), st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1))
def test_a_cursor_comes_back_as_it_was(at: datetime, job_id: int, lease: int) -> None:
    assert Cursor.parse(str(Cursor(at, job_id, lease))) == Cursor(at, job_id, lease)


@given(st.text(max_size=60))
def test_no_text_breaks_a_cursor(text: str) -> None:
    with suppress(ValueError, OverflowError):
        Cursor.parse(text)


def _health(kind: str, state: str, completed: int | None = 30, late: int = 90) -> KindHealth:
    done = None if completed is None else NOW - timedelta(minutes=completed)
    return KindHealth(
        kind=kind,
        schedule="every 3600 s",
        state=state,
        last_completed_at=done,
        first_published_at=NOW - timedelta(days=3),  # type: ignore[arg-type]
        late_after=NOW + timedelta(minutes=late),
        paused_at=None,
        paused_by=None,
        paused_reason=None,
        paused_until=None,
        schedule_error=None,
    )


def _signs(*health: KindHealth, alive: int = 1, failed: tuple[Failed, ...] = ()) -> Signs:
    return Signs(
        now=NOW, last_seen_at=NOW - timedelta(minutes=7), alive=alive, health=list(health), failed=list(failed)
    )


def test_the_night_is_fine() -> None:
    night = judge(_signs(_health("a", "ok"), _health("b", "ok", 4)))
    assert (night.state, night.sentence) == ("fine", "The night is fine.")
    assert night.why == "All 2 recurring kinds are on time; the last completed 4 min ago."


def test_the_worst_comes_first() -> None:
    late = _health("a", "late", 300, -10)
    failed = (Failed("b", "failed", NOW, 1),)
    assert judge(_signs(late, alive=0, failed=failed)).sentence == "Nothing can run: no jobs process is alive."
    assert judge(_signs(late, failed=failed)).sentence == "The night is not fine: a is late."
    assert judge(_signs(_health("b", "ok"), failed=failed)).state == "attention"
    assert "paused" in judge(_signs(_health("b", "paused"))).sentence


def test_a_kind_that_is_late_says_since_when() -> None:
    night = judge(_signs(_health("a", "late", None, -10), _health("b", "late", 500, -5)))
    assert night.why == "It has never completed and has been late for 10 min. So is 1 more."
    assert night.kind == "a"
