"""Keeps the leases of what this process holds, learns which were lost or are to be cancelled, and says that it is alive."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from worker.engine import db, queue
from worker.engine.outage import Outage
from worker.engine.slots import Slots

log = logging.getLogger("nightshift.heartbeat")


class Heartbeat:
    """A thread of its own, so that neither a busy consumer nor a draining one lets a lease run out."""

    def __init__(
        self,
        link: db.Link,
        slots: Slots,
        *,
        wake: threading.Event,
        worker: UUID,
        lease: timedelta,
        listener_state: Callable[[], str],
        state: Callable[[], str],
    ) -> None:
        self._link, self._slots, self._worker, self._lease = link, slots, worker, lease
        self._listener_state, self._state = listener_state, state
        self._beaten: dict[tuple[int, int], float] = {}
        self.wake = wake

    def turn(self) -> int:
        """One beat: renews what is held and returns how many leases were renewed."""
        held = {(a.job.id, a.job.lease): a for a in self._slots.held()}
        begun = time.monotonic()
        with self._link.use() as conn:
            beats = queue.extend(conn, list(held), lease=self._lease) if held else []
            values = {
                "id": self._worker,
                "busy": len(held),
                "state": self._state(),
                "listener": self._listener_state(),
                "epoch": time.time(),
            }
            conn.execute(db.statement("process_seen"), values)
        for beat in beats:
            attempt = held[beat.job_id, beat.lease]
            if beat.is_renewed:
                self._beaten[beat.job_id, beat.lease] = begun
            if beat.is_lost and not attempt.is_ended:
                log.warning("job.lease_lost kind=%s job=%d lease=%d", attempt.job.kind, beat.job_id, beat.lease)
                self._slots.tell(attempt, "lease lost")
            elif beat.is_cancelled:
                self._slots.tell(attempt, "cancelled")
        self._beaten = {key: at for key, at in self._beaten.items() if key in held}
        return sum(beat.is_renewed for beat in beats)

    def give_up_stale(self) -> None:
        """Stops what has not been renewed for a whole lease: by now another process may own it."""
        limit = time.monotonic() - self._lease.total_seconds()
        for attempt in self._slots.held():
            renewed = self._beaten.get((attempt.job.id, attempt.job.lease), attempt.claimed)
            if renewed < limit and attempt.stop.reason != "lease lost" and not attempt.is_ended:
                log.warning(
                    "job.lease_lost kind=%s job=%d: no heartbeat got through for a lease",
                    attempt.job.kind,
                    attempt.job.id,
                )
                self._slots.tell(attempt, "lease lost")

    def run(self, is_over: threading.Event) -> None:
        """Beats three times a lease, and looks after deadlines every second."""
        interval = self._lease.total_seconds() / 3
        due = 0.0
        outage = Outage(log, "heartbeat")
        while not is_over.is_set():
            try:
                if time.monotonic() >= due or self.wake.is_set():
                    self.wake.clear()
                    due = time.monotonic() + min(1.0, interval)
                    self.turn()
                    due = time.monotonic() + interval
                    outage.end()
                self.give_up_stale()
                self._slots.watch()
            except Exception as error:  # noqa: BLE001  whatever it is, without this thread every lease would run out
                outage.note(error)
            self.wake.wait(max(0.0, min(1.0, due - time.monotonic())))
