"""The five fields of a cron line: what may stand in them, and which numbers they name.

Knows no zone and no time. What `read` lets through, APScheduler's CronTrigger takes too and means the same by it.
"""

from __future__ import annotations

import re

_FIELDS = ("minute", "hour", "day", "month", "weekday")
_BOUNDS = {"minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 6)}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CRON_WEEKDAYS = ("sun", *_WEEKDAYS)
_DAYS_OF_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * sun",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_LONGEST_LINE = 200


def read(line: object) -> tuple[list[str], list[str]]:
    """The five fields of a line, in lower case, and all that is wrong with them. A nickname such as @daily is spelled out."""
    known = line if isinstance(line, str) and len(line) <= _LONGEST_LINE else ""
    parts = _NICKNAMES.get(known.strip().lower(), known).lower().split()
    if len(parts) != len(_FIELDS):
        wanted = "the five fields minute hour day month weekday, such as '30 2 * * mon', in at most 200 characters"
        return parts, [f"line: {str(line)[:60]!r} must have {wanted}"]
    problems = [problem for pair in zip(_FIELDS, parts, strict=True) if (problem := _field_problem(*pair))]
    if not problems and (impossible := _impossible_day(*parts[2:])):
        problems.append(impossible)
    return parts, problems


def _field_problem(name: str, text: str) -> str | None:
    return next((problem for part in text.split(",") if (problem := _part_problem(name, part))), None)


def _part_problem(name: str, part: str) -> str | None:
    shown = repr(part[:30])
    span, slash, _ = part.partition("/")
    low, dash, high = span.partition("-")
    ends = _BOUNDS[name] if span == "*" else (_value(name, low), _value(name, high if dash else low))
    first, last = ends
    if first is None or last is None:
        return f"{name}: {shown} is not {_wanted(name, span)}"
    if first > last:
        least, most = (_text(name, bound) for bound in _BOUNDS[name])
        return f"{name}: {shown} runs backwards; write {low}-{most},{least}" + ("" if high == least else f"-{high}")
    return _step_problem(name, part, last - first) if slash else None


def _step_problem(name: str, part: str, length: int) -> str | None:
    span, _, step = part.partition("/")
    if name == "weekday" and span == "*":
        return f"{name}: which days {part[:30]!r} means depends on the first day of the week; write their names"
    if span != "*" and "-" not in span:
        return f"{name}: a step needs a range or * before it; write {span}-{_text(name, _BOUNDS[name][1])}/{step[:3]}"
    if re.fullmatch(r"[1-9][0-9]?", step) and int(step) <= length:
        return None
    wanted = f"a number from 1 to {length}" if length else "left out, for the range is a single value"
    return f"{name}: the step in {part[:30]!r} must be {wanted}"


def _value(name: str, text: str) -> int | None:
    names = _WEEKDAYS if name == "weekday" else _MONTHS if name == "month" else ()
    low, high = _BOUNDS[name]
    if text in names:
        return low + names.index(text)
    if name == "weekday" or not re.fullmatch(r"[0-9]{1,2}", text):
        return None
    return int(text) if low <= int(text) <= high else None


def _text(name: str, value: int) -> str:
    return _WEEKDAYS[value] if name == "weekday" else _MONTHS[value - 1] if name == "month" else str(value)


def _wanted(name: str, text: str) -> str:
    low, high = _BOUNDS[name]
    if name != "weekday":
        return f"a number from {low} to {high}" + (" or a month's name, jan to dec" if name == "month" else "")
    named = re.sub("[0-7]", lambda digit: _CRON_WEEKDAYS[int(digit[0])], text)
    hint = f"; cron's {text} is {named}" if re.fullmatch("[0-7](-[0-7])?", text) else ""
    return (
        f"a weekday by name, mon to sun (numbers are refused: cron counts from Sunday, APScheduler from Monday{hint})"
    )


def is_either(day: str, weekday: str) -> bool:
    """Whether a date needs only one of the two: as in crontab(5), when neither field begins with a star."""
    return not day.startswith("*") and not weekday.startswith("*")


def _impossible_day(day: str, month: str, weekday: str) -> str | None:
    days, months = values("day", day), values("month", month)
    if is_either(day, weekday) or any(d <= _DAYS_OF_MONTH[m - 1] for d in days for m in months):
        return None
    most = max(_DAYS_OF_MONTH[m - 1] for m in months)
    return f"day: month {month!r} has no day {day!r}; write a day up to {most}, or another month"


def values(name: str, text: str) -> set[int]:
    """The numbers that a field names; weekdays count from Monday as 0."""
    found: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        low, _, high = span.partition("-")
        first, last = _BOUNDS[name] if span == "*" else (_value(name, low), _value(name, high or low))
        if first is None or last is None:
            raise ValueError(f"{name}: {text[:30]!r} was never checked; make the schedule by cron()")
        found.update(range(first, last + 1, int(step or 1)))
    return found
