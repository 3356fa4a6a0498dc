"""One attempt at one job: args -> handler -> verdict -> Finish. It writes nothing; the consumer does.

`attempt` runs where the handler runs (a thread, or a child process) and returns a Result that fits through a pipe.
"""

from __future__ import annotations

import logging
import random
import time
from datetime import datetime, timedelta
from typing import assert_never
from uuid import UUID

import msgspec

from worker.engine import backoff, clean
from worker.engine.context import Context
from worker.engine.model import (
    Cancel,
    Cancelled,
    Ended,
    Fail,
    Finish,
    Interrupted,
    Job,
    Kind,
    LeaseLost,
    Outcome,
    Snooze,
    Verdict,
)
from worker.engine.queue import next_slot

log = logging.getLogger("nightshift.executor")

_LONGEST_SNOOZE_SECONDS = 10 * 366 * 86_400.0  # PostgreSQL's time ends somewhere, and so does anyone's patience


class DeadlineExceeded(BaseException):
    """Raised inside a handler's thread when its deadline is over. Not an Exception, so that a broad handler lets it through."""


class Result(msgspec.Struct, frozen=True):
    """How an attempt went, before anyone decides what becomes of the job.

    Without an outcome nothing is left to write: the job was settled in the handler's own transaction, or its lease is lost.
    """

    outcome: Outcome | None
    counts_json: str | None = None
    error: str | None = None
    delay_seconds: float | None = None
    is_final: bool = False  # a failure that no further attempt can mend


def attempt(ctx: Context) -> Result:
    """Runs the handler and turns whatever it does into a Result. Raises nothing, whatever the handler raises."""
    try:
        if ctx.job.is_missed:
            return Result(Outcome.CANCELLED, error=_missed(ctx.job))
        try:
            args = msgspec.convert(clean.json_args(ctx.job.args_json), ctx.kind.args)
        except (clean.ArgsError, msgspec.ValidationError) as error:
            return Result(
                Outcome.FAILED, error=f"args do not fit {ctx.kind.name}: {clean.text(error, 2000)}", is_final=True
            )
        result = _result(ctx.kind.run(ctx, args))
    except BaseException as error:  # noqa: BLE001  a handler may raise anything, SystemExit and worse included
        result = _raised(ctx, error)
    finally:
        ctx.close()
    return Result(None) if ctx.is_settled else result


def _result(verdict: Verdict) -> Result:
    match verdict:
        case Snooze(delay, reason):
            seconds = min(max(0.0, delay.total_seconds()), _LONGEST_SNOOZE_SECONDS)
            return Result(Outcome.SNOOZED, error=clean.text(reason, 2000) or None, delay_seconds=seconds)
        case Cancel(reason):
            return Result(Outcome.CANCELLED, error=clean.text(reason))
        case Fail(reason):
            return Result(Outcome.FAILED, error=clean.text(reason), is_final=True)
        case counts:
            return Result(Outcome.COMPLETED, counts_json=clean.counts(counts))


def _raised(ctx: Context, error: BaseException) -> Result:
    match error:
        case Interrupted():
            return Result(Outcome.INTERRUPTED, error="given back at shutdown")
        case LeaseLost():
            log.warning("job.lease_lost kind=%s job=%d lease=%d: %s", ctx.job.kind, ctx.job.id, ctx.job.lease, error)
            return Result(None)
        case Cancelled():
            return Result(Outcome.CANCELLED, error=clean.text(error))
        case DeadlineExceeded():
            return Result(Outcome.FAILED, error=overran(ctx.kind))
        case _:
            return Result(Outcome.FAILED, error=clean.traceback_text(error))


def _missed(job: Job) -> str:
    slot = "" if job.slot_at is None else f" of {job.slot_at:%Y-%m-%d %H:%M}Z"
    return f"skipped: its slot{slot} was over by more than ten minutes, and {job.kind} does not catch up"


def overran(kind: Kind) -> str:
    """The reason of an attempt that its deadline ended."""
    return f"overran its deadline of {kind.deadline} and was stopped"


def finish(
    job: Job,
    kind: Kind,
    result: Result,
    *,
    worker: UUID,
    claimed: float,
    started: float,
    log_tail: str | None = None,
    is_cancelled: bool = False,
) -> Finish:
    """What becomes of the job: retried after a delay, snoozed, given back, or ended with the next occurrence beside it.

    `claimed` and `started` are of this process's monotonic clock. A job that an operator cancelled gets no other attempt.
    """
    assert result.outcome is not None
    finished = time.monotonic()
    ended: Ended | None = None
    delay: timedelta | None = None
    match result.outcome:
        case Outcome.COMPLETED:
            ended = Ended.COMPLETED
        case Outcome.CANCELLED:
            ended = Ended.CANCELLED
        case Outcome.SNOOZED:
            delay = timedelta(seconds=result.delay_seconds or 0)
        case Outcome.FAILED if result.is_final or job.attempt >= job.max_attempts:
            ended = Ended.FAILED
        case Outcome.FAILED:
            delay = backoff.delay(job.attempt, base=kind.backoff, ceiling=kind.backoff_ceiling, random=random.random)
        case Outcome.INTERRUPTED:
            pass
        case Outcome.ABANDONED:
            raise ValueError("only recovery abandons an attempt")
        case unreachable:
            assert_never(unreachable)
    if is_cancelled and ended is None:
        ended, delay = Ended.CANCELLED, None
    return Finish(
        job=job,
        outcome=result.outcome,
        ended=ended,
        worker=worker,
        duration=timedelta(seconds=finished - started),
        finished=finished,
        counts_json=result.counts_json,
        error=result.error,
        log_tail=log_tail or None,
        delay=delay,
        next_slot_at=None
        if ended is None
        else _next_slot(job, kind, job.claimed_at + timedelta(seconds=finished - claimed)),
        is_charged=result.outcome not in {Outcome.SNOOZED, Outcome.INTERRUPTED},
    )


def _next_slot(job: Job, kind: Kind, now: datetime) -> datetime | None:
    try:
        return next_slot(job, kind.schedule, kind.catch_up, now)
    except (ValueError, OverflowError) as error:  # the job ends all the same; the scheduled tick says what is wrong
        log.error("schedule.failed kind=%s: %s", kind.name, error)
        return None
