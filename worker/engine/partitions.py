"""Monthly partitions by a time column, made ahead and dropped when old. Bounds are UTC months in any session.

There is no default partition: it would bar DETACH CONCURRENTLY, and one row in it would bar making that row's month.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import LiteralString

from psycopg import Connection, errors, sql

from worker.engine import db
from worker.engine.model import NightshiftError

_TABLES = {"job_runs": "finished_at"}
_MARK = "nightshift: being dropped"
_HELD = (errors.LockNotAvailable, errors.QueryCanceled, errors.ObjectNotInPrerequisiteState, errors.DeadlockDetected)
_LOCK_WAIT = "3s"  # who waits for a lock makes all behind it wait too
# Made on its own with a check, so that attaching need not scan; then the bound says the same as the check.
_MAKE: tuple[LiteralString, ...] = (
    "create table {name} (like {parent} including defaults including constraints including storage)",
    "alter table {name} add constraint {check} check ({column} >= {low} and {column} < {high})",
    "alter table {parent} attach partition {name} for values from ({low}) to ({high})",
    "alter table {name} drop constraint {check}",
)


class PartitionError(NightshiftError):
    """The partitions are not as Nightshift made them; a person has to look."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One month of one table: rows with from_at <= time < until_at."""

    name: str
    from_at: datetime
    until_at: datetime


def month_start(at: datetime, offset: int = 0) -> datetime:
    """The first instant (UTC) of the month that lies `offset` months after the one of `at`."""
    months = at.astimezone(UTC).year * 12 + at.astimezone(UTC).month - 1 + offset
    return datetime(months // 12, months % 12 + 1, 1, tzinfo=UTC)


def present(conn: Connection, table: str) -> list[Partition]:
    """The partitions as the catalogue has them, oldest first."""
    found = []
    for name, from_at, until_at, bounds in conn.execute(db.statement("partitions_present"), {"table": table}):
        if from_at is None or until_at is None:
            raise PartitionError(f"{table} has a partition {name} with bounds {bounds}: Nightshift makes none such.")
        found.append(Partition(name, from_at.astimezone(UTC), until_at.astimezone(UTC)))
    return sorted(found, key=lambda partition: partition.from_at)


def missing(conn: Connection, table: str, *, months_ahead: int) -> list[Partition]:
    """Which of this month and the next `months_ahead` have no partition; raises when one is half covered."""
    now = db.now(conn)
    have = present(conn, table)
    lacking = []
    for offset in range(months_ahead + 1):
        start, end = month_start(now, offset), month_start(now, offset + 1)
        if any(p.from_at <= start and p.until_at >= end for p in have):
            continue
        if overlap := [p.name for p in have if p.from_at < end and p.until_at > start]:
            names = ", ".join(overlap)
            raise PartitionError(
                f"{names} covers only a part of {start:%Y-%m}: mend it by hand, Nightshift won't guess."
            )
        lacking.append(Partition(f"{table}_{start:%Y_%m}", start, end))
    return lacking


def ensure(conn: Connection, *, months_ahead: int) -> list[str]:
    """Makes the partitions that are missing, in the caller's transaction, and returns their names.

    A table is made on its own and attached: that takes a lock on the parent that reads and writes pass.
    """
    made = []
    conn.execute(sql.SQL("set local lock_timeout = {}").format(_LOCK_WAIT))
    conn.execute(db.statement("partitions_lock"))
    for table, column in _TABLES.items():
        for partition in missing(conn, table, months_ahead=months_ahead):
            names = {
                "parent": sql.Identifier(table),
                "name": sql.Identifier(partition.name),
                "column": sql.Identifier(column),
                "check": sql.Identifier(f"{partition.name}_bounds"),
                "low": sql.Literal(partition.from_at),
                "high": sql.Literal(partition.until_at),
            }
            for text in _MAKE:
                conn.execute(sql.SQL(text).format(**names))
            made.append(partition.name)
    return made


def finalize(conn: Connection, table: str) -> list[str]:
    """Completes what an earlier drop left half done; returns what is gone now. Needs an autocommit connection.

    What is still locked is left for another time. A detachment begun by hand is completed, but its table is kept.
    """
    mark = {"table": table, "mark": _MARK}
    gone = []
    for name, is_ours in conn.execute(db.statement("partitions_pending"), mark).fetchall():
        names = sql.Identifier(table), sql.Identifier(name)
        with _patience(conn) as went:
            conn.execute(sql.SQL("alter table {} detach partition {} finalize").format(*names))
        if went and not is_ours:
            gone.append(name)
    for name in db.column(conn.execute(db.statement("partitions_left"), mark).fetchall()):
        with _patience(conn) as went:
            conn.execute(sql.SQL("drop table {}").format(sql.Identifier(name)))
        if went:
            gone.append(name)
    return gone


def drop(conn: Connection, table: str, partition: Partition) -> bool:
    """Detaches without blocking readers, then drops; False when a lock could not be had in time. Needs autocommit.

    Whatever cuts this off, `finalize` finds: a table is marked first.
    """
    name = sql.Identifier(partition.name)
    with _patience(conn) as went:
        conn.execute(sql.SQL("comment on table {} is {}").format(name, sql.Literal(_MARK)))
        conn.execute(sql.SQL("alter table {} detach partition {} concurrently").format(sql.Identifier(table), name))
        conn.execute(sql.SQL("drop table {}").format(name))
    return bool(went)


@contextmanager
def _patience(conn: Connection) -> Iterator[list[bool]]:
    """Waits for locks a short time only; what it yields is filled when the block got them all."""
    went: list[bool] = []
    conn.execute(sql.SQL("set lock_timeout = {}").format(_LOCK_WAIT))
    try:
        yield went
        went.append(True)
    except _HELD:
        pass  # held by others, or another partition's detachment is still pending
    finally:
        if not conn.closed:
            conn.execute("reset lock_timeout")
