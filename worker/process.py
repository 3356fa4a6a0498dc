"""The composition root of the jobs process: catalogue, slots, loops, signals. Nothing else puts the parts together.

The main thread consumes. Threads of their own: the slots, the heartbeat (which goes on while draining), the listener, the
watch over what may hang, the one that obeys signals, and APScheduler, which is only the metronome of the scheduled tick
and of the recovery tick.
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
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import msgspec
import psycopg
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.interval import IntervalTrigger

from worker import catalog, pulse
from worker.engine import child, db, kinds, recovery, scheduler
from worker.engine.consumer import Consumer
from worker.engine.heartbeat import Heartbeat
from worker.engine.listener import Listener
from worker.engine.model import Kind
from worker.engine.outage import Outage
from worker.engine.slots import Slots
from worker.settings import Settings

log = logging.getLogger("nightshift.process")

_RECOVERY_SECONDS = 3
_LAST_WRITES_SECONDS = 2.0  # after the grace time, to give back what is left
_LAST_RESORT_SECONDS = 4.5  # after the grace time: then nothing is waited for any more
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
        self._links: list[db.Link] = []
        self._outages: dict[str, Outage] = {}
        self._slots = Slots(
            settings.database_url, self.id, by_name, served, wake=self._wake.set, is_pooled=settings.is_pooled
        )
        self.consumer = Consumer(
            self._link("consumer"),
            self._slots,
            by_name,
            wake=self._wake,
            worker=self.id,
            lease=settings.lease,
            poll=settings.poll,
        )
        self._listener = Listener(settings.listen_url, self._wake.set, self._beat.set, on_state=self._beat.set)
        self._heartbeat = Heartbeat(
            self._link("heartbeat", patience=max(1.0, settings.lease.total_seconds() / 3)),
            self._slots,
            wake=self._beat,
            worker=self.id,
            lease=settings.lease,
            listener_state=lambda: self._listener.state,
            state=lambda: "draining" if self.consumer.is_draining else "running",
        )
        self._metronome = BackgroundScheduler(
            timezone="UTC", job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        )
        self._signals = 0
        self._stopping = threading.Event()

    def run(self) -> int:
        """Works until a signal; returns the exit code."""
        self._obey_signals()
        pulse.prepare()
        pulse.beat(self._settings.lease)
        threading.Thread(target=self._watch, daemon=True).start()
        child.prepare(sorted({kind.run.__module__ for kind in self._catalogue if kind.isolation == "process"}))
        if not self._start():
            return 0
        self._start_metronome()
        threads = [
            threading.Thread(target=loop, args=(self.is_over,), daemon=True)
            for loop in (self._heartbeat.run, self._listener.run)
        ]
        for thread in threads:
            thread.start()
        log.info("process.started id=%s kinds=%d slots=%s", self.id, len(self._catalogue), self._slots.queues)
        self.consumer.run(self._stopping)
        self._metronome.shutdown(wait=False)
        self._drain()
        self.is_over.set()
        self._listener.shut()
        self._beat.set()
        for thread in threads:
            thread.join(timeout=2)
        self._attempt("process_end", lambda conn: conn.execute(db.statement("process_end"), {"id": self.id}))
        log.info("process.stopped id=%s", self.id)
        return 0

    def _link(self, role: str, patience: float = 20.0) -> db.Link:
        link = db.Link(self._settings.database_url, role, is_pooled=self._settings.is_pooled, patience=patience)
        self._links.append(link)
        return link

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

        while not self._stopping.is_set():
            if self._attempt("process_start", enter):
                self._attempt("scheduler", self._tick)
                return True
            self._stopping.wait(self._outages["process_start"].pause())
        return False

    def _start_metronome(self) -> None:
        ticks = self._link("scheduler"), self._link("recovery")
        self._metronome.add_job(
            self._attempt,
            CronTrigger(second=0, timezone="UTC"),
            ["scheduler", self._tick, ticks[0]],
        )
        self._metronome.add_job(
            self._attempt,
            IntervalTrigger(seconds=_RECOVERY_SECONDS, timezone="UTC"),
            ["recovery", self._recover, ticks[1]],
        )
        self._metronome.start()

    def _watch(self) -> None:
        """Every second, by a clock that nobody sets: ends what hangs, and beats for the kernel."""
        behind = time.time() - time.monotonic()
        while not self.is_over.wait(1.0):
            pulse.beat(self._settings.lease)
            self._listener.watch()
            for link in tuple(self._links):
                if link.watch():
                    log.warning("%s.silent: no answer within %.0f s, beginning again", link.role, link.patience)
            if abs(time.time() - time.monotonic() - behind) > 2:  # somebody set the clock by which the metronome beats
                behind = time.time() - time.monotonic()
                for each in self._metronome.get_jobs():
                    each.modify(next_run_time=datetime.fromtimestamp(time.time(), UTC))
        pulse.stop()

    def _tick(self, conn: psycopg.Connection) -> None:
        scheduler.tick(conn, self._catalogue, self.id)

    def _recover(self, conn: psycopg.Connection) -> None:
        if recovery.turn(conn):
            self._wake.set()

    def _attempt(self, what: str, act: Callable[[psycopg.Connection], Any], link: db.Link | None = None) -> bool:
        """Does something with the database once; a failure is logged and the next time tries again."""
        own = link or self._link(what)
        outage = self._outages.setdefault(what, Outage(log, what))
        try:
            with own.use() as conn:
                act(conn)
        except psycopg.errors.UndefinedTable:
            outage.note("the database has no tables yet: run ./nightshift migrate")
            return False
        except Exception as error:  # noqa: BLE001  a tick that gives up for good is worse than one that fails and says so
            outage.note(error)
            return False
        finally:
            if link is None:
                own.close()
                self._links.remove(own)
        outage.end()
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
        last = time.monotonic() + _LAST_WRITES_SECONDS
        while self._slots.held() and time.monotonic() < last:
            self._flush(0.2)
        if left := self._slots.held():
            log.error("process.left %d jobs could not be given back: their leases will run out", len(left))

    def _flush(self, seconds: float) -> None:
        self._wake.clear()
        try:
            self.consumer.turn()
        except psycopg.Error as error:
            self.consumer.outage.note(error)
        if self._slots.held():
            self._wake.wait(seconds)

    def _obey_signals(self) -> None:
        # The handler itself does nothing: it may run while this thread holds the very lock that setting an event takes.
        told, tell = socket.socketpair()
        tell.setblocking(False)
        signal.set_wakeup_fd(tell.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        threading.Thread(target=self._await_signals, args=(told, tell), daemon=True).start()

    def _await_signals(self, told: socket.socket, _tell: socket.socket) -> None:
        while True:
            (number,) = told.recv(1)
            self._signals += 1
            if self._signals == 1:
                threading.Thread(target=self._end_at_last, daemon=True).start()
            word = "draining" if self._signals == 1 else "ending now"
            log.info("process.signal %s: %s", signal.Signals(number).name, word)
            self._stopping.set()
            self._wake.set()

    def _end_at_last(self) -> None:
        """SIGTERM wins whatever hangs: a database that neither answers nor refuses, a tick that waits for a lock."""
        time.sleep(self._settings.grace.total_seconds() + _LAST_RESORT_SECONDS)
        # By another thread, for the log itself may be what hangs.
        words = "process.hung: ending without the rest; leases that are left will run out"
        last = threading.Thread(target=log.error, args=(words,), daemon=True)
        last.start()
        last.join(0.3)
        os._exit(1)


def configure_logging(level: str) -> None:
    """One line an event on standard error, which is where platforms collect it."""
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname)s %(message)s", force=True)
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
