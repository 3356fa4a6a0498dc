"""A process whose clock is wrong, or is set while it runs: the database's clock decides, and nothing is early, late or stuck."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from tests.support.processes import JobsProcess
from tests.support.waits import wait_ended, wait_until
from worker.engine import queue
from worker.engine.db import now

pytestmark = pytest.mark.chaos
DAY = 86_400


@pytest.mark.parametrize("seconds", [DAY, -DAY])
def test_a_clock_that_is_a_day_wrong_starts_everything_as_a_true_one(
    url: str, db: psycopg.Connection, seconds: int
) -> None:
    with JobsProcess(url, TEST_CLOCK_SECONDS=seconds, TEST_KINDS="quick,every-second,steady") as jobs:
        jobs.started()
        due = now(db) + timedelta(seconds=2)
        future = queue.enqueue(db, "quick", run_at=due).id
        at_once = queue.enqueue(db, "quick").id
        wait_ended(db, at_once, seconds=3)
        wait_ended(db, future)
        # The lease is 2 s: by a wrong clock it would be over at once, or never.
        long = queue.enqueue(db, "steady", {"seconds": 3}).id
        wait_ended(db, long)
        wait_until(db, "select count(*) >= 4 from job_runs where slot_at is not null")
        (late,) = db.execute("select started_at - %s from job_runs where job_id = %s", (due, future)).fetchone() or (
            None,
        )
        assert late is not None
        assert timedelta(0) <= late < timedelta(seconds=1)
        wrong = db.execute(
            """select slot_at, started_at from job_runs where slot_at is not null and
               (started_at < slot_at - interval '20 ms' or started_at > slot_at + interval '1.5 s' or outcome <> 'completed')"""
        ).fetchall()
        assert wrong == []
        assert db.execute("select count(*) from job_runs where attempt > 1").fetchone() == (0,)
        (skew,) = db.execute("select clock_skew_ms from processes").fetchone() or (0,)
        assert abs(skew - seconds * 1000) < 5000


def test_a_clock_that_is_set_back_does_not_stop_recovery(url: str, db: psycopg.Connection, tmp_path: Path) -> None:
    offset = tmp_path / "offset"
    offset.write_text("0")
    with JobsProcess(url, poll_seconds=1, TEST_CLOCK_FILE=offset) as jobs:
        jobs.started()
        for seconds in ("-86400", "86400"):
            fresh = offset.with_suffix(".new")
            fresh.write_text(seconds)
            fresh.rename(offset)
            wait_until(db, "select abs(clock_skew_ms - %s) < 5000 from processes", (float(seconds) * 1000,))
            job = queue.enqueue(db, "quick", run_at=now(db) + timedelta(hours=1)).id
            db.execute(
                """update jobs set status = 'running', run_at = clock_now(), attempt = 1, lease = 1, locked_by = %s,
                   locked_at = clock_now(), locked_until = clock_now() where id = %s""",
                (uuid4(), job),
            )
            wait_ended(db, job, seconds=12)
        jobs.signal(signal.SIGTERM)
        assert jobs.wait(10) == 0


def test_processes_with_different_clocks_share_a_night(url: str, db: psycopg.Connection) -> None:
    with ExitStack() as stack:
        for seconds in (DAY, 0, -DAY):
            stack.enter_context(JobsProcess(url, TEST_CLOCK_SECONDS=seconds, TEST_KINDS="every-second,quick"))
        wait_until(db, "select count(*) = 3 from processes", seconds=20)
        jobs = [queue.enqueue(db, "quick").id for _ in range(30)]
        for job in jobs:
            wait_ended(db, job)
        wait_until(db, "select count(*) >= 4 from job_runs where slot_at is not null")
    assert db.execute(
        "select count(*), count(distinct slot_at) from job_runs where slot_at is not null"
    ).fetchone() in {(count, count) for count in range(4, 60)}
    assert db.execute("select count(*) from job_runs where outcome <> 'completed'").fetchone() == (0,)
