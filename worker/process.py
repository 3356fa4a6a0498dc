"""The composition root of the jobs process: catalogue, slots, loops, signals. Nothing else puts the parts together.

The main thread consumes. Threads of their own: the slots, the heartbeat (which goes on while draining), the listener,
and APScheduler, which is only the metronome of the scheduled tick and of the recovery tick.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

import msgspec
import psycopg
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from worker import catalog
from worker.engine import child, clean, db, kinds, recovery, scheduler
from worker.engine.consumer import Consumer
from worker.engine.heartbeat import Heartbeat
from worker.engine.listener import Listener
from worker.engine.model import Kind
from worker.engine.slots import Slots
from worker.settings import Settings

log = logging.getLogger("nightshift.process")

_RECOVERY_SECONDS = 3
_VERSION = "0.1.0"


class Process:
    """One start of the jobs process: a new id each time, so that no restart can be taken for its predecessor."""

    def __init__(
        self, settings: Settings, catalogue: Sequence[Kind] = catalog.KINDS, queues: Mapping[str, int] | None = None
    ) -> None:
        self.id = uuid4()
        self._settings, self._catalogue = settings, catalogue
        served = {
            name: settings.slots if name == "default" else count for name, count in (queues or catalog.QUEUES).items()
        }
        by_name = {kind.name: kind for kind in catalogue}
        self.is_over = threading.Event()
        self._wake, self._beat = threading.Event(), threading.Event()
        self._slots = Slots(settings.database_url, self.id, by_name, served, wake=self._wake.set)
        self.consumer = Consumer(
            self._link("consumer"),
            self._slots,
            by_name,
            wake=self._wake,
            worker=self.id,
            lease=settings.lease,
            poll=settings.poll,
        )
        self._listener = Listener(settings.listen_url, self._wake.set, self._beat.set)
        self._heartbeat = Heartbeat(
            self._link("heartbeat"),
            self._slots,
            wake=self._beat,
            worker=self.id,
            lease=settings.lease,
            listener_state=lambda: self._listener.state,
            state=lambda: "draining" if self.consumer.is_draining else "running",
        )
        self._signals = 0
        self._stopping = threading.Event()

    def run(self) -> int:
        """Works until a signal; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        child.prepare(sorted({kind.run.__module__ for kind in self._catalogue if kind.isolation == "process"}))
        if not self._start():
            return 0
        metronome = self._metronome()
        threads = [
            threading.Thread(target=loop, args=(self.is_over,), daemon=True)
            for loop in (self._heartbeat.run, self._listener.run)
        ]
        for thread in threads:
            thread.start()
        log.info("process.started id=%s kinds=%d slots=%s", self.id, len(self._catalogue), self._slots.queues)
        self.consumer.run(self._stopping)
        metronome.shutdown(wait=False)
        self._drain()
        self.is_over.set()
        self._listener.shut()
        self._beat.set()
        for thread in threads:
            thread.join(timeout=2)
        self._attempt("process_end", lambda conn: conn.execute(db.statement("process_end"), {"id": self.id}))
        log.info("process.stopped id=%s", self.id)
        return 0

    def _link(self, role: str) -> db.Link:
        return db.Link(self._settings.database_url, role, is_pooled=self._settings.is_pooled)

    def _start(self) -> bool:
        """Publishes the catalogue and enters this process; waits for a database that isn't there yet. False: told to stop."""
        values = {
            "id": self.id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "version": _VERSION,
            "kinds": [kind.name for kind in self._catalogue],
            "queues": msgspec.json.encode(self._slots.queues).decode(),
            "lease_seconds": int(self._settings.lease.total_seconds()),
        }

        def enter(conn: psycopg.Connection) -> None:
            with conn.transaction():
                kinds.publish(conn, self._catalogue, self._slots.queues)
                conn.execute(db.statement("process_start"), values)
            scheduler.tick(conn, self._catalogue, self.id)

        pause = 0.5
        while not self._signals:
            if self._attempt("process_start", enter):
                return True
            time.sleep(pause)
            pause = min(5.0, pause * 2)
        return False

    def _metronome(self) -> BackgroundScheduler:
        metronome = BackgroundScheduler(
            timezone="UTC", job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        )
        ticks = self._link("scheduler"), self._link("recovery")
        metronome.add_job(
            self._attempt,
            CronTrigger(second=0, timezone="UTC"),
            ["scheduler", lambda conn: scheduler.tick(conn, self._catalogue, self.id), ticks[0]],
        )
        metronome.add_job(
            self._attempt,
            IntervalTrigger(seconds=_RECOVERY_SECONDS, timezone="UTC"),
            ["recovery", self._recover, ticks[1]],
        )
        metronome.add_job(self._listener.watch, IntervalTrigger(seconds=1, timezone="UTC"))
        metronome.start()
        return metronome

    def _recover(self, conn: psycopg.Connection) -> None:
        if recovery.turn(conn):
            self._wake.set()

    def _attempt(self, what: str, act: Callable[[psycopg.Connection], Any], link: db.Link | None = None) -> bool:
        """Does something with the database once; a failure is logged and the next time tries again."""
        own = link or self._link(what)
        try:
            with own.use() as conn:
                act(conn)
        except psycopg.errors.UndefinedTable:
            log.error("%s.failed: the database has no tables yet: run ./nightshift migrate", what)
            return False
        except Exception as error:  # noqa: BLE001  a tick that gives up for good is worse than one that fails and says so
            log.warning("%s.failed: %s", what, clean.text(error, 500))
            return False
        finally:
            if link is None:
                own.close()
        return True

    def _drain(self) -> None:
        """No new claims; what runs may finish within the grace time, the rest is given back, not charged."""
        ends = time.monotonic() + self._settings.grace.total_seconds()
        self.consumer.is_draining = True
        self._beat.set()
        self._slots.drain()
        while self._slots.held() and time.monotonic() < ends and self._signals < 2:
            self._flush(min(0.5, max(0.0, ends - time.monotonic())))
        self._slots.cut_off()
        last = time.monotonic() + 3
        while self._slots.held() and time.monotonic() < last:
            self._flush(0.2)
        if left := self._slots.held():
            log.error("process.left %d jobs could not be given back: their leases will run out", len(left))

    def _flush(self, seconds: float) -> None:
        self._wake.clear()
        try:
            self.consumer.turn()
        except psycopg.Error as error:
            log.warning("consumer.failed while draining: %s", clean.text(error, 500))
        if self._slots.held():
            self._wake.wait(seconds)

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signals += 1
        log.info(
            "process.signal %s: %s", signal.Signals(number).name, "draining" if self._signals == 1 else "ending now"
        )
        self._stopping.set()
        self._wake.set()


def configure_logging(level: str) -> None:
    """One line an event on standard error, which is where platforms collect it."""
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(message)s", force=True)
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
