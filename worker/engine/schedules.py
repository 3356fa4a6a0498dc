"""When recurring work is due: an interval, or a cron line in a time zone. Pure: the caller brings the time.

APScheduler's CronTrigger is used as a calculator of wall times only; what a wall time means when clocks change is ours:
a time that does not exist runs at the first valid instant after it, a time that occurs twice runs the first time, and a
line that names every hour (or every N-th) fires in both passes. The next slot is always later than the time asked about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

from apscheduler.triggers.cron import CronTrigger

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIELDS = ("minute", "hour", "day", "month", "weekday")
_BOUNDS = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12)}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAYS_OF_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_NOT_ZONES = frozenset({"localtime", "posixrules", "Factory", "posix", "right"})
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * sun",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_YEARS_AHEAD = 9  # 29 February can be eight years away; no other line needs more
_LONGEST_LINE = 200


class ScheduleError(ValueError):
    """A schedule that can't be: which field, what is wrong with it, and what to write instead."""


@dataclass(frozen=True, slots=True)
class Every:
    """An interval in real time, aligned to the Unix epoch: every 5 minutes is due at :00, :05, ..."""

    period: timedelta

    def __str__(self) -> str:
        return f"every {int(self.period.total_seconds())} s"


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron line (minute hour day month weekday) in the wall time of a zone."""

    line: str
    zone: str = "UTC"

    def __str__(self) -> str:
        return f"{self.line} {self.zone}"


Schedule = Every | Cron


def every(*, days: int = 0, hours: int = 0, minutes: int = 0, seconds: int = 0) -> Every:
    """An interval of at least a second."""
    period = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    if period < timedelta(seconds=1) or period % timedelta(seconds=1):
        raise ScheduleError(f"every: {period} must be a whole number of seconds, at least one")
    return Every(period)


def cron(line: str, zone: str = "UTC") -> Cron:
    """A cron line that was checked whole: its fields, its zone, and that it names a day which exists."""
    problems: list[str] = []
    try:
        check_zone(zone)
    except ScheduleError as error:
        problems.append(str(error))
    line = (
        " ".join(_NICKNAMES.get(line.strip(), line).split())
        if len(line) <= _LONGEST_LINE
        else line[: _LONGEST_LINE + 1]
    )
    parts = line.split(" ")
    if len(line) > _LONGEST_LINE or len(parts) != len(_FIELDS):
        problems.append(
            f"line: {line[:60]!r} must have the five fields minute hour day month weekday, such as '30 2 * * mon'"
        )
    else:
        problems += [
            problem for name, part in zip(_FIELDS, parts, strict=True) if (problem := _field_problem(name, part))
        ]
        if not problems and (problem := _impossible_day(parts)):
            problems.append(problem)
    if problems:
        raise ScheduleError("; ".join(problems))
    return Cron(line, zone)


def check_zone(name: str) -> ZoneInfo:
    """The zone of an IANA name; raises ScheduleError with the nearest names for one that is none."""
    if name in _zones():
        return ZoneInfo(name)
    near = get_close_matches(name.strip()[:60].lower(), {zone.lower(): zone for zone in _zones()}, n=3, cutoff=0.7)
    names = {zone.lower(): zone for zone in _zones()}
    hint = f"; did you mean {' or '.join(names[match] for match in near)}?" if near else ", such as Europe/Copenhagen"
    raise ScheduleError(f"zone: {name[:60]!r} is not the name of a time zone{hint}")


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(name for name in available_timezones() if name.split("/")[0] not in _NOT_ZONES)


def parse(text: str) -> Schedule:
    """What str() of a schedule wrote."""
    if found := re.fullmatch(r"every ([0-9]{1,12}) s", text):
        return every(seconds=int(found[1]))
    line, _, zone = text.rpartition(" ")
    return cron(line, zone)


def _field_problem(name: str, text: str) -> str | None:
    for part in text.split(","):
        span, _, step = part.partition("/")
        low, dash, high = span.partition("-")
        if step or part.endswith("/"):
            if not re.fullmatch(r"[1-9][0-9]{0,2}", step):
                return f"{name}: the step in {part[:30]!r} must be a number from 1"
            if span != "*" and not dash:
                return f"{name}: a step needs a range or * before it, not {part[:30]!r}"
        if span == "*":
            continue
        values = [_value(name, end) for end in ((low, high) if dash else (low,))]
        if any(value is None for value in values):
            return f"{name}: {part[:30]!r} is not {_wanted(name)}"
        if dash and values[0] is not None and values[1] is not None and values[0] > values[1]:
            return f"{name}: {part[:30]!r} runs backwards"
    return None


def _value(name: str, text: str) -> int | None:
    names = _WEEKDAYS if name == "weekday" else _MONTHS if name == "month" else ()
    if text.lower() in names:
        return names.index(text.lower()) + (name == "month")
    if name == "weekday" or not re.fullmatch(r"[0-9]{1,2}", text):
        return None
    low, high = _BOUNDS[name]
    return int(text) if low <= int(text) <= high else None


def _wanted(name: str) -> str:
    if name == "weekday":
        return "a weekday by name, mon to sun (numbers are refused: cron counts from Sunday, others from Monday)"
    low, high = _BOUNDS[name]
    return f"a number from {low} to {high}" + (" or a month's name, jan to dec" if name == "month" else "")


def _impossible_day(parts: list[str]) -> str | None:
    day, month, weekday = parts[2:]
    if weekday != "*":  # either of the two is enough
        return None
    days, months = _values("day", day), _values("month", month)
    if any(d <= _DAYS_OF_MONTH[m - 1] for d in days for m in months):
        return None
    return f"day: no month of {month!r} has a day {day!r}"


def _values(name: str, text: str) -> set[int]:
    found: set[int] = set()
    low_bound, high_bound = (0, 6) if name == "weekday" else _BOUNDS[name]
    for part in text.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        first = low_bound if span == "*" else _value(name, low)
        last = high_bound if span == "*" else _value(name, high or low)
        assert first is not None
        assert last is not None
        found.update(range(first, last + 1, int(step or 1)))
    return found


def next_after(schedule: Schedule, after: datetime) -> datetime:
    """The first slot that is strictly later than `after`; aware, UTC."""
    after = after.astimezone(UTC)
    if isinstance(schedule, Every):
        return _EPOCH + ((after - _EPOCH) // schedule.period + 1) * schedule.period
    for slot in _slots(schedule, after):
        if slot > after:
            return slot
    raise ScheduleError(f"line: {schedule.line!r} has no slot in the {_YEARS_AHEAD} years after {after:%Y-%m-%d}")


def _slots(schedule: Cron, after: datetime) -> Iterator[datetime]:
    """Slots around and after a time, rising. Begins before it, for a second pass or a gap may bring a slot past `after`."""
    zone = check_zone(schedule.zone)
    hour = schedule.line.split(" ")[1]
    is_every_hour, is_stepped = hour in {"*", "*/1"}, "/" in hour
    wall = after.astimezone(zone).replace(tzinfo=None, fold=0)
    wall -= timedelta(
        hours=3 if is_every_hour else 36
    )  # Samoa once skipped a whole day; a line of every hour skips gaps
    last: datetime | None = None
    later: list[datetime] = []  # second passes, which come after first passes of later wall times
    for wall_time in _wall_times(schedule.line, wall):
        instants = _instants(wall_time, zone, skip_gap=is_every_hour, both=is_every_hour or is_stepped)
        for instant in _in_order(instants, later):
            if last is None or instant > last:
                last = instant
                yield instant
    for instant in sorted(later):
        if last is None or instant > last:
            last = instant
            yield instant


def _in_order(instants: list[datetime], later: list[datetime]) -> Iterator[datetime]:
    if not instants:
        return
    while later and later[0] < instants[0]:
        yield later.pop(0)
    yield instants[0]
    later.extend(instants[1:])
    later.sort()


def _instants(wall_time: datetime, zone: tzinfo, *, skip_gap: bool, both: bool) -> list[datetime]:
    first = wall_time.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if first.astimezone(zone).replace(tzinfo=None) != wall_time:
        return [] if skip_gap else [_gap_end(wall_time, zone)]
    second = wall_time.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return [first, second] if both and second > first else [first]


def _gap_end(wall_time: datetime, zone: tzinfo) -> datetime:
    """The first valid instant after a wall time that does not exist: the instant at which the clocks went forward."""
    # Read with the offset of after the gap it lies before the change, with the one of before it lies after.
    low, high = (wall_time.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (1, 0))
    offset = low.astimezone(zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) // 2
        low, high = (middle, high) if middle.astimezone(zone).utcoffset() == offset else (low, middle)
    return high.replace(microsecond=0)


def _wall_times(line: str, start: datetime) -> Iterator[datetime]:
    """The wall times that a line names, rising, from `start` for nine years; day and weekday both given mean either."""
    minute, hour, day, month, weekday = line.split(" ")
    alternatives = [(day, "*"), ("*", weekday)] if "*" not in {day, weekday} else [(day, weekday)]
    years = f"{start.year}-{start.year + _YEARS_AHEAD}"
    triggers = [
        CronTrigger(
            year=years,
            month=month,
            day=one_day,
            day_of_week=one_weekday,
            hour=hour,
            minute=minute,
            second=0,
            timezone=UTC,
        )
        for one_day, one_weekday in alternatives
    ]
    at = start.replace(tzinfo=UTC)
    while True:
        found = [found for trigger in triggers if (found := trigger.get_next_fire_time(None, at)) is not None]
        if not found:
            return
        yield min(found).replace(tzinfo=None)
        at = min(found) + timedelta(seconds=1)


def slots_between(schedule: Schedule, after: datetime, until: datetime, limit: int = 100) -> list[datetime]:
    """The slots later than `after` and not later than `until`, at most `limit` of them."""
    found: list[datetime] = []
    while len(found) < limit and (slot := next_after(schedule, after)) <= until:
        found.append(slot)
        after = slot
    return found


def is_slot(schedule: Schedule, at: datetime) -> bool:
    """Whether the schedule is due at exactly this instant."""
    return next_after(schedule, at - timedelta(microseconds=1)) == at.astimezone(UTC)


@lru_cache(maxsize=500)
def widest_gap(schedule: Schedule) -> timedelta:
    """The longest time between two slots, clock changes aside: the interval, or a line's widest pause (nights, weekends, months)."""
    if isinstance(schedule, Every):
        return schedule.period
    minute, hour, day, month, weekday = schedule.line.split(" ")
    minutes = sorted(60 * h + m for h in _values("hour", hour) for m in _values("minute", minute))
    days, weekdays, months = _values("day", day), _values("weekday", weekday), _values("month", month)
    is_either = "*" not in {day, weekday}
    # Nine years hold every pause that a line can have, also over 29 February.
    dates = (datetime(2024, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(_YEARS_AHEAD * 366))
    matching = [
        date
        for date in dates
        if date.month in months
        and (
            (date.day in days or date.weekday() in weekdays)
            if is_either
            else (date.day in days and date.weekday() in weekdays)
        )
    ]
    widest_days = max((b - a for a, b in pairwise(matching)), default=timedelta(days=_YEARS_AHEAD * 366))
    overnight = widest_days - timedelta(minutes=minutes[-1] - minutes[0])
    return max(overnight, *(timedelta(minutes=b - a) for a, b in pairwise(minutes)), timedelta(0))


def describe(schedule: Schedule) -> str:
    """The schedule for people."""
    if isinstance(schedule, Every):
        return f"every {_span(int(schedule.period.total_seconds()))}"
    minute, hour, day, month, weekday = schedule.line.split(" ")
    if minute.isdigit() and hour.isdigit() and (day, month) == ("*", "*"):
        when = "every day" if weekday == "*" else weekday.replace("-", " to ").replace(",", ", ")
        return f"at {int(hour):02d}:{int(minute):02d} {when}, {schedule.zone}"
    if minute.isdigit() and (hour, day, month, weekday) == ("*", "*", "*", "*"):
        return f"every hour at :{int(minute):02d}" + ("" if schedule.zone == "UTC" else f", {schedule.zone}")
    return f"{schedule.line} ({schedule.zone})"


def _span(seconds: int) -> str:
    for size, name in ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if seconds % size == 0:
            count = seconds // size
            return name if count == 1 else f"{count} {name}s"
    raise AssertionError("a second divides every whole number of seconds")
