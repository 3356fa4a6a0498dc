"""What operators do to jobs: cancel, requeue; and the hints that tell processes of it."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from tests.support.moves import (
    abandon,
    begun,
    claim,
    claim_one,
    ends,
    enqueued,
    live,
    one,
    outcomes,
    publish,
    row,
    runs,
)
from worker.engine import db, kinds, overview, queue
from worker.engine.executor import Result
from worker.engine.model import Outcome


def hints(conn: psycopg.Connection) -> list[str]:
    """What a listener has heard by now."""
    return [notice.payload for notice in conn.notifies(timeout=0) if notice.channel == "nightshift_jobs"]


def test_a_queued_job_is_cancelled_at_once(conn: psycopg.Connection) -> None:
    publish(conn)
    job_id = enqueued(conn, "ok", {"n": 1})
    assert queue.cancel(conn, job_id, "not needed\0") == "cancelled"
    assert live(conn) == 0
    (run,) = runs(conn, job_id)
    assert (run["outcome"], run["ended"], run["error"], run["attempt"]) == (
        "cancelled",
        "cancelled",
        "not needed\\x00",
        0,
    )
    assert queue.cancel(conn, job_id, "again") is None
    assert len(runs(conn, job_id)) == 1


def test_a_running_job_is_asked_and_keeps_its_first_asking_time(conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn)
    assert queue.cancel(conn, job.id, "not needed") == "requested"
    first = (row(conn, job.id) or {})["cancel_requested_at"]
    assert queue.cancel(conn, job.id, "not needed") == "requested"
    assert (row(conn, job.id) or {})["cancel_requested_at"] == first
    assert (row(conn, job.id) or {})["status"] == "running"


def test_a_job_that_waits_for_others_can_be_cancelled(conn: psycopg.Connection) -> None:
    publish(conn)
    conn.execute("insert into jobs (kind, status, waiting_for) values ('ok', 'waiting', 2)")
    job_id = one(conn, "select id from jobs")
    assert claim(conn) == []
    assert queue.cancel(conn, job_id, "no") == "cancelled"


@pytest.mark.parametrize("result", [Result(Outcome.FAILED, error="x", is_final=True), Result(Outcome.CANCELLED)])
def test_a_job_that_failed_or_was_cancelled_comes_back_under_its_own_id(
    conn: psycopg.Connection, result: Result
) -> None:
    publish(conn)
    job_id = enqueued(conn, "raises", {"n": 7}, tenant="acme", priority=1, max_attempts=2)
    ends(conn, claim_one(conn), result)
    done = queue.requeue(conn, job_id)
    assert done is not None
    assert (done.id, done.is_new) == (job_id, True)
    job = claim_one(conn)
    assert (job.id, job.lease, job.attempt, job.max_attempts) == (job_id, 2, 1, 2)
    assert (job.args_json, job.tenant, job.priority) == ('{"n": 7}', "acme", 1)
    assert ends(conn, job)
    assert outcomes(conn, job_id)[-1] == ("completed", "completed")
    assert queue.requeue(conn, job_id) is None


def test_only_the_last_end_of_a_job_says_whether_it_can_come_back(conn: psycopg.Connection) -> None:
    publish(conn)
    job_id = enqueued(conn)
    for _ in range(3):
        ends(conn, claim_one(conn), Result(Outcome.FAILED, is_final=True))
        assert queue.requeue(conn, job_id) is not None
    ends(conn, claim_one(conn))
    assert queue.requeue(conn, job_id) is None


def test_a_queued_job_is_made_due_and_a_running_one_is_left_alone(conn: psycopg.Connection) -> None:
    publish(conn)
    job_id = enqueued(conn, run_at=db.now(conn) + timedelta(days=1))
    assert queue.requeue(conn, job_id) == queue.Enqueued(job_id, is_new=False)
    assert claim_one(conn).id == job_id
    assert queue.requeue(conn, job_id) is None
    assert queue.requeue(conn, 10**15) is None


def test_a_cancelled_and_requeued_job_has_one_run_a_lease_number(conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn)
    abandon(conn, job.id)
    for _ in range(2):
        assert queue.cancel(conn, job.id, "") == "cancelled"
        queue.requeue(conn, job.id)
    ends(conn, claim_one(conn))
    leases = [run["lease"] for run in runs(conn, job.id)]
    assert leases == sorted(set(leases))


def test_five_thousand_inserts_in_one_transaction_are_one_hint(url: str, conn: psycopg.Connection) -> None:
    conn.execute("listen nightshift_jobs")
    with db.connect(url, "caller", autocommit=False) as caller:
        caller.execute("insert into jobs (kind) select 'ok' from generate_series(1, 5000)")
        enqueued(caller)
        assert hints(conn) == []
        caller.commit()
    conn.execute("select")
    assert hints(conn) == [""]
    # PostgreSQL folds equal hints of one transaction, but a trigger a row would still be called 5,000 times.
    assert one(conn, "select tgtype & 1 from pg_trigger where tgname = 'jobs_enqueued'") == 0


def test_every_verb_that_makes_work_due_gives_a_hint(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    future = enqueued(conn, run_at=db.now(conn) + timedelta(days=1))
    failed = begun(conn)
    ends(conn, failed, Result(Outcome.FAILED, is_final=True))
    with db.connect(url, "operator") as operator:
        conn.execute("listen nightshift_jobs")
        for act, payload in (
            (lambda: queue.requeue(operator, future), ""),
            (lambda: queue.requeue(operator, failed.id), ""),
            (lambda: kinds.run_now(operator, "nightly"), ""),
            (lambda: kinds.run_now(operator, "nightly"), ""),
            (lambda: kinds.pause(operator, "ok", by="ada", reason=""), ""),
            (lambda: kinds.resume(operator, "ok"), ""),
            (lambda: kinds.resume_queue(operator, "default"), ""),
        ):
            act()
            conn.execute("select")
            assert set(hints(conn)) == {payload}
        running = begun(conn, run_at=db.now(conn) - timedelta(days=1))
        hints(conn)
        queue.cancel(operator, running.id, "no")
        conn.execute("select")
        assert hints(conn) == ["cancel"]


def test_runs_are_listed_the_newest_first_with_those_that_run_on_top(conn: psycopg.Connection) -> None:
    publish(conn)
    first, second = begun(conn), begun(conn, "raises")
    ends(conn, first)
    ends(conn, second, Result(Outcome.FAILED, error="x", is_final=True))
    third = begun(conn)
    assert [run["id"] for run in overview.runs(conn)] == [third.id, second.id, first.id]
    assert [run["outcome"] for run in overview.runs(conn)] == ["running", "failed", "completed"]
    assert [run["id"] for run in overview.runs(conn, kind="ok")] == [third.id, first.id]
    assert [run["id"] for run in overview.runs(conn, job_id=first.id)] == [first.id]
    assert len(overview.runs(conn, limit=1)) == 1


def test_the_status_of_an_empty_database_can_be_told(conn: psycopg.Connection) -> None:
    assert overview.status(conn)["status"] == "no process"
    assert "nothing runs" in overview.text(overview.status(conn))


def test_the_status_names_what_is_late(conn: psycopg.Connection) -> None:
    publish(conn)
    conn.execute("update job_kinds set first_published_at = clock_now() - interval '3 h'")
    seen = overview.status(conn)
    assert (seen["status"], seen["late"]) == ("late", ["nightly", "nightly-waits"])
    assert overview.text(seen).startswith("Late: nightly, nightly-waits.")


def test_an_action_is_recorded_in_the_callers_transaction(url: str, conn: psycopg.Connection) -> None:
    with db.connect(url, "operator", autocommit=False) as operator:
        overview.record_action(operator, "ada\0", "pause", "kind ok", {"until": None}, "re\ud800pairs")
        operator.rollback()
        assert one(conn, "select count(*) from operator_actions") == 0
        overview.record_action(operator, "ada\0", "pause", "kind ok", {"until": None}, "re\ud800pairs")
        operator.commit()
    assert conn.execute("select operator, reason, result from operator_actions").fetchall() == [
        ("ada\\x00", "re\\ud800pairs", "done")
    ]


def test_run_now_finds_a_running_job_that_began_before_its_kind_was_recurring(conn: psycopg.Connection) -> None:
    publish(conn)
    kinds.run_now(conn, "nightly")
    job = claim_one(conn)
    conn.execute("update jobs set running_key = null where id = %s", [job.id])
    assert kinds.run_now(conn, "nightly") == kinds.RunNow(job.id, "running")
