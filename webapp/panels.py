"""A panel is a part of a page that may fail alone: its read times out or its table is locked, and the rest still shows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from webapp.errors import DatabaseError, forget_transaction, is_outage

T = TypeVar("T")
_FASTEST_SECONDS, _SLOWEST_SECONDS = 4, 60


@dataclass(frozen=True, slots=True)
class Panel(Generic[T]):
    """What was read, or a sentence on why not, and what it cost."""

    value: T | None
    problem: str | None
    seconds: float


def read(query: Callable[[], T]) -> Panel[T]:
    """Runs one read; an outage becomes a sentence, a mistake of ours still raises."""
    started = time.monotonic()
    try:
        return Panel(query(), None, time.monotonic() - started)
    except DatabaseError as error:
        if not is_outage(error):
            raise
        forget_transaction()
        seconds = time.monotonic() - started
        state = getattr(getattr(error, "orig", error), "sqlstate", None)
        problem = "This panel timed out." if state == "57014" else "The database did not answer for this panel."
        return Panel(None, problem, seconds)


def poll_seconds(*panels: Panel[T]) -> int:
    """How long to wait before the next poll: at least ten times what the reads cost, so that an open page stays cheap."""
    cost = sum(panel.seconds for panel in panels)
    return min(max(math.ceil(cost * 10), _FASTEST_SECONDS), _SLOWEST_SECONDS)
