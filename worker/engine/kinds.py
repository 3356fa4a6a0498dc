"""Every verb on kinds and queues: publish, retire, pause, resume, run now, and how healthy the recurring ones are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec
from psycopg import Connection

from worker.engine import db, queue
from worker.engine.model import Args, Job, Kind, NightshiftError
from worker.engine.schedules import is_slot, next_after, parse, widest_gap


def publish(conn: Connection, kinds: Iterable[Kind], queues: Iterable[str] = ()) -> None:
    """Writes what the catalogue says to `job_kinds`, where the claim, the page and other programs read it."""
    for kind in sorted(
        kinds, key=lambda kind: kind.name
    ):  # in one order, so that two starting processes can't deadlock
        values = {
            "kind": kind.name,
            "description": kind.description,
            "queue": kind.queue,
            "catch_up": kind.catch_up,
            "schedule": None if kind.schedule is None else str(kind.schedule),
            "widest_gap_seconds": None if kind.schedule is None else int(widest_gap(kind.schedule).total_seconds()),
            "isolation": kind.isolation,
            "deadline_seconds": int(kind.deadline.total_seconds()),
            "max_attempts": kind.max_attempts,
            "history_days": kind.history_days,
            "args_schema": msgspec.json.encode(msgspec.json.schema(kind.args)).decode(),
        }
        conn.execute(db.statement("kind_publish"), values)
    for name in sorted(queues):
        conn.execute(db.statement("queue_publish"), {"queue": name})


def retire(conn: Connection, known: Sequence[str], process: UUID) -> list[str]:
    """Retires the kinds that no live process knows, their recurring rows with them; returns their names."""
    return db.column(conn.execute(db.statement("kinds_retire"), {"kinds": list(known), "process": process}))


def revive(conn: Connection, known: Sequence[str]) -> list[str]:
    """Takes back the retirement of kinds that this process knows (it was cut off when they were retired); returns their names."""
    return db.column(conn.execute(db.statement("kinds_revive"), {"kinds": list(known)}))


@dataclass(frozen=True, slots=True)
class RunNow:
    """What run now did: moved the recurring row, enqueued a job, or found the kind running already."""

    job_id: int
    state: Literal["moved", "enqueued", "running"]


def run_now(conn_or_session: Connection | db.Session, kind: str, args: Args | dict[str, Any] | None = None) -> RunNow:
    """A recurring kind's waiting row moves to now, so it still can't run twice at once; another kind is enqueued."""
    conn = db.connection_of(conn_or_session)
    row = conn.execute(db.statement("kind"), {"kind": kind}).fetchone()
    if row is None or row[3]:
        raise NightshiftError(f"There is no kind {kind!r}. `nightshift status` lists those that are published.")
    _, schedule, queue_name, _, is_paused, paused_by, paused_reason, now = row
    if is_paused:
        raise NightshiftError(f"{kind} is paused by {paused_by} ({paused_reason}): resume it first.")
    if schedule is None:
        return RunNow(queue.enqueue(conn, kind, args).id, "enqueued")
    if args:
        raise NightshiftError(f"{kind} is recurring and runs as scheduled: it takes no args from run now.")
    if (moved := conn.execute(db.statement("run_now"), {"kind": kind}).fetchone()) is not None:
        conn.execute(db.statement("notify"), {"payload": ""})
        return RunNow(moved[0], "moved")
    if (running := conn.execute(db.statement("running_of_kind"), {"kind": kind}).fetchone()) is not None:
        return RunNow(running[0], "running")
    queue.put_back(conn, [queue.Occurrence(_row_like(kind, queue_name, now), now, next_after(parse(schedule), now))])
    return run_now(conn, kind)


def _row_like(kind: str, queue_name: str, now: datetime) -> Job:
    return Job(0, 0, kind, queue_name, "", "{}", 5, 0, 1, 0, kind, True, None, now)


def put_back_missing(conn: Connection, catalogue: Sequence[Kind]) -> list[str]:
    """Writes recurring rows that are missing and moves those whose slot their schedule no longer has, or whose queue changed.

    One kind whose schedule can't be computed is marked and doesn't stop the others. Returns what was written or moved.
    """
    schedules = {kind.name: kind for kind in catalogue if kind.schedule is not None}
    changed = []
    values = {"kinds": list(schedules), "schedules": [str(kind.schedule) for kind in schedules.values()]}
    for row in conn.execute(db.statement("recurrences"), values).fetchall():
        kind = schedules[row[0]]
        try:
            error, is_changed = None, _put_right(conn, kind, row)
        except (ValueError, OverflowError) as problem:
            error, is_changed = f"cannot compute the next run: {problem}", False
        conn.execute(db.statement("kind_schedule_error"), {"kind": kind.name, "error": error})
        if is_changed:
            changed.append(kind.name)
    return changed


def _put_right(conn: Connection, kind: Kind, row: tuple[Any, ...]) -> bool:
    name, queue_name, since, job_id, is_queued, row_queue, slot_at, now = row
    assert kind.schedule is not None
    if job_id is None:
        missed = next_after(kind.schedule, since)
        due_at = missed if missed <= now and kind.catch_up != "skip" else next_after(kind.schedule, now)
        return bool(queue.put_back(conn, [queue.Occurrence(_row_like(name, queue_name, now), due_at, due_at)]))
    is_in_place = slot_at is not None and is_slot(kind.schedule, slot_at)
    if not is_queued or (is_in_place and row_queue == queue_name):
        return False
    values = {"id": job_id, "slot_at": slot_at if is_in_place else next_after(kind.schedule, now), "queue": queue_name}
    return conn.execute(db.statement("recurrence_move"), values).fetchone() is not None


def pause(
    conn_or_session: Connection | db.Session, kind: str, *, by: str, reason: str, until: datetime | None = None
) -> bool:
    """No job of the kind is claimed from the commit on; what runs goes on. False: no such kind."""
    return _switch(conn_or_session, "kind_pause", {"name": kind, "by": by, "reason": reason, "until": until})


def resume(conn_or_session: Connection | db.Session, kind: str) -> bool:
    """Ends the pause of a kind; False when it wasn't paused."""
    return _switch(conn_or_session, "kind_resume", {"name": kind})


def pause_queue(
    conn_or_session: Connection | db.Session, name: str, *, by: str, reason: str, until: datetime | None = None
) -> bool:
    """As pause, for all jobs of a queue."""
    return _switch(conn_or_session, "queue_pause", {"name": name, "by": by, "reason": reason, "until": until})


def resume_queue(conn_or_session: Connection | db.Session, name: str) -> bool:
    """As resume, for a queue."""
    return _switch(conn_or_session, "queue_resume", {"name": name})


def _switch(conn_or_session: Connection | db.Session, statement: str, values: dict[str, Any]) -> bool:
    conn = db.connection_of(conn_or_session)
    is_changed = conn.execute(db.statement(statement), values).fetchone() is not None
    conn.execute(db.statement("notify"), {"payload": ""})
    return is_changed


@dataclass(frozen=True, slots=True)
class KindHealth:
    """One recurring kind as /statusz sees it: `state` is "ok", "late" or "paused"."""

    kind: str
    schedule: str
    state: Literal["ok", "late", "paused"]
    last_completed_at: datetime | None
    first_published_at: datetime
    late_after: datetime
    paused_at: datetime | None
    paused_by: str | None
    paused_reason: str | None
    paused_until: datetime | None
    schedule_error: str | None


def health(conn_or_session: Connection | db.Session) -> list[KindHealth]:
    """Every recurring kind that is not retired, and whether it is late."""
    conn = db.connection_of(conn_or_session)
    return [KindHealth(*row) for row in conn.execute(db.statement("health"))]
