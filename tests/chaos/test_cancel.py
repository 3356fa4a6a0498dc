"""An operator's cancel of running work: asked first, and ended in bounded time where nobody answers."""

from __future__ import annotations

import time

import psycopg
import pytest

from tests.support.processes import JobsProcess
from tests.support.waits import wait_ended, wait_mark
from worker.engine import queue

pytestmark = pytest.mark.chaos


def test_a_cancel_ends_running_work_in_bounded_time(url: str, db: psycopg.Connection) -> None:
    with JobsProcess(url, lease_seconds=30) as jobs:
        jobs.started()
        obedient = [queue.enqueue(db, kind).id for kind in ("obeys", "obeys-alone")]
        deaf = queue.enqueue(db, "steady-alone", {"seconds": 60}).id
        beside = queue.enqueue(db, "steady", {"seconds": 11.5}).id
        for job in (*obedient, deaf, beside):
            wait_mark(db, job)
        began = time.monotonic()
        for job in (*obedient, deaf):
            assert queue.cancel(db, job, "not wanted any more") == "requested"
        for job in obedient:
            wait_ended(db, job, "cancelled", seconds=2)
        wait_ended(db, deaf, "cancelled", seconds=12)
        assert time.monotonic() - began < 12.5
        wait_ended(db, beside, "completed", seconds=10)


def test_a_cancelled_job_whose_process_dies_is_not_run_again(url: str, db: psycopg.Connection) -> None:
    with JobsProcess(url) as first:
        first.started()
        job = queue.enqueue(db, "steady", {"seconds": 60}).id
        wait_mark(db, job)
        queue.cancel(db, job, "not wanted any more")
        first.kill()
    with JobsProcess(url):
        wait_ended(db, job, "cancelled", seconds=10)
    assert db.execute("select outcome, ended from job_runs").fetchall() == [("abandoned", "cancelled")]
