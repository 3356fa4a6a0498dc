"""Reads of the list of live jobs, and what is needed to say why one of them isn't running."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping, Text, case, cast, func, select, text

from webapp.models import Job, JobKind, JobProgress
from webapp.queries.access import Db

PAGE = 50
FILTERS = {"status": Job.status, "kind": Job.kind, "queue": Job.queue, "tenant": Job.tenant}
# Args that are stored larger than this are not unpacked for the list: fifty of them would be a slow and heavy page.
_SMALL_BYTES = 2000

_KINDS = text("""
    select kind, schedule is not null as is_recurring, retired_at is not null as is_retired,
           paused_at is not null and coalesce(paused_until > clock_now(), true) as is_paused, paused_by, paused_reason, paused_until
    from job_kinds limit 2000
""")
_QUEUES = text("""
    select queue, paused_by, paused_reason, paused_until from queues
    where paused_at is not null and coalesce(paused_until > clock_now(), true) limit 2000
""")
_PROCESSES = text("""
    select kinds, queues from processes
    where seen_at > clock_now() - lease_seconds * interval '1 second' and state = 'running' limit 200
""")
_RUNNING = text("""
    select distinct running_key from jobs where running_key is not null
    union
    select kind from jobs j where status = 'running' and exists (select from job_kinds k where k.kind = j.kind and k.schedule is not null)
""")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What decides whether a due job can be claimed: pauses, live processes, recurring kinds that run."""

    now: datetime
    kinds: dict[str, RowMapping]
    paused_queues: dict[str, RowMapping]
    served: list[tuple[frozenset[str], frozenset[str]]]
    running_kinds: frozenset[str]


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of live jobs, the youngest first, and the id where the next page begins."""

    rows: Sequence[RowMapping]
    next: int | None


def jobs(db: Db, filters: dict[str, str], *, before: int | None = None) -> Listed:
    """Live jobs that fit the filters."""
    preview = case(
        (func.pg_column_size(Job.args) <= _SMALL_BYTES, func.left(cast(Job.args, Text), 120)),
        else_=None,
    )
    query: Any = (
        select(
            Job.id,
            Job.kind,
            Job.queue,
            Job.tenant,
            Job.status,
            Job.run_at,
            Job.attempt,
            Job.priority,
            Job.locked_at,
            Job.created_at,
            Job.cancel_requested_at,
            Job.recurrence_key,
            Job.waiting_for,
            func.right(Job.last_error, 600).label("last_error"),
            func.coalesce(Job.max_attempts, JobKind.max_attempts, 5).label("max_attempts"),
            preview.label("args"),
            func.pg_column_size(Job.args).label("args_bytes"),
            JobProgress.done,
            JobProgress.total,
            func.left(JobProgress.note, 120).label("note"),
        )
        .join(JobKind, JobKind.kind == Job.kind, isouter=True)
        .join(JobProgress, (JobProgress.job_id == Job.id) & (JobProgress.lease == Job.lease), isouter=True)
    )
    for name, value in filters.items():
        query = query.where(FILTERS[name] == value)
    if before is not None:
        query = query.where(Job.id < before)
    found = db.execute(query.order_by(Job.id.desc()).limit(PAGE + 1)).mappings().all()
    return Listed(found[:PAGE], found[PAGE - 1]["id"] if len(found) > PAGE else None)


def surroundings(db: Db) -> Surroundings:
    """Read once a page, for all its rows."""
    now = db.execute(func.clock_now().select()).scalar_one()
    served = [(frozenset(row.kinds), frozenset(row.queues)) for row in db.execute(_PROCESSES)]
    return Surroundings(
        now=now,
        kinds={row["kind"]: row for row in db.execute(_KINDS).mappings()},
        paused_queues={row["queue"]: row for row in db.execute(_QUEUES).mappings()},
        served=served,
        running_kinds=frozenset(db.execute(_RUNNING).scalars()),
    )
