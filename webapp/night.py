"""Is the night fine? One sentence from what the database shows. Pure: no query, no markup."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from webapp.words import ago, span
from worker.engine.kinds import KindHealth


@dataclass(frozen=True, slots=True)
class Failed:
    """A recurring kind whose last run did not end well, though it isn't late yet."""

    kind: str
    outcome: str
    finished_at: datetime
    job_id: int


@dataclass(frozen=True, slots=True)
class Signs:
    """What tells whether the night is fine, all at one time of the database's clock."""

    now: datetime
    last_seen_at: datetime | None
    alive: int
    health: list[KindHealth]
    failed: list[Failed]


@dataclass(frozen=True, slots=True)
class Night:
    """The answer: fine, attention (look when you can) or failing (look now), why, and which kind a button would help."""

    state: Literal["fine", "attention", "failing"]
    sentence: str
    why: str = ""
    kind: str | None = None


def judge(signs: Signs) -> Night:
    """The worst that is true, in one sentence."""
    late = sorted((h for h in signs.health if h.state == "late"), key=lambda h: h.late_after)
    paused = [h for h in signs.health if h.state == "paused"]
    if signs.alive == 0:
        if signs.last_seen_at is None:
            how = "Start one: ./nightshift up, or the Procfile's jobs line."
            return Night("failing", "Nothing can run: no jobs process has been here.", how)
        return Night(
            "failing",
            "Nothing can run: no jobs process is alive.",
            f"The last was seen {ago(signs.last_seen_at, signs.now)}.",
        )
    if late:
        first = late[0]
        more = f" So {'is' if len(late) == 2 else 'are'} {len(late) - 1} more." if len(late) > 1 else ""
        last = (
            "has never completed"
            if first.last_completed_at is None
            else f"last completed {ago(first.last_completed_at, signs.now)}"
        )
        return Night(
            "failing",
            f"The night is not fine: {first.kind} is late.",
            f"It {last} and has been late for {span(signs.now - first.late_after)}.{more}",
            first.kind,
        )
    if signs.failed:
        first_failed = signs.failed[0]
        others = f" {len(signs.failed) - 1} more did too." if len(signs.failed) > 1 else ""
        how = "failed" if first_failed.outcome == "failed" else "was abandoned: its process died"
        return Night(
            "attention",
            f"The night is fine so far, but the last run of {first_failed.kind} {how}.",
            f"That was {ago(first_failed.finished_at, signs.now)}; nothing is late yet.{others}",
            first_failed.kind,
        )
    if not signs.health:
        return Night(
            "fine",
            "The night is quiet: no recurring kinds are published yet.",
            "A jobs process publishes them when it starts.",
        )
    return _fine(signs, paused)


def _fine(signs: Signs, paused: list[KindHealth]) -> Night:
    on_time = [h for h in signs.health if h.state == "ok"]
    done = [h.last_completed_at for h in on_time if h.last_completed_at is not None]
    if not done:
        why = f"{_recurring(len(on_time))} will run for the first time soon." if on_time else ""
    else:
        why = f"{_recurring(len(on_time))} on time; the last completed {ago(max(done), signs.now)}."
    if paused:
        names = ", ".join(h.kind for h in paused[:3]) + (" and more" if len(paused) > 3 else "")
        return Night("attention", f"The night is fine, but {names} {'is' if len(paused) == 1 else 'are'} paused.", why)
    return Night("fine", "The night is fine.", why)


def _recurring(count: int) -> str:
    return "The one recurring kind is" if count == 1 else f"All {count} recurring kinds are"


def late_in_words(health: KindHealth, now: datetime) -> str:
    """When a kind that is on time would become late, or since when it is."""
    difference: timedelta = health.late_after - now
    return (
        f"late for {span(-difference)}"
        if difference < timedelta(0)
        else f"late in {span(difference)} without a completed run"
    )
