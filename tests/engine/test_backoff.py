"""The wait before another try: its bounds, its spread, and numbers that no one meant."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.engine.backoff import delay

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


def test_the_widest_wait_doubles_with_each_attempt_up_to_the_ceiling() -> None:
    widest = [delay(n, base=5 * SECOND, ceiling=HOUR, random=lambda: 1.0).total_seconds() for n in range(1, 13)]
    assert widest == [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]


def test_the_jitter_is_full_and_the_floor_stops_the_luckiest_draw() -> None:
    assert delay(5, base=5 * SECOND, ceiling=HOUR, random=lambda: 0.0) == SECOND
    assert delay(5, base=5 * SECOND, ceiling=HOUR, random=lambda: 0.0, floor=timedelta(0)) == timedelta(0)
    draw = random.Random(1).random
    waits = sorted(delay(5, base=5 * SECOND, ceiling=HOUR, random=draw).total_seconds() for _ in range(10_000))
    quarters = [sum(low <= wait < low + 20 for wait in waits) for low in (0, 20, 40, 60)]
    assert all(2350 < count < 2650 for count in quarters)


def test_the_ceiling_wins_over_a_floor_above_it() -> None:
    assert delay(9, base=SECOND, ceiling=SECOND / 10, random=lambda: 0.5) == SECOND / 10


@pytest.mark.parametrize("attempt", [-(10**9), -1, 0, 1])
def test_an_attempt_before_the_first_waits_as_the_first(attempt: int) -> None:
    assert delay(attempt, base=8 * SECOND, ceiling=HOUR, random=lambda: 0.5) == 4 * SECOND


@pytest.mark.parametrize("attempt", [64, 10**6, 10**100])
@pytest.mark.parametrize("base", [timedelta.resolution, SECOND, timedelta.max])
def test_no_number_of_attempts_overflows(attempt: int, base: timedelta) -> None:
    assert delay(attempt, base=base, ceiling=HOUR, random=lambda: 1.0) == HOUR
    assert delay(attempt, base=base, ceiling=timedelta.max, random=lambda: 0.999999) <= timedelta.max


spans = st.timedeltas()


@given(st.integers(), spans, spans, st.floats(0, 1), spans)
def test_it_is_never_negative_and_never_above_the_ceiling(
    attempt: int, base: timedelta, ceiling: timedelta, drawn: float, floor: timedelta
) -> None:
    wait = delay(attempt, base=base, ceiling=ceiling, random=lambda: drawn, floor=floor)
    assert timedelta(0) <= wait <= max(ceiling, timedelta(0))
    if ceiling >= floor:
        assert wait >= floor
