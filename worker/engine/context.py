"""What a handler gets: its job, a log, a cursor that survives, transactions, and the word that it should stop.

Every write through it carries the fence (job id, lease number). It decides nothing: verdicts become verbs in the executor.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
from psycopg import Connection, OperationalError

from worker.engine import clean, db, queue
from worker.engine.model import (
    Args,
    Cancelled,
    Ended,
    Enqueued,
    Finish,
    Interrupted,
    Job,
    Kind,
    LeaseLost,
    Outcome,
)

_LOG_LINES = 200
_FLUSH_SECONDS = 1.0


@dataclass(slots=True)
class Stop:
    """Why a handler should stop, set from outside: 'cancelled', 'shutdown', 'lease lost' or 'deadline'."""

    reason: str | None = None


@dataclass(slots=True)
class Context:
    """One attempt at one job. Used by one thread at a time."""

    job: Job
    kind: Kind
    url: str
    worker: UUID
    stop: Stop = field(default_factory=Stop)
    on_log: Callable[[str], None] | None = None
    on_settled: Callable[[], None] | None = None
    is_pooled: bool = False  # a transaction pooler stands before url
    is_settled: bool = False
    log: logging.LoggerAdapter[logging.Logger] = field(init=False)
    _lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LOG_LINES))
    _conn: Connection | None = None
    _started: float = field(default_factory=time.monotonic)
    _flushed: float = 0.0
    _progress: tuple[int | None, int | None, str | None] = (None, None, None)

    def __post_init__(self) -> None:
        self.log = _JobLog(logging.getLogger(f"nightshift.job.{self.job.kind}"), {"write": self._write})

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop, for whatever reason; `stop.reason` says which."""
        return self.stop.reason is not None

    def raise_if_cancelled(self) -> None:
        """Leaves the handler when it should stop. Call it between batches: what was checkpointed is kept."""
        match self.stop.reason:
            case None:
                return
            case "shutdown":
                raise Interrupted("the process is shutting down")
            case "lease lost":
                raise LeaseLost(f"job {self.job.id} lost lease {self.job.lease}")
            case reason:
                raise Cancelled(reason)

    @contextmanager
    def connection(self, *, autocommit: bool = False) -> Iterator[Connection]:
        """A connection in a transaction that commits when the block ends well and rolls back when it raises.

        With autocommit there is no transaction (for statements that refuse to run in one).
        """
        if self._conn is None or self._conn.closed:
            self._conn = db.connect(self.url, f"job {self.job.kind}", is_pooled=self.is_pooled)
        if autocommit:
            yield self._conn
        else:
            with self._conn.transaction():
                yield self._conn

    @contextmanager
    def transaction(self, counts: dict[str, Any] | None = None) -> Iterator[Connection]:
        """A transaction in which the handler's writes and the job's completion commit together.

        `counts` is read when the block ends, so the block may fill it. A lost lease raises, and rolls the writes back.
        """
        with self.connection() as conn:
            yield conn
            finish = Finish(
                job=self.job,
                outcome=Outcome.COMPLETED,
                ended=Ended.COMPLETED,
                worker=self.worker,
                duration=timedelta(seconds=time.monotonic() - self._started),
                counts_json=clean.counts(counts),
                log_tail=self.log_tail() or None,
                next_slot_at=queue.next_slot(self.job, self.kind.schedule, self.kind.catch_up, db.now(conn)),
            )
            if not queue.finish(conn, [finish]):
                raise LeaseLost(f"job {self.job.id} lost lease {self.job.lease}: its work was rolled back")
        self.is_settled = True
        if self.on_settled is not None:
            self.on_settled()

    def progress(self, done: int, total: int | None = None, note: str | None = None) -> None:
        """Tells the page how far the attempt is; written at most once a second, and never a reason to fail."""
        self._progress = (done, total, None if note is None else clean.text(note, 500))
        self._flush()

    def cursor(self) -> Any:
        """What the last checkpoint of this job kept, also from an earlier attempt; None before the first."""
        with self.connection() as conn:
            row = conn.execute(db.statement("checkpoint_read"), {"id": self.job.id}).fetchone()
        return None if row is None or row[0] is None else msgspec.json.decode(row[0])

    def checkpoint(self, cursor: Any, conn: Connection | None = None) -> None:
        """Keeps the cursor, in the caller's transaction when given one. Raises LeaseLost, which rolls that back.

        Call it last in the transaction: until that ends, recovery waits for this job.
        """
        if conn is None:
            with self.connection() as own:
                return self.checkpoint(cursor, own)
        done, total, note = self._progress
        values = {
            "id": self.job.id,
            "lease": self.job.lease,
            "cursor": clean.check_args(cursor),
            "done": done,
            "total": total,
            "note": note,
            "log_tail": self.log_tail() or None,
        }
        if conn.execute(db.statement("checkpoint"), values).fetchone() is None:
            self.stop.reason = "lease lost"
            raise LeaseLost(f"job {self.job.id} lost lease {self.job.lease}")
        self._flushed = time.monotonic()
        return None

    def enqueue(
        self, conn: Connection, kind: str, args: Args | dict[str, Any] | None = None, **options: Any
    ) -> Enqueued:
        """Asks for more work in the given transaction; by default for the same tenant."""
        return queue.enqueue(conn, kind, args, **{"tenant": self.job.tenant, **options})

    def log_tail(self) -> str:
        """The last lines that the handler logged."""
        return clean.text("\n".join(self._lines))

    def close(self) -> None:
        """Lets go of the connection."""
        if self._conn is not None:
            self._conn.close()

    def _write(self, line: str) -> None:
        self._lines.append(line)
        if self.on_log is not None:
            self.on_log(line)
        self._flush()

    def _flush(self) -> None:
        if self.is_settled or time.monotonic() - self._flushed < _FLUSH_SECONDS:
            return
        if self._conn is not None and self._conn.info.transaction_status.name != "IDLE":
            return  # inside the handler's own transaction nobody would see it, and a failure here would end that
        self._flushed = time.monotonic()
        done, total, note = self._progress
        values = {
            "id": self.job.id,
            "lease": self.job.lease,
            "done": done,
            "total": total,
            "note": note,
            "log_tail": self.log_tail(),
        }
        try:
            with self.connection() as conn:
                conn.execute(db.statement("progress"), values)
        except OperationalError:
            pass  # what matters is the work; the next word may get through


class _JobLog(logging.LoggerAdapter[logging.Logger]):
    """Sends a handler's log lines to the process's log and to the run's tail."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if not self.isEnabledFor(level) or self.extra is None:
            return
        try:
            line = clean.text(str(msg) % args if args else msg, 1000)
        except Exception:  # noqa: BLE001  a slip in a log line is no reason to fail the job
            line = f"{clean.text(msg, 500)} (its {len(args)} arguments don't fit)"
        super().log(level, "%s", line, **kwargs)
        write: Any = self.extra["write"]
        write(f"{logging.getLevelName(level).lower()} {line}")
