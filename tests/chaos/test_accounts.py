"""What a process holds and what it believes to hold: the two may not drift apart, whatever fails in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

from tests.support.moves import abandon
from tests.support.poison import KINDS, QUEUES
from tests.support.waits import wait_ended, wait_mark
from worker.engine import db as database
from worker.engine import kinds, queue
from worker.engine.consumer import Consumer
from worker.engine.heartbeat import Heartbeat
from worker.engine.slots import Slots

LEASE = timedelta(seconds=30)
BY_NAME = {kind.name: kind for kind in KINDS if kind.schedule is None}


class Parts:
    """Slots, consumer and heartbeat as a process has them, each turn called by the test."""

    def __init__(self, url: str, consumer: type[Consumer] = Consumer, slots: int = 4) -> None:
        worker, self.woken = uuid4(), threading.Event()
        self.links = [database.Link(url, "consumer"), database.Link(url, "heartbeat")]
        self.slots = Slots(url, worker, BY_NAME, {"default": slots}, wake=self.woken.set)
        self.consumer = consumer(
            self.links[0], self.slots, BY_NAME, wake=self.woken, worker=worker, lease=LEASE, poll=LEASE
        )
        self.heartbeat = Heartbeat(
            self.links[1],
            self.slots,
            wake=threading.Event(),
            worker=worker,
            lease=LEASE,
            listener_state=lambda: "polling",
            state=lambda: "running",
        )

    def held(self) -> set[tuple[int, int]]:
        return {(attempt.job.id, attempt.job.lease) for attempt in self.slots.held()}

    def turn_until_ended(self, conn: psycopg.Connection, job: int) -> None:
        while conn.execute("select 1 from jobs where id = %s", (job,)).fetchone():
            self.woken.wait(5)
            self.woken.clear()
            self.consumer.turn()


@contextmanager
def parts(url: str, conn: psycopg.Connection, consumer: type[Consumer] = Consumer) -> Iterator[Parts]:
    kinds.publish(conn, BY_NAME.values(), QUEUES)
    made = Parts(url, consumer)
    try:
        yield made
    finally:
        for attempt in made.slots.held():
            made.slots.tell(attempt, "lease lost")
        made.slots.cut_off()
        for link in made.links:
            link.close()


class LosesTheDatabaseAfterItsCommit(Consumer):
    """Its connection is gone between the commit of the claim and the look for the next due row."""

    def _due_in(self, conn: psycopg.Connection) -> float | None:
        conn.close()
        return super()._due_in(conn)


def test_what_a_commit_claimed_is_run_even_if_the_next_statement_fails(url: str, db: psycopg.Connection) -> None:
    with parts(url, db, LosesTheDatabaseAfterItsCommit) as made:
        job = queue.enqueue(db, "steady").id
        with pytest.raises(psycopg.OperationalError):
            made.consumer.turn()
        wait_mark(db, job, "ended")
        assert made.held() == {(job, 1)}


def test_a_lost_job_that_its_own_process_claims_again_keeps_its_lease(url: str, db: psycopg.Connection) -> None:
    with parts(url, db) as made:
        job = queue.enqueue(db, "obeys").id
        made.consumer.turn()
        wait_mark(db, job)
        assert abandon(db, job) == 1
        db.execute("update jobs set deaths = 0, run_at = clock_now() where id = %s", (job,))
        made.consumer.turn()
        wait_mark(db, job, count=2)
        assert made.held() == {(job, 1), (job, 2)}
        (old,) = [attempt for attempt in made.slots.held() if attempt.job.lease == 1]
        made.heartbeat.turn()
        assert old.stop.reason == "lease lost"
        while made.held() != {(job, 2)}:
            made.woken.wait(5)
            made.woken.clear()
        assert made.heartbeat.turn() == 1


def test_a_late_result_of_a_lost_lease_is_refused_and_does_not_let_go_of_the_new_one(
    url: str, db: psycopg.Connection
) -> None:
    with parts(url, db) as made:
        job = queue.enqueue(db, "steady", {"seconds": 0.3, "n": 1}).id
        made.consumer.turn()
        wait_mark(db, job)
        assert abandon(db, job) == 1
        db.execute("update jobs set deaths = 0, attempt = 0, run_at = clock_now() where id = %s", (job,))
        made.consumer.turn()
        made.turn_until_ended(db, job)
        assert db.execute("select lease, outcome from job_runs order by lease").fetchall() == [
            (1, "abandoned"),
            (2, "completed"),
        ]
        made.consumer.turn()
        assert made.held() == set()


def test_a_job_that_no_child_can_be_given_fails_with_a_reason(url: str, db: psycopg.Connection) -> None:
    with parts(url, db) as made:
        job = queue.enqueue(db, "closure").id
        db.execute("update jobs set deaths = 1 where id = %s", (job,))
        made.consumer.turn()
        made.turn_until_ended(db, job)
        wait_ended(db, job, "failed")
        (error,) = db.execute("select error from job_runs").fetchone() or ("",)
        assert "could not be run" in error
        assert made.held() == set()


def test_a_deadline_that_comes_at_the_handler_s_end_leaves_no_attempt_unsettled(
    url: str, db: psycopg.Connection
) -> None:
    """Deadlines are asked for while handlers return, thousands of times; each attempt is accounted for, once."""
    with parts(url, db) as made:
        count = 300
        for _ in range(count):
            queue.enqueue(db, "instant")
        while db.execute("select 1 from jobs").fetchone() or made.held():
            made.consumer.turn()
            while any(not attempt.is_ended for attempt in made.slots.held()):
                made.slots.watch()
        (written,) = db.execute("select count(*) from job_runs where ended is not null").fetchone() or (0,)
        assert written == count
        assert made.slots.stuck == 0
        assert sum(thread.name == "slot default" for thread in threading.enumerate()) >= 4
