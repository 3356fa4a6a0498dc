from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from flask import Flask

from tests.webapp import rows
from tests.webapp.conftest import Visitor, build
from worker.engine import kinds

HOURS = timedelta(hours=1)


def test_all_on_time_is_ok(visitor: Visitor, conn: psycopg.Connection) -> None:
    rows.kind(conn, last_completed_at=rows.now(conn) - 2 * HOURS)
    answer = visitor.get("/statusz")
    assert (answer.status_code, answer.json) == (200, {"status": "ok", "late": 0})
    assert answer.headers["Cache-Control"] == "no-store"


def test_a_late_kind_is_503_and_strangers_learn_only_how_many(visitor: Visitor, conn: psycopg.Connection) -> None:
    rows.kind(conn, "secret-name", last_completed_at=rows.now(conn) - 2 * HOURS - timedelta(minutes=11))
    answer = visitor.get("/statusz")
    assert (answer.status_code, answer.json) == (503, {"status": "late", "late": 1})
    assert "secret-name" not in answer.text


def test_a_kind_that_never_ran_counts_from_its_first_publishing(visitor: Visitor, conn: psycopg.Connection) -> None:
    rows.kind(conn, "young", first_published_at=rows.now(conn) - 2 * HOURS)
    assert visitor.get("/statusz").status_code == 200
    rows.kind(conn, "old", first_published_at=rows.now(conn) - 3 * HOURS)
    assert visitor.get("/statusz").json == {"status": "late", "late": 1}


def test_a_paused_kind_does_not_fail_it_until_the_pause_is_over(
    signed_in: Callable[..., Visitor], conn: psycopg.Connection
) -> None:
    rows.kind(conn, first_published_at=rows.now(conn) - 9 * HOURS)
    kinds.pause(conn, "nightly", by="someone", reason="the move", until=rows.now(conn) + HOURS)
    answer = signed_in("viewer").get("/statusz")
    assert answer.status_code == 200
    assert answer.json is not None
    [shown] = answer.json["kinds"]
    assert (shown["kind"], shown["state"], shown["paused_reason"]) == ("nightly", "paused", "the move")
    conn.execute("update job_kinds set paused_until = clock_now() - interval '1 second'")
    assert signed_in("viewer").get("/statusz").status_code == 503


def test_kinds_on_demand_and_retired_ones_are_never_late(visitor: Visitor, conn: psycopg.Connection) -> None:
    long_ago = rows.now(conn) - 900 * HOURS
    rows.kind(conn, "on-demand", schedule=None, first_published_at=long_ago)
    rows.kind(conn, "retired", first_published_at=long_ago, retired_at=long_ago)
    assert visitor.get("/statusz").json == {"status": "ok", "late": 0}


def test_operators_see_each_kind_and_a_made_up_cookie_sees_none(
    visitor: Visitor, operator: Visitor, conn: psycopg.Connection
) -> None:
    rows.kind(conn)
    answer = operator.get("/statusz").json
    assert answer is not None
    assert [kind["kind"] for kind in answer["kinds"]] == ["nightly"]
    assert answer["kinds"][0]["late_after"].endswith("+00:00")
    visitor.client.set_cookie("nightshift", "x" * 43)
    assert "kinds" not in (visitor.get("/statusz").json or {})


@contextmanager
def _silent_server() -> Iterator[int]:
    """Takes connections and never says a word, as a frozen server does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        yield listener.getsockname()[1]


def _assert_down_quickly(app: Flask) -> None:
    started = time.monotonic()
    answer = Visitor(app.test_client()).get("/statusz")
    assert time.monotonic() - started < 2
    assert (answer.status_code, answer.json) == (503, {"status": "down"})
    assert answer.headers["Cache-Control"] == "no-store"


def test_a_database_that_refuses_is_down() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        _assert_down_quickly(build(f"postgresql://nobody@127.0.0.1:{taken.getsockname()[1]}/gone"))


def test_a_database_that_hangs_is_down_within_two_seconds_and_threads_do_not_pile_up() -> None:
    with _silent_server() as port:
        app = build(f"postgresql://nobody@127.0.0.1:{port}/frozen")
        askers = [threading.Thread(target=_assert_down_quickly, args=[app]) for _ in range(8)]
        for asker in askers:
            asker.start()
        looks = sum(thread.name == "statusz" for thread in threading.enumerate())
        for asker in askers:
            asker.join()
        assert looks == 1


def test_a_database_without_the_schema_is_down(server: str) -> None:
    _assert_down_quickly(build(server))


def test_it_recovers_when_the_database_does(app: Flask, conn: psycopg.Connection) -> None:
    visitor = Visitor(app.test_client())
    conn.execute("alter table job_kinds rename to elsewhere")
    assert visitor.get("/statusz").json == {"status": "down"}
    conn.execute("alter table elsewhere rename to job_kinds")
    assert visitor.get("/statusz").json == {"status": "ok", "late": 0}


def test_healthz_needs_no_database() -> None:
    with _silent_server() as port:
        started = time.monotonic()
        answer = Visitor(build(f"postgresql://nobody@127.0.0.1:{port}/frozen").test_client()).get("/healthz")
        assert (answer.status_code, answer.text) == (200, "ok\n")
        assert time.monotonic() - started < 0.5


def test_a_page_says_that_the_database_is_away_and_shows_no_trace() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        app = build(f"postgresql://nobody@127.0.0.1:{taken.getsockname()[1]}/gone")
        visitor = Visitor(app.test_client())
        visitor.client.set_cookie("nightshift", "x" * 43)
        answer = visitor.get("/")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "5"
    assert "Traceback" not in answer.text
    assert "nobody" not in answer.text


def test_wrong_settings_end_the_process_with_2_and_all_are_listed() -> None:
    environ = {**os.environ, "DATABASE_URL": "mysql://x", "SECRET_KEY": "dev", "SECURE_COOKIES": "maybe"}
    done = subprocess.run(
        [sys.executable, "-c", "import webapp.wsgi"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 2
    for name in ("DATABASE_URL", "SECRET_KEY", "SECURE_COOKIES"):
        assert name in done.stderr
    assert "mysql://x" not in done.stderr


@pytest.mark.parametrize("path", ["/statusz", "/healthz"])
def test_head_is_answered_for_monitors(visitor: Visitor, path: str) -> None:
    assert visitor.client.head(path).status_code == 200
