"""Reads of the overview. Every count is capped and every row is found by an index, however many jobs there are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping, text

from webapp.queries.access import Db

CAP = 1000
STRIP = 30

_KINDS = text("""
    select k.kind, k.description, k.queue, k.schedule, k.schedule_error, k.last_completed_at,
           k.paused_at, k.paused_by, k.paused_reason, k.paused_until,
           n.run_at as next_run_at, n.attempt as next_attempt, r.id as running_id, r.locked_at as running_since,
           p.done, p.total, p.note, coalesce(jsonb_path_exists(k.args_schema, '$.**.required[*]'), false) as needs_args
    from job_kinds k
    left join lateral (
        select run_at, attempt from jobs j where j.recurrence_key is not null and j.kind = k.kind and j.status = 'queued'
        order by run_at limit 1
    ) n on true
    left join lateral (
        select id, lease, locked_at from jobs j where j.status = 'running' and j.kind = k.kind order by locked_at limit 1
    ) r on true
    left join job_progress p on p.job_id = r.id and p.lease = r.lease
    where k.retired_at is null
    order by k.schedule is null, k.kind
    limit 500
""")

_STRIPS = text("""
    select k.kind, r.job_id, r.lease, r.outcome, r.attempt, r.started_at, r.finished_at, r.duration_ms,
           left(r.counts::text, 500) as counts, right(r.error, 600) as error
    from (select kind from job_kinds where retired_at is null order by schedule is null, kind limit 500) k
    cross join lateral (
        select * from job_runs where kind = k.kind order by finished_at desc limit :strip
    ) r
    order by k.kind, r.finished_at desc, r.job_id desc, r.lease desc
""")

# Names of queues without reading all of `jobs`: each step jumps to the next name in the index.
_NAMES = text("""
    with recursive hop(queue) as (
        (select queue from jobs where status = 'queued' order by queue limit 1)
        union all
        select (select j.queue from jobs j where j.status = 'queued' and j.queue > hop.queue order by j.queue limit 1)
        from hop where hop.queue is not null
    )
    select queue from (
        select queue from (select queue from hop where queue is not null limit 200) found
        union select queue from queues
        union select queue from job_kinds where retired_at is null
        union select queue from jobs where status = 'running'
    ) known order by queue limit 100
""")

# A range of the claim index for each priority: rows that are not due yet are never walked over.
_QUEUES = text("""
    select l.queue, due.count as due, oldest.run_at as oldest_due_at, later.count as scheduled, running.count as running,
           q.paused_at, q.paused_by, q.paused_reason, q.paused_until
    from unnest(cast(:names as text[])) l(queue)
    left join queues q on q.queue = l.queue
    cross join lateral (
        select count(*) from (
            select 1 from generate_series(0, 9) p cross join lateral (
                select 1 from jobs j where j.queue = l.queue and j.priority = p::smallint and j.status = 'queued'
                and j.run_at <= clock_now() limit :cap
            ) x limit :cap
        ) y
    ) due
    cross join lateral (
        select min(x.run_at) as run_at from generate_series(0, 9) p cross join lateral (
            select j.run_at from jobs j where j.queue = l.queue and j.priority = p::smallint and j.status = 'queued'
            and j.run_at <= clock_now() order by j.run_at limit 1
        ) x
    ) oldest
    cross join lateral (
        select count(*) from (
            select 1 from generate_series(0, 9) p cross join lateral (
                select 1 from jobs j where j.queue = l.queue and j.priority = p::smallint and j.status = 'queued'
                and j.run_at > clock_now() limit :cap
            ) x limit :cap
        ) y
    ) later
    cross join lateral (
        select count(*) from (select 1 from jobs j where j.status = 'running' and j.queue = l.queue limit :cap) y
    ) running
    order by l.queue
""")

_WAITING = text("""
    select queue, count(*) as jobs from (select queue from jobs where status = 'waiting' limit :cap) x group by queue
""")

# What nobody can run stays at the front of its queue, so the first due rows of each are enough to find it.
_UNKNOWN = text("""
    select x.kind, count(*) as jobs from unnest(cast(:names as text[])) l(queue)
    cross join generate_series(0, 9) p
    cross join lateral (
        select j.kind from jobs j where j.queue = l.queue and j.priority = p::smallint and j.status = 'queued'
        and j.run_at <= clock_now() order by j.run_at limit 200
    ) x
    where not exists (select from job_kinds k where k.kind = x.kind and k.retired_at is null)
    group by x.kind order by 2 desc limit 20
""")

_PROCESSES = text("""
    select id, host, pid, version, kinds, queues, busy, state, listener, listener_since, clock_skew_ms, started_at, seen_at,
           seen_at > clock_now() - lease_seconds * interval '1 second' as is_alive
    from processes where seen_at > clock_now() - interval '1 day'
    order by is_alive desc, seen_at desc limit 50
""")


@dataclass(frozen=True, slots=True)
class KindRow:
    """One kind on the overview: its row, and its last runs, the newest first."""

    row: RowMapping
    runs: Sequence[RowMapping]

    @property
    def last(self) -> RowMapping | None:
        return self.runs[0] if self.runs else None


@dataclass(frozen=True, slots=True)
class Lane:
    """How deep one queue is; counts above CAP say only that."""

    queue: str
    due: int
    scheduled: int
    running: int
    waiting: int
    oldest_due_at: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    paused_reason: str | None
    paused_until: datetime | None


def kinds(db: Db) -> list[KindRow]:
    """Every kind of the catalogue, the recurring ones first."""
    runs: dict[str, list[RowMapping]] = {}
    for run in db.execute(_STRIPS, {"strip": STRIP}).mappings():
        runs.setdefault(run["kind"], []).append(run)
    return [KindRow(row, runs.get(row["kind"], [])) for row in db.execute(_KINDS).mappings()]


def lanes(db: Db) -> list[Lane]:
    """Every queue that is known or has live jobs."""
    waiting: dict[str, int] = {row.queue: row.jobs for row in db.execute(_WAITING, {"cap": CAP + 1})}
    rows = db.execute(_QUEUES, {"cap": CAP + 1, "names": _names(db)}).mappings()
    found = [Lane(waiting=waiting.pop(row["queue"], 0), **row) for row in rows]
    found += [Lane(queue, 0, 0, 0, count, None, None, None, None, None) for queue, count in waiting.items()]
    return found


def _names(db: Db) -> list[str]:
    return list(db.execute(_NAMES).scalars())


def unknown_kinds(db: Db) -> Sequence[RowMapping]:
    """Kinds of due jobs that no catalogue has published."""
    return db.execute(_UNKNOWN, {"names": _names(db)}).mappings().all()


def processes(db: Db) -> Sequence[RowMapping]:
    """Who is alive, then who was within a day."""
    return db.execute(_PROCESSES).mappings().all()


def slots(queues: Any) -> int | None:
    """How many jobs a process can run at once, from what it published of its queues."""
    values = list(queues.values()) if isinstance(queues, dict) else []
    return sum(values) if values and all(isinstance(value, int) for value in values) else None


def counts(text_of_counts: str | None) -> list[tuple[str, str]]:
    """A run's counts as words and exact digits; what was cut or isn't flat is left out."""
    try:
        found = json.loads(text_of_counts or "{}", parse_float=str, parse_constant=str)
    except ValueError:
        return []
    if not isinstance(found, dict):
        return []
    return [
        (name, f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value))
        for name, value in found.items()
        if isinstance(value, int | str | bool)
    ]
