"""Invariant 3: recurring work can't double and can't get lost. The row, its next occurrence, the scheduled tick."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.support.kinds import KINDS, Number, ok
from tests.support.moves import (
    abandon,
    begun,
    claim,
    claim_one,
    context,
    ends,
    enqueued,
    one,
    outcomes,
    publish,
    row,
    runs_through,
    set_clock,
)
from worker.engine import db, executor, kinds, queue, scheduler
from worker.engine.executor import Result
from worker.engine.model import Kind, NightshiftError, Outcome
from worker.engine.schedules import Every, cron, every, is_slot, next_after

HOURLY = Kind("nightly", ok, "recurring", args=Number, schedule=every(hours=1))
CATALOGUE = [kind for kind in KINDS if kind.name != "nightly-waits"]


@pytest.fixture(autouse=True)
def _at_ten_past(conn: psycopg.Connection) -> None:
    """Every test begins at a fixed minute, so that no slot falls due while it runs."""
    start = datetime(2030, 1, 15, 9, 10, tzinfo=UTC)
    set_clock(conn, f"{(start - datetime.now(UTC)).total_seconds()} s")
    month = (datetime(2030, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC))
    conn.execute(psycopg.sql.SQL("create table far partition of job_runs for values from ({}) to ({})").format(*month))


def ahead(conn: psycopg.Connection, by: timedelta) -> None:
    """Moves the clock on."""
    offset = one(conn, "select current_setting('nightshift.clock_offset')")
    set_clock(conn, f"{float(offset.removesuffix(' s')) + by.total_seconds()} s")


def tick(conn: psycopg.Connection, *catalogue: Kind) -> list[str]:
    return scheduler.tick(conn, catalogue or CATALOGUE, uuid4())


def recurring(conn: psycopg.Connection, key: str = "nightly") -> dict[str, Any]:
    """The one row of a recurrence key."""
    ((job_id,),) = conn.execute("select id from jobs where recurrence_key = %s", (key,)).fetchall()
    found = row(conn, job_id)
    assert found is not None
    return found | {"id": job_id}


def claim_next(conn: psycopg.Connection) -> queue.Job:
    """Waits, by the clock, until the row is due, and claims it."""
    set_clock(conn, one(conn, "select current_setting('nightshift.clock_offset')"))
    ahead(conn, max(timedelta(0), recurring(conn)["run_at"] - db.now(conn)) + timedelta(seconds=1))
    (job,) = [job for job in claim(conn) if job.recurrence_key == "nightly"]
    return job


ENDINGS = {
    "completed": ends,
    "failed for good": lambda conn, job: ends(conn, job, Result(Outcome.FAILED, is_final=True)),
    "cancelled by itself": lambda conn, job: ends(conn, job, Result(Outcome.CANCELLED)),
    "abandoned at its last attempt": lambda conn, job: (
        conn.execute("update jobs set max_attempts = attempt where id = %s", (job.id,)),
        abandon(conn, job.id),
    ),
    "cancelled while its owner died": lambda conn, job: (queue.cancel(conn, job.id, "no"), abandon(conn, job.id)),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_next_occurrence_is_written_with_the_end(conn: psycopg.Connection, ending: str) -> None:
    publish(conn)
    tick(conn)
    job = claim_next(conn)
    with conn.transaction(force_rollback=True):
        ENDINGS[ending](conn, job)
        assert recurring(conn)["id"] != job.id
    assert recurring(conn)["id"] == job.id  # both or neither
    ENDINGS[ending](conn, job)
    after = recurring(conn)
    assert after["run_at"] == after["slot_at"] == datetime(2030, 1, 15, 11, 0, tzinfo=UTC)
    assert (after["attempt"], after["lease"], after["status"]) == (0, 0, "queued")
    assert one(conn, "select count(*) from job_runs where ended is not null and job_id = %s", job.id) == 1


@pytest.mark.parametrize(
    "result",
    [Result(Outcome.FAILED, error="x"), Result(Outcome.SNOOZED, delay_seconds=9), Result(Outcome.INTERRUPTED)],
    ids=lambda result: result.outcome,
)
def test_an_attempt_that_will_be_tried_again_writes_no_next_occurrence(
    conn: psycopg.Connection, result: Result
) -> None:
    publish(conn)
    tick(conn)
    job = claim_next(conn)
    assert ends(conn, job, result)
    assert recurring(conn)["id"] == job.id
    assert one(conn, "select count(*) from jobs") == 1


def test_work_and_completion_and_the_next_occurrence_commit_together(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    job = claim_next(conn)
    ctx = context(url, job)
    with ctx.transaction():
        pass
    ctx.close()
    assert recurring(conn)["id"] != job.id
    assert one(conn, "select last_completed_at is not null from job_kinds where kind = 'nightly'")


def test_a_missing_row_is_put_back_by_the_tick(conn: psycopg.Connection) -> None:
    publish(conn)
    assert tick(conn) == ["nightly"]
    conn.execute("delete from jobs")
    assert tick(conn) == ["nightly"]
    assert tick(conn) == []
    assert recurring(conn)["run_at"] == datetime(2030, 1, 15, 10, 0, tzinfo=UTC)


def test_a_changed_schedule_moves_its_row(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    changed = Kind("nightly", ok, "", args=Number, schedule=cron("30 4 * * *", "Europe/Berlin"))
    kinds.publish(conn, [changed])
    assert tick(conn, changed) == ["nightly"]
    assert recurring(conn)["run_at"] == recurring(conn)["slot_at"] == datetime(2030, 1, 16, 3, 30, tzinfo=UTC)
    assert tick(conn, changed) == []


def test_a_kind_that_went_to_another_queue_takes_its_row_along(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    before = recurring(conn)
    moved = Kind("nightly", ok, "", args=Number, schedule=every(hours=1), queue="slow")
    kinds.publish(conn, [moved])
    assert tick(conn, moved) == ["nightly"]
    after = recurring(conn)
    assert (before["queue"], after["queue"]) == ("default", "slow")
    assert after["run_at"] == before["run_at"]


def test_a_changed_schedule_leaves_a_time_that_someone_else_set(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    kinds.run_now(conn, "nightly")
    pressed = recurring(conn)["run_at"]
    changed = Kind("nightly", ok, "", args=Number, schedule=cron("30 4 * * *"))
    kinds.publish(conn, [changed])
    assert tick(conn, changed) == ["nightly"]
    assert recurring(conn)["run_at"] == pressed
    assert is_slot(cron("30 4 * * *"), recurring(conn)["slot_at"])


def test_a_changed_schedule_leaves_a_retry_its_time(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    ends(conn, claim_next(conn), Result(Outcome.FAILED, error="x"))
    retry = recurring(conn)["run_at"]
    changed = Kind("nightly", ok, "", args=Number, schedule=cron("30 4 * * *"))
    publish(conn, changed)
    assert tick(conn, changed) == ["nightly"]
    assert recurring(conn)["run_at"] == retry


def test_old_code_beside_new_does_not_move_a_row_back(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    changed = Kind("nightly", ok, "", args=Number, schedule=cron("30 4 * * *"))
    publish(conn, changed)
    assert tick(conn, changed) == ["nightly"]
    moved = recurring(conn)["run_at"]
    assert tick(conn) == []  # the catalogue from before, in a process that has yet to end
    assert recurring(conn)["run_at"] == moved


def test_a_running_row_is_not_moved(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    claim_next(conn)
    before = recurring(conn)
    changed = Kind("nightly", ok, "", args=Number, schedule=cron("30 4 * * *"), queue="slow")
    publish(conn, changed)
    assert tick(conn, changed) == []
    assert recurring(conn) == before


def test_one_impossible_schedule_is_marked_and_stops_no_other(conn: psycopg.Connection) -> None:
    publish(conn)
    # As if the zone had left the time-zone database after the schedule was made.
    gone = type(cron("0 4 * * *"))("0 4 * * *", "US/Pacific-New")
    lame = Kind("a-lame-one", ok, "", args=Number, schedule=gone)
    conn.execute(
        "insert into job_kinds (kind, schedule, widest_gap_seconds) values ('a-lame-one', %s, 86400)", (str(gone),)
    )
    assert tick(conn, lame, HOURLY) == ["nightly"]
    assert "US/Pacific-New" in one(conn, "select schedule_error from job_kinds where kind = 'a-lame-one'")
    mended = Kind("a-lame-one", ok, "", args=Number, schedule=cron("0 4 * * *", "US/Pacific"))
    publish(conn, mended)
    assert tick(conn, mended, HOURLY) == ["a-lame-one"]
    assert one(conn, "select schedule_error from job_kinds where kind = 'a-lame-one'") is None


def test_a_kind_that_no_live_process_knows_is_retired_and_its_row_goes(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    waiting = enqueued(conn, "nightly")
    rest = [kind for kind in CATALOGUE if kind.name != "nightly"]
    tick(conn, *rest)
    assert one(conn, "select retired_at is not null from job_kinds where kind = 'nightly'")
    assert one(conn, "select count(*) from jobs where recurrence_key = 'nightly'") == 0
    assert row(conn, waiting) is not None  # what someone asked for stays
    assert "nightly" not in [one_.kind for one_ in kinds.health(conn)]
    with pytest.raises(NightshiftError, match="no kind 'nightly'"):
        kinds.run_now(conn, "nightly")


def process(conn: psycopg.Connection, *names: str) -> None:
    conn.execute(
        "insert into processes (id, host, pid, version, kinds, queues, lease_seconds) values (%s, 'h', 1, '1', %s, '{}', 30)",
        (uuid4(), list(names)),
    )


def test_a_kind_that_another_live_process_knows_is_kept_until_that_dies(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    process(conn, "nightly")
    rest = [kind for kind in CATALOGUE if kind.name != "nightly"]
    tick(conn, *rest)
    assert one(conn, "select retired_at is null from job_kinds where kind = 'nightly'")
    ahead(conn, timedelta(seconds=31))
    tick(conn, *rest)
    assert one(conn, "select retired_at is not null from job_kinds where kind = 'nightly'")


def test_a_kind_that_was_retired_in_its_process_absence_comes_back(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    tick(conn, *[kind for kind in CATALOGUE if kind.name != "nightly"])
    ahead(conn, timedelta(minutes=1))
    assert tick(conn) == ["nightly"]
    health = {one_.kind: one_ for one_ in kinds.health(conn)}
    assert health["nightly"].state == "ok"
    assert health["nightly"].first_published_at == pytest.approx(db.now(conn), abs=timedelta(seconds=5))


def test_the_running_row_of_a_retired_kind_is_left_to_its_owner(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    job = claim_next(conn)
    tick(conn, *[kind for kind in CATALOGUE if kind.name != "nightly"])
    assert ends(conn, job)


# After downtime


def test_after_downtime_a_schedule_runs_once_and_goes_on_at_its_next_slot(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    ahead(conn, timedelta(hours=5, minutes=7))
    job = claim_one(conn)
    assert job.slot_at == datetime(2030, 1, 15, 10, 0, tzinfo=UTC)
    ends(conn, job)
    assert claim(conn) == []
    assert recurring(conn)["run_at"] == datetime(2030, 1, 15, 15, 0, tzinfo=UTC)


def of_catch_up(catch_up: Any) -> Kind:
    return Kind("nightly", ok, "", args=Number, schedule=every(hours=1), catch_up=catch_up)


def published(conn: psycopg.Connection, catch_up: str) -> Kind:
    kind = of_catch_up(catch_up)
    kinds.publish(conn, [kind], ["default"])
    tick(conn, kind)
    return kind


def test_catch_up_all_runs_every_missed_slot(conn: psycopg.Connection) -> None:
    kind = published(conn, "all")
    ahead(conn, timedelta(hours=3))
    slots = []
    while found := claim(conn):
        slots.append(found[0].slot_at)
        ends(conn, found[0], kind=kind)
    assert [slot.hour for slot in slots if slot is not None] == [10, 11, 12]
    assert recurring(conn)["slot_at"] == datetime(2030, 1, 15, 13, 0, tzinfo=UTC)


@pytest.mark.parametrize("ending", ["cancelled", "abandoned"])
def test_catch_up_all_goes_on_with_the_slot_after_one_that_ended_badly(conn: psycopg.Connection, ending: str) -> None:
    kind = published(conn, "all")
    ahead(conn, timedelta(hours=3))
    if ending == "cancelled":
        queue.cancel(conn, recurring(conn)["id"], "no")
    else:
        conn.execute("update jobs set max_attempts = 1")
        abandon(conn, claim_one(conn).id)
    assert recurring(conn)["slot_at"] == datetime(2030, 1, 15, 11, 0, tzinfo=UTC)
    assert kind.catch_up == "all"


@pytest.mark.parametrize("catch_up", ["latest", "all", "skip"])
def test_a_run_before_its_slot_leaves_the_slot_to_come(conn: psycopg.Connection, catch_up: str) -> None:
    kind = published(conn, catch_up)
    kinds.run_now(conn, "nightly")
    job = claim_one(conn)
    assert ends(conn, job, kind=kind)
    assert recurring(conn)["run_at"] == datetime(2030, 1, 15, 10, 0, tzinfo=UTC)


def test_catch_up_skip_ends_a_slot_that_is_over_and_writes_the_next(url: str, conn: psycopg.Connection) -> None:
    kind = published(conn, "skip")
    ahead(conn, timedelta(hours=3))
    job = claim_one(conn)
    assert runs_through(url, conn, job, kind)
    assert outcomes(conn, job.id) == [("cancelled", "cancelled")]
    assert "its slot of 2030-01-15 10:00Z was over" in one(conn, "select error from job_runs")
    assert recurring(conn)["run_at"] == datetime(2030, 1, 15, 13, 0, tzinfo=UTC)
    assert one(conn, "select last_completed_at from job_kinds") is None


@pytest.mark.parametrize(("late", "outcome"), [(599, "completed"), (601, "cancelled")])
def test_catch_up_skip_takes_ten_minutes_for_over(url: str, conn: psycopg.Connection, late: int, outcome: str) -> None:
    kind = published(conn, "skip")
    ahead(conn, datetime(2030, 1, 15, 10, 0, tzinfo=UTC) - db.now(conn) + timedelta(seconds=late))
    job = claim_one(conn)
    assert runs_through(url, conn, job, kind)
    assert outcomes(conn, job.id) == [(outcome, outcome)]


@pytest.mark.parametrize("case", ["run now before the slot", "run now of an overdue row", "a retry", "given back"])
def test_catch_up_skip_leaves_what_was_asked_for_or_had_begun(url: str, conn: psycopg.Connection, case: str) -> None:
    kind = published(conn, "skip")
    if case == "run now before the slot":
        kinds.run_now(conn, "nightly")
        ahead(conn, timedelta(hours=3))
    elif case == "run now of an overdue row":
        ahead(conn, timedelta(hours=3))
        kinds.run_now(conn, "nightly")
    else:
        first = claim_next(conn)
        verdict = Result(Outcome.FAILED, error="x") if case == "a retry" else Result(Outcome.INTERRUPTED)
        ends(conn, first, verdict, kind)
        ahead(conn, timedelta(hours=3))
    job = claim_one(conn)
    assert runs_through(url, conn, job, kind)
    assert outcomes(conn, job.id)[-1] == ("completed", "completed")


def test_a_missing_row_of_a_slot_that_was_missed_is_due_at_once_unless_such_are_skipped(
    conn: psycopg.Connection,
) -> None:
    for catch_up, due in (("latest", 10), ("all", 10), ("skip", 13)):
        with conn.transaction(force_rollback=True):
            kind = of_catch_up(catch_up)
            kinds.publish(conn, [kind])
            ahead(conn, timedelta(hours=3))
            kinds.put_back_missing(conn, [kind])
            assert recurring(conn)["run_at"] == datetime(2030, 1, 15, due, 0, tzinfo=UTC)


# Verbs on recurring rows


def test_cancelling_a_recurring_row_skips_that_slot_and_writes_the_next(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    job_id = recurring(conn)["id"]
    assert queue.cancel(conn, job_id, "not today") == "cancelled"
    assert recurring(conn)["run_at"] == datetime(2030, 1, 15, 11, 0, tzinfo=UTC)
    assert outcomes(conn, job_id) == [("cancelled", "cancelled")]


def test_a_recurring_row_whose_schedule_cannot_be_read_can_still_be_cancelled(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    conn.execute("update job_kinds set schedule = '0 4 * * * Nowhere/Town' where kind = 'nightly'")
    assert queue.cancel(conn, recurring(conn)["id"], "") == "cancelled"


def test_run_now_moves_the_waiting_row_to_now(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    before = recurring(conn)
    done = kinds.run_now(conn, "nightly")
    assert (done.state, done.job_id) == ("moved", before["id"])
    after = recurring(conn)
    assert after["slot_at"] == before["slot_at"]
    assert claim_one(conn).id == before["id"]


def test_run_now_again_does_not_send_the_row_to_the_back(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    kinds.run_now(conn, "nightly")
    first = recurring(conn)["run_at"]
    ahead(conn, timedelta(minutes=5))
    assert kinds.run_now(conn, "nightly").state == "moved"
    assert recurring(conn)["run_at"] == first


def test_run_now_of_a_running_kind_says_so_and_adds_nothing(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    job = claim_next(conn)
    done = kinds.run_now(conn, "nightly")
    assert (done.state, done.job_id) == ("running", job.id)
    assert one(conn, "select count(*) from jobs") == 1


def test_run_now_writes_a_row_that_is_missing(conn: psycopg.Connection) -> None:
    publish(conn)
    assert kinds.run_now(conn, "nightly").state == "moved"
    assert claim_one(conn).recurrence_key == "nightly"


def test_run_now_refuses_what_cannot_run(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    with pytest.raises(NightshiftError, match="no kind 'unheard-of'"):
        kinds.run_now(conn, "unheard-of")
    with pytest.raises(NightshiftError, match="takes no args"):
        kinds.run_now(conn, "nightly", {"n": 1})
    kinds.pause(conn, "nightly", by="ada", reason="repairs")
    with pytest.raises(NightshiftError, match=r"paused by ada \(repairs\)"):
        kinds.run_now(conn, "nightly")


def test_run_now_of_another_kind_enqueues_it(conn: psycopg.Connection) -> None:
    publish(conn)
    done = kinds.run_now(conn, "ok", {"n": 4})
    assert done.state == "enqueued"
    assert claim_one(conn).args_json == '{"n": 4}'


def test_a_failed_recurring_job_that_is_requeued_stands_beside_its_schedule_and_not_beside_a_run(
    conn: psycopg.Connection,
) -> None:
    publish(conn)
    tick(conn)
    job = claim_next(conn)
    ends(conn, job, Result(Outcome.FAILED, is_final=True))
    assert queue.requeue(conn, job.id) is not None
    again = claim_one(conn)
    assert (again.id, again.recurrence_key, again.is_recurring) == (job.id, None, True)
    ahead(conn, timedelta(hours=2))
    assert claim(conn) == []
    assert ends(conn, again)
    assert claim_one(conn).recurrence_key == "nightly"


# Health


def late(conn: psycopg.Connection, kind: str = "nightly") -> str:
    return {one_.kind: one_.state for one_ in kinds.health(conn)}[kind]


@pytest.mark.parametrize("since", ["first_published_at", "last_completed_at"])
def test_a_kind_is_late_from_twice_its_widest_gap_and_ten_minutes_on(conn: psycopg.Connection, since: str) -> None:
    publish(conn)
    long_ago = datetime(2028, 1, 1, tzinfo=UTC)
    values = {"first_published_at": long_ago, "last_completed_at": None} | {since: datetime(2029, 1, 1, tzinfo=UTC)}
    conn.execute(
        """update job_kinds set first_published_at = %(first_published_at)s, last_completed_at = %(last_completed_at)s
           where kind = 'nightly'""",
        values,
    )
    edge = datetime(2029, 1, 1, 2, 10, tzinfo=UTC)
    (health,) = [one_ for one_ in kinds.health(conn) if one_.kind == "nightly"]
    assert health.late_after == edge
    for seconds, state in ((-5, "ok"), (5, "late")):
        ahead(conn, edge - db.now(conn) + timedelta(seconds=seconds))
        assert late(conn) == state


def test_a_paused_kind_is_shown_as_paused_and_not_as_late_until_its_pause_ends(conn: psycopg.Connection) -> None:
    publish(conn)
    ahead(conn, timedelta(days=1))
    assert late(conn) == "late"
    kinds.pause(conn, "nightly", by="ada", reason="repairs", until=db.now(conn) + timedelta(hours=1))
    assert late(conn) == "paused"
    ahead(conn, timedelta(minutes=61))
    assert late(conn) == "late"


def test_a_failure_or_a_cancel_does_not_count_as_a_completion(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    for result in (Result(Outcome.FAILED, is_final=True), Result(Outcome.CANCELLED)):
        ends(conn, claim_next(conn), result)
        assert one(conn, "select last_completed_at from job_kinds where kind = 'nightly'") is None
    ends(conn, claim_next(conn))
    assert one(conn, "select last_completed_at from job_kinds where kind = 'nightly'") is not None


def test_a_completed_row_without_a_slot_counts_as_a_completion_of_its_kind(conn: psycopg.Connection) -> None:
    publish(conn)
    assert ends(conn, begun(conn, "nightly"))
    assert one(conn, "select last_completed_at is not null from job_kinds where kind = 'nightly'")


def test_an_end_whose_next_slot_cannot_be_computed_ends_all_the_same(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    job = claim_next(conn)
    gone = type(cron("0 4 * * *"))("0 4 * * *", "Nowhere/Town")
    assert ends(conn, job, kind=Kind("nightly", ok, "", args=Number, schedule=gone))
    assert one(conn, "select count(*) from jobs") == 0


def test_the_next_slot_is_counted_from_the_end_by_the_databases_clock(conn: psycopg.Connection) -> None:
    publish(conn)
    tick(conn)
    job = claim_next(conn)
    hours = 3 * 3600.0
    finish = executor.finish(
        job, HOURLY, Result(Outcome.COMPLETED), worker=uuid4(), claimed=time.monotonic() - hours, started=0.0
    )
    assert finish.next_slot_at == next_after(Every(timedelta(hours=1)), job.claimed_at + timedelta(seconds=hours))
