"""The places in which jobs run: threads, a number for each queue. Knows no SQL; what ended is taken by the consumer.

An attempt of a kind with isolation="process", or of a job whose owner died under it before, spends its slot watching a
child. A thread can't be killed: at its deadline it is asked by an exception, and after a grace its job is failed without
it, and another thread takes its place.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from uuid import UUID

from worker.engine import child, clean, executor
from worker.engine.context import Context, Stop
from worker.engine.executor import DeadlineExceeded, Result
from worker.engine.model import Finish, Job, Kind, Outcome

log = logging.getLogger("nightshift.slots")

_OVERRUN_GRACE_SECONDS = 5.0
_AHEAD_SECONDS = 0.1
_AHEAD_LIMIT = 500


@dataclass(slots=True, eq=False)
class Attempt:
    """A claimed job on its way through a slot. Times are of the monotonic clock."""

    job: Job
    kind: Kind
    claimed: float
    stop: Stop = field(default_factory=Stop)
    started: float | None = None
    thread_id: int | None = None
    is_child: bool = False
    asked: float | None = None
    is_settled: bool = False  # by the handler's own transaction: its row is gone, and it may go on for a while
    is_ended: bool = False
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=200))

    def settle(self) -> None:
        self.is_settled = True


class Slots:
    """Runs attempts and keeps account of what this process holds."""

    def __init__(
        self,
        url: str,
        worker: UUID,
        kinds: Mapping[str, Kind],
        queues: Mapping[str, int],
        wake: Callable[[], None],
        *,
        is_pooled: bool = False,
    ) -> None:
        self._url, self._worker, self._kinds, self._wake = url, worker, kinds, wake
        self._is_pooled = is_pooled
        self.queues = dict(queues)
        self._waiting: dict[str, SimpleQueue[Attempt | None]] = {name: SimpleQueue() for name in queues}
        self._held: dict[
            tuple[int, int], Attempt
        ] = {}  # by job and lease: a lost job may come back while it still runs
        self._done: deque[Finish] = deque()
        self._seconds: dict[str, float] = dict.fromkeys(queues, 1.0)
        self._lock = threading.Lock()
        self.stuck = 0
        for name, count in queues.items():
            for _ in range(count):
                self._start_thread(name)

    def room(self, queue: str) -> int:
        """How many more jobs of a queue to claim: its free slots, and, when jobs are short, a tenth of a second's worth ahead."""
        slots = self.queues[queue]
        ahead = min(_AHEAD_LIMIT, int(slots * _AHEAD_SECONDS / max(self._seconds[queue], 1e-4)))
        if ahead <= slots:
            ahead = 0
        with self._lock:
            return max(0, slots + ahead - sum(a.job.queue == queue and not a.is_ended for a in self._held.values()))

    def submit(self, jobs: Sequence[Job]) -> None:
        """Takes claimed jobs; each is run as soon as its queue has a slot."""
        now = time.monotonic()
        attempts = [Attempt(job, self._kinds[job.kind], now) for job in jobs]
        with self._lock:
            self._held.update(((a.job.id, a.job.lease), a) for a in attempts)
        for attempt in attempts:
            self._waiting[attempt.job.queue].put(attempt)

    def take(self) -> list[Finish]:
        """What ended since the last call, to be written; the jobs are held until `let_go`."""
        finishes = []
        with contextlib.suppress(IndexError):
            while True:
                finishes.append(self._done.popleft())
        return finishes

    def give_back(self, finishes: Sequence[Finish]) -> None:
        """What could not be written stands first again."""
        self._done.extendleft(reversed(finishes))

    def held(self) -> list[Attempt]:
        """All that this process has a lease on, waiting for a slot or running."""
        with self._lock:
            return list(self._held.values())

    def let_go(self, leases: Iterable[tuple[int, int]]) -> None:
        """These (job id, lease number) are written, or lost: no heartbeat for them any more."""
        with self._lock:
            for lease in leases:
                self._held.pop(lease, None)

    def drain(self) -> None:
        """Tells all that run to stop when they can, and gives back what had not begun."""
        for name in self.queues:
            with contextlib.suppress(Empty):
                while (attempt := self._waiting[name].get_nowait()) is not None:
                    self._end(attempt, Result(Outcome.INTERRUPTED, error="given back at shutdown"))
        for attempt in self.held():
            self.tell(attempt, "shutdown")

    def cut_off(self) -> None:
        """Gives back what still runs: children are killed; threads are left behind, their late writes refused by the fence."""
        for attempt in self.held():
            attempt.stop.reason = "killed"
            if not attempt.is_child and attempt.started is not None:
                self._end(attempt, Result(Outcome.INTERRUPTED, error="cut off at shutdown"))

    def tell(self, attempt: Attempt, reason: str) -> None:
        """Asks an attempt to stop; the first reason stands, but a lost lease outdoes any other."""
        if attempt.stop.reason is None or reason == "lease lost":
            attempt.stop.reason = reason

    def watch(self) -> None:
        """Ends attempts in threads that overran their deadline: first by an exception, then without their thread."""
        now = time.monotonic()
        for attempt in self.held():
            if (
                attempt.is_ended
                or attempt.is_child
                or attempt.started is None
                or now < attempt.started + attempt.kind.deadline.total_seconds()
            ):
                continue
            if attempt.asked is None:
                attempt.asked = now
                self.tell(attempt, "deadline")
                with self._lock:
                    if attempt.thread_id is not None:
                        ctypes.pythonapi.PyThreadState_SetAsyncExc(
                            ctypes.c_ulong(attempt.thread_id), ctypes.py_object(DeadlineExceeded)
                        )
            elif now > attempt.asked + _OVERRUN_GRACE_SECONDS:
                self._start_thread(attempt.job.queue)  # first: where no thread can be had, the next look tries again
                reason = f"{executor.overran(attempt.kind)}; its thread is still busy"
                if not self._end(attempt, Result(Outcome.FAILED, error=reason)):
                    self._waiting[attempt.job.queue].put(None)  # it ended in this very moment: one thread too many
                    continue
                self.stuck += 1
                log.error(
                    "job.stuck kind=%s job=%d: its thread can't be stopped, another takes its slot",
                    attempt.job.kind,
                    attempt.job.id,
                )

    def _start_thread(self, queue: str) -> None:
        threading.Thread(target=self._work, args=(queue,), name=f"slot {queue}", daemon=True).start()

    def _work(self, queue: str) -> None:
        while (attempt := self._waiting[queue].get()) is not None:
            attempt.started = time.monotonic()
            attempt.is_child = bool(attempt.job.deaths) or attempt.kind.isolation == "process"
            try:
                result = self._run_in_child(attempt) if attempt.is_child else self._run_here(attempt)
            except Exception as error:  # e.g. no process can be started: what was claimed must end all the same
                log.exception("slot.failed kind=%s job=%d", attempt.job.kind, attempt.job.id)
                result = Result(Outcome.FAILED, error=f"it could not be run: {clean.text(repr(error), 2000)}")
            if not self._end(attempt, result):
                return  # this thread was given up and another has its slot

    def _run_in_child(self, attempt: Attempt) -> Result:
        watched = child.Run(
            attempt.job,
            attempt.kind,
            self._url,
            self._worker,
            attempt.stop,
            attempt.lines,
            on_settled=attempt.settle,
            is_pooled=self._is_pooled,
        )
        return child.run(watched)

    def _run_here(self, attempt: Attempt) -> Result:
        ctx = Context(
            attempt.job,
            attempt.kind,
            self._url,
            self._worker,
            stop=attempt.stop,
            on_log=attempt.lines.append,
            on_settled=attempt.settle,
            is_pooled=self._is_pooled,
        )
        attempt.thread_id = threading.get_ident()
        try:
            result = executor.attempt(ctx)
            with self._lock:
                attempt.thread_id = None
            # One that is on its way would hit us later, in the middle of our own accounts.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), None)
        except DeadlineExceeded:  # it came between the handler's end and here
            result = Result(None) if ctx.is_settled else Result(Outcome.FAILED, error=executor.overran(attempt.kind))
        return result

    def _end(self, attempt: Attempt, result: Result) -> bool:
        """Records how an attempt ended, once; False when someone else did."""
        with self._lock:
            if attempt.is_ended:
                return False
            attempt.is_ended = True
            started = attempt.started or time.monotonic()
            self._seconds[attempt.job.queue] += 0.1 * (time.monotonic() - started - self._seconds[attempt.job.queue])
            if result.outcome is None:
                self._held.pop((attempt.job.id, attempt.job.lease), None)
            else:
                self._done.append(
                    executor.finish(
                        attempt.job,
                        attempt.kind,
                        result,
                        worker=self._worker,
                        claimed=attempt.claimed,
                        started=started,
                        log_tail=child.log_tail(attempt.lines),
                        is_cancelled=attempt.stop.reason == "cancelled",
                    )
                )
        self._wake()
        return True
