"""What wakes a process: a commit, the exact second, a poll. NOTIFY is a hint; what it loses costs at most a poll."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from datetime import timedelta

import psycopg
import pytest

from tests.support.processes import JobsProcess
from tests.support.proxy import Proxy
from tests.support.waits import wait_ended, wait_until
from worker.engine import queue
from worker.engine.db import now

pytestmark = pytest.mark.chaos


def wait_listener(db: psycopg.Connection, jobs: JobsProcess, state: str, seconds: float = 10) -> None:
    wait_until(db, "select listener = %s from processes where id = %s", (state, jobs.id), seconds)


def began_at(db: psycopg.Connection, job: int) -> float:
    """When the handler began, by this machine's clock."""
    row = db.execute(
        "select (counts->>'at')::float8 from job_runs where job_id = %s and ended = 'completed'", (job,)
    ).fetchone()
    assert row is not None
    return float(row[0])


def test_a_commit_wakes_an_idle_process_and_the_clock_wakes_it_at_the_second(
    url: str, db: psycopg.Connection, record_property: pytest.RecordProperty
) -> None:
    """The poll interval is a minute here: nothing of this is found by polling."""
    with JobsProcess(url, poll_seconds=60) as jobs, psycopg.connect(url) as own:
        wait_listener(db, jobs.started(), "listening")
        due = now(db) + timedelta(seconds=2)
        future = queue.enqueue(db, "quick", run_at=due).id
        retried = queue.enqueue(db, "fails-once").id
        queue.enqueue(own, "quick")
        own.rollback()
        delays = []
        for _ in range(30):
            job = queue.enqueue(own, "quick").id
            own.commit()
            committed = time.time()
            wait_ended(db, job)
            delays.append(began_at(db, job) - committed)
        median = statistics.median(delays) * 1000
        record_property("commit_to_start_median_ms", round(median, 1))
        print(f"\nfrom commit to the handler's start: median {median:.1f} ms, slowest {max(delays) * 1000:.1f} ms")  # noqa: T201
        assert median < 1000
        wait_ended(db, future)
        late = began_at(db, future) - due.timestamp()
        assert 0 <= late < 1, late
        wait_ended(db, retried)
        row = db.execute(
            "select extract(epoch from max(started_at) - min(finished_at))::float8 from job_runs where job_id = %s",
            (retried,),
        ).fetchone()
        assert row is not None
        assert 0.9 < row[0] < 3, "a retry waits for its delay (1 to 2 s), not for the poll"
        assert db.execute("select count(*) from job_runs where ended is not null").fetchone() == (32,)
        assert db.execute("select count(*) from jobs").fetchone() == (0,)


def test_a_killed_listener_is_back_within_seconds_and_nothing_waits_for_it_longer_than_a_poll(
    url: str, db: psycopg.Connection
) -> None:
    with JobsProcess(url, poll_seconds=2) as jobs:
        wait_listener(db, jobs.started(), "listening")
        db.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'nightshift listener'"
        )
        beside = queue.enqueue(db, "quick").id
        began = time.time()
        wait_ended(db, beside)
        assert began_at(db, beside) - began < 2.5
        jobs.wait_line("listener.failed")
        wait_until(
            db,
            """select count(*) = 1 from pg_stat_activity
               where application_name = 'nightshift listener' and datname = current_database()""",
        )
        wait_listener(db, jobs, "listening")
        after = queue.enqueue(db, "quick").id
        began = time.time()
        wait_ended(db, after)
        assert began_at(db, after) - began < 1


def test_a_silent_listener_is_noticed_within_ten_seconds_shown_and_mended(url: str, db: psycopg.Connection) -> None:
    """Silent in both ways: nothing moves, or only the server's words are lost. Neither gives an error."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(url)) for _ in range(2)]
        both = [
            stack.enter_context(JobsProcess(url, poll_seconds=1, DATABASE_DIRECT_URL=proxy.url)) for proxy in proxies
        ]
        for jobs in both:
            wait_listener(db, jobs.started(), "listening")
        began = time.monotonic()
        proxies[0].stall()
        proxies[1].drop_answers()
        wait_ended(db, queue.enqueue(db, "quick").id, seconds=3)
        for jobs in both:
            wait_listener(db, jobs, "polling", seconds=13)
        noticed = time.monotonic() - began
        print(f"\nsilent listeners: shown as polling after {noticed:.1f} s")  # noqa: T201
        assert noticed < 12
        wait_ended(db, queue.enqueue(db, "quick").id, seconds=3)
        for proxy, jobs in zip(proxies, both, strict=True):
            proxy.flow()
            wait_listener(db, jobs, "listening")


def test_coming_back_to_listen_is_one_full_look(url: str, db: psycopg.Connection) -> None:
    """What was announced while nobody listened is found by it: the poll is a minute away."""
    with Proxy(url) as proxy, JobsProcess(url, poll_seconds=60, DATABASE_DIRECT_URL=proxy.url) as jobs:
        wait_listener(db, jobs.started(), "listening")
        proxy.stall()
        proxy.cut()
        unheard = queue.enqueue(db, "quick").id
        proxy.flow()
        wait_ended(db, unheard, seconds=20)


def test_a_stalled_database_is_left_and_found_again(url: str, db: psycopg.Connection) -> None:
    """Every connection of the process is silent at once, and gives no error: it begins again by itself."""
    with Proxy(url) as proxy, JobsProcess(proxy.url, poll_seconds=1, lease_seconds=3) as jobs:
        wait_listener(db, jobs.started(), "listening")
        job = queue.enqueue(db, "steady-alone", {"seconds": 0}).id
        wait_ended(db, job)
        proxy.stall()
        jobs.wait_line("heartbeat.silent", 10)
        unheard = queue.enqueue(db, "quick").id
        proxy.flow()
        wait_ended(db, unheard, seconds=25)
        wait_listener(db, jobs, "listening", seconds=15)


def test_without_a_direct_address_it_only_polls_and_says_so(url: str, db: psycopg.Connection) -> None:
    with JobsProcess(url, poll_seconds=0.5, DATABASE_DIRECT_URL="none") as jobs:
        jobs.started()
        jobs.wait_line("listener.off")
        wait_listener(db, jobs, "polling")
        for _ in range(3):
            wait_ended(db, queue.enqueue(db, "quick").id, seconds=3)
        for kind in ("prepares", "prepares-alone"):  # behind a pooler the next statement may meet another session
            wait_ended(db, queue.enqueue(db, kind).id)
        thresholds = db.execute("select counts->>'threshold' from job_runs where kind like 'prepares%'").fetchall()
        assert thresholds == [(None,), (None,)]
        assert db.execute(
            "select count(*) from pg_stat_activity where application_name = 'nightshift listener' and datname = current_database()"
        ).fetchone() == (0,)
