"""upkeep: months ahead, whatever the session's zone, and no guesses."""

from __future__ import annotations

import itertools
import threading
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tests.jobs import attempts
from worker.engine import db, executor, partitions
from worker.engine.model import Outcome


def months(conn) -> list[partitions.Partition]:
    return partitions.present(conn, "job_runs")


def test_it_makes_what_is_missing_and_a_second_run_makes_nothing(url, conn):
    ready = [partition.name for partition in months(conn)]
    assert len(ready) == 4  # the migration made this month and three more
    conn.execute(f"drop table {ready[-1]}, {ready[-2]}")
    assert attempts.run(url, conn, "upkeep") == {"made": ready[-2:], "months_ready": 3}
    assert attempts.run(url, conn, "upkeep") == {"made": [], "months_ready": 3}


def test_months_follow_on_each_other_without_gap_for_a_year_of_daily_runs(url, conn):
    for days in range(0, 370, 30):
        attempts.configure(conn, "nightshift.clock_offset", f"{days} days")
        with conn.transaction():
            partitions.ensure(conn, months_ahead=3)
    found = months(conn)
    assert len(found) >= 15
    for before, after in itertools.pairwise(found):
        assert before.until_at == after.from_at
    assert all(
        partition.from_at == datetime(partition.from_at.year, partition.from_at.month, 1, tzinfo=UTC)
        for partition in found
    )


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/St_Johns", "Europe/Copenhagen"])
def test_bounds_are_utc_months_in_any_session(url, conn, zone):
    before = months(conn)
    conn.execute(f"drop table {before[-1].name}")
    attempts.configure(conn, "timezone", zone)
    attempts.configure(conn, "datestyle", "ISO, DMY")
    assert attempts.run(url, conn, "upkeep")["made"] == [before[-1].name]
    assert months(conn) == before
    conn.execute("set timezone = 'UTC'; set datestyle = 'ISO'")
    assert months(conn) == before


def test_a_month_that_is_half_covered_is_refused_with_words_and_nothing_is_made(url, conn):
    last, before_last = months(conn)[-1], months(conn)[-2]
    conn.execute(f"drop table {last.name}, {before_last.name}")
    middle = last.from_at + timedelta(days=14)
    conn.execute(f"create table half partition of job_runs for values from ('{last.from_at}') to ('{middle}')")
    attempts.ask(conn, "upkeep")
    with attempts.claimed(url, conn, "upkeep") as ctx:
        result = executor.attempt(ctx)
    assert result.outcome is Outcome.FAILED
    assert f"half covers only a part of {last.from_at:%Y-%m}: mend it by hand" in (result.error or "")
    assert before_last.name not in [partition.name for partition in months(conn)]


@pytest.mark.parametrize("bounds", ["default", "for values from ('2030-01-01 00:00+00') to (maxvalue)"])
def test_partitions_that_are_not_plain_months_are_refused_with_words(conn, bounds):
    conn.execute(f"create table other partition of job_runs {bounds}")
    with pytest.raises(partitions.PartitionError, match="other with bounds"):
        months(conn)


def test_attaching_lets_readers_and_writers_of_other_months_pass(url, conn):
    last = months(conn)[-1]
    conn.execute(f"drop table {last.name}")
    with db.connect(url, "reader", autocommit=False) as reader:
        reader.execute("select count(*) from job_runs")
        reader.execute("insert into job_runs select (jsonb_populate_record(null::job_runs, %s)).*", (RUN,))
        assert attempts.run(url, conn, "upkeep")["made"] == [last.name]
        reader.rollback()


def test_two_makers_at_once_take_turns(url, conn):
    last = months(conn)[-1].name
    conn.execute(f"drop table {last}")
    made: list[str] = []
    with db.connect(url, "first", autocommit=False) as first, db.connect(url, "second", autocommit=False) as second:
        assert partitions.ensure(first, months_ahead=3) == [last]
        other = threading.Thread(target=lambda: made.extend(partitions.ensure(second, months_ahead=3)))
        other.start()
        while not conn.execute("select cardinality(pg_blocking_pids(%s))", (second.info.backend_pid,)).fetchone()[0]:
            assert other.is_alive()
        first.commit()
        other.join()
    assert made == []


def test_a_lock_that_can_not_be_had_soon_is_an_error_to_be_retried(url, conn):
    conn.execute(f"drop table {months(conn)[-1].name}")
    with db.connect(url, "admin", autocommit=False) as admin, conn.transaction():
        admin.execute("lock table job_runs in access exclusive mode")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            partitions.ensure(conn, months_ahead=3)
        raise psycopg.Rollback


RUN = (
    '{"job_id": 1, "lease": 1, "kind": "k", "queue": "q", "tenant": "", "attempt": 1, "outcome": "completed", "started_at": "now",'
    ' "finished_at": "now", "duration_ms": 0, "priority": 5, "enqueued_at": "now"}'
)
