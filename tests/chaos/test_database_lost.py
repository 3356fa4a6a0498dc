"""The server goes away under load, whole or one connection at a time: nothing acknowledged is lost, nothing ends twice."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from tests.support.poison import MARKS
from tests.support.processes import JobsProcess
from tests.support.waits import wait_ended, wait_until
from worker import schema
from worker.engine import db as database
from worker.engine import queue
from worker.local import embedded, pids

pytestmark = pytest.mark.chaos


@pytest.fixture
def own_server() -> Iterator[embedded.Server]:
    """A server that may be killed, durable as in production, its tables made."""
    home = Path(tempfile.mkdtemp(prefix="ns-chaos-"))
    with embedded.running(home) as server:
        schema.migrate(server.url)
        with database.connect(server.url, "test") as conn:
            conn.execute(MARKS)
        yield server
    shutil.rmtree(home)


def crash(server: embedded.Server) -> None:
    """An immediate stop: every backend ends where it stands, and the next start recovers from the log."""
    postmaster = int((server.home / "data" / "postmaster.pid").read_text().splitlines()[0])
    os.kill(postmaster, signal.SIGQUIT)
    assert pids.wait(lambda: not server.has_process, 20)
    server.start(on_demand=True)


class Producer(threading.Thread):
    """Enqueues until told to stop, and keeps account outside of the database: what was acknowledged, what may be there."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.acknowledged: list[int] = []
        self.errors = 0
        self.is_over = threading.Event()

    def run(self) -> None:
        while not self.is_over.is_set():
            try:
                with database.connect(self._url, "producer", autocommit=False) as conn:
                    while not self.is_over.is_set():
                        job = queue.enqueue(conn, "quick").id
                        conn.commit()
                        self.acknowledged.append(job)
                        self.is_over.wait(0.01)
            except psycopg.OperationalError:
                self.errors += 1
                self.is_over.wait(0.05)


def assert_all_ended_once(conn: psycopg.Connection, acknowledged: list[int]) -> None:
    ended = dict(
        conn.execute("select job_id, count(*) from job_runs where ended = 'completed' group by job_id").fetchall()
    )
    assert [job for job in acknowledged if ended.get(job) != 1] == []
    assert max(ended.values()) == 1
    assert conn.execute("select count(*) from job_runs where ended <> 'completed'").fetchone() == (0,)


def test_restarts_of_the_server_under_load_lose_nothing_and_end_nothing_twice(own_server: embedded.Server) -> None:
    url = own_server.url
    with ExitStack() as stack:
        workers = [stack.enter_context(JobsProcess(url, poll_seconds=1)).started() for _ in range(2)]
        producers = [Producer(url) for _ in range(3)]
        for producer in producers:
            producer.start()
        restarts, wanted = 0, 500
        try:
            while sum(len(producer.acknowledged) for producer in producers) < wanted or restarts < 4:
                goal = min(wanted, (restarts + 1) * 100)
                limit = time.monotonic() + 20
                while sum(len(producer.acknowledged) for producer in producers) < goal:
                    assert time.monotonic() < limit, "the producers got no further"
                    producers[0].is_over.wait(0.02)
                if restarts < 4:
                    crash(own_server)
                    restarts += 1
        finally:
            for producer in producers:
                producer.is_over.set()
            for producer in producers:
                producer.join()
        acknowledged = [job for producer in producers for job in producer.acknowledged]
        assert len(acknowledged) >= wanted
        with database.connect(url, "test") as conn:
            began = time.monotonic()
            wait_until(conn, "select not exists (select from jobs)", seconds=25)
            drained = time.monotonic() - began
            assert_all_ended_once(conn, acknowledged)
            (abandoned,) = conn.execute("select count(*) from job_runs where outcome = 'abandoned'").fetchone() or (0,)
            wait_until(conn, "select count(*) = 2 from processes where listener = 'listening'")
        noise = [sum(not line.startswith(("INFO job.", "WARNING job.")) for line in worker.lines) for worker in workers]
        print(  # noqa: T201
            f"\n{len(acknowledged)} jobs over {restarts} crashes: drained {drained:.1f} s after the last, "
            f"{abandoned} attempts abandoned, {noise} lines of log beside those of jobs"
        )
        assert max(noise) <= 20 * restarts
        for worker in workers:
            worker.signal(signal.SIGTERM)
            assert worker.wait(10) == 0


def test_connections_ended_one_by_one_under_load_lose_nothing_and_end_nothing_twice(
    url: str, db: psycopg.Connection
) -> None:
    roles = ["consumer", "heartbeat", "listener", "consumer", "heartbeat", "recovery", "consumer", "heartbeat"] * 3
    with JobsProcess(url, poll_seconds=1) as jobs:
        jobs.started()
        producer = Producer(url)
        producer.start()
        try:
            for round_, role in enumerate(roles):
                wait_until(
                    db,
                    """select count(pg_terminate_backend(pid)) > 0 from pg_stat_activity
                       where datname = current_database() and application_name = %s""",
                    (f"nightshift {role}",),
                )
                goal = (round_ + 1) * 5
                wait_until(db, "select count(*) >= %s from job_runs", (goal,), 20)
        finally:
            producer.is_over.set()
            producer.join()
        wait_until(db, "select not exists (select from jobs)", seconds=20)
        assert producer.errors == 0
        assert_all_ended_once(db, producer.acknowledged)
        jobs.signal(signal.SIGTERM)
        assert jobs.wait(10) == 0


def test_a_finish_that_fails_again_and_again_is_written_in_the_end_and_the_job_runs_once(
    url: str, db: psycopg.Connection
) -> None:
    """A sequence counts the refusals, for it forgets nothing in a rollback. They outlast the lease."""
    db.execute("create sequence refusals")
    db.execute(
        """create function refuse() returns trigger language plpgsql as $$
           begin
               if nextval('refusals') <= 5 then raise exception 'the history is not to be had'; end if;
               return new;
           end $$"""
    )
    db.execute("create trigger refuse before insert on job_runs for each row execute function refuse()")
    with JobsProcess(url, poll_seconds=1) as jobs:
        jobs.started()
        job = queue.enqueue(db, "steady").id
        wait_ended(db, job, seconds=20)
        assert db.execute("select outcome, attempt from job_runs").fetchall() == [("completed", 1)]
        assert db.execute("select count(*) from marks where what = 'begun'").fetchone() == (1,)
        assert sum("consumer.failed" in line for line in jobs.lines) == 1
        jobs.wait_line("consumer.back after 5 failures")
