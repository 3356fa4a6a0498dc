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


def test_clocks_that_are_a_day_wrong_start_everything_as_true_ones(url: str, db: psycopg.Connection) -> None:
    """One process a day ahead, one a day behind, and nobody who knows the time."""
    with ExitStack() as stack:
        wrong = {
            seconds: stack.enter_context(
                JobsProcess(
                    url, slots=2, TEST_CLOCK_SECONDS=seconds, TEST_KINDS="quick,steady,every-second,every-second-alone"
                )
            )
            for seconds in (DAY, -DAY)
        }
        for jobs in wrong.values():
            jobs.started()
        due = now(db) + timedelta(seconds=2)
        future = [queue.enqueue(db, "quick", run_at=due).id for _ in range(4)]
        for job in [queue.enqueue(db, "quick").id for _ in range(20)]:
            wait_ended(db, job, seconds=3)
        # The lease is 2 s: by a wrong clock it would be over at once, or never.
        long = [queue.enqueue(db, "steady", {"seconds": 3}).id for _ in range(2)]
        for job in (*future, *long):
            wait_ended(db, job)
        wait_until(db, "select count(*) >= 8 from job_runs where slot_at is not null", seconds=20)
        for seconds, jobs in wrong.items():
            (skew,) = db.execute("select clock_skew_ms from processes where id = %s", (jobs.id,)).fetchone() or (0,)
            assert abs(skew - seconds * 1000) < 5000
    for started_at, slot_at in [
        *db.execute("select started_at, %s from job_runs where job_id = any(%s)", (due, future)).fetchall(),
        *db.execute("select started_at, slot_at from job_runs where slot_at is not null").fetchall(),
    ]:
        assert timedelta(milliseconds=-5) <= started_at - slot_at < timedelta(seconds=10)
    slots = db.execute(
        "select count(*), count(distinct (kind, slot_at)) from job_runs where slot_at is not null"
    ).fetchone()
    assert slots is not None
    assert slots[0] == slots[1]
    assert db.execute("select count(*) from job_runs where attempt > 1 or outcome <> 'completed'").fetchone() == (0,)


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
