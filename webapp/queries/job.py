"""Reads of one job's page. JSON is turned to text by the database, so that no digit is lost on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import RowMapping, text

from webapp.queries.access import Db

SHOWN = 6000
ATTEMPTS = 100

_JOB = text("""
    select j.id, j.kind, j.queue, j.tenant, j.status, j.priority, j.run_at, j.slot_at, j.attempt,
           coalesce(j.max_attempts, k.max_attempts, 5) as max_attempts, j.lease, j.locked_by, j.locked_at, j.locked_until,
           j.cancel_requested_at, j.deaths, j.interruptions, j.recurrence_key, j.unique_key, j.waiting_for, j.created_at,
           left(j.last_error, :shown) as last_error, p.done, p.total, left(p.note, 500) as note, p.updated_at as progress_at
    from jobs j left join job_kinds k on k.kind = j.kind
    left join job_progress p on p.job_id = j.id and p.lease = j.lease
    where j.id = :id
""")

_RUNS = text("""
    select job_id, lease, kind, queue, tenant, attempt, outcome, ended, slot_at, started_at, finished_at, duration_ms, worker,
           counts::text as counts, left(error, :shown) as error, length(error) as error_length,
           left(log_tail, :shown) as log_tail, length(log_tail) as log_length, priority, max_attempts, recurrence_key, enqueued_at
    from runs where job_id = :id order by lease desc limit :attempts
""")

# The args of a live job stand in jobs; an ended one's on the run that ended it.
_ARGS = text("""
    select left(pretty, :shown), length(pretty) from (
        select jsonb_pretty(args) as pretty from (
            (select args, 0 as place, 0 as lease from jobs where id = :id)
            union all
            (select args, 1, lease from job_runs where job_id = :id and args is not null order by lease desc limit 1)
        ) found order by place, lease desc limit 1
    ) printed
""")

_ERROR = text("select error from runs where job_id = :id and lease = :lease")
_LOG = text("select log_tail from runs where job_id = :id and lease = :lease")


@dataclass(frozen=True, slots=True)
class Found:
    """A job: its live row while there is one, its attempts (the newest first), its args as text and their whole length."""

    live: RowMapping | None
    runs: Sequence[RowMapping]
    args: str
    args_length: int


def job(db: Db, job_id: int) -> Found | None:
    """Everything that the page shows of a job; None when nothing is left of it."""
    live = db.execute(_JOB, {"id": job_id, "shown": SHOWN}).mappings().one_or_none()
    runs = db.execute(_RUNS, {"id": job_id, "shown": SHOWN, "attempts": ATTEMPTS}).mappings().all()
    if live is None and not runs:
        return None
    args = db.execute(_ARGS, {"id": job_id, "shown": SHOWN}).one_or_none()
    return Found(live, runs, *(args or ("", 0)))


def args(db: Db, job_id: int) -> str | None:
    """The args whole."""
    row = db.execute(_ARGS, {"id": job_id, "shown": 2**30}).one_or_none()
    return None if row is None else str(row[0])


def error(db: Db, job_id: int, lease: int) -> str | None:
    """The error of one attempt, whole."""
    return db.execute(_ERROR, {"id": job_id, "lease": lease}).scalar()


def log(db: Db, job_id: int, lease: int) -> str | None:
    """The log tail of one attempt, whole."""
    return db.execute(_LOG, {"id": job_id, "lease": lease}).scalar()
