"""How attempts end: the table of outcomes, what the run row keeps, and that content never stands in the way."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.support.kinds import Number
from tests.support.moves import (
    BY_NAME,
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
    runs_through,
)
from worker.engine import executor, queue
from worker.engine.consumer import Consumer
from worker.engine.executor import Result
from worker.engine.model import Cancel, Ended, Fail, Finish, Job, Kind, Outcome, Snooze

AT = datetime(2030, 1, 1, tzinfo=UTC)


def decided(result: Result, *, attempt: int = 2, is_cancelled: bool = False) -> Finish:
    job = Job(1, 4, "raises", "default", "", "{}", 5, attempt, 3, 0, None, False, None, AT)
    return executor.finish(
        job, BY_NAME["raises"], result, worker=uuid4(), claimed=0, started=0, is_cancelled=is_cancelled
    )


@pytest.mark.parametrize(
    ("result", "attempt", "ended", "is_charged", "waits"),
    [
        (Result(Outcome.COMPLETED), 1, Ended.COMPLETED, True, False),
        (Result(Outcome.COMPLETED), 3, Ended.COMPLETED, True, False),
        (Result(Outcome.CANCELLED), 1, Ended.CANCELLED, True, False),
        (Result(Outcome.FAILED), 2, None, True, True),
        (Result(Outcome.FAILED), 3, Ended.FAILED, True, False),
        (Result(Outcome.FAILED), 4, Ended.FAILED, True, False),
        (Result(Outcome.FAILED, is_final=True), 1, Ended.FAILED, True, False),
        (Result(Outcome.SNOOZED, delay_seconds=60), 3, None, False, True),
        (Result(Outcome.INTERRUPTED), 3, None, False, False),
    ],
)
def test_what_becomes_of_a_job(
    result: Result, attempt: int, ended: Ended | None, is_charged: bool, waits: bool
) -> None:
    finish = decided(result, attempt=attempt)
    assert (finish.outcome, finish.ended, finish.is_charged) == (result.outcome, ended, is_charged)
    assert (finish.delay is not None) == waits


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.SNOOZED, Outcome.INTERRUPTED])
def test_a_job_that_an_operator_cancelled_gets_no_other_attempt(outcome: Outcome) -> None:
    finish = decided(Result(outcome, delay_seconds=9), is_cancelled=True)
    assert (finish.outcome, finish.ended, finish.delay) == (outcome, Ended.CANCELLED, None)
    assert decided(Result(Outcome.COMPLETED), is_cancelled=True).ended is Ended.COMPLETED


def test_only_recovery_abandons() -> None:
    with pytest.raises(ValueError, match="only recovery"):
        decided(Result(Outcome.ABANDONED))


def test_a_retry_waits_by_the_databases_clock_and_is_charged(conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn, "raises")
    finish = Finish(job, Outcome.FAILED, None, uuid4(), error="no luck", delay=timedelta(hours=1))
    with conn.transaction():
        assert queue.finish(conn, [finish]) == {job.id}
    found = row(conn, job.id)
    assert found is not None
    assert (found["status"], found["attempt"], found["last_error"]) == ("queued", 1, "no luck")
    assert (found["locked_by"], found["locked_at"], found["locked_until"], found["running_key"]) == (None,) * 4
    assert timedelta(minutes=59) < found["run_at"] - one(conn, "select clock_now()") <= timedelta(hours=1)


@pytest.mark.parametrize("outcome", [Outcome.SNOOZED, Outcome.INTERRUPTED])
def test_what_is_given_back_or_snoozed_is_not_charged(conn: psycopg.Connection, outcome: Outcome) -> None:
    publish(conn)
    job = begun(conn, "raises")
    due = (row(conn, job.id) or {})["run_at"]
    assert ends(conn, job, Result(outcome, delay_seconds=60))
    found = row(conn, job.id)
    assert found is not None
    assert (found["attempt"], found["lease"]) == (0, 1)
    assert found["interruptions"] == (outcome is Outcome.INTERRUPTED)
    assert (found["run_at"] == due) == (outcome is Outcome.INTERRUPTED)
    assert [(run["attempt"], run["lease"]) for run in runs(conn, job.id)] == [(1, 1)]


def test_a_job_runs_out_of_attempts_and_fails(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    job_id = enqueued(conn, "raises")
    for _ in range(3):
        conn.execute("update jobs set run_at = clock_now()")
        assert runs_through(url, conn, claim_one(conn))
    assert outcomes(conn, job_id) == [("failed", None), ("failed", None), ("failed", "failed")]
    assert "RuntimeError: no luck with 0" in runs(conn, job_id)[2]["error"]
    assert row(conn, job_id) is None


@pytest.mark.parametrize(
    ("kind", "outcome", "ended"),
    [
        ("ok", "completed", "completed"),
        ("cancels", "cancelled", "cancelled"),
        ("fails", "failed", "failed"),
        ("snoozes", "snoozed", None),
        ("raises", "failed", None),
    ],
)
def test_each_verdict_of_a_handler_has_its_outcome(
    url: str, conn: psycopg.Connection, kind: str, outcome: str, ended: str | None
) -> None:
    publish(conn)
    job = begun(conn, kind)
    assert runs_through(url, conn, job)
    assert outcomes(conn, job.id) == [(outcome, ended)]


def test_the_run_row_says_what_was_true(conn: psycopg.Connection) -> None:
    publish(conn)
    worker, before = uuid4(), one(conn, "select clock_now()")
    job_id = enqueued(conn, "ok", {"n": 3}, tenant="acme", priority=2)
    job = claim_one(conn)
    finish = Finish(
        job,
        Outcome.COMPLETED,
        Ended.COMPLETED,
        worker,
        duration=timedelta(milliseconds=1500),
        finished=time.monotonic() - 2,
        counts_json='{"n": 3}',
        log_tail="info hello",
    )
    queue.finish(conn, [finish])
    (run,) = runs(conn, job_id)
    assert (run["kind"], run["queue"], run["tenant"], run["priority"]) == ("ok", "default", "acme", 2)
    assert (run["attempt"], run["lease"], run["worker"], run["max_attempts"]) == (1, 1, worker, None)
    assert (run["duration_ms"], run["counts"], run["error"], run["log_tail"]) == (1500, {"n": 3}, None, "info hello")
    now = one(conn, "select clock_now()")
    assert run["finished_at"] - run["started_at"] == timedelta(milliseconds=1500)
    assert timedelta(seconds=2) <= now - run["finished_at"] < timedelta(seconds=12)
    assert before <= run["enqueued_at"] <= now
    assert one(conn, "select args from job_runs") == {"n": 3}


def test_args_are_kept_on_the_row_that_ends_the_job_alone(conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn)
    ends(conn, job, Result(Outcome.SNOOZED, delay_seconds=0))
    ends(conn, claim_one(conn))
    kept = [args for (args,) in conn.execute("select args from job_runs order by lease")]
    assert kept == [None, {}]


def test_a_job_that_ends_takes_its_progress_along(conn: psycopg.Connection) -> None:
    publish(conn)
    for verb in ("end", "cancel"):
        job = begun(conn)
        conn.execute("insert into job_progress (job_id, lease) values (%s, 1)", (job.id,))
        if verb == "end":
            ends(conn, job)
        else:
            ends(conn, job, Result(Outcome.INTERRUPTED))
            queue.cancel(conn, job.id, "")
    assert one(conn, "select count(*) from job_progress") == 0


def test_a_thousand_mixed_ends_are_written_at_once(conn: psycopg.Connection) -> None:
    publish(conn)
    conn.execute("insert into jobs (kind) select 'raises' from generate_series(1, 1000)")
    results = itertools.cycle(
        [
            Result(Outcome.COMPLETED),
            Result(Outcome.FAILED, error="x"),
            Result(Outcome.FAILED, error="y", is_final=True),
            Result(Outcome.SNOOZED, delay_seconds=60),
            Result(Outcome.CANCELLED),
            Result(Outcome.INTERRUPTED),
        ]
    )
    jobs = claim(conn, 1000)
    lost = {job.id for job in jobs[::50]}
    conn.execute("update jobs set lease = lease + 1 where id = any(%s)", (list(lost),))
    finishes = [
        executor.finish(job, BY_NAME["raises"], result, worker=uuid4(), claimed=0, started=0)
        for job, result in zip(jobs, results, strict=False)
    ]
    with conn.transaction():
        assert queue.finish(conn, finishes) == {job.id for job in jobs} - lost
    assert one(conn, "select count(*) from job_runs") == 1000 - len(lost)
    for finish in finishes:
        found = row(conn, finish.job.id)
        if finish.job.id not in lost:
            assert (found is None) == (finish.ended is not None)


# Content


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no text of mine")

    __repr__ = __str__


class Lying(str):
    """Text whose own methods can't be trusted."""

    __slots__ = ()

    def __len__(self) -> int:
        raise RuntimeError("no length of mine")

    def encode(self, *_: Any) -> bytes:
        raise RuntimeError("no bytes of mine")


class ErrorOfLies(Exception):
    def __str__(self) -> str:
        return Lying("lies")


class ErrorOfItsOwn(Exception):
    @property
    def __cause__(self) -> Any:
        raise RuntimeError("no cause of mine")


@dataclass
class Point:
    x: float
    y: object


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def cycle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


RESULTS: dict[str, Any] = {
    "a NUL": {"k": "a\0b", "\0": 1},
    "half a character": {"k": "\ud800", "\udfff": 1},
    "not a number": {"k": float("NaN")},
    "infinity": {"k": [float("inf"), float("-inf")]},
    "ten megabytes": {"k": "x" * 10_000_000},
    "many entries": {str(n): n for n in range(100_000)},
    "ten thousand levels": {"k": deep(10_000)},
    "a set": {1, 2},
    "bytes": {"k": b"\xff\x00"},
    "a cycle": cycle(),
    "a hostile object": {"k": Hostile(), Hostile(): 1},
    "a lying text": {"k": Lying("x")},
    "times": {"k": [AT, AT.date(), timedelta(days=1), Decimal("1.5"), UUID(int=1)]},
    "a huge number": {"k": 10**5000},
    "a number beyond bigint": {"k": 2**63},
    "a dataclass": {"k": Point(float("NaN"), Hostile())},
    "a number": 5,
    "an endless iterator": itertools.count(),
}


@pytest.mark.parametrize("value", RESULTS.values(), ids=RESULTS)
def test_whatever_a_handler_returns_its_job_ends(url: str, conn: psycopg.Connection, value: Any) -> None:
    kind = Kind("odd", lambda ctx, args: value, "", args=Number)
    publish(conn, kind)
    enqueued(conn, "odd")
    job = claim_one(conn, kinds=["odd"])
    assert runs_through(url, conn, job, kind)
    assert outcomes(conn, job.id) == [("completed", "completed")]
    (run,) = runs(conn, job.id)
    assert run["counts"]
    assert one(conn, "select octet_length(counts::text) from job_runs") < 100_000


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("a NUL", {"k": "a\\x00b", "\\x00": 1}),
        ("half a character", {"k": "\\ud800", "\\udfff": 1}),
        ("not a number", {"k": "NaN"}),
        ("a set", {"result": [1, 2]}),
        ("a number", {"result": 5}),
        ("a number beyond bigint", {"k": 2**63}),
        ("times", {"k": [AT.isoformat(), "2030-01-01", "1 day, 0:00:00", "1.5", str(UUID(int=1))]}),
    ],
)
def test_what_can_be_shown_of_a_result_is_kept(url: str, conn: psycopg.Connection, value: str, kept: Any) -> None:
    kind = Kind("odd", lambda ctx, args: RESULTS[value], "", args=Number)
    publish(conn, kind)
    enqueued(conn, "odd")
    runs_through(url, conn, claim_one(conn, kinds=["odd"]), kind)
    assert one(conn, "select counts from job_runs") == kept


def recursive(depth: int = 0) -> None:
    recursive(depth + 1)


def raising(error: BaseException) -> Any:
    def run(ctx: Any, args: Any) -> None:
        raise error

    return run


ERRORS: dict[str, Any] = {
    "a NUL": raising(ValueError("a\0b")),
    "half a character": raising(ValueError(b"\xff.html".decode(errors="surrogateescape"))),
    "fifty megabytes": raising(ValueError("x" * 50_000_000)),
    "a hostile object": raising(ValueError(Hostile())),
    "text that lies": raising(ErrorOfLies()),
    "a cause that raises": raising(ErrorOfItsOwn()),
    "endless recursion": lambda ctx, args: recursive(),
    "SystemExit": raising(SystemExit(0)),
    "KeyboardInterrupt": raising(KeyboardInterrupt()),
    "GeneratorExit": raising(GeneratorExit()),
    "MemoryError": raising(MemoryError()),
    "a group": raising(BaseExceptionGroup("many", [ValueError("a\0"), KeyboardInterrupt()])),
    "a verdict of the wrong type": lambda ctx, args: Snooze("an hour"),  # type: ignore[arg-type]
    "fail with a NUL": lambda ctx, args: Fail("a\0b" * 100_000),
    "cancel with half a character": lambda ctx, args: Cancel("\ud800"),
    "cancel with a lie": lambda ctx, args: Cancel(Lying("x")),
    "snooze for ever": lambda ctx, args: Snooze(timedelta.max, "\0"),
    "snooze into the past": lambda ctx, args: Snooze(timedelta.min),
}


@pytest.mark.parametrize("run", ERRORS.values(), ids=ERRORS)
def test_whatever_a_handler_raises_its_attempt_ends(url: str, conn: psycopg.Connection, run: Any) -> None:
    kind = Kind("odd", run, "", args=Number)
    publish(conn, kind)
    enqueued(conn, "odd")
    job = claim_one(conn, kinds=["odd"])
    assert runs_through(url, conn, job, kind)
    (found,) = runs(conn, job.id)
    assert len((found["error"] or "").encode()) <= 16_384
    assert found["outcome"] != "completed"
    assert found["error"] or found["outcome"] == "snoozed"


def test_whatever_a_handler_logs_its_job_ends(url: str, conn: psycopg.Connection) -> None:
    def run(ctx: Any, args: Any) -> dict[str, int]:
        for value in ("a\0b", "\ud800", "x" * 100_000, Hostile(), Lying("x")):
            ctx.log.warning(value)
        ctx.log.warning("%d cards of %s", "five")  # noqa: PLE1206  a slip on purpose
        ctx.progress(1, None, "\0\ud800")
        return {"done": 1}

    kind = Kind("odd", run, "", args=Number)
    publish(conn, kind)
    enqueued(conn, "odd")
    job = claim_one(conn, kinds=["odd"])
    assert runs_through(url, conn, job, kind)
    (found,) = runs(conn, job.id)
    assert found["outcome"] == "completed"
    assert "warning a\\x00b" in found["log_tail"]
    assert "%d cards of %s (its 1 arguments don't fit)" in found["log_tail"]
    assert len(found["log_tail"].encode()) <= 16_384


def test_what_slips_through_uncleaned_costs_its_neighbours_nothing(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    good, mended, hopeless = begun(conn), begun(conn), begun(conn)
    ended = Outcome.COMPLETED, Ended.COMPLETED, uuid4()
    finishes = [
        Finish(good, *ended),
        Finish(mended, *ended, counts_json='{"k": "\\u0000"}'),
        Finish(hopeless, Outcome.SNOOZED, None, uuid4(), delay=timedelta.max),
    ]
    consumer = Consumer.__new__(Consumer)
    consumer._kinds, consumer._worker, consumer._lease = {}, uuid4(), timedelta(seconds=30)
    assert consumer._exchange(conn, finishes, {}) == []
    assert outcomes(conn, good.id) == outcomes(conn, mended.id) == [("completed", "completed")]
    assert "could not be kept" in runs(conn, mended.id)[0]["error"]
    assert (row(conn, hopeless.id) or {})["status"] == "running"
    assert abandon(conn, hopeless.id) == 1
    assert live(conn) == 1
