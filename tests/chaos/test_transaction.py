"""ctx.transaction(): the handler's writes and the job's completion are one commit, whatever ends the process."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.processes import JobsProcess
from tests.support.waits import wait_ended, wait_mark, wait_until
from worker.engine import queue

pytestmark = pytest.mark.chaos


def test_a_kill_before_the_commit_leaves_neither_effect_nor_completion_and_then_both_once(
    url: str, db: psycopg.Connection
) -> None:
    kinds = ("settles", "settles-alone")
    with JobsProcess(url) as first:
        first.started()
        jobs = [queue.enqueue(db, kind, {"seconds": 60}).id for kind in kinds]
        for _ in jobs:
            # Their effects are written and not committed: each has a transaction open, and idle.
            wait_until(
                db,
                """select count(*) = 2 from pg_stat_activity where datname = current_database()
                   and application_name like 'nightshift job%%' and state = 'idle in transaction'""",
                (),
            )
        first.kill()
        assert first.is_all_gone(2)
    assert db.execute("select count(*) from marks where what = 'effect'").fetchone() == (0,)
    assert db.execute("select count(*) from job_runs").fetchone() == (0,)
    with JobsProcess(url):
        for job in jobs:
            wait_ended(db, job, seconds=15)
    assert db.execute("select job_id, lease from marks where what = 'effect' order by 1").fetchall() == [
        (job, 2) for job in jobs
    ]
    outcomes = db.execute("select job_id, outcome from job_runs order by job_id, lease").fetchall()
    assert outcomes == [(job, outcome) for job in jobs for outcome in ("abandoned", "completed")]


def test_a_handler_may_go_on_after_its_completion_was_committed(url: str, db: psycopg.Connection) -> None:
    """Its row is gone, which heartbeats must not take for a lost lease; it outlasts three of them."""
    with JobsProcess(url) as jobs:
        jobs.started()
        ids = [queue.enqueue(db, kind, {"seconds": 3}).id for kind in ("settles-slowly", "settles-slowly-alone")]
        for job in ids:
            wait_ended(db, job)
        for job in ids:
            wait_mark(db, job, "ended")
        assert not [line for line in jobs.lines if "lease_lost" in line]
    assert db.execute("select outcome, attempt from job_runs").fetchall() == [("completed", 1)] * 2


def test_a_lost_lease_rolls_the_handler_s_writes_back(url: str, db: psycopg.Connection) -> None:
    with JobsProcess(url, lease_seconds=30) as jobs:
        jobs.started()
        job = queue.enqueue(db, "settles", {"seconds": 1}).id
        wait_mark(db, job)
        db.execute("update jobs set lease = lease + 1 where id = %s", (job,))  # as a claim by another would
        wait_until(
            db,
            """select count(*) = 0 from pg_stat_activity
               where datname = current_database() and application_name = 'nightshift job settles'""",
        )
        assert db.execute("select count(*) from marks where what = 'effect'").fetchone() == (0,)
        assert db.execute("select status, lease from jobs where id = %s", (job,)).fetchone() == ("running", 2)
