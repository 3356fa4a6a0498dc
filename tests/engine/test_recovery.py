"""Invariant 6: recovery takes back what the dead left, again and again, and no bad row stands in its way."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from tests.support.moves import (
    abandon,
    begun,
    claim,
    claim_one,
    context,
    ends,
    enqueued,
    expire,
    live,
    one,
    outcomes,
    publish,
    row,
    runs,
    set_clock,
)
from worker.engine import db, queue, recovery
from worker.engine.executor import Result
from worker.engine.model import Outcome


def test_a_job_is_left_to_its_owner_while_the_lease_stands(conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn)
    set_clock(conn, "29 s")
    assert recovery.turn(conn) == 0
    set_clock(conn, "31 s")
    assert recovery.turn(conn) == 1
    assert recovery.turn(conn) == 0
    assert outcomes(conn, job.id) == [("abandoned", None)]


def test_what_the_dead_left_is_queued_again_as_it_was_and_the_death_is_counted(conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn, "raises")
    before = row(conn, job.id)
    assert abandon(conn, job.id) == 1
    after = row(conn, job.id)
    assert before is not None
    assert after is not None
    assert (after["status"], after["attempt"], after["lease"], after["deaths"]) == ("queued", 1, 1, 1)
    assert after["run_at"] == before["run_at"]
    assert "the lease ran out" in after["last_error"]
    (run,) = runs(conn, job.id)
    assert run["worker"] == before["locked_by"]
    assert abs(run["started_at"] - before["locked_at"]) < timedelta(seconds=1)
    assert "the lease ran out" in run["error"]


def test_the_next_owner_is_told_of_the_death_and_of_the_cursor(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn)
    ctx = context(url, job)
    ctx.checkpoint({"at": 2**60})
    ctx.close()
    abandon(conn, job.id)
    again = claim_one(conn)
    assert (again.deaths, again.attempt) == (1, 2)
    ctx = context(url, again)
    assert ctx.cursor() == {"at": 2**60}
    ctx.close()


def test_a_job_that_died_at_its_last_attempt_has_failed_and_says_so(conn: psycopg.Connection) -> None:
    publish(conn)
    job_id = enqueued(conn, "raises")
    for _ in range(3):
        abandon(conn, claim_one(conn).id)
    assert live(conn) == 0
    assert outcomes(conn, job_id) == [("abandoned", None), ("abandoned", None), ("abandoned", "failed")]
    assert runs(conn, job_id)[-1]["error"].endswith("it was attempt 3 of 3")


def test_a_job_whose_cancel_was_asked_for_does_not_come_back(conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn)
    assert queue.cancel(conn, job.id, "no need") == "requested"
    abandon(conn, job.id)
    assert outcomes(conn, job.id) == [("abandoned", "cancelled")]
    assert live(conn) == 0


def test_one_turn_recovers_more_than_a_batch_behind_a_thousand_that_live(conn: psycopg.Connection) -> None:
    publish(conn)
    conn.execute("insert into jobs (kind) select 'ok' from generate_series(1, 1700)")
    jobs = claim(conn, 1700)
    expire(conn, *[job.id for job in jobs[1000:]])
    assert recovery.turn(conn) == 700
    assert one(conn, "select count(*) from jobs where status = 'running'") == 1000
    assert one(conn, "select count(*) from job_runs where outcome = 'abandoned'") == 700


@pytest.mark.parametrize(
    "harm",
    [
        "delete from job_kinds where kind = 'nightly'",
        "update job_kinds set schedule = 'whenever it rains' where kind = 'nightly'",
        "update job_kinds set schedule = '0 4 * * * Nowhere/Town' where kind = 'nightly'",
        "update job_kinds set schedule = '0 4 31 2 * UTC' where kind = 'nightly'",
        "update jobs set args = ('{\"n\": ' || repeat('9', 5001) || '}')::jsonb where kind = 'nightly'",
        "update jobs set slot_at = 'infinity' where kind = 'nightly'",
        "update jobs set slot_at = '-infinity', run_at = '-infinity' where kind = 'nightly'",
        "update jobs set created_at = '4713-01-01 BC' where kind = 'nightly'",
    ],
)
def test_one_bad_row_does_not_keep_the_others_from_being_recovered(conn: psycopg.Connection, harm: str) -> None:
    publish(conn)
    conn.execute(
        "insert into jobs (kind, recurrence_key, slot_at, max_attempts) values ('nightly', 'nightly', clock_now(), 1)"
    )
    bad, good = claim_one(conn), begun(conn)
    conn.execute(harm)  # type: ignore[arg-type]
    assert abandon(conn, bad.id, good.id) == 2
    assert outcomes(conn, bad.id) == [("abandoned", "failed")]
    assert outcomes(conn, good.id) == [("abandoned", None)]


def test_a_turn_that_is_cut_off_is_finished_by_the_next(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    jobs = [begun(conn) for _ in range(5)]
    expire(conn, *[job.id for job in jobs])
    with db.connect(url, "recovery") as healer, healer.transaction(force_rollback=True):
        assert recovery.turn(healer) == 5
    assert one(conn, "select count(*) from job_runs") == 0
    assert recovery.turn(conn) == 5


def test_liveness_hangs_on_the_jobs_own_lease_and_on_no_process_row(conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn)
    conn.execute("delete from processes")
    assert recovery.turn(conn) == 0
    # Nor does a living process of the same host and pid keep it: it is another start, and knows nothing of the job.
    conn.execute(
        """insert into processes (id, host, pid, version, kinds, queues, lease_seconds)
           values (gen_random_uuid(), 'same', 1, '1', '{ok}', '{}', 30)"""
    )
    assert abandon(conn, job.id) == 1


def test_what_was_abandoned_and_goes_on_completes_once(conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn)
    abandon(conn, job.id)
    assert ends(conn, claim_one(conn))
    assert outcomes(conn, job.id) == [("abandoned", None), ("completed", "completed")]
    assert ends(conn, job, Result(Outcome.FAILED)) is False
