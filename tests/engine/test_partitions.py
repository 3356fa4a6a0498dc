"""The history's months: made ahead, in UTC whatever the session's zone, never guessed, dropped without harm."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest
from psycopg import sql

from tests.support.moves import begun, ends, one, outcomes, publish, set_clock
from worker.engine import db, partitions
from worker.engine.partitions import PartitionError


def at(conn: psycopg.Connection, text: str) -> None:
    """Sets the database's clock."""
    wanted = datetime.fromisoformat(text).replace(tzinfo=UTC)
    set_clock(conn, f"{(wanted - datetime.now(UTC)).total_seconds()} s")


def ensure(conn: psycopg.Connection, months_ahead: int) -> list[str]:
    with conn.transaction():
        return partitions.ensure(conn, months_ahead=months_ahead)


def test_months_are_made_ahead_and_made_once(conn: psycopg.Connection) -> None:
    at(conn, "2031-11-30T23:59:50")
    names = ["job_runs_2031_11", "job_runs_2031_12", "job_runs_2032_01"]
    assert ensure(conn, 2) == names
    assert ensure(conn, 2) == []
    months = [p for p in partitions.present(conn, "job_runs") if p.name in names]
    assert [(p.from_at, p.until_at) for p in months] == [
        (datetime(2031, 11, 1, tzinfo=UTC), datetime(2031, 12, 1, tzinfo=UTC)),
        (datetime(2031, 12, 1, tzinfo=UTC), datetime(2032, 1, 1, tzinfo=UTC)),
        (datetime(2032, 1, 1, tzinfo=UTC), datetime(2032, 2, 1, tzinfo=UTC)),
    ]


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/New_York", "Europe/Lisbon"])
def test_the_bounds_are_utc_months_whatever_the_sessions_zone(conn: psycopg.Connection, zone: str) -> None:
    conn.execute("select set_config('timezone', %s, false)", (zone,))
    at(conn, "2031-06-30T23:30:00")
    assert ensure(conn, 1) == ["job_runs_2031_06", "job_runs_2031_07"]
    assert ensure(conn, 1) == []
    conn.execute("set timezone = 'UTC'")
    assert ensure(conn, 1) == []
    found = {p.name: p for p in partitions.present(conn, "job_runs")}
    assert found["job_runs_2031_07"].from_at == datetime(2031, 7, 1, tzinfo=UTC)


def test_a_month_that_is_half_covered_is_left_to_a_person(conn: psycopg.Connection) -> None:
    at(conn, "2031-06-15T00:00:00")
    conn.execute("create table half partition of job_runs for values from ('2031-06-01+00') to ('2031-06-10+00')")
    with pytest.raises(PartitionError, match="half covers only a part of 2031-06"):
        ensure(conn, 0)
    assert one(conn, "select to_regclass('job_runs_2031_06')") is None


def test_a_month_within_a_wider_partition_needs_none(conn: psycopg.Connection) -> None:
    at(conn, "2031-06-15T00:00:00")
    conn.execute("create table wide partition of job_runs for values from ('2031-01-01+00') to ('2032-01-01+00')")
    assert ensure(conn, 6) == []
    assert ensure(conn, 7) == ["job_runs_2032_01"]


def test_a_partition_of_another_making_is_named(conn: psycopg.Connection) -> None:
    conn.execute("create table rest partition of job_runs default")
    with pytest.raises(PartitionError, match="rest"):
        ensure(conn, 0)


def test_a_run_at_the_turn_of_a_month_finds_its_partition(conn: psycopg.Connection) -> None:
    publish(conn)
    for moment, name in (("2031-07-31T23:59:58", "job_runs_2031_07"), ("2031-08-01T00:00:00", "job_runs_2031_08")):
        at(conn, moment)
        ensure(conn, 1)
        job = begun(conn)
        assert ends(conn, job)
        assert one(conn, "select tableoid::regclass::text from job_runs where job_id = %s", job.id) in {
            name,
            "job_runs_2031_08",
        }
        assert outcomes(conn, job.id) == [("completed", "completed")]


def test_a_month_is_made_while_a_run_is_being_written(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn)
    with db.connect(url, "owner", autocommit=False) as owner:
        owner.execute("select")
        ends(owner, job)
        at(conn, "2031-06-15T00:00:00")
        assert ensure(conn, 0) == ["job_runs_2031_06"]
        owner.commit()


def test_a_reader_keeps_a_partition_from_being_dropped_and_is_not_harmed(url: str, conn: psycopg.Connection) -> None:
    at(conn, "2031-06-15T00:00:00")
    ensure(conn, 0)
    (old,) = [p for p in partitions.present(conn, "job_runs") if p.name == "job_runs_2031_06"]
    with db.connect(url, "reader", autocommit=False) as reader:
        reader.execute("select count(*) from job_runs")
        assert not partitions.drop(conn, "job_runs", old)
        assert reader.execute("select count(*) from job_runs").fetchone() == (0,)
    assert partitions.finalize(conn, "job_runs") == ["job_runs_2031_06"]
    assert one(conn, "select to_regclass('job_runs_2031_06')") is None
    assert one(conn, "show lock_timeout") == "0"


def test_a_free_partition_is_dropped(conn: psycopg.Connection) -> None:
    at(conn, "2031-06-15T00:00:00")
    ensure(conn, 0)
    (old,) = [p for p in partitions.present(conn, "job_runs") if p.name == "job_runs_2031_06"]
    assert partitions.drop(conn, "job_runs", old)
    assert old not in partitions.present(conn, "job_runs")
    assert conn.execute(sql.SQL("select count(*) from {}").format(sql.Identifier("job_runs"))).fetchone() == (0,)
