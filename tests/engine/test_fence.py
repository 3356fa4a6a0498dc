"""Invariant 2: every write of a worker carries its lease number, and one that lost the lease changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.support.kinds import Number
from tests.support.moves import (
    LEASE,
    Aside,
    abandon,
    begun,
    claim_one,
    context,
    ends,
    enqueued,
    expire,
    one,
    outcomes,
    publish,
    row,
    set_clock,
)
from worker.engine import db, executor, queue, recovery
from worker.engine.context import Context
from worker.engine.executor import Result
from worker.engine.model import Job, Kind, LeaseLost, Outcome

FINISHES = {
    "complete": Result(Outcome.COMPLETED, counts_json='{"a": 1}'),
    "retry": Result(Outcome.FAILED, error="again"),
    "fail": Result(Outcome.FAILED, error="for good", is_final=True),
    "snooze": Result(Outcome.SNOOZED, delay_seconds=60),
    "cancel": Result(Outcome.CANCELLED, error="not wanted"),
    "release": Result(Outcome.INTERRUPTED, error="shutdown"),
}


def lost(conn: psycopg.Connection, *, taken: bool) -> Job:
    """A job whose first lease ran out; `taken`: another worker has it by now, and it is at its second attempt."""
    job = begun(conn)
    assert abandon(conn, job.id) == 1
    if taken:
        conn.execute("update jobs set run_at = clock_now()")
        assert claim_one(conn).lease == job.lease + 1
    return job


def everything(conn: psycopg.Connection) -> tuple[Any, ...]:
    return tuple(
        conn.execute(f"select t::text from {table} t order by 1").fetchall()
        for table in ("jobs", "job_runs", "job_progress", "job_kinds")
    )


@pytest.mark.parametrize("taken", [False, True], ids=["recovered", "taken by another"])
@pytest.mark.parametrize("verb", FINISHES)
def test_no_way_to_finish_changes_a_job_that_was_lost(conn: psycopg.Connection, verb: str, taken: bool) -> None:
    publish(conn)
    job = lost(conn, taken=taken)
    before = everything(conn)
    assert not ends(conn, job, FINISHES[verb])
    assert everything(conn) == before


@pytest.mark.parametrize("verb", FINISHES)
def test_a_job_that_another_completed_is_finished_once(conn: psycopg.Connection, verb: str) -> None:
    publish(conn)
    job = begun(conn)
    abandon(conn, job.id)
    conn.execute("update jobs set run_at = clock_now()")
    assert ends(conn, claim_one(conn))
    assert not ends(conn, job, FINISHES[verb])
    assert outcomes(conn, job.id) == [("abandoned", None), ("completed", "completed")]


def test_finishing_twice_counts_once(conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn)
    assert [ends(conn, job), ends(conn, job), ends(conn, job, FINISHES["retry"])] == [True, False, False]
    assert outcomes(conn, job.id) == [("completed", "completed")]


@pytest.mark.parametrize("taken", [False, True], ids=["recovered", "taken by another"])
def test_a_heartbeat_does_not_renew_what_was_lost_and_says_so(conn: psycopg.Connection, taken: bool) -> None:
    publish(conn)
    job = lost(conn, taken=taken)
    before = everything(conn)
    (beat,) = queue.extend(conn, [(job.id, job.lease)], lease=LEASE)
    assert (beat.is_renewed, beat.is_lost) == (False, True)
    assert everything(conn) == before


@pytest.mark.parametrize("taken", [False, True], ids=["recovered", "taken by another"])
def test_progress_of_what_was_lost_is_not_shown(url: str, conn: psycopg.Connection, taken: bool) -> None:
    publish(conn)
    job = lost(conn, taken=taken)
    before = everything(conn)
    ctx = context(url, job)
    ctx.progress(5, 10, "from the dead")
    ctx.close()
    assert everything(conn) == before


def test_progress_of_the_owner_is_not_overwritten_by_a_late_one(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    job = lost(conn, taken=False)
    conn.execute("update jobs set run_at = clock_now()")
    theirs = context(url, claim_one(conn))
    theirs.progress(1, 2, "of the owner")
    mine = context(url, job)
    mine.progress(9, 9, "from the dead")
    for ctx in (theirs, mine):
        ctx.close()
    assert one(conn, "select note from job_progress") == "of the owner"


@pytest.mark.parametrize("taken", [False, True], ids=["recovered", "taken by another"])
def test_a_checkpoint_of_what_was_lost_rolls_the_handlers_writes_back(
    url: str, conn: psycopg.Connection, taken: bool
) -> None:
    publish(conn)
    conn.execute("create table work (what text)")
    job = lost(conn, taken=taken)
    before = everything(conn)
    ctx = context(url, job)

    def work() -> None:
        with ctx.connection() as own:
            own.execute("insert into work values ('of the dead')")
            ctx.checkpoint({"at": 5}, own)

    with pytest.raises(LeaseLost):
        work()
    ctx.close()
    assert ctx.cancelled
    assert one(conn, "select count(*) from work") == 0
    assert everything(conn) == before


@pytest.mark.parametrize("taken", [False, True], ids=["recovered", "taken by another"])
def test_work_and_completion_of_what_was_lost_are_both_rolled_back(
    url: str, conn: psycopg.Connection, taken: bool
) -> None:
    publish(conn)
    conn.execute("create table work (what text)")
    job = lost(conn, taken=taken)
    before = everything(conn)
    ctx = context(url, job)
    with pytest.raises(LeaseLost, match="its work was rolled back"), ctx.transaction() as own:
        own.execute("insert into work values ('of the dead')")
    ctx.close()
    assert not ctx.is_settled
    assert one(conn, "select count(*) from work") == 0
    assert everything(conn) == before


def test_work_and_completion_commit_together(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    conn.execute("create table work (what text)")
    job = begun(conn)
    ctx = context(url, job)
    counts: dict[str, Any] = {}
    with ctx.transaction(counts) as own:
        own.execute("insert into work values ('done')")
        counts["rows"] = 1
        assert (one(conn, "select count(*) from work"), outcomes(conn, job.id)) == (0, [])
    ctx.close()
    assert (one(conn, "select count(*) from work"), row(conn, job.id)) == (1, None)
    assert one(conn, "select counts from job_runs") == {"rows": 1}


def test_a_handler_that_raises_in_its_transaction_neither_writes_nor_completes(
    url: str, conn: psycopg.Connection
) -> None:
    publish(conn)
    conn.execute("create table work (what text)")
    job = begun(conn)
    ctx = context(url, job)

    def work() -> None:
        with ctx.transaction() as own:
            own.execute("insert into work values ('half')")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    ctx.close()
    assert one(conn, "select count(*) from work") == 0
    assert not ctx.is_settled
    assert ends(conn, job, FINISHES["retry"])


def test_a_settled_attempt_leaves_nothing_more_to_write(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn)

    def settles_and_raises(ctx: Context, args: Any) -> None:
        with ctx.transaction():
            pass
        raise RuntimeError("after the commit")

    kind = Kind("ok", settles_and_raises, "", args=Number)
    assert executor.attempt(context(url, job, kind)).outcome is None
    assert outcomes(conn, job.id) == [("completed", "completed")]


def test_a_last_commit_and_a_recovery_at_the_same_moment_leave_one_end(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn)
    expire(conn, job.id)
    ctx = context(url, job)
    with ctx.transaction() as own:
        # The row is locked by its end, not yet committed: recovery passes it over instead of waiting or doubling it.
        own.execute("select from jobs where id = %s for update", (job.id,))
        assert recovery.turn(conn) == 0
    ctx.close()
    assert recovery.turn(conn) == 0
    assert outcomes(conn, job.id) == [("completed", "completed")]


def test_a_last_commit_that_comes_while_recovery_holds_the_row_is_refused(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn)
    expire(conn, job.id)
    with db.connect(url, "recovery", autocommit=False) as healer, healer.transaction():
        recovery.turn(healer)
        ctx = context(url, job)

        def complete(_: psycopg.Connection) -> None:
            with ctx.transaction():
                pass

        late = Aside(url, complete)
        assert late.is_waiting_for_a_lock(conn)
    with pytest.raises(LeaseLost):
        late.outcome()
    ctx.close()
    assert outcomes(conn, job.id) == [("abandoned", None)]


def test_recovery_waits_for_a_checkpoint_that_is_not_yet_committed(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn)
    expire(conn, job.id)
    ctx = context(url, job)
    with ctx.connection() as own:
        ctx.checkpoint({"at": 1}, own)
        assert recovery.turn(conn) == 0
    ctx.close()
    assert recovery.turn(conn) == 1
    assert one(conn, "select checkpoint from job_progress") == {"at": 1}


def test_a_heartbeat_passes_a_checkpoint_and_does_not_wait_for_a_last_commit(
    url: str, conn: psycopg.Connection
) -> None:
    publish(conn)
    busy, idle = begun(conn), begun(conn)
    set_clock(conn, "10 s")
    conn.execute("set statement_timeout = '5s'")
    ctx = context(url, busy)
    pairs = [(busy.id, busy.lease), (idle.id, idle.lease)]
    with ctx.connection() as own:
        ctx.checkpoint({"at": 1}, own)
        assert [beat.is_renewed for beat in queue.extend(conn, pairs, lease=LEASE)] == [True, True]
    with ctx.connection() as own:
        own.execute("delete from jobs where id = %s", (busy.id,))
        beats = {beat.job_id: beat for beat in queue.extend(conn, pairs, lease=LEASE)}
        assert (beats[busy.id].is_renewed, beats[busy.id].is_lost) == (False, False)
        assert (beats[idle.id].is_renewed, beats[idle.id].is_lost) == (True, False)
    ctx.close()
    (beat,) = queue.extend(conn, pairs[:1], lease=LEASE)
    assert beat.is_lost


def test_a_heartbeat_moves_the_end_of_the_lease_and_nothing_else(conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn)
    before = row(conn, job.id)
    assert before is not None
    set_clock(conn, "20 s")
    queue.extend(conn, [(job.id, job.lease)], lease=timedelta(minutes=1))
    after = row(conn, job.id)
    assert after is not None
    assert after.pop("locked_until") > before.pop("locked_until") + timedelta(seconds=45)
    assert after == before


def test_a_heartbeat_for_two_leases_of_one_job_renews_the_one_that_stands(conn: psycopg.Connection) -> None:
    publish(conn)
    old = lost(conn, taken=True)
    beats = queue.extend(conn, [(old.id, old.lease), (old.id, old.lease + 1)], lease=LEASE)
    assert [(b.is_renewed, b.is_lost) for b in sorted(beats, key=lambda b: b.lease)] == [(False, True), (True, False)]


def test_a_heartbeat_tells_of_a_cancel(conn: psycopg.Connection) -> None:
    publish(conn)
    wanted, unwanted = begun(conn), begun(conn)
    assert queue.cancel(conn, unwanted.id, "no need") == "requested"
    beats = {b.job_id: b for b in queue.extend(conn, [(j.id, j.lease) for j in (wanted, unwanted)], lease=LEASE)}
    assert [beats[wanted.id].is_cancelled, beats[unwanted.id].is_cancelled] == [False, True]


def test_the_lease_number_of_a_job_only_rises(conn: psycopg.Connection) -> None:
    publish(conn)
    job_id = enqueued(conn)
    steps: list[Callable[[Job], object]] = [
        lambda job: ends(conn, job, FINISHES["snooze"]),
        lambda job: abandon(conn, job.id),
        lambda job: ends(conn, job, FINISHES["release"]),
        lambda job: ends(conn, job, FINISHES["retry"]),
        lambda job: (ends(conn, job, FINISHES["fail"]), queue.requeue(conn, job_id)),
        lambda job: (ends(conn, job, FINISHES["cancel"]), queue.requeue(conn, job_id)),
        lambda job: (ends(conn, job, FINISHES["release"]), queue.cancel(conn, job_id, ""), queue.requeue(conn, job_id)),
        lambda job: ends(conn, job),
    ]
    seen = []
    for step in steps:
        conn.execute("update jobs set run_at = clock_now()")
        job = claim_one(conn, worker=uuid4())
        seen.append(job.lease)
        step(job)
    assert seen == sorted(set(seen))
    written = [lease for (lease,) in conn.execute("select lease from job_runs order by lease")]
    assert len(written) == len(set(written)) == len(seen) + 1
