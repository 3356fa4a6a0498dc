"""Every verb on jobs, in the order of a job's life: enqueue, claim, extend, finish, recover, cancel, requeue.

The caller's connection (or SQLAlchemy session) comes first, and no verb commits: what a verb does stands or falls with
the caller's transaction. Every write of a worker carries (id, lease); a row that is no longer ours is left as it is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg import Connection

from worker.engine import clean, db
from worker.engine.checks import check_args
from worker.engine.model import Args, Enqueued, EnqueueError, Finish, Job, Outcome
from worker.engine.schedules import Schedule, next_after, parse

_LATEST = 1e11  # seconds since 1970: the year 5138; no slot lies before 1970


def enqueue(
    conn_or_session: Connection | db.Session,
    kind: str,
    args: Args | dict[str, Any] | None = None,
    *,
    run_at: datetime | None = None,
    queue: str | None = None,
    priority: int | None = None,
    tenant: str | None = None,
    unique_key: str | None = None,
    max_attempts: int | None = None,
) -> Enqueued:
    """Writes a job in the caller's transaction. Raises EnqueueError, which names the field, before anything is written.

    A unique key admits one live job a kind: while there is one, that one is returned as not new.
    """
    conn = db.connection_of(conn_or_session)
    values = {
        "kind": kind,
        "args": None,
        "run_at": run_at,
        "queue": queue,
        "priority": priority,
        "tenant": tenant,
        "unique_key": unique_key,
        "max_attempts": max_attempts,
    }
    _check_options(values)
    values["args"] = check_args(conn, kind, args)
    while True:
        row = conn.execute(db.statement("enqueue"), values).fetchone()
        if row is not None:
            return Enqueued(row[0], is_new=True)
        row = conn.execute(db.statement("enqueue_duplicate"), values).fetchone()
        if row is not None:  # otherwise it ended in between, and the key is free
            return Enqueued(row[0], is_new=False)


def _check_options(values: Mapping[str, Any]) -> None:
    for name, limit in (("kind", 100), ("queue", 100), ("tenant", 200), ("unique_key", 512)):
        text = values[name]
        if text is None and name != "kind":
            continue
        if (not text and name != "tenant") or clean.text(text, limit) != text:
            raise EnqueueError(
                f"{name} must be text of 1 to {limit} bytes without NUL or broken characters, not {clean.text(repr(text), 80)}."
            )
    run_at = values["run_at"]
    if run_at is not None and (not isinstance(run_at, datetime) or run_at.utcoffset() is None):
        raise EnqueueError(f"run_at must be a datetime with a time zone, not {clean.text(repr(run_at), 80)}.")
    for name, low, high in (("priority", 0, 9), ("max_attempts", 1, 1_000_000)):
        number = values[name]
        if number is not None and (
            isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high
        ):
            raise EnqueueError(
                f"{name} must be a whole number from {low} to {high}, not {clean.text(repr(number), 80)}."
            )


def claim(
    conn: Connection, *, queue: str, kinds: Sequence[str], limit: int, worker: UUID, lease: timedelta
) -> list[Job]:
    """Takes up to `limit` due jobs of one queue, the most urgent first; the lease runs from now, by the database's clock.

    Raises psycopg's UniqueViolation when another process claimed a job of the same recurring kind at this very moment:
    then claim again without the recurring kinds.
    """
    values = {"queue": queue, "kinds": list(kinds), "limit": limit, "worker": worker, "duration": lease}
    rows = conn.execute(db.statement("claim"), values).fetchall()
    return claimed(rows)


def next_slot(job: Job, schedule: Schedule | None, catch_up: str, now: datetime) -> datetime | None:
    """When a recurring row's next occurrence is due; None for a row that doesn't recur.

    After downtime the next slot lies after now, so that missed ones run once; with catch_up "all", after the slot just done.
    One that ran before its slot (run now) leaves that slot to come.
    """
    if job.recurrence_key is None or schedule is None:
        return None
    return next_after(schedule, min(now, job.slot_at) if catch_up == "all" and job.slot_at is not None else now)


def claimed(rows: list[tuple[Any, ...]]) -> list[Job]:
    """The rows of the claim statement as jobs, the most urgent first."""
    rows.sort(key=lambda row: (row[6], row[13], row[0]))
    return [_job(row, is_missed=row[15]) for row in rows]


def _job(row: tuple[Any, ...], *, is_missed: bool = False) -> Job:
    slot, now = row[12], row[14]
    # A slot written by SQL may be any time, infinity too; one that no schedule can have is none.
    slot_at = datetime.fromtimestamp(slot, UTC) if slot is not None and 0 <= slot < _LATEST else None
    fields: Any = (*row[:12], slot_at, now, is_missed)
    return Job(*fields)


@dataclass(frozen=True, slots=True)
class Beat:
    """What a heartbeat learnt of one job."""

    job_id: int
    lease: int
    is_renewed: bool
    is_lost: bool
    is_cancelled: bool


def extend(conn: Connection, jobs: Sequence[tuple[int, int]], *, lease: timedelta) -> list[Beat]:
    """Renews the leases of (id, lease number) pairs, and says which were lost and which an operator wants cancelled."""
    values = {"ids": [id_ for id_, _ in jobs], "leases": [number for _, number in jobs], "duration": lease}
    return [Beat(*row) for row in conn.execute(db.statement("extend"), values)]


def finish(conn: Connection, finishes: Sequence[Finish]) -> set[int]:
    """Writes how attempts ended and returns the ids of the jobs that were still ours.

    Those that end leave the table; the others (retry, snooze, release) are queued again. A recurring row's next
    occurrence is written here too, in the same transaction. Needs a transaction or autocommit=False.
    """
    ends = [f for f in finishes if f.ended is not None]
    backs = [f for f in finishes if f.ended is None]
    written: set[int] = set()
    if backs:
        values = _columns(backs) | {
            "delays": [None if f.delay is None else f.delay.total_seconds() for f in backs],
            "charged": [f.is_charged for f in backs],
        }
        written.update(db.column(conn.execute(db.statement("put_back"), values)))
    if ends:
        values = _columns(ends) | {"endeds": [f.ended for f in ends]}
        written.update(db.column(conn.execute(db.statement("end"), values)))
        _recur(conn, [f for f in ends if f.job.id in written])
    return written


def _columns(finishes: Sequence[Finish]) -> dict[str, Any]:
    return {
        "ids": [f.job.id for f in finishes],
        "leases": [f.job.lease for f in finishes],
        "outcomes": [f.outcome for f in finishes],
        "workers": [f.worker for f in finishes],
        "durations": [f.duration.total_seconds() for f in finishes],
        "agos": [time.monotonic() - f.finished for f in finishes],
        "counts": [f.counts_json for f in finishes],
        "errors": [f.error for f in finishes],
        "log_tails": [f.log_tail for f in finishes],
    }


def _recur(conn: Connection, ended: Sequence[Finish]) -> None:
    if again := [Occurrence(f.job, f.next_slot_at, f.next_slot_at) for f in ended if f.next_slot_at is not None]:
        put_back(conn, again)
    if completed := {f.job.kind for f in ended if f.job.is_recurring and f.outcome is Outcome.COMPLETED}:
        conn.execute(db.statement("kinds_completed"), {"kinds": sorted(completed)})


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A recurring row to be written: what it is like, when it runs, and the slot that it stands for."""

    like: Job
    run_at: datetime
    slot_at: datetime


def put_back(conn: Connection, occurrences: Sequence[Occurrence]) -> list[str]:
    """Writes recurring rows and returns the recurrence keys of those that were not there."""
    values = {
        "kinds": [o.like.kind for o in occurrences],
        "queues": [o.like.queue for o in occurrences],
        "tenants": [o.like.tenant for o in occurrences],
        "args": [o.like.args_json for o in occurrences],
        "priorities": [o.like.priority for o in occurrences],
        "run_ats": [o.run_at for o in occurrences],
        "slot_ats": [o.slot_at for o in occurrences],
        "keys": [o.like.recurrence_key for o in occurrences],
    }
    return db.column(conn.execute(db.statement("recur"), values))


@dataclass(frozen=True, slots=True)
class Dead:
    """A job whose owner let its lease run out."""

    job: Job
    worker: UUID
    age: timedelta
    is_cancelled: bool
    schedule: str | None  # as published; reading it may fail
    catch_up: str


def recover(conn: Connection, *, limit: int = 500) -> list[Dead]:
    """Jobs whose lease ran out, locked until the caller's transaction ends; what becomes of them is `finish`'s."""
    dead = []
    for row in conn.execute(db.statement("recover"), {"limit": limit}).fetchall():
        worker, age, is_cancelled, schedule, catch_up = row[15:]
        dead.append(Dead(_job(row), worker, timedelta(seconds=age), is_cancelled, schedule, catch_up or "latest"))
    return dead


def cancel(conn_or_session: Connection | db.Session, job_id: int, reason: str) -> str | None:
    """Ends a queued or waiting job at once ("cancelled"), asks the owner of a running one ("requested"); None: no such live job.

    Cancelling a recurring row skips this occurrence: the next is written with it.
    """
    conn = db.connection_of(conn_or_session)
    values = {"id": job_id, "reason": clean.text(reason, 1000)}
    row = conn.execute(db.statement("cancel_queued"), values).fetchone()
    if row is not None:
        *like, schedule, catch_up = row
        job = _job(tuple(like))
        if job.recurrence_key is not None and schedule is not None:
            now = job.claimed_at
            after = max(now, job.slot_at or now) if catch_up != "all" else job.slot_at or now
            with suppress(ValueError, OverflowError):  # the scheduled tick says what is wrong with the schedule
                slot = next_after(parse(schedule), after)
                put_back(conn, [Occurrence(job, slot, slot)])
        return "cancelled"
    if conn.execute(db.statement("cancel_running"), values).fetchone() is not None:
        conn.execute(db.statement("notify"), {"payload": "cancel"})
        return "requested"
    return None


def requeue(conn_or_session: Connection | db.Session, job_id: int) -> Enqueued | None:
    """Makes a queued job due now, or queues one again that failed or was cancelled, under its own id; None: neither."""
    conn = db.connection_of(conn_or_session)
    if conn.execute(db.statement("requeue_waiting"), {"id": job_id}).fetchone() is not None:
        conn.execute(db.statement("notify"), {"payload": ""})
        return Enqueued(job_id, is_new=False)
    if conn.execute(db.statement("requeue_ended"), {"id": job_id}).fetchone() is not None:
        return Enqueued(job_id, is_new=True)
    return None
