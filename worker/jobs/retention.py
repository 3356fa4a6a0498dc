"""retention, daily: what is too old goes. Whole months of runs as partitions; the rest by age, in short transactions.

All cut-offs follow from one instant, taken from the database's clock when the job first starts and kept in its cursor.
A month is dropped only when it is over for 13 months; one that a reader holds is left for tomorrow.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from worker.engine import db, partitions
from worker.engine.context import Context
from worker.engine.model import Counts, NoArgs

MONTHS_KEPT = 13
BATCH = 2000  # rows a transaction
TABLE = "job_runs"

_HERE = Path(__file__).parent
_KINDS_SQL = db.load_sql(_HERE, "retention_kinds")
_RUNS_SQL = db.load_sql(_HERE, "retention_runs")
# What else grows, and the age at which a row goes.
_AGED = {
    "processes": (db.load_sql(_HERE, "retention_processes"), timedelta(days=7)),
    "sessions": (db.load_sql(_HERE, "retention_sessions"), timedelta(0)),
    "actions": (db.load_sql(_HERE, "retention_actions"), timedelta(days=400)),
    "progress": (db.load_sql(_HERE, "retention_progress"), timedelta(0)),
}
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def run(ctx: Context, _: NoArgs) -> Counts:
    """Drops months, then prunes; returns the months' names and how many rows of each sort went."""
    with ctx.connection() as conn:
        now = db.now(conn)
    start = {"now": now.isoformat(), "kind": "", "after": _BEGINNING.isoformat(), "runs": 0}
    cursor: dict[str, Any] = ctx.cursor() or start
    now = datetime.fromisoformat(cursor["now"])
    dropped, held = _drop_months(ctx, now)
    counts = {"months_dropped": dropped, "months_held": held, "runs": _prune_runs(ctx, now, cursor)}
    return counts | {name: _prune(ctx, name, now) for name in _AGED}


def _drop_months(ctx: Context, now: datetime) -> tuple[list[str], list[str]]:
    """Drops what is wholly older than the cut-off: the names that went, and those that a lock held back."""
    oldest_kept = partitions.month_start(now, -MONTHS_KEPT)
    with ctx.connection(autocommit=True) as conn:
        dropped = partitions.finalize(conn, TABLE)
        held: list[str] = []
        for partition in partitions.present(conn, TABLE):
            ctx.raise_if_cancelled()
            if partition.until_at > oldest_kept:
                break
            went = partitions.drop(conn, TABLE, partition)
            (dropped if went else held).append(partition.name)
    if held:
        ctx.log.warning("left for tomorrow, since others hold locks on them: %s", ", ".join(held))
    return dropped, held


def _prune_runs(ctx: Context, now: datetime, cursor: dict[str, Any]) -> int:
    """Deletes completed runs older than their kind keeps them; other outcomes stay as long as their month."""
    with ctx.connection() as conn:
        kinds = conn.execute(_KINDS_SQL, {"from": cursor["kind"]}).fetchall()
    gone: int = cursor["runs"]
    for kind, days in kinds:
        after = datetime.fromisoformat(cursor["after"]) if kind == cursor["kind"] else _BEGINNING
        while after is not None:
            ctx.raise_if_cancelled()
            values = {"kind": kind, "after": after, "until": now - timedelta(days=days), "limit": BATCH}
            with ctx.connection() as conn:
                deleted, after = conn.execute(_RUNS_SQL, values).fetchone() or (0, None)
                gone += deleted
                if after is not None:
                    ctx.checkpoint({"now": cursor["now"], "kind": kind, "after": after.isoformat(), "runs": gone}, conn)
            ctx.progress(gone, note=f"runs of {kind}")
    return gone


def _prune(ctx: Context, name: str, now: datetime) -> int:
    """Deletes the rows of one sort that are too old."""
    statement, age = _AGED[name]
    gone = 0
    while True:
        ctx.raise_if_cancelled()
        with ctx.connection() as conn:
            deleted = conn.execute(statement, {"until": now - age, "limit": BATCH}).rowcount
        gone += deleted
        if deleted < BATCH:
            return gone
