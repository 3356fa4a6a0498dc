"""Cron lines against a scan of every minute: slow, simple, and written without the code's own idea of how to count.

The scan walks an instant at a time in UTC and reads the clock on the wall; where the clock jumped ahead of the minute
before, it looks at the readings that were left out. It shares nothing with the code but the rules of design.
"""

from __future__ import annotations

import contextlib
import itertools
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.engine.schedules import ScheduleError, cron, is_slot, next_after, parse, slots_between, widest_gap, zones

MINUTE = timedelta(minutes=1)
FIRST, LAST = datetime(2024, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)
LINES = ["30 2 * * *", "*/7 * * * *", "0 * * * *", "0 0 * * *", "15,45 1-3 * * mon-fri"]
NAMES = {
    3: ["-", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    4: ["mon", "tue", "wed", "thu", "fri", "sat", "sun"],
}
WIDEST = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]


def named(place: int, field: str) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, _, step = part.partition("/")
        ends = (
            [NAMES[place].index(end) if end.isalpha() else int(end) for end in span.split("-")] if span != "*" else []
        )
        low, high = (ends * 2)[:2] if ends else WIDEST[place]
        found |= {n for n in range(low, high + 1) if (n - low) % int(step or 1) == 0}
    return found


class Scan:
    """One line's rules, as a predicate on readings of the wall clock."""

    def __init__(self, line: str) -> None:
        fields = line.split()
        self.minutes, self.hours, self.days, self.months, self.weekdays = (named(n, f) for n, f in enumerate(fields))
        self.is_either = not fields[2].startswith("*") and not fields[4].startswith("*")
        self.is_all_hours = len(self.hours) == 24
        self.is_twice = self.is_all_hours or "/" in fields[1]

    def names(self, wall: datetime) -> bool:
        day, weekday = wall.day in self.days, wall.weekday() in self.weekdays
        date_fits = (day or weekday) if self.is_either else (day and weekday)
        return wall.minute in self.minutes and wall.hour in self.hours and wall.month in self.months and date_fits

    def slots(self, zone: ZoneInfo, after: datetime, until: datetime) -> list[datetime]:
        found = []
        at = after.replace(second=0, microsecond=0)
        before = at.astimezone(zone).replace(tzinfo=None)
        while (at := at + MINUTE) <= until:
            local = at.astimezone(zone)
            wall = local.replace(tzinfo=None, fold=0)
            is_due = self.names(wall) and (self.is_twice or local.fold == 0)
            skipped = before + MINUTE
            while skipped < wall and not self.is_all_hours:
                is_due = is_due or self.names(skipped)
                skipped += MINUTE
            if is_due:
                found.append(at)
            before = wall
        return found


@cache
def changes(name: str) -> list[datetime]:
    """The instants at which a zone's offset changes, to the minute, found by looking once a day."""
    zone, found, at = ZoneInfo(name), [], FIRST
    offset = at.astimezone(zone).utcoffset()
    while (at := at + timedelta(days=1)) < LAST:
        if at.astimezone(zone).utcoffset() != offset:
            minute = at - timedelta(days=1)
            while minute.astimezone(zone).utcoffset() == offset:
                minute += MINUTE
            found.append(minute)
            offset = at.astimezone(zone).utcoffset()
    return found


def check(line: str, name: str, after: datetime, until: datetime) -> None:
    __tracebackhide__ = True
    wanted = Scan(line).slots(ZoneInfo(name), after, until)
    found = slots_between(cron(line, name), after, until, limit=100_000)
    assert found == wanted, (line, name, after.isoformat())


ZONES = sorted(zones())
CHANGING = [
    "America/New_York", "Europe/Berlin", "Europe/London", "Europe/Lisbon", "Australia/Lord_Howe", "America/Santiago",
    "Africa/Cairo", "Asia/Beirut", "Africa/Casablanca", "Asia/Gaza", "America/Havana", "America/Nuuk", "Pacific/Chatham",
    "Antarctica/Troll", "America/Asuncion", "Asia/Jerusalem", "Pacific/Easter", "Atlantic/Azores", "Asia/Almaty",
]  # fmt: skip


@pytest.mark.parametrize("name", CHANGING)
def test_every_change_of_clocks_agrees_with_the_scan(name: str) -> None:
    """Each change of 2024 to 2027 with each line, from a day before to a day after."""
    near = [change for change in changes(name) if change.year < 2028]
    assert near
    for change in near[:: max(1, len(near) // 4)]:
        for line in LINES:
            check(line, name, change - timedelta(hours=26), change + timedelta(hours=26))


def test_all_zones_are_strictly_rising_and_daily_lines_run_once_a_day() -> None:
    """Around one change of every zone that has any; the rest of the sweep is drawn below."""
    for name in ZONES:
        for change in changes(name)[:1]:
            zone = ZoneInfo(name)
            for line in ("30 2 * * *", "0 0 * * *"):
                found = slots_between(cron(line, name), change - timedelta(days=3), change + timedelta(days=3))
                days = [slot.astimezone(zone).date() for slot in found]
                assert days == sorted(set(days)), (name, line)
                assert days[-1] - days[0] == timedelta(days=len(days) - 1), (name, line)
            hourly = slots_between(cron("*/7 * * * *", name), change - timedelta(hours=3), change + timedelta(hours=3))
            gaps = {b - a for a, b in itertools.pairwise(hourly)}
            assert min(gaps) > timedelta(0), name
            assert max(gaps) <= timedelta(minutes=14), name


def a_field(low: int, high: int, names: list[str] | None = None) -> st.SearchStrategy[str]:
    number = st.integers(low, high)

    def text(n: int) -> str:
        return names[n] if names else str(n)

    one = number.map(text)
    span = st.tuples(number, number).map(sorted).map(lambda ends: f"{text(ends[0])}-{text(ends[1])}")
    steps = st.just("*") if names and high == 6 else st.integers(1, high - low).map("*/{}".format)
    return st.lists(one | span | steps, min_size=1, max_size=3).map(",".join)


lines = st.tuples(
    a_field(0, 59) | st.just("*/7"),
    st.just("*") | st.sampled_from(["2", "0", "1-3", "*/2", "23"]) | a_field(0, 23),
    st.just("*") | a_field(1, 31),
    st.just("*") | a_field(1, 12) | a_field(1, 12, NAMES[3]),
    st.just("*") | a_field(0, 6, NAMES[4]),
).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), name=st.sampled_from(ZONES), line=st.sampled_from(LINES) | lines)
def test_any_zone_and_line_agree_with_the_scan(data: st.DataObject, name: str, line: str) -> None:
    try:
        schedule = cron(line, name)
    except ScheduleError as refused:
        if "has no day" not in str(refused):  # all else that is drawn here is a line that runs
            raise
        return
    middle = data.draw(st.sampled_from(changes(name) or [datetime(2027, 6, 1, tzinfo=UTC)]))
    after = middle + timedelta(seconds=data.draw(st.integers(-90_000, 5_000)))
    check(line, name, after, after + timedelta(hours=24))
    assert parse(str(schedule)) == schedule


@settings(max_examples=150, deadline=None)
@given(line=lines, name=st.sampled_from(ZONES), at=st.datetimes(datetime(1995, 1, 1), datetime(2045, 1, 1)))  # noqa: DTZ001
def test_next_is_later_is_a_slot_and_nothing_lies_between(line: str, name: str, at: datetime) -> None:
    try:
        schedule = cron(line, name)
    except ScheduleError:
        return
    after = at.replace(tzinfo=UTC)
    slot = next_after(schedule, after)
    assert after < slot
    assert is_slot(schedule, slot)
    assert next_after(schedule, slot - timedelta(microseconds=1)) == slot
    middle = after + (slot - after) / 2
    assert next_after(schedule, middle) == slot
    assert next_after(schedule, slot) - slot <= widest_gap(schedule) + timedelta(hours=25)


@settings(max_examples=300, deadline=500)
@given(
    st.text(st.sampled_from("0123456789*/,- monjan@?LW#\0\u0663"), max_size=220) | st.text(max_size=60),
    st.text(max_size=40),
)
def test_no_text_makes_it_fail_otherwise_than_by_refusing(line: str, zone: str) -> None:
    for known in (zone, "UTC"):
        try:
            next_after(cron(line, known), datetime(2026, 1, 1, tzinfo=UTC))
        except ScheduleError:
            continue
    with contextlib.suppress(ScheduleError):
        parse(line)
