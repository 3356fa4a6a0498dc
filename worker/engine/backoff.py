"""How long to wait before another try. Pure: the caller brings the randomness."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

_MOST_DOUBLINGS = 40  # beyond it any ceiling is reached, and a power of attempts in the millions would not end


def delay(
    attempt: int,
    *,
    base: timedelta,
    ceiling: timedelta,
    random: Callable[[], float],
    floor: timedelta = timedelta(seconds=1),
) -> timedelta:
    """Exponential with full jitter: anything between the floor and min(ceiling, base * 2**(attempt - 1)).

    Full jitter spreads a crowd that failed together best; the floor keeps its luckiest draws from trying again within
    the same outage.
    """
    most = min(ceiling.total_seconds(), base.total_seconds() * 2.0 ** min(max(attempt - 1, 0), _MOST_DOUBLINGS))
    return timedelta(seconds=max(floor.total_seconds(), most * random()))
