"""The words of the engine as types. Standard library and msgspec only: no SQL, no clock, no environment."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import msgspec

if TYPE_CHECKING:
    from worker.engine.context import Context
    from worker.engine.schedules import Schedule


class Outcome(StrEnum):
    """How one run (one attempt) ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    SNOOZED = "snoozed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"  # given back at shutdown, not charged
    ABANDONED = "abandoned"  # its lease ran out


class Ended(StrEnum):
    """How a job ended: the three states that have no row in `jobs`."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Args(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every kind's args: frozen, and a field that the kind doesn't know is an error that names it."""


class NoArgs(Args, frozen=True):
    """For kinds that take nothing."""


# What a handler may return instead of counts. Returning counts completes the job; raising retries it.


@dataclass(frozen=True, slots=True)
class Snooze:
    """Not now: run again after this long, this attempt not charged."""

    delay: timedelta
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Cancel:
    """The work is no longer wanted: end as cancelled."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fail:
    """It can never work: end as failed now, whatever attempts are left."""

    reason: str


Counts = Mapping[str, Any]
Verdict = Counts | Snooze | Cancel | Fail | None
Handler = Callable[["Context", Any], Verdict]


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of job, declared in the catalogue and published to `job_kinds`.

    `deadline` bounds one attempt, however alive its process is; the lease (a setting of the process) is how long a dead
    owner keeps a job. A kind with a `schedule` is recurring: it never runs twice at once. `isolation="process"` runs an
    attempt in a child that can be killed, with at most `memory_mb` of data memory. `history_days` is how long the runs
    that completed are kept; None keeps them as long as their month's partition.
    """

    name: str
    run: Handler
    description: str
    args: type[Args] = NoArgs
    schedule: Schedule | None = None
    queue: str = "default"
    isolation: Literal["thread", "process"] = "thread"
    deadline: timedelta = timedelta(minutes=5)
    max_attempts: int = 5
    backoff: timedelta = timedelta(seconds=5)
    backoff_ceiling: timedelta = timedelta(hours=1)
    catch_up: Literal["latest", "all", "skip"] = "latest"
    memory_mb: int = 1024
    history_days: int | None = None

    @property
    def is_recurring(self) -> bool:
        return self.schedule is not None


@dataclass(frozen=True, slots=True)
class Job:
    """A claimed row of `jobs`: this process may work on it while (id, lease) still stands."""

    id: int
    lease: int
    kind: str
    queue: str
    tenant: str
    args_json: str
    priority: int
    attempt: int
    max_attempts: int
    deaths: int
    recurrence_key: str | None
    is_recurring: bool  # its kind has a schedule, whether or not this row stands for a slot of it
    slot_at: datetime | None
    claimed_at: datetime  # by the database's clock
    is_missed: bool = False  # its slot is over and its kind skips such: it ends without its handler


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What enqueue did: the job, and whether it is new or the live one with the same unique key."""

    id: int
    is_new: bool


@dataclass(slots=True)
class Finish:
    """The end of one attempt, ready to be written: the fence (job_id, lease), the outcome, and what the history keeps.

    `ended` is None when the job goes back to the queue: then `delay` says when (None: as it was). `next_slot_at` is the
    next occurrence of a recurring row. `finished` is when the handler ended, by this process's monotonic clock.
    """

    job: Job
    outcome: Outcome
    ended: Ended | None
    worker: UUID
    duration: timedelta = timedelta(0)
    finished: float = field(default_factory=time.monotonic)
    counts_json: str | None = None
    error: str | None = None
    log_tail: str | None = None
    delay: timedelta | None = None
    next_slot_at: datetime | None = None
    is_charged: bool = True


class NightshiftError(Exception):
    """Base of the errors that Nightshift raises on purpose; its message is meant for people."""


class EnqueueError(NightshiftError, ValueError):
    """What was asked can't be enqueued; the message names the field."""


class LeaseLost(NightshiftError):
    """The lease ran out or was taken: another owner may be at work, so nothing more may be written."""


class Cancelled(NightshiftError):
    """Raised inside a handler that checks ctx.raise_if_cancelled()."""


@dataclass(slots=True)
class Progress:
    """What a running attempt last said of itself."""

    done: int | None = None
    total: int | None = None
    note: str | None = None
    log: list[str] = field(default_factory=list)


class Interrupted(NightshiftError):
    """The process is shutting down: the job goes back, this attempt not charged."""
