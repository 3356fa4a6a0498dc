"""The loop that claims and records. One turn writes what ended and claims for the free slots, in one transaction.

It sleeps until something ends, a NOTIFY arrives, the next future row is due, or the poll interval is over.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import psycopg
from psycopg import Connection

from worker.engine import clean, db, queue
from worker.engine.model import Finish, Job, Kind
from worker.engine.outage import Outage
from worker.engine.slots import Slots

log = logging.getLogger("nightshift.consumer")

_MOST_FINISHES = 1000


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn did, whether more may be due already, and how long nothing is known to be."""

    finished: int
    claimed: int
    has_more: bool
    due_in: float | None


class Consumer:
    """Feeds the slots of one process."""

    def __init__(
        self,
        link: db.Link,
        slots: Slots,
        kinds: Mapping[str, Kind],
        *,
        wake: threading.Event,
        worker: UUID,
        lease: timedelta,
        poll: timedelta,
    ) -> None:
        self._link, self._slots, self._kinds = link, slots, kinds
        self._worker, self._lease, self._poll = worker, lease, poll
        self.wake = wake
        self.is_draining = False
        self.outage = Outage(log, "consumer")

    def turn(self) -> Turn:
        """Writes what ended and claims for the free slots. On an error of the database what ended is kept for the next turn."""
        finishes = self._slots.take()
        rooms = (
            {} if self.is_draining else {name: room for name in self._slots.queues if (room := self._slots.room(name))}
        )
        try:
            with self._link.use() as conn:
                claimed = self._exchange(conn, finishes, rooms)
        except BaseException:
            self._slots.give_back(finishes)
            raise
        # Committed, so nothing that may fail comes before this: what was claimed and not begun would be lost until its lease ends.
        self._slots.let_go((f.job.id, f.job.lease) for f in finishes)
        self._slots.submit(claimed)
        # A claim looks at as many rows as there is room for, and of a recurring kind's takes one: others may stand behind them.
        has_more = any(job.is_recurring for job in claimed) or any(
            sum(job.queue == name for job in claimed) >= room for name, room in rooms.items()
        )
        if self.is_draining or has_more:
            return Turn(len(finishes), len(claimed), has_more, None)
        with self._link.use() as conn:
            return Turn(len(finishes), len(claimed), has_more, self._due_in(conn))

    def run(self, is_over: threading.Event) -> None:
        """Turns until told to stop. An error of the database costs a jittered pause, never the loop."""
        while not is_over.is_set():
            self.wake.clear()
            try:
                turn = self.turn()
            except psycopg.Error as error:
                self.outage.note(error)
                is_over.wait(self.outage.pause())
                continue
            self.outage.end()
            if turn.has_more and turn.claimed:
                continue
            wait = self._poll.total_seconds()
            self.wake.wait(wait if turn.due_in is None else max(0.0, min(wait, turn.due_in)))

    def _exchange(self, conn: Connection, finishes: Sequence[Finish], rooms: Mapping[str, int]) -> list[Job]:
        names = list(self._kinds)
        try:
            return self._write_and_claim(conn, finishes, rooms, names)
        except psycopg.errors.UniqueViolation:
            # Another process claimed a job of the same recurring kind in this very moment, and the index let one through.
            return self._write_and_claim(conn, finishes, rooms, [n for n in names if not self._kinds[n].is_recurring])
        except psycopg.DataError:
            # Content is cleaned before it comes here; should something slip through, it may not hold up its neighbours.
            for finish in finishes:
                self._write_alone(conn, finish)
            return self._write_and_claim(conn, [], rooms, names)

    def _write_and_claim(
        self, conn: Connection, finishes: Sequence[Finish], rooms: Mapping[str, int], names: list[str]
    ) -> list[Job]:
        claimed: list[Job] = []
        with conn.transaction():
            for start in range(0, len(finishes), _MOST_FINISHES):
                self._write(conn, finishes[start : start + _MOST_FINISHES])
            for name, room in rooms.items():
                claimed += queue.claim(
                    conn, queue=name, kinds=names, limit=room, worker=self._worker, lease=self._lease
                )
        return claimed

    def _write(self, conn: Connection, finishes: Sequence[Finish]) -> None:
        written = queue.finish(conn, finishes)
        for finish in finishes:
            job = finish.job
            if job.id in written:
                level = logging.ERROR if finish.ended == "failed" else logging.INFO
                log.log(
                    level,
                    "job.%s kind=%s job=%d attempt=%d lease=%d",
                    finish.ended or finish.outcome,
                    job.kind,
                    job.id,
                    job.attempt,
                    job.lease,
                )
            else:
                log.warning(
                    "job.lease_lost kind=%s job=%d lease=%d outcome=%s was not written",
                    job.kind,
                    job.id,
                    job.lease,
                    finish.outcome,
                )

    def _write_alone(self, conn: Connection, finish: Finish) -> None:
        try:
            with conn.transaction():
                self._write(conn, [finish])
        except psycopg.DataError as error:
            finish.counts_json, finish.log_tail = None, None
            finish.error = f"what it returned could not be kept: {clean.text(error, 500)}"
            try:
                with conn.transaction():
                    self._write(conn, [finish])
            except psycopg.DataError:
                log.exception("job.unwritable kind=%s job=%d: its lease will run out", finish.job.kind, finish.job.id)

    def _due_in(self, conn: Connection) -> float | None:
        row = conn.execute(db.statement("next_due"), {"queues": list(self._slots.queues)}).fetchone()
        return None if row is None else row[0]
