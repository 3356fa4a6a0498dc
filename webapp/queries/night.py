"""The one read behind the first line of every page."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from webapp.night import Failed, Signs
from webapp.queries.access import Db
from worker.engine import kinds

_ALIVE = text("""
    select clock_now(), max(seen_at), count(*) filter (where seen_at > clock_now() - lease_seconds * interval '1 second')
    from processes where seen_at > clock_now() - interval '30 days'
""")

_FAILED = text("""
    select k.kind, r.outcome, r.finished_at, r.job_id from job_kinds k
    cross join lateral (select outcome, finished_at, job_id from job_runs where kind = k.kind order by finished_at desc limit 1) r
    where k.retired_at is null and k.schedule is not null and r.outcome in ('failed', 'abandoned')
    order by r.finished_at desc limit 20
""")


def signs(db: Db) -> Signs:
    """What tells whether the night is fine."""
    now, last_seen_at, alive = db.execute(_ALIVE).one()
    failed: list[Any] = [Failed(*found) for found in db.execute(_FAILED)]
    return Signs(now=now, last_seen_at=last_seen_at, alive=alive, health=kinds.health(db), failed=failed)
