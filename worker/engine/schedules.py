"""When recurring work is due: an interval, or a cron line in a time zone. Pure: the caller brings the time.

APScheduler's CronTrigger is used as a calculator of wall times only; what a wall time means when clocks change is ours:
one that does not exist runs at the first valid instant after it, one that occurs twice runs the first time. A line with
a step in its hour field runs in both passes; one that names all 24 hours does too, and needs no stand-in for the hour
that was skipped. The next slot is always later than the time asked about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger

from worker.engine import cronline

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
_UNITS = {"d": 86_400, "h": 3600, "min": 60, "s": 1}
_LONGEST_PERIOD = timedelta(days=3660)
_YEARS_AHEAD = 13  # "the odd days of February that are Mondays" can be 12 years apart; no line waits longer


class ScheduleError(ValueError):
    """A schedule that can't be: which field, what is wrong with it, and what to write instead."""


@dataclass(frozen=True, slots=True)
class Every:
    """An interval in real time, aligned to the Unix epoch: every 5 minutes is due at :00, :05, ..."""

    period: timedelta

    def __str__(self) -> str:
        count, unit = _largest_unit(self)
        return f"every {count} {unit}"


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron line (minute hour day month weekday) in the wall time of a zone."""

    line: str
    zone: str = "UTC"

    def __str__(self) -> str:
        return f"{self.line} {self.zone}"


Schedule = Every | Cron


def every(*, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0) -> Every:
    """An interval of whole seconds, from one second to ten years."""
    try:
        period = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except (OverflowError, ValueError):
        period = timedelta(0)
    if not timedelta(seconds=1) <= period <= _LONGEST_PERIOD or period % timedelta(seconds=1):
        raise ScheduleError(
            "every: the interval must be a whole number of seconds from 1 s to 3660 days, such as every(minutes=5)"
        )
    return Every(period)


def cron(line: str, zone: str = "UTC") -> Cron:
    """A cron line that was checked whole: its fields, its zone, and that it names a day which exists."""
    problems: list[str] = []
    try:
        check_zone(zone)
    except ScheduleError as error:
        problems.append(str(error))
    parts, found = cronline.read(line)
    if problems := problems + found:
        raise ScheduleError("; ".join(problems))
    return Cron(" ".join(parts), zone)


def check_zone(name: str) -> ZoneInfo:
    """The zone of an IANA name; raises ScheduleError with the nearest names for one that is none."""
    if str(name) in zones():
        return ZoneInfo(name)
    by_lower = {zone.lower(): zone for zone in zones()}
    near = get_close_matches(str(name)[:60].strip().lower(), by_lower, n=3, cutoff=0.7)
    hint = f"did you mean {' or '.join(by_lower[match] for match in near)}?" if near else "write Area/City or UTC"
    raise ScheduleError(f"zone: {str(name)[:60]!r} is not the name of a time zone; {hint}")


@lru_cache(maxsize=1)
def zones() -> frozenset[str]:
    """The names that every machine knows: those of the tzdata package, whatever the system has beside them."""
    return frozenset((files("tzdata") / "zones").read_text("ascii").split()) - {"Factory", "localtime", "posixrules"}


def parse(text: str) -> Schedule:
    """What str() of a schedule wrote."""
    if found := re.fullmatch(r"every ([0-9]{1,10}) (s|min|h|d)", text):
        return every(seconds=int(found[1]) * _UNITS[found[2]])
    line, _, zone = text.rpartition(" ")
    return cron(line, zone)


def next_after(schedule: Schedule, after: datetime) -> datetime:
    """The first slot that is strictly later than `after`, which must have a zone; the answer is in UTC."""
    if after.utcoffset() is None:
        raise ValueError(f"after must be a time with a zone, not {after!r}")
    try:
        after = after.astimezone(UTC)
        if isinstance(schedule, Every):
            return _EPOCH + ((after - _EPOCH) // schedule.period + 1) * schedule.period
        return _next_slot(schedule, after)
    except OverflowError:
        raise ScheduleError(f"{schedule} has no slot after {after:%Y-%m-%d} that a calendar can hold") from None


def _next_slot(schedule: Cron, after: datetime) -> datetime:
    """Goes from one change of the zone's clocks to the next; between two, a wall time is an instant and an offset."""
    zone = check_zone(schedule.zone)
    hour = schedule.line.split(" ")[1]
    is_hourly = len(cronline.values("hour", hour)) == 24
    is_repeated = is_hourly or "/" in hour
    offset, wall = _offset(zone, after), _wall(zone, after) + _TICK
    first_pass = after.astimezone(zone).replace(fold=0).astimezone(UTC)
    if first_pass != after and not is_repeated and (change := _next_change(zone, first_pass, after)):
        wall = _wall(zone, change - _TICK) + _TICK  # in a second pass: on from its end
    while True:
        wall_time = _next_wall_time(schedule, wall)
        slot = wall_time.replace(tzinfo=UTC) - offset
        change = _next_change(zone, after, slot)
        if change is None:
            return slot
        before, now = (change + offset).replace(tzinfo=None), _wall(zone, change)
        if before <= wall_time < now and not is_hourly:
            return change
        wall = now if now > before or is_repeated else before
        after, offset = change, _offset(zone, change)


def _offset(zone: ZoneInfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta(0)


def _wall(zone: ZoneInfo, at: datetime) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


def _next_change(zone: ZoneInfo, after: datetime, until: datetime) -> datetime | None:
    """The first instant in (after, until] at which the zone's clocks go to another offset, to the second."""
    offset = _offset(zone, after)
    while after < until:
        day = min(after + timedelta(days=1), until)  # no zone changes twice in a day
        if _offset(zone, day) == offset:
            after = day
            continue
        low, high = int(after.timestamp()), int(day.timestamp())
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _offset(zone, _at(middle)) == offset else (low, middle)
        return _at(high)
    return None


def _at(seconds: int) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)


def _next_wall_time(schedule: Cron, start: datetime) -> datetime:
    """The first wall time, not before `start`, that the line names."""
    triggers = _triggers(schedule.line, start.year)
    found: list[datetime] = [
        at for trigger in triggers if (at := trigger.get_next_fire_time(None, start.replace(tzinfo=UTC)))
    ]
    if not found:
        raise ScheduleError(f"line: {schedule.line!r} has no slot in the {_YEARS_AHEAD} years after {start:%Y-%m-%d}")
    return min(found).replace(tzinfo=None)


@lru_cache(maxsize=500)
def _triggers(line: str, year: int) -> list[CronTrigger]:
    """The line as calculators. They end after some years, for one without an answer would count on to the year 9999."""
    minute, hour, day, month, weekday = line.split(" ")
    either = [(day, "*"), ("*", weekday)] if cronline.is_either(day, weekday) else [(day, weekday)]
    fixed = {"year": f"{year}-{min(year + _YEARS_AHEAD, 9999)}", "month": month, "hour": hour, "minute": minute}
    return [CronTrigger(**fixed, day=d, day_of_week=w, second=0, timezone=UTC) for d, w in either]


def slots_between(schedule: Schedule, after: datetime, until: datetime, limit: int = 100) -> list[datetime]:
    """The slots later than `after` and not later than `until`, at most `limit` of them."""
    found: list[datetime] = []
    while len(found) < limit and after < until and (slot := next_after(schedule, after)) <= until:
        found.append(slot)
        after = slot
    return found


def is_slot(schedule: Schedule, at: datetime) -> bool:
    """Whether the schedule is due at exactly this instant."""
    return next_after(schedule, at - _TICK) == at


@lru_cache(maxsize=500)
def widest_gap(schedule: Schedule) -> timedelta:
    """The longest time between two slots of this century, clock changes aside: the interval, or a line's widest pause."""
    if isinstance(schedule, Every):
        return schedule.period
    minute, hour, *date_fields = schedule.line.split(" ")
    minutes = sorted(60 * h + m for h in cronline.values("hour", hour) for m in cronline.values("minute", minute))
    within = max((b - a for a, b in pairwise(minutes)), default=0)
    days = max(b - a for a, b in pairwise(_matching_days(*date_fields)))
    return timedelta(minutes=max(within, days * 24 * 60 - (minutes[-1] - minutes[0])))


def _matching_days(day: str, month: str, weekday: str) -> Iterator[int]:
    """The days that the fields name, as numbers; dates and weekdays come round again after 28 years."""
    days, months, weekdays = (
        cronline.values("day", day),
        cronline.values("month", month),
        cronline.values("weekday", weekday),
    )
    needs: Callable[[tuple[bool, bool]], bool] = any if cronline.is_either(day, weekday) else all
    first, last = (date(year, 1, 1).toordinal() for year in (2024, 2024 + 28 + _YEARS_AHEAD))
    for number in range(first, last):
        found = date.fromordinal(number)
        if found.month in months and needs((found.day in days, found.weekday() in weekdays)):
            yield number


def describe(schedule: Schedule) -> str:
    """The schedule for people."""
    if isinstance(schedule, Every):
        count, unit = _largest_unit(schedule)
        name = {"d": "day", "h": "hour", "min": "minute", "s": "second"}[unit]
        return f"every {name}" if count == 1 else f"every {count} {name}s"
    minute, hour, day, month, weekday = schedule.line.split(" ")
    where = "" if schedule.zone == "UTC" and not hour.isdigit() else f", {schedule.zone}"
    if minute.isdigit() and hour.isdigit() and (day, month) == ("*", "*"):
        when = "every day" if weekday == "*" else weekday.replace("-", " to ").replace(",", ", ")
        return f"at {int(hour):02d}:{int(minute):02d} {when}{where}"
    if (hour, day, month, weekday) == ("*", "*", "*", "*"):
        if minute.isdigit():
            return f"every hour at :{int(minute):02d}{where}"
        if minute == "*" or (minute.startswith("*/") and "," not in minute and 60 % int(minute[2:]) == 0):
            return describe(every(minutes=int(minute[2:] or 1))) + where
    return f"{schedule.line} ({schedule.zone})"


def _largest_unit(schedule: Every) -> tuple[int, str]:
    seconds = int(schedule.period.total_seconds())
    return next((seconds // size, unit) for unit, size in _UNITS.items() if seconds % size == 0)
