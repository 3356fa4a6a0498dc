"""upkeep, daily: the coming months' partitions, made well before a row needs them. Idempotent.

It refuses to guess: a month that is half covered fails the run with words, three months before it matters.
"""

from __future__ import annotations

from worker.engine import db, partitions
from worker.engine.context import Context
from worker.engine.model import Counts, NoArgs

MONTHS_AHEAD = 3
TABLE = "job_runs"


def run(ctx: Context, _: NoArgs) -> Counts:
    """Makes what is missing; returns the names made, and how many months after this one are ready."""
    with ctx.connection() as conn:
        made = partitions.ensure(conn, months_ahead=MONTHS_AHEAD)
    with ctx.connection() as conn:
        next_month = partitions.month_start(db.now(conn), 1)
        ready = sum(partition.from_at >= next_month for partition in partitions.present(conn, TABLE))
    ctx.log.info("%d months ready after this one; made %s", ready, ", ".join(made) or "none")
    return {"made": made, "months_ready": ready}
