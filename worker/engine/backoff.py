"""How long to wait before another try. Pure: the caller brings the randomness."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

_MOST_DOUBLINGS = 60  # 2**60 microseconds are 36,000 years; a power of attempts in the millions would not end
_NONE = timedelta(0)


def delay(
    attempt: int,
    *,
    base: timedelta,
    ceiling: timedelta,
    random: Callable[[], float],
    floor: timedelta = timedelta(seconds=1),
) -> timedelta:
    """Exponential with full jitter: uniform from 0 to min(ceiling, base * 2**(attempt - 1)), but never below the floor.

    Full jitter spreads a crowd that failed together best; the floor keeps its luckiest draws from trying again within
    the same outage. The ceiling wins over a floor above it, and nothing is below zero. `random` gives 0 to 1.
    """
    base, ceiling = max(base, _NONE), max(ceiling, _NONE)
    factor = 2 ** min(max(attempt - 1, 0), _MOST_DOUBLINGS)
    most = ceiling if base >= ceiling / factor else base * factor
    return min(max(floor, most * random(), _NONE), ceiling)
