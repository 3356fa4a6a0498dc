"""Wrong settings, a database without tables, kinds that nobody knows: said in words, and nothing burnt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from tests.conftest import address
from tests.support.processes import JobsProcess
from tests.support.waits import wait_ended, wait_until
from worker import schema
from worker.engine import db as database
from worker.engine import queue

pytestmark = pytest.mark.chaos


def test_wrong_settings_are_all_said_at_once_and_exit_with_2() -> None:
    wrong = {
        "DATABASE_URL": "mysql://user:secret-word@host/name",
        "JOBS_SLOTS": "many",
        "JOBS_LEASE_SECONDS": "0",
        "JOBS_POLL_SECONDS": "nan",
        "LOG_LEVEL": "LOUD",
    }
    done = subprocess.run(
        [sys.executable, "-m", "worker", "jobs"],
        check=False,
        cwd=Path(__file__).resolve().parents[2],
        env=os.environ | wrong,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2
    for name in wrong:
        assert sum(name in line for line in done.stderr.splitlines()) == 1, done.stderr
    assert "secret-word" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_database_without_tables_is_waited_for_and_said_so(server: str) -> None:
    name = f"empty_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            url = address(server, name)
            with JobsProcess(url) as given_up, JobsProcess(url) as patient:
                for jobs in (given_up, patient):
                    jobs.wait_line("run ./nightshift migrate")
                given_up.signal(signal.SIGTERM)
                assert given_up.wait(6) == 0
                schema.migrate(url)
                patient.started()
                with database.connect(url, "test") as own:
                    wait_ended(own, queue.enqueue(own, "quick").id)
        finally:
            conn.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def test_a_kind_that_no_process_knows_waits_uncharged_until_one_does(url: str, db: psycopg.Connection) -> None:
    with JobsProcess(url, poll_seconds=0.2, TEST_KINDS="steady") as old:
        old.started()
        unknown = queue.enqueue(db, "quick").id
        known = queue.enqueue(db, "steady").id
        wait_ended(db, known)
        wait_until(db, "select seen_at > started_at + interval '1 s' from processes")
        assert db.execute("select status, attempt, lease from jobs where id = %s", (unknown,)).fetchone() == (
            "queued",
            0,
            0,
        )
        with JobsProcess(url):
            wait_ended(db, unknown)
        assert db.execute("select attempt from job_runs where job_id = %s", (unknown,)).fetchone() == (1,)
