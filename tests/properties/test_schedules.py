"""The schedule's rules against an oracle that knows nothing of them: a scan of every minute, one after the other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from worker.engine.schedules import Every, cron, next_after

MINUTE = timedelta(minutes=1)
LINES = ("30 2 * * *", "*/7 * * * *", "0 * * * *", "0 0 * * *", "15,45 1-3 * * mon-fri")
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@cache
def changes(zone: str) -> tuple[datetime, ...]:
    """The minutes in which a zone's clocks change, 2024 to 2030, found by halving each day whose ends differ."""
    clock, found = ZoneInfo(zone), []
    for day in range(7 * 365 + 2):
        low = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=day)
        high = low + timedelta(days=1)
        if low.astimezone(clock).utcoffset() == high.astimezone(clock).utcoffset():
            continue
        while high - low > MINUTE:
            middle = low + (high - low) // 2
            middle -= timedelta(seconds=middle.second, microseconds=middle.microsecond)
            same = middle.astimezone(clock).utcoffset() == low.astimezone(clock).utcoffset()
            low, high = (middle, high) if same else (low, middle)
        found.append(high)
    return tuple(found)


CHANGING = sorted(
    zone
    for zone in available_timezones()
    if zone not in {"localtime", "posixrules", "Factory"}
    and len({datetime(2026, month, 1, tzinfo=ZoneInfo(zone)).utcoffset() for month in (1, 7)}) > 1
)


def names(line: str, wall: datetime) -> bool:
    """Whether a line names a wall minute; reads only what LINES holds."""
    minute, hour, _, _, weekday = line.split()

    def holds(field: str, value: int) -> bool:
        if field.startswith("*/"):
            return value % int(field[2:]) == 0
        ends = [part.split("-") for part in field.split(",")]
        return field == "*" or any(int(part[0]) <= value <= int(part[-1]) for part in ends)

    is_day = weekday == "*" or wall.weekday() < DAYS.index(weekday.split("-")[1]) + 1
    return is_day and holds(minute, wall.minute) and holds(hour, wall.hour)


def scanned(line: str, zone: str, start: datetime, minutes: int) -> list[datetime]:
    """Every slot in so many minutes from `start`, by the rules as written: walk real time and look at the wall clock."""
    clock = ZoneInfo(zone)
    goes_by_elapsed_time = line.split()[1] == "*"
    seen: set[datetime] = set()
    found: list[datetime] = []
    wall_before = (start - MINUTE).astimezone(clock).replace(tzinfo=None)
    # What the clock showed before the first minute counts as shown, lest a second pass look like a first.
    for back in range(1, 240):
        seen.add((start - back * MINUTE).astimezone(clock).replace(tzinfo=None))
    for step in range(minutes):
        at = start + step * MINUTE
        wall = at.astimezone(clock).replace(tzinfo=None)
        skipped = (wall_before + n * MINUTE for n in range(1, max(1, (wall - wall_before) // MINUTE)))
        is_due = names(line, wall) and (goes_by_elapsed_time or wall not in seen)
        if is_due or (not goes_by_elapsed_time and any(names(line, gone) and gone not in seen for gone in skipped)):
            found.append(at)
        seen.add(wall)
        wall_before = wall
    return found


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_around_every_change_of_the_clocks_the_slots_are_those_of_a_minute_by_minute_scan(data: st.DataObject) -> None:
    zone = data.draw(st.sampled_from(CHANGING))
    change = data.draw(st.sampled_from(changes(zone)))
    line = data.draw(st.sampled_from(LINES))
    start = change - timedelta(hours=data.draw(st.integers(1, 30)))
    minutes = 40 * 60
    at, found = start - timedelta(microseconds=1), []
    while (at := next_after(cron(line, zone), at)) < start + minutes * MINUTE:
        found.append(at)
    assert found == scanned(line, zone, start, minutes)


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Australia/Lord_Howe", "2025-04-05T15:00"),
        ("Australia/Lord_Howe", "2025-10-04T15:30"),
        ("America/Santiago", "2025-09-07T04:00"),
        ("Africa/Cairo", "2025-04-24T22:00"),
        ("Africa/Casablanca", "2026-02-15T02:00"),
        ("America/St_Johns", "2025-11-02T04:30"),
        ("Europe/London", "2025-10-26T01:00"),
    ],
)
def test_the_oracle_and_the_schedule_agree_on_the_changes_that_hurt_others(line: str, zone: str, change: str) -> None:
    start = datetime.fromisoformat(change).replace(tzinfo=UTC) - timedelta(hours=5)
    at, found = start - timedelta(microseconds=1), []
    while (at := next_after(cron(line, zone), at)) < start + timedelta(hours=30):
        found.append(at)
    assert found == scanned(line, zone, start, 30 * 60)


@given(
    st.sampled_from(LINES),
    st.sampled_from(sorted(available_timezones() - {"localtime", "posixrules", "Factory"})),
    st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
@settings(max_examples=150, deadline=None)
@example("0 0 * * *", "Pacific/Apia", datetime(2011, 12, 29, 10, tzinfo=UTC))
def test_the_next_slot_is_always_later_and_nothing_lies_between(line: str, zone: str, after: datetime) -> None:
    schedule = cron(line, zone)
    slot = next_after(schedule, after)
    assert slot > after
    assert slot.utcoffset() == timedelta(0)
    assert next_after(schedule, after + (slot - after) / 2) == slot
    assert next_after(schedule, slot) > slot


@given(
    st.integers(1, 10**8),
    st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
def test_an_intervals_slots_are_its_multiples(seconds: int, after: datetime) -> None:
    slot = next_after(Every(timedelta(seconds=seconds)), after)
    assert after < slot <= after + timedelta(seconds=seconds)
    assert (slot - datetime(1970, 1, 1, tzinfo=UTC)) % timedelta(seconds=seconds) == timedelta(0)
