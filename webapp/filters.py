"""What templates may call: words for times, the address of a static file, pictures' coordinates."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from flask import Flask, url_for

from webapp import words
from webapp.night import late_in_words
from webapp.queries.overview import counts, slots


def init_app(app: Flask) -> None:
    """Makes them known to Jinja, which also refuses a name that isn't there."""
    static = Path(app.static_folder or "")

    @cache
    def digest(name: str) -> str:
        return hashlib.sha256((static / name).read_bytes()).hexdigest()[:12]

    def asset(name: str) -> str:
        return url_for("static", filename=name, v=digest(name))

    app.jinja_env.filters.update(
        ago=words.ago,
        exact=words.exact,
        span=words.span,
        duration=words.duration,
        capped=words.capped,
        size=words.size,
        counts=counts,
        slots=slots,
        headline=headline,
    )
    app.jinja_env.globals.update(
        asset=asset,
        late_in_words=late_in_words,
        bar_height=bar_height,
        timeline=timeline,
        is_paused=is_paused,
        percent=percent,
    )


def headline(text: str) -> str:
    """The line that says what went wrong: of a traceback the one after its frames, else the last."""
    lines = [line for line in text.splitlines() if line.strip()]
    after_frames = next((at + 1 for at in range(len(lines) - 1, -1, -1) if lines[at].startswith("  ")), len(lines) - 1)
    return lines[min(after_frames, len(lines) - 1)].strip() if lines else ""


def is_paused(row: Any, now: datetime) -> bool:
    """Whether a kind's or queue's pause still holds."""
    return row.paused_at is not None and (row.paused_until is None or row.paused_until > now)


def bar_height(milliseconds: int, longest: int, full: int) -> float:
    """A bar's height on a scale of roots, so that a short run is seen beside a long one."""
    return round(max(math.sqrt(max(milliseconds, 0) / max(longest, 1)) * full, full * 0.14), 1)


def percent(part: int | None, whole: int | None) -> int | None:
    """How far something is, 0 to 100; None where nobody knows the whole."""
    if part is None or not whole or whole < 0:
        return None
    return min(max(part * 100 // whole, 0), 100)


def timeline(
    runs: Sequence[Any], enqueued_at: datetime, now: datetime, width: float = 1000
) -> list[tuple[Any, float, float]]:
    """Each run with the left edge and the width of its bar; the whole is from enqueueing to the last end (or now)."""
    ends = [run["finished_at"] or now for run in runs]
    start = min([enqueued_at, *(run["started_at"] for run in runs)])
    whole = max(max(ends) - start, timedelta(milliseconds=1)) if ends else timedelta(milliseconds=1)
    bars = []
    for run, end in zip(runs, ends, strict=True):
        left = (run["started_at"] - start) / whole * width
        length = max((end - run["started_at"]) / whole * width, 4.0)
        bars.append((run, round(min(left, width - length), 1), round(length, 1)))
    return bars
