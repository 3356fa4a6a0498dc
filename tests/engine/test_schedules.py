"""Schedules: what is accepted, what is refused and with which words, and when each is due."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest

from worker.engine.schedules import (
    Cron,
    Every,
    Schedule,
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


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def slots(schedule: Schedule, after: str, count: int) -> list[str]:
    found = slots_between(schedule, at(after), datetime(2200, 1, 1, tzinfo=UTC), limit=count)
    return [f"{slot:%Y-%m-%dT%H:%M}" + (f":{slot:%S}" if slot.second else "") + "Z" for slot in found]


@pytest.mark.parametrize(
    "schedule",
    [
        every(seconds=1),
        every(seconds=90),
        every(minutes=5),
        every(hours=1),
        every(days=7),
        cron("30 2 * * *", "Europe/Copenhagen"),
        cron("*/7 1-3 1,15 jan-mar mon-fri", "America/Argentina/Buenos_Aires"),
    ],
    ids=str,
)
def test_a_schedule_is_read_back_from_its_text(schedule: Schedule) -> None:
    assert parse(str(schedule)) == schedule


def test_the_text_of_an_interval_uses_the_largest_unit_that_divides_it() -> None:
    assert [str(every(seconds=s)) for s in (1, 90, 300, 3600, 86_400)] == [
        "every 1 s", "every 90 s", "every 5 min", "every 1 h", "every 1 d",
    ]  # fmt: skip
    assert parse("every 3600 s") == parse("every 60 min") == every(hours=1)


@pytest.mark.parametrize(
    "text", ["", " ", "every", "every 0 s", "every 5 m", "every \u0665 min", "every -5 s", "daily"]
)
def test_text_that_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(ScheduleError):
        parse(text)
    with pytest.raises(ScheduleError):
        parse(text + "x" * 1_000_000)


@pytest.mark.parametrize(
    "given", [{}, {"seconds": 0}, {"seconds": 0.5}, {"seconds": -5}, {"days": 3661}, {"days": 10**12}, {"days": -1e300}]
)
def test_an_interval_is_a_whole_number_of_seconds_up_to_ten_years(given: dict[str, float]) -> None:
    with pytest.raises(ScheduleError, match="whole number of seconds"):
        every(**given)


def test_intervals_are_aligned_to_the_epoch_and_count_real_time() -> None:
    assert slots(every(minutes=5), "2026-03-08T06:58:30Z", 3) == [
        "2026-03-08T07:00Z", "2026-03-08T07:05Z", "2026-03-08T07:10Z",
    ]  # fmt: skip
    assert slots(every(days=1), "2026-03-08T00:00Z", 1) == ["2026-03-09T00:00Z"]
    assert slots(every(hours=1), "1969-12-31T22:30Z", 2) == ["1969-12-31T23:00Z", "1970-01-01T00:00Z"]


def test_the_next_slot_is_strictly_later_to_the_microsecond() -> None:
    for schedule in (every(minutes=1), cron("* * * * *"), cron("* * * * *", "Asia/Kolkata")):
        assert next_after(schedule, at("2026-01-01T10:00:00Z")) == at("2026-01-01T10:01:00Z")
        assert next_after(schedule, at("2026-01-01T09:59:59.999999Z")) == at("2026-01-01T10:00:00Z")
        assert next_after(schedule, at("2026-01-01T10:00:00.000001Z")) == at("2026-01-01T10:01:00Z")


def test_a_time_may_come_in_any_zone_and_the_answer_is_in_utc_but_a_time_without_zone_is_refused() -> None:
    found = next_after(cron("0 9 * * *"), datetime(2026, 1, 1, 11, tzinfo=timezone(timedelta(hours=5))))
    assert (found, found.tzinfo) == (datetime(2026, 1, 1, 9, tzinfo=UTC), UTC)
    for schedule in (every(hours=1), cron("0 9 * * *")):
        with pytest.raises(ValueError, match="with a zone"):
            next_after(schedule, datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("0 * * * * *", "five fields"),
        ("@reboot", "five fields"),
        ("@every 5m", "five fields"),
        ("59 23 * * * ; drop table jobs", "five fields"),
        ("\0 * * * *", "minute"),
        ("0 0 * * sunday", "a weekday by name"),
        ("0 0 * * *" + " " * 300, "five fields"),
        ("60 0 * * *", "minute: '60' is not a number from 0 to 59"),
        ("-1 0 * * *", "minute"),
        ("0 24 * * *", "hour: '24' is not a number from 0 to 23"),
        ("0 0 0 * *", "day: '0' is not a number from 1 to 31"),
        ("0 0 32 * *", "day"),
        ("0 0 * 13 *", "month: '13' is not a number from 1 to 12 or a month's name"),
        ("0 0 * foo *", "month"),
        ("0 9 * * 1", "cron counts from Sunday, APScheduler from Monday; cron's 1 is mon"),
        ("0 9 * * 0", "cron's 0 is sun"),
        ("0 9 * * 1-5", "cron's 1-5 is mon-fri"),
        ("0 9 * * */2", "write their names"),
        ("0 9 * * mon#1", "weekday"),
        ("0 9 * * 1st", "weekday"),
        ("0 9 L * *", "day"),
        ("0 9 last * *", "day"),
        ("0 9 ? * *", "day"),
        ("0 22-2 * * *", "hour: '22-2' runs backwards; write 22-23,0-2"),
        ("0 0 * * fri-mon", "write fri-sun,mon"),
        ("0 0 * nov-feb *", "write nov-dec,jan-feb"),
        ("*/0 * * * *", "step"),
        ("*/60 * * * *", "a number from 1 to 59"),
        ("0 */24 * * *", "a number from 1 to 23"),
        ("0 5-5/1 * * *", "left out"),
        ("5/15 * * * *", "write 5-59/15"),
        ("*/ * * * *", "step"),
        ("1,,2 * * * *", "minute: '' is not"),
        ("\u0663 0 * * *", "minute"),
        ("0 0 1--100000000 * *", "day"),
        ("0 0 1-100000000 * *", "day"),
        ("0 0 */100000000 * *", "step"),
        ("0 0 31 4 *", "day: month '4' has no day '31'; write a day up to 30"),
        ("0 0 30 2 *", "day"),
        ("0 0 31 2,4,6 *", "day"),
        ("0 0 30-31 feb *", "day"),
    ],
)
def test_a_bad_line_is_refused_at_once_with_its_field_and_what_to_write(line: str, words: str) -> None:
    began = time.thread_time()
    with pytest.raises(ScheduleError) as refused:
        cron(line)
    assert time.thread_time() - began < 0.05
    assert words in str(refused.value)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ScheduleError) as refused:
        cron("60 24 * * 1", "europe/paris")
    for word in ("zone: 'europe/paris'", "Europe/Paris", "minute: '60'", "hour: '24'", "weekday: '1'"):
        assert word in str(refused.value)


@pytest.mark.parametrize("line", [None, 5, b"0 0 * * *", ["0 0 * * *"]])
def test_a_line_or_zone_that_is_not_text_is_refused(line: object) -> None:
    with pytest.raises(ScheduleError):
        cron(line)  # type: ignore[arg-type]
    with pytest.raises(ScheduleError):
        cron("0 0 * * *", line)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "zone",
    [
        "US/Pacific-New", "SystemV/PST8", "utc", "europe/paris", "EUROPE/PARIS", " Europe/Paris", "Europe/Paris ", "",
        " ", "localtime", "Factory", "posixrules", "zone.tab", "../../etc/passwd", "/etc/localtime", "Europe",
        "posix/Europe/Paris", "right/UTC", "Europe/Paris\0", "\ud800", "A" * 5000, "UTC+1",
    ],
)  # fmt: skip
def test_a_name_that_is_no_zone_everywhere_is_refused(zone: str) -> None:
    began = time.thread_time()
    with pytest.raises(ScheduleError) as refused:
        cron("0 0 * * *", zone)
    assert time.thread_time() - began < 0.05
    assert len(str(refused.value)) < 300


def test_old_names_of_zones_work_and_a_slip_gets_a_hint() -> None:
    for zone in ("US/Eastern", "Europe/Kiev", "GMT", "Etc/GMT+12", "UTC"):
        assert check_zone(zone).key == zone
    with pytest.raises(ScheduleError, match="did you mean Europe/Copenhagen"):
        check_zone("Europe/Kopenhagen")


@pytest.mark.parametrize(
    ("nickname", "line"), [("@daily", "0 0 * * *"), ("@HOURLY", "0 * * * *"), (" @weekly ", "0 0 * * sun")]
)
def test_nicknames_are_kept_as_the_line_they_stand_for(nickname: str, line: str) -> None:
    assert cron(nickname) == Cron(line, "UTC")


def test_a_line_is_kept_in_one_spelling() -> None:
    assert cron(" 0\t9  * JAN Mon-FRI\n") == Cron("0 9 * jan mon-fri", "UTC")


@pytest.mark.parametrize(
    ("line", "zone", "after", "wanted"),
    [
        # Day of month and weekday: either is enough when both are given, unless one begins with a star.
        ("0 0 13 * fri", "UTC", "2026-11-01T00:00Z", ["2026-11-06T00:00Z", "2026-11-13T00:00Z", "2026-11-20T00:00Z"]),
        ("0 0 15 * mon", "UTC", "2026-12-08T00:00Z", ["2026-12-14T00:00Z", "2026-12-15T00:00Z", "2026-12-21T00:00Z"]),
        ("0 0 31 4 mon", "UTC", "2026-04-21T00:00Z", ["2026-04-27T00:00Z", "2027-04-05T00:00Z"]),
        ("0 0 */2 * mon", "UTC", "2026-12-01T00:00Z", ["2026-12-07T00:00Z", "2026-12-21T00:00Z", "2027-01-11T00:00Z"]),
        ("0 0 1 * *", "UTC", "2026-12-01T00:00Z", ["2027-01-01T00:00Z"]),
        ("0 9 * * sun", "UTC", "2026-12-01T00:00Z", ["2026-12-06T09:00Z"]),
        ("0 9 * * mon-fri", "UTC", "2026-12-04T09:00Z", ["2026-12-07T09:00Z"]),
        # Rare days, year ends, week 53.
        ("0 0 29 2 *", "UTC", "2026-03-01T00:00Z", ["2028-02-29T00:00Z", "2032-02-29T00:00Z"]),
        ("0 0 29 2 *", "UTC", "2096-02-29T00:00Z", ["2104-02-29T00:00Z"]),
        ("0 0 */28 2 mon", "UTC", "2038-02-01T00:00Z", ["2044-02-01T00:00Z", "2044-02-29T00:00Z", "2049-02-01T00:00Z"]),
        ("59 23 31 12 *", "UTC", "2026-12-31T23:58:59Z", ["2026-12-31T23:59Z", "2027-12-31T23:59Z"]),
        ("0 0 * * sun", "UTC", "2026-12-28T00:00Z", ["2027-01-03T00:00Z"]),
        # A daily line keeps its wall time over a change.
        ("0 20 * * *", "Europe/Paris", "2022-10-29T22:00Z", ["2022-10-30T19:00Z", "2022-10-31T19:00Z", "2022-11-01T19:00Z"]),
        ("30 9 * * *", "America/New_York", "2026-03-07T12:00Z", ["2026-03-07T14:30Z", "2026-03-08T13:30Z", "2026-03-09T13:30Z"]),
        ("*/30 * * * *", "Australia/Lord_Howe", "2025-04-05T14:10Z", ["2025-04-05T14:30Z", "2025-04-05T15:00Z", "2025-04-05T15:30Z"]),
        # A time that is skipped runs at the first valid instant after it.
        ("30 2 * * *", "America/New_York", "2026-03-07T12:00Z", ["2026-03-08T07:00Z", "2026-03-09T06:30Z"]),
        ("0 1 30 3 *", "Europe/Lisbon", "2025-03-29T12:00Z", ["2025-03-30T01:00Z", "2026-03-30T00:00Z"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2025-10-04T12:00Z", ["2025-10-04T15:30Z", "2025-10-05T15:15Z"]),
        ("0,30 2-3 * * *", "Europe/Berlin", "2026-03-29T00:00Z", ["2026-03-29T01:00Z", "2026-03-29T01:30Z", "2026-03-30T00:00Z"]),
        ("*/20 2 * * *", "Europe/Berlin", "2026-03-28T12:00Z", ["2026-03-29T01:00Z", "2026-03-30T00:00Z"]),
        ("30 */2 * * *", "Europe/Berlin", "2026-03-28T23:30Z", ["2026-03-29T01:00Z", "2026-03-29T02:30Z"]),
        ("30 * * * *", "Europe/Berlin", "2026-03-28T23:30Z", ["2026-03-29T00:30Z", "2026-03-29T01:30Z"]),
        # Midnight itself is skipped.
        ("0 0 * * *", "America/Santiago", "2026-09-05T12:00Z", ["2026-09-06T04:00Z", "2026-09-07T03:00Z"]),
        ("30 0 * * *", "America/Santiago", "2026-09-05T12:00Z", ["2026-09-06T04:00Z", "2026-09-07T03:30Z"]),
        ("0 0 * * *", "Africa/Cairo", "2026-04-23T12:00Z", ["2026-04-23T22:00Z", "2026-04-24T21:00Z"]),
        ("0 0 * * *", "Asia/Beirut", "2026-03-28T12:00Z", ["2026-03-28T22:00Z", "2026-03-29T21:00Z"]),
        ("0 0 29 3 *", "Asia/Beirut", "2026-01-01T00:00Z", ["2026-03-28T22:00Z", "2027-03-28T21:00Z"]),
        ("59 23 * * *", "Asia/Beirut", "2026-10-24T12:00Z", ["2026-10-24T20:59Z", "2026-10-25T21:59Z"]),
        # Samoa had no 30 December 2011 at all.
        ("0 12 * * *", "Pacific/Apia", "2011-12-29T12:00Z", ["2011-12-29T22:00Z", "2011-12-30T10:00Z", "2011-12-30T22:00Z"]),
        ("0 12 30 12 *", "Pacific/Apia", "2011-12-01T00:00Z", ["2011-12-30T10:00Z", "2012-12-29T22:00Z"]),
        ("0 0 31 12 *", "Pacific/Apia", "2011-12-01T00:00Z", ["2011-12-30T10:00Z", "2012-12-30T10:00Z"]),
        # Morocco goes back for Ramadan and forward after it.
        ("30 2 * * *", "Africa/Casablanca", "2026-02-14T12:00Z", ["2026-02-15T01:30Z", "2026-02-16T02:30Z"]),
        ("30 2 * * *", "Africa/Casablanca", "2026-03-21T12:00Z", ["2026-03-22T02:00Z", "2026-03-23T01:30Z"]),
        # A time that occurs twice runs the first time, also when asked between the two.
        ("30 1 * * *", "America/New_York", "2026-10-31T12:00Z", ["2026-11-01T05:30Z", "2026-11-02T06:30Z"]),
        ("30 1 * * *", "America/New_York", "2026-11-01T05:45Z", ["2026-11-02T06:30Z"]),
        ("30 1 * * *", "America/New_York", "2026-11-01T06:15Z", ["2026-11-02T06:30Z"]),
        ("0 2 * * sun", "Europe/Berlin", "2024-10-27T00:30Z", ["2024-11-03T01:00Z"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00Z", ["2026-04-04T14:45Z", "2026-04-05T15:15Z"]),
        ("0 1-3 * * *", "Europe/Berlin", "2026-10-24T22:30Z", ["2026-10-24T23:00Z", "2026-10-25T00:00Z", "2026-10-25T02:00Z"]),
        # A line with * or a step in its hours runs in both passes.
        ("30 * * * *", "America/New_York", "2026-11-01T04:30Z", ["2026-11-01T05:30Z", "2026-11-01T06:30Z", "2026-11-01T07:30Z"]),
        ("30 0-23 * * *", "America/New_York", "2026-11-01T04:30Z", ["2026-11-01T05:30Z", "2026-11-01T06:30Z", "2026-11-01T07:30Z"]),
        ("0 */2 * * *", "Europe/Berlin", "2026-10-24T23:00Z", ["2026-10-25T00:00Z", "2026-10-25T01:00Z", "2026-10-25T03:00Z"]),
    ],
)  # fmt: skip
def test_the_next_slots_are_these(line: str, zone: str, after: str, wanted: list[str]) -> None:
    schedule = cron(line, zone)
    began = time.thread_time()
    assert slots(schedule, after, len(wanted)) == wanted
    assert time.thread_time() - began < 0.05 * max(1, len(wanted))


def test_a_line_of_every_minute_fills_the_repeated_hour_and_misses_none() -> None:
    minutely = slots_between(cron("* * * * *", "Europe/London"), at("2025-10-26T00:58:30Z"), at("2025-10-26T02:00Z"))
    first = at("2025-10-26T00:59Z")
    assert minutely == [first + timedelta(minutes=n) for n in range(62)]
    assert sum(at("2025-10-26T01:00Z") <= slot <= at("2025-10-26T01:59Z") for slot in minutely) == 60


@pytest.mark.parametrize(
    "line",
    ["* * * * *", "* 0-22 * * *", "*/7 */2 * * *", "* * 29 2 *", "* 1 */28 2 mon", "0 0 29 2 *", "59 23 31 12 *"],
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris", "Pacific/Apia", "Africa/Casablanca"])
def test_every_answer_comes_within_50_ms(line: str, zone: str) -> None:
    schedule = cron(line, zone)
    for after in ("2026-12-01T00:00Z", "2026-10-25T00:30Z", "2011-12-30T09:59Z", "1999-12-31T23:59:59.5Z"):
        took = []
        for _ in range(3):  # the quickest of three: another process may hold the processor
            began = time.thread_time()
            next_after(schedule, at(after))
            took.append(time.thread_time() - began)
        assert min(took) < 0.05
    began = time.thread_time()
    widest_gap.__wrapped__(schedule)
    assert time.thread_time() - began < 0.25


def test_a_time_at_the_end_of_the_calendar_is_refused_with_words() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    for schedule in (every(hours=1), cron("* * * * *"), cron("0 0 29 2 *", "Asia/Tokyo")):
        with pytest.raises(ScheduleError, match="no slot"):
            next_after(schedule, last)


def test_slots_between_excludes_its_start_includes_its_end_and_is_bounded() -> None:
    hourly = every(hours=1)
    assert slots_between(hourly, at("2026-01-01T10:00Z"), at("2026-01-01T12:00Z")) == [
        at("2026-01-01T11:00Z"), at("2026-01-01T12:00Z"),
    ]  # fmt: skip
    assert slots_between(hourly, at("2026-01-01T12:00Z"), at("2026-01-01T10:00Z")) == []
    assert len(slots_between(every(seconds=1), at("2020-01-01T00:00Z"), at("2026-01-01T00:00Z"))) == 100


def test_only_a_slot_is_a_slot() -> None:
    daily = cron("30 2 * * *", "America/New_York")
    assert is_slot(daily, at("2026-03-08T07:00Z"))  # 02:30 was skipped that day
    assert not is_slot(daily, at("2026-03-08T07:30Z"))
    assert not is_slot(cron("30 1 * * *", "America/New_York"), at("2026-11-01T06:30Z"))  # the second 01:30
    assert is_slot(every(minutes=5), at("2026-01-01T10:05Z"))
    assert not is_slot(every(minutes=5), at("2026-01-01T10:05:00.000001Z"))


@pytest.mark.parametrize(
    ("schedule", "gap"),
    [
        (every(minutes=5), timedelta(minutes=5)),
        (cron("* * * * *"), timedelta(minutes=1)),
        (cron("*/7 * * * *"), timedelta(minutes=7)),
        (cron("30 2 * * *", "Europe/Berlin"), timedelta(days=1)),
        (cron("0 9-17 * * *"), timedelta(hours=16)),
        (cron("0 9 * * mon-fri"), timedelta(days=3)),
        (cron("0,30 9-17 * * mon-fri"), timedelta(days=2, hours=15, minutes=30)),
        (cron("0 0 1 * *"), timedelta(days=31)),
        (cron("0 0 31 * *"), timedelta(days=61)),
        (cron("0 0 1,15 * fri"), timedelta(days=7)),
        (cron("0 0 29 2 *"), timedelta(days=1461)),
        (cron("0 0 1 1 *"), timedelta(days=366)),
    ],
    ids=str,
)
def test_the_widest_gap_of_a_schedule(schedule: Schedule, gap: timedelta) -> None:
    assert widest_gap(schedule) == gap
    if isinstance(schedule, Cron) and gap > timedelta(minutes=1):  # and a walk of ten years meets no wider one
        utc = cron(schedule.line)
        walked = slots_between(utc, at("2026-01-01T00:00Z"), at("2036-01-01T00:00Z"), limit=500)
        assert max(b - a for a, b in pairwise(walked)) == gap


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (every(minutes=5), "every 5 minutes"),
        (every(hours=1), "every hour"),
        (every(seconds=90), "every 90 seconds"),
        (cron("30 2 * * *", "Europe/Copenhagen"), "at 02:30 every day, Europe/Copenhagen"),
        (cron("0 9 * * mon-fri"), "at 09:00 mon to fri, UTC"),
        (cron("5 * * * *"), "every hour at :05"),
        (cron("5 * * * *", "Asia/Kolkata"), "every hour at :05, Asia/Kolkata"),
        (cron("* * * * *"), "every minute"),
        (cron("*/15 * * * *"), "every 15 minutes"),
        (cron("*/7 * * * *"), "*/7 * * * * (UTC)"),
        (cron("0 0 1 * *", "Asia/Tokyo"), "0 0 1 * * (Asia/Tokyo)"),
    ],
    ids=str,
)
def test_a_schedule_in_words(schedule: Schedule, words: str) -> None:
    assert describe(schedule) == words


def test_a_stored_schedule_whose_zone_is_gone_says_so_when_asked() -> None:
    with pytest.raises(ScheduleError, match="zone: 'Europe/Atlantis'"):
        next_after(Cron("0 0 * * *", "Europe/Atlantis"), at("2026-01-01T00:00Z"))
    with pytest.raises(ScheduleError, match="no slot"):
        next_after(Cron("0 0 31 4 *"), at("2026-01-01T00:00Z"))
    with pytest.raises(ScheduleError, match="calendar"):
        next_after(Every(timedelta(days=10**8)), at("2026-01-01T00:00Z"))
