"""Times, spans and numbers in words. Pure; the database's time is always given, never taken from this machine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def span(length: timedelta) -> str:
    """A length of time with at most two units: 45 s, 4 min, 3 h 20 min, 12 d."""
    seconds = max(int(length.total_seconds()), 0)
    if seconds < 90:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 90:
        return f"{minutes} min"
    hours = minutes // 60
    if hours < 36:
        return f"{hours} h {minutes % 60} min" if minutes % 60 and hours < 10 else f"{hours} h"
    return f"{hours // 24} d"


def ago(at: datetime, now: datetime) -> str:
    """A time as seen from now: '4 min ago', 'in 2 h', 'now'."""
    difference = now - at
    if abs(difference) < timedelta(seconds=1):
        return "now"
    return f"{span(difference)} ago" if difference > timedelta(0) else f"in {span(-difference)}"


def exact(at: datetime) -> str:
    """The exact time, in UTC, to the millisecond."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1000:03d} UTC"


def duration(milliseconds: int | None) -> str:
    """How long a run took: 340 ms, 4.2 s, 3 min 20 s, 2 h 5 min."""
    if milliseconds is None:
        return "\N{EN DASH}"
    if milliseconds < 1000:
        return f"{max(milliseconds, 0)} ms"
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def capped(count: int, cap: int = 1000) -> str:
    """A count that was only counted up to its cap."""
    return f"{cap:,}+" if count > cap else f"{count:,}"


def size(characters: int) -> str:
    """How long a text is, in round words."""
    if characters < 1000:
        return f"{characters} characters"
    return (
        f"{characters / 1000:.0f} thousand characters"
        if characters < 1_000_000
        else f"{characters / 1e6:.1f} million characters"
    )
