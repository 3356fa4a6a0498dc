"""Reads of a kind's page: its row, what of it is live, and its history, a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping, Text, cast, func, select, text, tuple_

from webapp.models import JobKind, Run
from webapp.queries.access import Db

PAGE = 30

_LIVE = text("""
    select j.id, j.status, j.locked_at, j.run_at, j.attempt, p.done, p.total, p.note
    from jobs j left join job_progress p on p.job_id = j.id and p.lease = j.lease
    where j.kind = :kind and (j.status = 'running' or j.recurrence_key is not null)
    order by j.status = 'running' desc, j.run_at limit 20
""")


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last row of a page: where the next one begins. Full precision, in the order of the index."""

    finished_at: datetime
    job_id: int
    lease: int

    def __str__(self) -> str:
        return f"{self.finished_at.isoformat()}_{self.job_id}_{self.lease}"

    @classmethod
    def parse(cls, written: str) -> Cursor:
        """Raises ValueError for what `str` did not write."""
        at, job_id, lease = written.split("_")
        cursor = cls(datetime.fromisoformat(at), int(job_id), int(lease))
        if cursor.finished_at.tzinfo is None or not 0 <= cursor.job_id < 2**63 or not 0 <= cursor.lease < 2**31:
            raise ValueError("out of bounds")
        return cursor


@dataclass(frozen=True, slots=True)
class History:
    """A page of runs, the newest first, and where the next page begins."""

    runs: Sequence[RowMapping]
    next: Cursor | None


def kind(db: Db, name: str) -> JobKind | None:
    """The published row, also of a retired kind."""
    return db.get(JobKind, name)


def needs_args(found: JobKind) -> bool:
    """Whether a job of the kind can't be enqueued without args, so that a button alone can't run it."""

    def has_required(schema: Any) -> bool:
        if isinstance(schema, dict):
            return bool(schema.get("required")) or any(has_required(part) for part in schema.values())
        return isinstance(schema, list) and any(has_required(part) for part in schema)

    return found.schedule is None and has_required(found.args_schema)


def live(db: Db, name: str) -> Sequence[RowMapping]:
    """What runs, and the recurring row that waits."""
    return db.execute(_LIVE, {"kind": name}).mappings().all()


def history(db: Db, name: str, *, after: Cursor | None = None, outcome: str | None = None) -> History:
    """Runs that are over. Text columns are cut: the job's page has them whole."""
    runs: Any = select(
        Run.job_id,
        Run.lease,
        Run.attempt,
        Run.outcome,
        Run.ended,
        Run.started_at,
        Run.finished_at,
        Run.duration_ms,
        func.left(cast(Run.counts, Text), 500).label("counts"),
        func.right(Run.error, 600).label("error"),
    ).where(Run.kind == name, Run.outcome != "running", Run.finished_at.is_not(None))
    if outcome is not None:
        runs = runs.where(Run.outcome == outcome)
    if after is not None:
        at = (after.finished_at, after.job_id, after.lease)
        runs = runs.where(Run.finished_at <= after.finished_at, tuple_(Run.finished_at, Run.job_id, Run.lease) < at)
    runs = runs.order_by(Run.finished_at.desc(), Run.job_id.desc(), Run.lease.desc()).limit(PAGE + 1)
    found = db.execute(runs).mappings().all()
    if len(found) <= PAGE:
        return History(found, None)
    last = found[PAGE - 1]
    return History(found[:PAGE], Cursor(last["finished_at"], last["job_id"], last["lease"]))
