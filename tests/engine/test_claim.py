"""What a claim takes, in which order, what it leaves alone, and that one odd row doesn't spoil the batch."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

from tests.support.moves import (
    abandon,
    begun,
    claim,
    claim_one,
    ends,
    enqueued,
    outcomes,
    publish,
    row,
    runs_through,
    set_clock,
)
from worker.engine import db, kinds, queue
from worker.engine.executor import Result
from worker.engine.model import Outcome


def ids(jobs: list[queue.Job]) -> list[int]:
    return [job.id for job in jobs]


def test_the_most_urgent_comes_first_then_the_earliest_then_the_oldest(conn: psycopg.Connection) -> None:
    publish(conn)
    now = db.now(conn)
    late = enqueued(conn, run_at=now - timedelta(minutes=1))
    early = enqueued(conn, run_at=now - timedelta(minutes=2))
    twin = enqueued(conn, run_at=now - timedelta(minutes=1))
    lesser = enqueued(conn, run_at=now - timedelta(hours=1), priority=9)
    urgent = enqueued(conn, priority=0)
    assert [*ids(claim(conn, 2)), *ids(claim(conn, 2)), *ids(claim(conn))] == [urgent, early, late, twin, lesser]


def test_a_job_of_the_future_waits_for_the_databases_clock(conn: psycopg.Connection) -> None:
    publish(conn)
    job_id = enqueued(conn, run_at=db.now(conn) + timedelta(hours=1))
    set_clock(conn, "59 min 59 s")
    assert claim(conn) == []
    set_clock(conn, "1 h 1 s")
    assert ids(claim(conn)) == [job_id]


def test_a_claim_raises_the_lease_number_and_the_attempt_and_says_until_when(conn: psycopg.Connection) -> None:
    publish(conn)
    worker = uuid4()
    job = begun(conn, "raises")
    assert (job.lease, job.attempt, job.max_attempts) == (1, 1, 3)
    assert ends(conn, job, Result(Outcome.SNOOZED, delay_seconds=0))
    job = claim_one(conn, worker=worker, lease=timedelta(minutes=2))
    found = row(conn, job.id)
    assert found is not None
    assert (job.lease, job.attempt) == (2, 1)
    assert (found["status"], found["locked_by"]) == ("running", worker)
    assert found["locked_until"] - found["locked_at"] == timedelta(minutes=2)


def test_a_claim_takes_no_more_than_it_was_asked_for(conn: psycopg.Connection) -> None:
    publish(conn)
    for priority in (0, 5, 9):
        for _ in range(3):
            enqueued(conn, priority=priority)
    assert [len(claim(conn, 4)), len(claim(conn, 4)), len(claim(conn, 4)), len(claim(conn, 4))] == [4, 4, 1, 0]


def test_another_queues_jobs_are_left_alone(conn: psycopg.Connection) -> None:
    publish(conn)
    job_id = enqueued(conn, queue="slow")
    assert claim(conn) == []
    assert ids(claim(conn, queue="slow")) == [job_id]


def test_an_unknown_kind_stays_queued_and_burns_no_attempt(conn: psycopg.Connection) -> None:
    publish(conn)
    unknown, unserved = enqueued(conn, "of-the-next-release"), enqueued(conn, "raises")
    assert claim(conn, kinds=["ok", "of-the-next-release"]) == []
    for job_id in (unknown, unserved):
        found = row(conn, job_id)
        assert found is not None
        assert (found["status"], found["attempt"], found["lease"]) == ("queued", 0, 0)


def test_a_paused_kind_is_passed_by_until_it_is_resumed(conn: psycopg.Connection) -> None:
    publish(conn)
    job_id, other = enqueued(conn, "ok"), enqueued(conn, "raises")
    assert kinds.pause(conn, "ok", by="ada", reason="repairs")
    assert ids(claim(conn)) == [other]
    assert kinds.resume(conn, "ok")
    assert not kinds.resume(conn, "ok")
    assert ids(claim(conn)) == [job_id]
    assert not kinds.pause(conn, "unheard-of", by="ada", reason="")


def test_a_pause_with_an_end_ends_by_itself(conn: psycopg.Connection) -> None:
    publish(conn)
    job_id = enqueued(conn)
    until = db.now(conn) + timedelta(hours=1)
    kinds.pause(conn, "ok", by="ada", reason="repairs", until=until)
    kinds.pause_queue(conn, "default", by="ada", reason="repairs", until=until)
    set_clock(conn, "59 min")
    assert claim(conn) == []
    set_clock(conn, "61 min")
    assert ids(claim(conn)) == [job_id]


def test_a_paused_queue_is_passed_by_until_it_is_resumed(conn: psycopg.Connection) -> None:
    publish(conn, queues=("default", "slow"))
    job_id, other = enqueued(conn), enqueued(conn, queue="slow")
    assert kinds.pause_queue(conn, "default", by="ada", reason="repairs")
    assert (claim(conn), ids(claim(conn, queue="slow"))) == ([], [other])
    assert kinds.resume_queue(conn, "default")
    assert ids(claim(conn)) == [job_id]


def test_a_pause_outlives_the_start_of_another_process(conn: psycopg.Connection) -> None:
    publish(conn)
    kinds.pause(conn, "ok", by="ada", reason="repairs")
    kinds.pause_queue(conn, "default", by="ada", reason="repairs")
    publish(conn)
    kinds.resume(conn, "ok")
    enqueued(conn)
    assert claim(conn) == []


def test_no_row_goes_to_two_claims_at_the_same_moment(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    for _ in range(6):
        enqueued(conn)
    with db.connect(url, "a", autocommit=False) as a, db.connect(url, "b", autocommit=False) as b:
        mine, theirs, rest = claim(a, 2), claim(b, 3), claim(conn, 10)
        assert (len(mine), len(theirs), len(rest)) == (2, 3, 1)
        assert len({*ids(mine), *ids(theirs), *ids(rest)}) == 6


def test_a_claim_that_is_rolled_back_took_nothing(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    job_id = enqueued(conn)
    with db.connect(url, "a", autocommit=False) as a:
        claim(a)
        a.rollback()
    job = claim_one(conn)
    assert (job.id, job.attempt, job.lease) == (job_id, 1, 1)


@pytest.mark.parametrize(
    "args",
    ['{"n": ' + "9" * 5001 + "}", '{"n": 1e5000}', '{"n": ' + "[" * 3000 + "]" * 3000 + "}", '{"n": "\\ud83d\\ude00"}'],
    ids=["5,001 digits", "an exponent", "3,000 levels", "a string"],
)
def test_args_that_python_cannot_read_fail_their_own_job_alone(url: str, conn: psycopg.Connection, args: str) -> None:
    publish(conn)
    conn.execute("insert into jobs (kind, args) values ('ok', %s::jsonb)", (args,))
    good = enqueued(conn)
    bad, fine = claim(conn)
    assert fine.id == good
    for job in (bad, fine):
        assert runs_through(url, conn, job)
    assert outcomes(conn, bad.id) == [("failed", "failed")]
    assert outcomes(conn, good) == [("completed", "completed")]


@pytest.mark.parametrize("args", ["[1, 2]", "3", "null", '"text"', '{"n": "three"}', '{"m": 3}'])
def test_args_that_came_by_sql_and_do_not_fit_fail_at_once_with_the_reason(
    url: str, conn: psycopg.Connection, args: str
) -> None:
    publish(conn)
    conn.execute("insert into jobs (kind, args) values ('ok', %s::jsonb)", (args,))
    job = claim_one(conn)
    assert runs_through(url, conn, job)
    ((error,),) = conn.execute("select error from job_runs where job_id = %s", (job.id,)).fetchall()
    assert error.startswith("args do not fit ok:")
    if "three" in args:
        assert "$.n" in error
    if '"m"' in args:
        assert "`m`" in error


def test_times_that_python_cannot_read_do_not_spoil_the_batch(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    slots = ("infinity", "-infinity", "4713-01-01 BC", "0100-01-01 BC", "0001-01-01 BC", "12345-01-01", "294276-12-31")
    for slot in slots:
        conn.execute("insert into jobs (kind, slot_at) values ('ok', %s)", (slot,))
    conn.execute(
        "insert into jobs (kind, run_at) values ('ok', '-infinity'), ('ok', '4713-01-01 BC'), ('ok', 'infinity')"
    )
    good = enqueued(conn)
    claimed = claim(conn)
    assert good in ids(claimed)
    assert len(claimed) == len(slots) + 3
    assert all(job.slot_at is None or job.slot_at.year > 0 for job in claimed)
    # The one at infinity is never due, and neither wakes anyone.
    assert conn.execute(db.statement("next_due"), {"queues": ["default"]}).fetchone() == (None,)
    assert all(ends(conn, job) for job in claimed)


def test_the_dead_with_times_that_python_cannot_read_are_recovered(conn: psycopg.Connection) -> None:
    publish(conn)
    conn.execute("insert into jobs (kind, slot_at, run_at) values ('ok', '0100-01-01 BC', '-infinity')")
    job, other = claim_one(conn), begun(conn)
    assert abandon(conn, job.id, other.id) == 2


def test_the_next_due_time_is_that_of_the_nearest_row_of_the_served_queues(conn: psycopg.Connection) -> None:
    publish(conn)
    now = db.now(conn)
    enqueued(conn, run_at=now + timedelta(seconds=1), queue="elsewhere")
    enqueued(conn, run_at=now + timedelta(minutes=10), priority=0)
    enqueued(conn, run_at=now + timedelta(minutes=5), priority=9)
    enqueued(conn, run_at=now - timedelta(minutes=5))
    row_ = conn.execute(db.statement("next_due"), {"queues": ["default"]}).fetchone()
    assert row_ is not None
    assert 299 < row_[0] <= 300


def test_a_recurring_kind_is_claimed_once_while_its_other_rows_wait(conn: psycopg.Connection) -> None:
    publish(conn)
    first, second = enqueued(conn, "nightly"), enqueued(conn, "nightly")
    other = enqueued(conn)
    assert ids(claim(conn)) == [first, other]
    assert claim(conn) == []
    found = row(conn, second)
    assert found is not None
    assert found["attempt"] == 0


def test_a_job_without_a_limit_of_its_own_has_its_kinds(conn: psycopg.Connection) -> None:
    publish(conn)
    own, given = begun(conn, "raises"), begun(conn, "raises", max_attempts=1)
    assert (own.max_attempts, given.max_attempts) == (3, 1)
