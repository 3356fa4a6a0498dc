"""Schedules: the clock changes of the world, lines that can't be, zones that are none, and never slow."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from worker.engine import backoff
from worker.engine.schedules import (
    Cron,
    ScheduleError,
    check_zone,
    cron,
    describe,
    every,
    is_slot,
    next_after,
    parse,
    slots_between,
    widest_gap,
)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def nexts(line: str, zone: str, after: str, count: int) -> list[str]:
    found, at = [], utc(after)
    for _ in range(count):
        at = next_after(cron(line, zone), at)
        found.append(f"{at:%Y-%m-%d %H:%M}")
    return found


@pytest.mark.parametrize(
    ("line", "zone", "after", "wanted"),
    [
        # A daily job keeps its wall time over the change.
        (
            "0 20 * * *",
            "Europe/Paris",
            "2022-10-29 22:00",
            ["2022-10-30 19:00", "2022-10-31 19:00", "2022-11-01 19:00"],
        ),
        (
            "30 9 * * *",
            "America/New_York",
            "2026-03-07 12:00",
            ["2026-03-07 14:30", "2026-03-08 13:30", "2026-03-09 13:30"],
        ),
        # A time that occurs twice runs once, the first time.
        ("30 1 * * *", "America/New_York", "2026-11-01 00:00", ["2026-11-01 05:30", "2026-11-02 06:30"]),
        ("0 2 * * sun", "Europe/Berlin", "2024-10-27 00:30", ["2024-11-03 01:00"]),
        ("0 2 * * sun", "Europe/Berlin", "2024-10-26 23:00", ["2024-10-27 00:00", "2024-11-03 01:00"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2025-04-05 00:00", ["2025-04-05 14:45", "2025-04-06 15:15"]),
        # A time that does not exist runs at the first valid instant after it.
        ("30 2 * * *", "America/New_York", "2026-03-07 12:00", ["2026-03-08 07:00", "2026-03-09 06:30"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2025-10-04 00:00", ["2025-10-04 15:30", "2025-10-05 15:15"]),
        ("0 1 30 3 *", "Europe/Lisbon", "2025-03-29 12:00", ["2025-03-30 01:00", "2026-03-30 00:00"]),
        ("0 0 * * *", "America/Santiago", "2025-09-06 12:00", ["2025-09-07 04:00", "2025-09-08 03:00"]),
        ("0 0 * * *", "Africa/Cairo", "2025-04-24 12:00", ["2025-04-24 22:00", "2025-04-25 21:00"]),
        ("15 0 * * *", "Asia/Beirut", "2025-03-29 12:00", ["2025-03-29 22:00", "2025-03-30 21:15"]),
        # The day that Samoa left out, 2011-12-30.
        (
            "0 12 * * *",
            "Pacific/Apia",
            "2011-12-29 00:00",
            ["2011-12-29 22:00", "2011-12-30 10:00", "2011-12-30 22:00"],
        ),
        # Morocco goes back for Ramadan.
        (
            "30 2 * * *",
            "Africa/Casablanca",
            "2026-02-14 00:00",
            ["2026-02-14 01:30", "2026-02-15 01:30", "2026-02-16 02:30"],
        ),
        # Lines that name every hour or every N-th go on in both passes and skip what doesn't exist.
        (
            "0 * * * *",
            "Europe/Berlin",
            "2024-10-26 23:30",
            ["2024-10-27 00:00", "2024-10-27 01:00", "2024-10-27 02:00"],
        ),
        (
            "0 * * * *",
            "Europe/Berlin",
            "2024-03-30 23:30",
            ["2024-03-31 00:00", "2024-03-31 01:00", "2024-03-31 02:00"],
        ),
        (
            "0 */2 * * *",
            "Europe/Berlin",
            "2024-10-26 21:30",
            ["2024-10-26 22:00", "2024-10-27 00:00", "2024-10-27 01:00"],
        ),
        (
            "*/30 * * * *",
            "Australia/Lord_Howe",
            "2025-04-05 14:10",
            ["2025-04-05 14:30", "2025-04-05 15:00", "2025-04-05 15:30"],
        ),
        # The calendar.
        ("0 0 29 2 *", "UTC", "2026-03-01 00:00", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("0 0 29 2 *", "UTC", "2096-03-01 00:00", ["2104-02-29 00:00"]),
        ("59 23 31 12 *", "UTC", "2026-12-31 23:58", ["2026-12-31 23:59", "2027-12-31 23:59"]),
        ("0 0 1 * mon", "UTC", "2026-05-30 00:00", ["2026-06-01 00:00", "2026-06-08 00:00", "2026-06-15 00:00"]),
    ],
)
def test_when_a_line_is_due(line: str, zone: str, after: str, wanted: list[str]) -> None:
    assert nexts(line, zone, after, len(wanted)) == wanted


def test_a_minutely_line_runs_each_of_the_sixty_minutes_that_come_twice() -> None:
    found = slots_between(cron("* * * * *", "Europe/London"), utc("2025-10-26 00:58:30"), utc("2025-10-26 01:59"), 100)
    assert found == [utc("2025-10-26 00:59") + timedelta(minutes=n) for n in range(61)]


def test_an_interval_counts_real_time_from_the_epoch() -> None:
    assert next_after(every(minutes=5), utc("2025-10-26 00:59:59")) == utc("2025-10-26 01:00")
    assert next_after(every(hours=1), utc("2025-03-30 01:00")) == utc("2025-03-30 02:00")
    assert next_after(every(days=1), utc("1969-12-31 23:59:59")) == utc("1970-01-01 00:00")
    assert is_slot(every(hours=6), utc("2025-03-30 06:00"))
    assert not is_slot(every(hours=6), utc("2025-03-30 06:00:01"))


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("0 0 31 4 *", "day: month"),
        ("0 0 30 2 *", "day: month"),
        ("0 0 31 2,4,6 *", "day: month"),
        ("* * * *", "five fields"),
        ("* * * * * *", "five fields"),
        ("", "five fields"),
        ("60 * * * *", "minute"),
        ("* 24 * * *", "hour"),
        ("* * 0 * *", "day"),
        ("* * 32 * *", "day"),
        ("* * * 13 *", "month"),
        ("* * * * 1", "weekday by name"),
        ("* * * * sunday", "weekday by name"),
        ("*/0 * * * *", "step"),
        ("*/ * * * *", "step"),
        ("5/10 * * * *", "range or"),
        ("30-10 * * * *", "backwards"),
        ("* * * * fri-mon", "backwards"),
        ("1,,2 * * * *", "minute"),
        ("-1 * * * *", "minute"),
        ("a b c d e", "minute"),
        ("59 23 * * * ; drop table jobs", "five fields"),
        ("\0 * * * *", "minute"),
        ("٣ * * * *", "minute"),
        ("x" * 5000, "five fields"),
        ("0 0 * * * " * 1000, "five fields"),
        ("60 24 32 13 8", "minute.*hour.*day.*month.*weekday"),
        ("@reboot", "five fields"),
        ("@every 5m", "five fields"),
    ],
)
def test_a_line_that_cannot_be_is_refused_with_the_field_named_and_at_once(line: str, word: str) -> None:
    begun = time.thread_time()
    with pytest.raises(ScheduleError, match=word):
        cron(line)
    assert time.thread_time() - begun < 0.05


@pytest.mark.parametrize(
    "zone",
    [
        *("US/Pacific-New", "SystemV/PST8", "utc", "europe/paris", " Europe/Paris", "", "localtime", "Factory"),
        *("posixrules", "zone.tab", "tzdata.zi", "../../etc/passwd", "/etc/passwd", "posix/Europe/Paris"),
        *("right/UTC", "x" * 5000, "Europe/Paris\0", "\ud800", "UTC+1", "Europe"),
    ],
)
def test_a_zone_that_is_none_is_refused_and_at_once(zone: str) -> None:
    check_zone("UTC")
    begun = time.thread_time()
    with pytest.raises(ScheduleError, match="is not the name of a time zone"):
        cron("0 4 * * *", zone)
    assert time.thread_time() - begun < 0.05


@pytest.mark.parametrize("zone", ["UTC", "Europe/Kiev", "US/Eastern", "Asia/Kolkata", "America/Argentina/Buenos_Aires"])
def test_old_names_of_zones_work_on_every_machine(zone: str) -> None:
    assert check_zone(zone) == ZoneInfo(zone)
    assert next_after(cron("0 4 * * *", zone), utc("2026-01-01 00:00")) > utc("2026-01-01 00:00")


def test_the_near_miss_of_a_zone_is_named() -> None:
    with pytest.raises(ScheduleError, match="Europe/Copenhagen"):
        check_zone("europe/copenhagen")


@pytest.mark.parametrize("line", ["0 0 29 2 *", "59 23 31 12 *", "0 0 29 2 mon", "*/7 * * * *", "0 12 1 1 *"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Lisbon", "Pacific/Apia"])
def test_an_answer_takes_no_longer_than_fifty_milliseconds(line: str, zone: str) -> None:
    schedule = cron(line, zone)
    next_after(schedule, utc("2026-03-01 00:00"))
    begun = time.thread_time()
    next_after(schedule, utc("2026-03-01 00:00"))
    assert time.thread_time() - begun < 0.05


def test_a_stored_line_that_never_comes_is_an_error_and_not_a_hang() -> None:
    begun = time.thread_time()
    with pytest.raises(ScheduleError, match="has no slot"):
        next_after(Cron("0 0 31 4 *", "UTC"), utc("2026-03-01 00:00"))
    assert time.thread_time() - begun < 1


@pytest.mark.parametrize(
    ("line", "nickname"),
    [("0 * * * *", "@hourly"), ("0 0 * * *", " @daily "), ("0 0 * * sun", "@weekly"), ("0 0 1 1 *", "@annually")],
)
def test_nicknames_and_spaces_come_to_the_same_line(line: str, nickname: str) -> None:
    assert cron(nickname) == cron(line) == cron(f"  {line.replace(' ', '   ')} ")


@pytest.mark.parametrize(
    "schedule",
    [
        every(seconds=1),
        every(days=400),
        every(minutes=5),
        cron("*/7 1-3 1,15 jan-mar mon-fri", "Europe/Berlin"),
        cron("@daily"),
    ],
    ids=str,
)
def test_what_a_schedule_writes_of_itself_it_reads_again(schedule: Cron) -> None:
    assert parse(str(schedule)) == schedule
    assert describe(schedule)


@pytest.mark.parametrize(
    "text", ["", "every 0 s", "every -1 s", "every 5 m", "every 99999999999999 s", "whenever", "* * * * *"]
)
def test_text_that_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises((ScheduleError, OverflowError)):
        parse(text)


@pytest.mark.parametrize("period", [{}, {"seconds": -1}, {"seconds": 0.5}])
def test_an_interval_is_a_whole_number_of_seconds(period: dict[str, int]) -> None:
    with pytest.raises(ScheduleError, match="whole number of seconds"):
        every(**period)


@pytest.mark.parametrize(
    ("line", "hours"),
    [
        ("* * * * *", 1 / 60),
        ("*/7 * * * *", 7 / 60),
        ("0 4 * * *", 24),
        ("0 9-17 * * mon-fri", 64),
        ("0 0 1 * *", 31 * 24),
        ("30 6 * * sat,sun", 6 * 24),
        ("0 0 29 2 *", 4 * 366 * 24 - 3 * 24),
    ],
)
def test_the_widest_gap_is_the_longest_that_a_walk_meets(line: str, hours: float) -> None:
    schedule = cron(line)
    gap = widest_gap(schedule)
    assert gap == timedelta(hours=hours)
    at, walked = utc("2026-01-01 00:00"), []
    while len(walked) < 200 and at < utc("2036-01-01 00:00"):
        at = next_after(schedule, at)
        walked.append(at)
    assert max(b - a for a, b in pairwise(walked)) == gap


@pytest.mark.parametrize("attempt", [1, 2, 5, 12, 10**6])
def test_backoff_lies_between_its_floor_and_its_ceiling(attempt: int) -> None:
    base, ceiling = timedelta(seconds=5), timedelta(hours=1)
    most = min(ceiling, base * 2 ** min(attempt - 1, 20))
    draws = [
        backoff.delay(attempt, base=base, ceiling=ceiling, random=lambda share=share: share) for share in (0, 0.5, 1)
    ]
    assert draws == [timedelta(seconds=1), max(timedelta(seconds=1), most / 2), most]
