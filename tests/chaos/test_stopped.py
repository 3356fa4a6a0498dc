"""A process that was stopped past its lease and goes on: whatever it still writes is refused."""

from __future__ import annotations

import signal

import psycopg
import pytest

from tests.support.processes import JobsProcess
from tests.support.waits import wait_ended, wait_mark, wait_until
from worker.engine import queue

pytestmark = pytest.mark.chaos


def test_a_stopped_owner_that_wakes_is_refused_and_the_other_s_result_stands(url: str, db: psycopg.Connection) -> None:
    with JobsProcess(url) as first:
        first.started()
        kinds = ("steady", "settles", "steady-alone", "settles-alone")
        jobs = {kind: queue.enqueue(db, kind, {"seconds": 4, "n": 1}).id for kind in kinds}
        for job in jobs.values():
            wait_mark(db, job)
        first.signal_all(signal.SIGSTOP)
        first_id = first.id
        # Its backends are not stopped: an open transaction of a handler would hold the row as long as the owner sleeps.
        db.execute(
            """select pg_terminate_backend(pid) from pg_stat_activity
               where datname = current_database() and state = 'idle in transaction'"""
        )
        with JobsProcess(url) as second:
            for job in jobs.values():
                wait_ended(db, job, seconds=20)
            second_id = second.id
            first.signal_all(signal.SIGCONT)
            late = queue.enqueue(db, "quick").id
            wait_ended(db, late)
            wait_until(db, "select seen_at > started_at + interval '3 s' from processes where id = %s", (first_id,))
            second.signal(signal.SIGTERM)
            second.wait(10)
            after = queue.enqueue(db, "steady").id
            wait_ended(db, after)
        first.signal(signal.SIGTERM)
        assert first.wait(10) == 0, "a process that was only stopped lives on"
    for kind, job in jobs.items():
        runs = db.execute("select outcome, worker from job_runs where job_id = %s order by lease", (job,)).fetchall()
        assert runs == [("abandoned", first_id), ("completed", second_id)], kind
    effects = db.execute("select job_id, count(*) from marks where what = 'effect' group by job_id").fetchall()
    assert sorted(effects) == [(jobs["settles"], 1), (jobs["settles-alone"], 1)]
