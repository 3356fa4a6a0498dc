"""SIGTERM and its kin: no new claims, what runs may finish, the rest is given back uncharged, and the process always ends."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack

import psycopg
import pytest

from tests.support.processes import JobsProcess
from tests.support.proxy import Proxy
from tests.support.waits import wait_ended, wait_mark, wait_running, wait_until
from worker.engine import queue

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize(("number", "to_all"), [(signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGINT, True)])
def test_what_runs_finishes_within_the_grace_time_and_nobody_else_takes_it(
    url: str, db: psycopg.Connection, number: signal.Signals, to_all: bool
) -> None:
    """The runs outlast the lease, so it is heartbeats while draining that keep them."""
    with JobsProcess(url) as first, ExitStack() as stack:
        first.started()
        jobs = [queue.enqueue(db, kind, {"seconds": 3.5}).id for kind in ("steady", "steady-alone")]
        for job in jobs:
            wait_mark(db, job)
        idle = stack.enter_context(JobsProcess(url, grace_seconds=0.1))
        (first.signal_all if to_all else first.signal)(number)
        first.wait_line("draining")
        idle.started()
        assert first.wait(10) == 0
        rows = db.execute("select job_id, outcome, ended, attempt, worker from job_runs order by 1").fetchall()
        assert rows == [(job, "completed", "completed", 1, first.id) for job in jobs]
        assert first.is_all_gone(2)


def test_a_draining_process_claims_nothing_more(url: str, db: psycopg.Connection) -> None:
    with JobsProcess(url, slots=2) as jobs:
        jobs.started()
        job = queue.enqueue(db, "steady", {"seconds": 1.5}).id
        wait_mark(db, job)
        jobs.signal(signal.SIGTERM)
        jobs.wait_line("draining")
        late = queue.enqueue(db, "quick").id
        assert jobs.wait(10) == 0
    assert db.execute("select status, attempt from jobs where id = %s", (late,)).fetchone() == ("queued", 0)


def test_past_the_grace_time_work_is_given_back_at_once_and_not_charged(url: str, db: psycopg.Connection) -> None:
    with JobsProcess(url, grace_seconds=1, lease_seconds=30) as jobs:
        jobs.started()
        ids = {
            kind: queue.enqueue(db, kind, {"seconds": 60}).id for kind in ("steady", "steady-alone", "loops-on-alone")
        }
        for job in ids.values():
            wait_mark(db, job)
        began = time.monotonic()
        jobs.signal(signal.SIGTERM)
        assert jobs.wait(5) == 0
        assert time.monotonic() - began < 4
        assert jobs.is_all_gone(3)
    rows = db.execute("select status, attempt, interruptions, deaths, run_at <= clock_now() from jobs").fetchall()
    assert rows == [("queued", 0, 1, 0, True)] * 3
    runs = db.execute("select outcome, attempt, error from job_runs").fetchall()
    assert runs == [("interrupted", 1, "cut off at shutdown")] * 3
    assert db.execute("select count(*) from processes").fetchone() == (0,)


def test_a_handler_that_obeys_is_given_back_before_the_grace_time_is_over(url: str, db: psycopg.Connection) -> None:
    with JobsProcess(url) as jobs:
        jobs.started()
        ids = [queue.enqueue(db, kind).id for kind in ("obeys", "obeys-alone")]
        for job in ids:
            wait_mark(db, job)
        began = time.monotonic()
        jobs.signal(signal.SIGTERM)
        assert jobs.wait(10) == 0
        assert time.monotonic() - began < 5
    assert db.execute("select status, attempt from jobs").fetchall() == [("queued", 0)] * 2
    assert (
        db.execute("select outcome, error from job_runs").fetchall() == [("interrupted", "given back at shutdown")] * 2
    )


def test_a_second_signal_ends_at_once(url: str, db: psycopg.Connection) -> None:
    with JobsProcess(url, grace_seconds=60, lease_seconds=30) as jobs:
        jobs.started()
        job = queue.enqueue(db, "steady", {"seconds": 60}).id
        wait_mark(db, job)
        jobs.signal(signal.SIGINT)
        jobs.wait_line("draining")
        began = time.monotonic()
        jobs.signal(signal.SIGTERM)
        assert jobs.wait(5) == 0
        assert time.monotonic() - began < 3
    assert db.execute("select status, attempt from jobs").fetchall() == [("queued", 0)]


def test_twenty_starts_and_stops_leave_nothing(url: str, db: psycopg.Connection) -> None:
    """Four at a time, each told to stop at another moment of its start."""
    codes = []
    for cycle in range(5):
        with ExitStack() as stack:
            four = [stack.enter_context(JobsProcess(url, slots=1)) for _ in range(4)]
            for number, jobs in enumerate(four):
                if (cycle + number) % 2:
                    jobs.started()
                jobs.signal(signal.SIGTERM)
            codes += [jobs.wait(15) for jobs in four]
            # A fork server that is still loading its modules learns of the end when it has.
            assert all(jobs.is_all_gone(10) for jobs in four)
    # One that was told before its first line of code ran ended as any program does.
    assert set(codes) <= {0, -signal.SIGTERM}
    assert codes.count(0) >= 10
    assert db.execute("select count(*) from processes").fetchone() == (0,)
    wait_until(
        db,
        """select count(*) = 0 from pg_stat_activity
           where datname = current_database() and application_name like 'nightshift %%' and pid <> pg_backend_pid()
             and application_name <> 'nightshift test'""",
        (),
        5,
    )


def test_sigterm_wins_while_the_database_is_out_of_reach(url: str, db: psycopg.Connection) -> None:
    """Refused: there is an error at once. Stalled: there is neither an answer nor an error."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(url)) for _ in range(2)]
        both = [
            stack.enter_context(JobsProcess(proxy.url, grace_seconds=1, lease_seconds=30, slots=2)) for proxy in proxies
        ]
        for jobs in both:
            jobs.started()
        for job in [queue.enqueue(db, kind, {"seconds": 60}).id for kind in ("steady", "steady-alone") * 2]:
            wait_mark(db, job)
        proxies[0].refuse()
        proxies[1].stall()
        began = time.monotonic()
        for jobs in both:
            jobs.signal(signal.SIGTERM)
        for jobs in both:
            jobs.wait(began + 6.5 - time.monotonic())
            assert jobs.is_all_gone(3)
            assert len(jobs.lines) < 20, "".join(jobs.lines)


def test_sigterm_ends_a_process_that_never_reached_its_database(url: str) -> None:
    with Proxy(url) as proxy:
        proxy.refuse()
        with JobsProcess(proxy.url, grace_seconds=1) as refused:
            refused.wait_line("process_start.failed")
            refused.signal(signal.SIGTERM)
            assert refused.wait(6) == 0
            assert refused.is_all_gone(2)


def test_sigterm_wins_while_nobody_reads_the_log(url: str, db: psycopg.Connection) -> None:
    """A pipe that is full stops every thread that has something to say."""
    with JobsProcess(url, is_heard=False, grace_seconds=1) as jobs:
        job = queue.enqueue(db, "floods").id
        wait_running(db, job, seconds=20)
        wait_until(
            db,
            "select seen_at > started_at + interval '1 s' from processes where exists (select from job_progress)",
        )
        jobs.signal(signal.SIGTERM)
        jobs.wait(6.5)
        assert jobs.is_all_gone(3)


def test_a_grandchild_is_ended_with_its_attempt_and_can_be_ended_by_it(url: str, db: psycopg.Connection) -> None:
    """Children are deaf to SIGTERM; the programs that they start are not."""
    with JobsProcess(url) as jobs:
        jobs.started()
        job = queue.enqueue(db, "starts-a-program-alone").id
        wait_ended(db, job)
    assert db.execute("select counts->>'code' from job_runs").fetchone() == (str(-signal.SIGTERM),)
