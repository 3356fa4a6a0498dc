"""The scheduled tick: every minute, in every process, one of them at a time. It claims and runs nothing.

It puts recurring rows back where they are missing, moves those whose schedule changed, retires kinds that no process
knows any more, and makes next month's partition of the history when upkeep has not.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from psycopg import Connection

from worker.engine import kinds, partitions
from worker.engine.model import Kind

log = logging.getLogger("nightshift.scheduler")

_LOCK = 0x7469636B


def tick(conn: Connection, catalogue: Sequence[Kind], process: UUID) -> list[str]:
    """One pass; returns the kinds whose recurring row was written or moved. Nothing when another process is at it."""
    with conn.transaction():
        if not _is_mine(conn):
            return []
        known = [kind.name for kind in catalogue]
        for name in kinds.retire(conn, known, process):
            log.warning("kind.retired kind=%s: no live process knows it", name)
        kinds.revive(conn, known)
        changed = kinds.put_back_missing(conn, catalogue)
    with conn.transaction():
        if _is_mine(conn):
            partitions.ensure(conn, months_ahead=1)
    return changed


def _is_mine(conn: Connection) -> bool:
    # A lock of the transaction, not of the session: it holds behind a pooler too, and dies with its owner.
    row = conn.execute("select pg_try_advisory_xact_lock(%s)", (_LOCK,)).fetchone()
    return row is not None and bool(row[0])
