"""Two, ten, twenty at once. The moments are made by open transactions and starting guns, never by sleeping."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.errors import UniqueViolation

from tests.support.kinds import KINDS
from tests.support.moves import (
    BY_NAME,
    Aside,
    begun,
    claim,
    ends,
    enqueued,
    expire,
    in_parallel,
    live,
    one,
    outcomes,
    publish,
    runs,
)
from worker.engine import db, kinds, queue, recovery, scheduler
from worker.engine.consumer import Consumer
from worker.engine.executor import Result
from worker.engine.model import Outcome

CATALOGUE = [kind for kind in KINDS if kind.name != "nightly-waits"]


def two_rows_of_one_recurring_kind(conn: psycopg.Connection) -> tuple[int, int]:
    """The scheduled row, due now, and one that somebody enqueued without a key; in queues of their own."""
    publish(conn)
    scheduler.tick(conn, CATALOGUE, uuid4())
    scheduled = kinds.run_now(conn, "nightly").job_id
    return scheduled, enqueued(conn, "nightly", queue="other")


def running(conn: psycopg.Connection) -> list[int]:
    return [job_id for (job_id,) in conn.execute("select id from jobs where status = 'running'")]


@pytest.mark.parametrize("fate", ["commit", "rollback"])
def test_two_claims_of_two_rows_of_a_recurring_kind_let_one_through(
    url: str, conn: psycopg.Connection, fate: str
) -> None:
    scheduled, keyless = two_rows_of_one_recurring_kind(conn)
    with db.connect(url, "a", autocommit=False) as a:
        # Neither sees the other's row as running; only the index stands between them.
        assert [job.id for job in claim(a)] == [scheduled]
        b = Aside(url, lambda own: claim(own, queue="other"))
        assert b.is_waiting_for_a_lock(conn)
        getattr(a, fate)()
    if fate == "commit":
        with pytest.raises(UniqueViolation):
            b.outcome()
        assert running(conn) == [scheduled]
    else:
        assert [job.id for job in b.outcome()] == [keyless]
        assert running(conn) == [keyless]


def test_the_second_row_of_a_recurring_kind_waits_its_turn(conn: psycopg.Connection) -> None:
    _, keyless = two_rows_of_one_recurring_kind(conn)
    (first,) = claim(conn)
    assert claim(conn, queue="other") == []
    assert one(conn, "select attempt from jobs where id = %s", keyless) == 0
    assert ends(conn, first)
    (second,) = claim(conn, queue="other")
    assert second.id == keyless


def test_a_snoozed_or_abandoned_run_lets_the_other_row_go_first(conn: psycopg.Connection) -> None:
    _, keyless = two_rows_of_one_recurring_kind(conn)
    (first,) = claim(conn)
    assert ends(conn, first, Result(Outcome.SNOOZED, delay_seconds=3600))
    (second,) = claim(conn, queue="other")
    assert second.id == keyless
    expire(conn, second.id)
    assert recovery.turn(conn) == 1
    assert running(conn) == []


class Quiet:
    """Slots that take what is claimed and run nothing."""

    def __init__(self, *queues: str) -> None:
        self.queues = dict.fromkeys(queues, 10)
        self.jobs: list[queue.Job] = []

    def take(self) -> list[Any]:
        return []

    def give_back(self, finishes: list[Any]) -> None:
        assert finishes == []

    def room(self, name: str) -> int:
        return 10

    def let_go(self, leases: Iterable[tuple[int, int]]) -> None:
        assert list(leases) == []

    def submit(self, jobs: list[queue.Job]) -> None:
        self.jobs += jobs


def test_a_turn_that_meets_another_claim_of_its_recurring_kind_still_claims_the_rest(
    url: str, conn: psycopg.Connection
) -> None:
    scheduled, _ = two_rows_of_one_recurring_kind(conn)
    plain = enqueued(conn, queue="other")
    slots: Any = Quiet("other")
    link = db.Link(url, "consumer")
    options: Any = {"wake": None, "worker": uuid4(), "lease": timedelta(seconds=30), "poll": timedelta(seconds=5)}
    consumer = Consumer(link, slots, BY_NAME, **options)
    with db.connect(url, "a", autocommit=False) as a:
        claim(a)
        turn = Aside(url, lambda _: consumer.turn())
        assert turn.is_waiting_for_a_lock(conn)
        a.commit()
        assert turn.outcome().claimed == 1
    link.close()
    assert [job.id for job in slots.jobs] == [plain]
    assert sorted(running(conn)) == [scheduled, plain]


def test_ten_claimers_never_run_a_recurring_kind_twice_at_once(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    rounds = 200
    conn.execute("insert into jobs (kind) select 'nightly' from generate_series(1, %s)", (rounds,))
    left = count(1)
    done: list[int] = []
    now_running: set[int] = set()
    seen_together: list[int] = []

    def work() -> None:
        with db.connect(url, "claimer") as own:
            while len(done) < rounds:
                try:
                    jobs = claim(own, 3)
                except UniqueViolation:
                    continue
                for job in jobs:
                    now_running.add(job.id)
                    seen_together.append(len(now_running))
                    assert running(own) == [job.id]
                    now_running.discard(job.id)
                    assert ends(own, job)
                    done.append(next(left))

    in_parallel([work] * 10)
    assert max(seen_together) == 1
    assert one(conn, "select count(*) from job_runs") == rounds
    assert one(conn, "select max(attempt) from job_runs") == 1
    # The history says the same: no run began before the one before it was over.
    overlaps = """select count(*) from job_runs a join job_runs b on a.job_id < b.job_id
                  and a.started_at < b.finished_at and b.started_at < a.finished_at"""
    assert one(conn, overlaps) == 0


def test_ten_claimers_share_a_pile_without_a_double(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    conn.execute("insert into jobs (kind) select 'ok' from generate_series(1, 500)")

    def work() -> list[int]:
        mine: list[int] = []
        with db.connect(url, "claimer") as own:
            while jobs := claim(own, 7):
                mine += [job.id for job in jobs]
        return mine

    taken = [job_id for mine in in_parallel([work] * 10) for job_id in mine]
    assert len(taken) == len(set(taken)) == 500
    assert one(conn, "select count(*) from jobs where attempt = 1 and lease = 1") == 500


def test_twenty_presses_of_run_now_leave_one_row(url: str, conn: psycopg.Connection) -> None:
    publish(conn)

    def press() -> str:
        with db.connect(url, "operator", autocommit=False) as own, own.transaction():
            return kinds.run_now(own, "nightly").state

    assert set(in_parallel([press] * 20)) == {"moved"}
    assert live(conn) == 1
    (job,) = claim(conn)
    assert set(in_parallel([press] * 5)) == {"running"}
    assert ends(conn, job)
    assert live(conn) == 1


def test_ten_scheduled_ticks_at_once_write_one_row(url: str, conn: psycopg.Connection) -> None:
    publish(conn)

    def tick() -> list[str]:
        with db.connect(url, "scheduler") as own:
            return scheduler.tick(own, CATALOGUE, uuid4())

    for _ in range(5):
        conn.execute("delete from jobs")
        written = in_parallel([tick] * 10)
        assert max(written) == ["nightly"]
        assert sum(map(len, written)) == 1
        assert live(conn) == 1


def test_even_without_the_ticks_lock_a_recurrence_key_admits_one_row(url: str, conn: psycopg.Connection) -> None:
    publish(conn)

    def put_back() -> list[str]:
        with db.connect(url, "scheduler") as own:
            return kinds.put_back_missing(own, CATALOGUE)

    assert sum(map(len, in_parallel([put_back] * 10))) == 1
    assert live(conn) == 1


def test_a_tick_while_another_is_at_it_does_nothing(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    with db.connect(url, "a", autocommit=False) as a:
        assert scheduler._is_mine(a)
        assert scheduler.tick(conn, CATALOGUE, uuid4()) == []
        a.rollback()
    assert scheduler.tick(conn, CATALOGUE, uuid4()) == ["nightly"]


def test_an_end_and_a_tick_at_the_same_moment_leave_one_next_occurrence(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    scheduler.tick(conn, CATALOGUE, uuid4())
    kinds.run_now(conn, "nightly")
    (job,) = claim(conn)
    with db.connect(url, "owner", autocommit=False) as owner, owner.transaction():
        assert ends(owner, job)
        tick = Aside(url, lambda own: scheduler.tick(own, CATALOGUE, uuid4()))
        tick.outcome()
    assert one(conn, "select count(*) from jobs where recurrence_key = 'nightly'") == 1


def test_two_recoveries_at_once_recover_each_job_once(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    jobs = [begun(conn) for _ in range(40)]
    expire(conn, *[job.id for job in jobs])

    def recover() -> int:
        with db.connect(url, "recovery") as own:
            return recovery.turn(own)

    assert sum(in_parallel([recover] * 5)) == 40
    assert one(conn, "select count(*) from job_runs") == 40
    assert {outcomes(conn, job.id)[0] for job in jobs} == {("abandoned", None)}


def test_a_recovery_passes_what_another_holds(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    held, free = begun(conn), begun(conn)
    expire(conn, held.id, free.id)
    with db.connect(url, "a", autocommit=False) as a:
        a.execute("select from jobs where id = %s for update", (held.id,))
        assert recovery.turn(conn) == 1
        a.rollback()
    assert recovery.turn(conn) == 1


def test_a_cancel_and_an_end_at_the_same_moment_leave_one_end(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    for fate in ("commit", "rollback"):
        job = begun(conn)
        with db.connect(url, "owner", autocommit=False) as owner:
            owner.execute("select")  # so that the end stands in a transaction that is still open
            ends(owner, job)
            late = Aside(url, lambda own, job_id=job.id: queue.cancel(own, job_id, "no"))
            assert late.is_waiting_for_a_lock(conn)
            getattr(owner, fate)()
        assert late.outcome() == (None if fate == "commit" else "requested")
        assert len(runs(conn, job.id)) == (fate == "commit")


def test_a_cancel_and_a_claim_at_the_same_moment_leave_one_of_the_two(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    job_id = enqueued(conn)
    with db.connect(url, "owner", autocommit=False) as owner:
        claim(owner)
        late = Aside(url, lambda own: queue.cancel(own, job_id, "no"))
        assert late.is_waiting_for_a_lock(conn)
        owner.commit()
    assert late.outcome() == "requested"
    other = enqueued(conn)
    with db.connect(url, "operator", autocommit=False) as operator:
        assert queue.cancel(operator, other, "no") == "cancelled"
        assert claim(conn) == []
        operator.commit()
    assert outcomes(conn, other) == [("cancelled", "cancelled")]


def test_a_job_that_two_operators_requeue_comes_back_once(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn)
    ends(conn, job, Result(Outcome.FAILED, is_final=True))

    def press() -> bool:
        with db.connect(url, "operator") as own:
            found = queue.requeue(own, job.id)
            return found is not None and found.is_new

    assert sum(in_parallel([press] * 8)) == 1
    assert live(conn) == 1


def test_processes_that_start_at_once_publish_without_a_deadlock(url: str, conn: psycopg.Connection) -> None:
    def start(place: int) -> None:
        with db.connect(url, "start") as own, own.transaction():
            kinds.publish(own, KINDS if place % 2 else KINDS[::-1], ["b", "a"] if place % 2 else ["a", "b"])

    in_parallel([lambda place=place: start(place) for place in range(8)])
    assert one(conn, "select count(*) from job_kinds") == len(KINDS)
