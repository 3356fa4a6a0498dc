"""Waiting for what a database says, with a deadline. For changes that nothing announces: where there is a signal, use it."""

from __future__ import annotations

import time
from typing import Any

import psycopg

_INTERVAL_SECONDS = 0.02


def wait_until(conn: psycopg.Connection, statement: str, params: Any = None, seconds: float = 10) -> tuple[Any, ...]:
    """The first row of the statement as soon as there is one whose first column is true; fails at the deadline."""
    limit = time.monotonic() + seconds
    while True:
        row = conn.execute(statement, params).fetchone()  # type: ignore[arg-type]
        if row is not None and row[0]:
            return row
        if time.monotonic() > limit:
            jobs = conn.execute("select id, kind, status, attempt, lease, deaths, last_error from jobs").fetchall()
            runs = conn.execute(
                "select job_id, lease, kind, outcome, ended, left(error, 200) from job_runs order by finished_at desc limit 20"
            ).fetchall()
            raise AssertionError(
                f"not within {seconds} s: {statement} {params or ''}\nit says: {row}\njobs: {jobs[:20]}\nruns: {runs}"
            )
        time.sleep(_INTERVAL_SECONDS)


def wait_ended(conn: psycopg.Connection, job_id: int, ended: str = "completed", seconds: float = 10) -> None:
    """Until the job has left the table, and then: it must have ended so."""
    wait_until(conn, "select not exists (select from jobs where id = %s)", (job_id,), seconds)
    row = conn.execute(
        "select ended, error from job_runs where job_id = %s and ended is not null", (job_id,)
    ).fetchone()
    assert row is not None, f"job {job_id} left without a last run"
    assert row[0] == ended, f"job {job_id} ended {row}"


def wait_running(conn: psycopg.Connection, job_id: int, seconds: float = 10) -> None:
    """Until a process has claimed the job."""
    wait_until(conn, "select status = 'running' from jobs where id = %s", (job_id,), seconds)


def wait_mark(conn: psycopg.Connection, job_id: int, what: str = "begun", count: int = 1, seconds: float = 10) -> None:
    """Until the handler of the job has written so many marks."""
    statement = "select count(*) >= %s from marks where job_id = %s and what = %s"
    wait_until(conn, statement, (count, job_id, what), seconds)
