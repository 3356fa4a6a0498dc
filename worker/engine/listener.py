"""The event tick: one LISTEN connection that proves itself. NOTIFY is a hint; when the listener is down, polling goes on.

Every few seconds it sends itself a notification. When none comes back in time, the socket is shut from outside and the
listener begins again: a half-open connection gives no error by itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import psycopg
from psycopg import Connection, sql

from worker.engine import db
from worker.engine.outage import Outage

log = logging.getLogger("nightshift.listener")

_CHANNEL = "nightshift_jobs"
_TEST_SECONDS = 4.0
_SILENCE_SECONDS = 9.0


class Listener:
    """Calls `on_jobs` for every hint and after every (re)connection, `on_cancel` when an operator asks for a cancel."""

    def __init__(
        self,
        url: str | None,
        on_jobs: Callable[[], None],
        on_cancel: Callable[[], None],
        on_state: Callable[[], None] = lambda: None,
    ) -> None:
        self._url, self._on_jobs, self._on_cancel, self._on_state = url, on_jobs, on_cancel, on_state
        self._conn: Connection | None = None
        self._proven = time.monotonic()
        self.state = "starting" if url else "polling"

    def run(self, is_over: threading.Event) -> None:
        """Listens until told to stop; connects again after any loss."""
        if self._url is None:
            log.warning("listener.off: DATABASE_DIRECT_URL is none, so this process only polls")
            return
        outage = Outage(log, "listener")
        while not is_over.is_set():
            try:
                self._listen(self._url, is_over, outage)
            except (psycopg.Error, OSError) as error:
                self._become("polling")
                if not is_over.is_set():
                    outage.note(error)
                is_over.wait(outage.pause())

    def watch(self) -> bool:
        """Shuts a connection that has proven nothing for too long; says whether it did. Called by another thread."""
        conn = self._conn
        if conn is None or time.monotonic() - self._proven < _SILENCE_SECONDS:
            return False
        self._become("polling")
        log.warning("listener.silent: no notification of its own came back within %.0f s", _SILENCE_SECONDS)
        self._proven = time.monotonic()
        self.shut()
        return True

    def shut(self) -> None:
        """Ends a blocked read, from another thread."""
        if (conn := self._conn) is not None:
            db.shut(conn)

    def _become(self, state: str) -> None:
        if state != self.state:
            self.state = state
            self._on_state()

    def _listen(self, url: str, is_over: threading.Event, outage: Outage) -> None:
        self._proven = time.monotonic()
        with db.connect(url, "listener") as conn:
            self._conn = conn
            try:
                conn.execute(sql.SQL("listen {}").format(sql.Identifier(_CHANNEL)))
                own = f"nightshift_test_{conn.info.backend_pid}"
                conn.execute(sql.SQL("listen {}").format(sql.Identifier(own)))
                self._become("listening")
                outage.end()
                self._on_jobs()  # one full look: what was announced while nobody listened is found by it
                while not is_over.is_set():
                    conn.execute("select pg_notify(%s, '')", (own,))
                    for notice in conn.notifies(timeout=_TEST_SECONDS):
                        self._heard(notice, own)
                        if is_over.is_set():
                            return
            finally:
                self._conn = None

    def _heard(self, notice: psycopg.Notify, own: str) -> None:
        if notice.channel == own:
            self._proven = time.monotonic()
        elif notice.payload == "cancel":
            self._on_cancel()
        else:
            self._on_jobs()
