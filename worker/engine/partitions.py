"""Monthly partitions by a time column, made ahead and dropped when old. Bounds are UTC months, whatever the session's zone.

There is no default partition: it would bar DETACH CONCURRENTLY, and one row in it would bar making that row's month.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from psycopg import Connection, errors, sql

from worker.engine import db
from worker.engine.model import NightshiftError

_TABLES = {"job_runs": "finished_at"}
_BOUND = re.compile(r"FROM \('([^']+)'\) TO \('([^']+)'\)")


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
    for name, bound in conn.execute(db.statement("partitions_present"), {"table": table}):
        match = _BOUND.search(bound)
        if match is None:
            raise PartitionError(
                f"{table} has a partition {name} with the bounds {bound}: Nightshift makes none like it."
            )
        found.append(Partition(name, *(datetime.fromisoformat(text).astimezone(UTC) for text in match.groups())))
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
            raise PartitionError(
                f"{', '.join(overlap)} covers only a part of {start:%Y-%m}: mend it by hand, Nightshift will not guess."
            )
        lacking.append(Partition(f"{table}_{start:%Y_%m}", start, end))
    return lacking


def ensure(conn: Connection, *, months_ahead: int) -> list[str]:
    """Makes the partitions that are missing, in the caller's transaction, and returns their names.

    A table is made on its own and attached: that takes a lock on the parent that reads and writes pass.
    """
    made = []
    conn.execute("set local lock_timeout = '3s'")
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
            conn.execute(
                sql.SQL(
                    "create table {name} (like {parent} including defaults including constraints including storage)"
                ).format(**names)
            )
            conn.execute(
                sql.SQL(
                    "alter table {name} add constraint {check} check ({column} >= {low} and {column} < {high})"
                ).format(**names)
            )
            conn.execute(
                sql.SQL("alter table {parent} attach partition {name} for values from ({low}) to ({high})").format(
                    **names
                )
            )
            # The bound says the same from here on; the check was there so that attaching need not scan.
            conn.execute(sql.SQL("alter table {name} drop constraint {check}").format(**names))
            made.append(partition.name)
    return made


def finalize(conn: Connection, table: str) -> list[str]:
    """Completes detachments that a cut-off left pending; needs an autocommit connection."""
    pending = [name for (name,) in conn.execute(db.statement("partitions_pending"), {"table": table})]
    for name in pending:
        conn.execute(
            sql.SQL("alter table {} detach partition {} finalize").format(sql.Identifier(table), sql.Identifier(name))
        )
        conn.execute(sql.SQL("drop table {}").format(sql.Identifier(name)))
    return pending


def drop(conn: Connection, table: str, partition: Partition) -> bool:
    """Detaches without blocking readers, then drops; False when a lock could not be had in time. Needs autocommit."""
    name = sql.Identifier(partition.name)
    conn.execute("set lock_timeout = '3s'")
    try:
        conn.execute(sql.SQL("alter table {} detach partition {} concurrently").format(sql.Identifier(table), name))
        conn.execute(sql.SQL("drop table {}").format(name))
    except (errors.LockNotAvailable, errors.QueryCanceled):
        return False
    finally:
        conn.execute("reset lock_timeout")
    return True
