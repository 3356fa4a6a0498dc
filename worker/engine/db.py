"""Connections and named statements. Verbs take the caller's connection and never commit."""

from __future__ import annotations

import os
import socket
import time
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString, Protocol, cast, runtime_checkable

import psycopg
from psycopg import Connection

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SQL = Path(__file__).parent / "sql"


@runtime_checkable
class Session(Protocol):
    """The part of an SQLAlchemy session that the engine uses."""

    def flush(self) -> None: ...
    def connection(self) -> Any: ...


def connect(url: str, role: str, *, autocommit: bool = True, is_pooled: bool = False) -> Connection:
    """Opens a connection that names its role and notices a dead network in seconds, not hours.

    Behind a transaction pooler nothing is prepared, for the next statement may meet another session.
    """
    return psycopg.connect(
        url,
        autocommit=autocommit,
        application_name=f"nightshift {role}",
        connect_timeout=5,
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=3,
        tcp_user_timeout=8000,
        prepare_threshold=None if is_pooled else 5,
    )


def shut(conn: Connection) -> None:
    """Ends what another thread waits for on this connection: that thread gets an error. A silent network gives none by itself."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(conn.fileno())) as duplicate:
        duplicate.shutdown(socket.SHUT_RDWR)


class Link:
    """A loop's connection: opened when needed, dropped after any error, so that the next turn starts afresh."""

    def __init__(self, url: str, role: str, *, is_pooled: bool = False, patience: float = 20.0) -> None:
        self._url, self.role, self._is_pooled = url, role, is_pooled
        self.patience = patience  # seconds that one use may take
        self._conn: Connection | None = None
        self._since: float | None = None

    @contextmanager
    def use(self) -> Iterator[Connection]:
        """The connection, in autocommit. An error of the database closes it, whatever state it is in."""
        if self._conn is None or self._conn.closed:
            self._conn = connect(self._url, self.role, is_pooled=self._is_pooled)
        self._since = time.monotonic()
        try:
            yield self._conn
        except psycopg.Error:
            self.close()
            raise
        finally:
            self._since = None

    def watch(self) -> bool:
        """Shuts a connection whose use has taken too long; says whether it did. Called by another thread."""
        since, conn = self._since, self._conn
        if since is None or conn is None or time.monotonic() - since < self.patience:
            return False
        self._since = time.monotonic()
        shut(conn)
        return True

    def close(self) -> None:
        """Lets go of the connection."""
        if self._conn is not None:
            self._conn.close()


def connection_of(conn_or_session: Connection | Session) -> Connection:
    """The psycopg connection of the caller's own transaction, from itself or from an SQLAlchemy session."""
    if isinstance(conn_or_session, Connection):
        return conn_or_session
    if isinstance(conn_or_session, Session):
        conn_or_session.flush()
        driver = conn_or_session.connection().connection.driver_connection
        if isinstance(driver, Connection):
            return driver
    raise TypeError("Give a psycopg connection, or an SQLAlchemy session that uses postgresql+psycopg.")


@cache
def statement(name: str) -> LiteralString:
    """The text of a named statement. It comes from this package's files, so it counts as written by us."""
    return load_sql(_SQL, name)


def load_sql(folder: Path, name: str) -> LiteralString:
    """The text of a job's own named statement, from the .sql file beside it."""
    text: Any = (folder / f"{name}.sql").read_text(encoding="utf-8")
    return cast("LiteralString", text)


def now(conn: Connection) -> datetime:
    """The database's clock, the only one that decides."""
    row = conn.execute("select clock_now()").fetchone()
    assert row is not None
    return cast("datetime", row[0])


def column(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The first column."""
    return [row[0] for row in rows]
