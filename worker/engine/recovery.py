"""The recovery tick: takes back what the dead left. It stands outside the queue that it heals, runs in every process,
and may be cut off anywhere: the next turn finds the same rows."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from psycopg import Connection

from worker.engine import queue
from worker.engine.model import Ended, Finish, Outcome
from worker.engine.schedules import parse

log = logging.getLogger("nightshift.recovery")

_BATCH = 500


def turn(conn: Connection) -> int:
    """Writes every run-out attempt as abandoned; its job is queued again, or has failed when that was its last. Returns how many."""
    recovered = 0
    while True:
        with conn.transaction():
            dead = queue.recover(conn, limit=_BATCH)
            queue.finish(conn, [_finish(one) for one in dead])
        for one in dead:
            log.warning(
                "job.abandoned kind=%s job=%d attempt=%d lease=%d",
                one.job.kind,
                one.job.id,
                one.job.attempt,
                one.job.lease,
            )
        recovered += len(dead)
        if len(dead) < _BATCH:
            return recovered


def _finish(dead: queue.Dead) -> Finish:
    job = dead.job
    ended = Ended.CANCELLED if dead.is_cancelled else Ended.FAILED if job.attempt >= job.max_attempts else None
    try:
        schedule = parse(dead.schedule) if ended and dead.schedule is not None else None
        next_slot_at = queue.next_slot(job, schedule, dead.catch_up, job.claimed_at)
    except (ValueError, OverflowError) as error:  # the scheduled tick puts the row back, or says why it can't
        log.error("schedule.failed kind=%s: %s", job.kind, error)
        next_slot_at = None
    last = f"; it was attempt {job.attempt} of {job.max_attempts}" if ended is Ended.FAILED else ""
    return Finish(
        job=job,
        outcome=Outcome.ABANDONED,
        ended=ended,
        worker=dead.worker,
        duration=max(dead.age, timedelta(0)),
        finished=time.monotonic(),
        error=f"its process died or lost the database: the lease ran out{last}",
        next_slot_at=next_slot_at,
    )
