"""retention: what is too old goes, what is a microsecond younger stays, and no one who reads is in its way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest

from tests.jobs import attempts
from worker.engine import db, partitions
from worker.engine.context import Context
from worker.jobs import retention

INSERT = """insert into job_runs (job_id, lease, kind, queue, tenant, attempt, outcome, started_at, finished_at, duration_ms,
    priority, enqueued_at) select g, 1, %s, 'night', '', 1, %s, %s, %s, 0, 5, %s from generate_series(1, %s) g"""


def add_runs(conn, at: datetime, *, kind: str = "learner-state", outcome: str = "completed", count: int = 1) -> None:
    conn.execute(INSERT, (kind, outcome, at, at, at, count))


def add_month(conn, year: int, month: int) -> str:
    start = datetime(year, month, 1, tzinfo=UTC)
    name = f"job_runs_{start:%Y_%m}"
    conn.execute(
        f"create table {name} partition of job_runs for values from ('{start}') to ('{partitions.month_start(start, 1)}')"
    )
    return name


def names(conn) -> list[str]:
    return [partition.name for partition in partitions.present(conn, "job_runs")]


def tables(conn) -> set[str]:
    return {
        name
        for (name,) in conn.execute(
            "select relname from pg_class where relkind = 'r' and relname like 'job!_runs!_%' escape '!'"
        )
    }


def run_at(url, conn, now: datetime) -> dict:
    """A run whose first attempt began at this time, by the database's clock."""
    attempts.ask(conn, "retention")
    with attempts.claimed(url, conn, "retention") as ctx:
        ctx.checkpoint({"now": now.isoformat(), "kind": "", "after": "1970-01-01T00:00:00+00:00", "runs": 0})
        counts = ctx.kind.run(ctx, ctx.kind.args())
        conn.execute("delete from jobs")
    return counts


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/St_Johns"])
def test_only_months_that_are_over_for_thirteen_months_are_dropped(url, conn, zone):
    september, october, november = (add_month(conn, 2023, month) for month in (9, 10, 11))
    add_runs(conn, datetime(2023, 9, 30, 23, 59, 59, 999_999, tzinfo=UTC), kind="last of September")
    add_runs(conn, datetime(2023, 10, 1, tzinfo=UTC), kind="first of October")
    add_runs(conn, datetime(2023, 10, 31, 23, 59, 59, 999_999, tzinfo=UTC), kind="last of October")
    attempts.configure(conn, "timezone", zone)
    attempts.configure(conn, "datestyle", "ISO, DMY")

    assert run_at(url, conn, datetime(2024, 10, 31, 23, 59, 59, 999_999, tzinfo=UTC))["months_dropped"] == []
    counts = run_at(url, conn, datetime(2024, 11, 1, tzinfo=UTC))
    assert (counts["months_dropped"], counts["months_held"]) == ([september], [])
    assert run_at(url, conn, datetime(2024, 11, 30, 23, 59, 59, 999_999, tzinfo=UTC))["months_dropped"] == []
    kept = [kind for (kind,) in conn.execute("select kind from job_runs order by finished_at")]
    assert kept == ["first of October", "last of October"]
    assert run_at(url, conn, datetime(2024, 12, 1, tzinfo=UTC))["months_dropped"] == [october]
    assert names(conn)[0] == november


def test_a_run_by_the_clock_keeps_thirteen_months_and_drops_older(url, conn):
    this_month = partitions.month_start(db.now(conn))
    for back in (15, 14, 13):
        start = partitions.month_start(this_month, -back)
        add_month(conn, start.year, start.month)
    counts = attempts.run(url, conn, "retention")
    assert counts["months_dropped"] == [
        f"job_runs_{partitions.month_start(this_month, -back):%Y_%m}" for back in (15, 14)
    ]
    assert names(conn)[0] == f"job_runs_{partitions.month_start(this_month, -13):%Y_%m}"


def test_a_reader_in_its_way_is_waited_for_a_short_time_and_the_month_goes_with_the_next_run(url, conn, monkeypatch):
    monkeypatch.setattr(partitions, "_LOCK_WAIT", "100ms")
    old, older = add_month(conn, 2023, 2), add_month(conn, 2023, 1)
    with db.connect(url, "reader", autocommit=False) as reader, db.connect(url, "other") as other:
        reader.execute("select count(*) from job_runs")
        counts = attempts.run(url, conn, "retention")
        assert (counts["months_dropped"], counts["months_held"]) == ([], [older, old])
        # While the first waits to be detached, others read, write and make months as ever.
        other.execute("set lock_timeout = '1s'")
        other.execute("select count(*) from job_runs")
        add_runs(other, db.now(other))
        assert attempts.run(url, conn, "upkeep")["months_ready"] == 3
        assert attempts.run(url, conn, "retention")["months_held"]
        reader.rollback()
    counts = attempts.run(url, conn, "retention")
    assert (sorted(counts["months_dropped"]), counts["months_held"]) == ([older, old], [])
    assert not {old, older} & tables(conn)
    assert conn.execute("show lock_timeout").fetchone() == ("0",)


def test_a_detachment_that_was_cut_off_is_completed(url, conn):
    old = add_month(conn, 2023, 1)
    with db.connect(url, "reader", autocommit=False) as reader:
        reader.execute("select count(*) from job_runs")
        conn.execute("set lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            conn.execute(f"alter table job_runs detach partition {old} concurrently")
        conn.execute("reset lock_timeout")
    assert conn.execute("select count(*) from pg_inherits where inhdetachpending").fetchone() == (1,)
    assert attempts.run(url, conn, "retention")["months_dropped"] == [old]
    assert conn.execute("select count(*) from pg_inherits where inhdetachpending").fetchone() == (0,)
    assert old in tables(conn)  # it was begun by hand, so what becomes of its rows is for a person to say


def test_a_month_that_was_detached_and_not_dropped_before_a_kill_is_dropped(url, conn):
    old, kept = add_month(conn, 2023, 1), add_month(conn, 2023, 2)
    conn.execute(f"alter table job_runs detach partition {kept}")  # by a person, who wants to keep it

    # What the first two statements of `partitions.drop` leave when the third is never sent.
    conn.execute(f"comment on table {old} is '{partitions._MARK}'")
    conn.execute(f"alter table job_runs detach partition {old} concurrently")
    assert {old, kept} <= tables(conn)
    assert attempts.run(url, conn, "retention")["months_dropped"] == [old]
    assert old not in tables(conn)
    assert kept in tables(conn)


def test_completed_runs_older_than_their_kind_keeps_them_go_and_others_stay(url, conn, monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 10)
    now = db.now(conn)
    attempts.ask(conn, "learner-state")
    days = conn.execute("select history_days from job_kinds where kind = 'learner-state'").fetchone()[0]
    cut = now - timedelta(days=days)
    for back in range(6):
        start = partitions.month_start(now, -back)
        if f"job_runs_{start:%Y_%m}" not in names(conn):
            add_month(conn, start.year, start.month)
    add_runs(conn, cut - timedelta(days=3), count=35)  # one instant, more than three batches
    for minute in range(25):
        add_runs(conn, cut - timedelta(minutes=minute, microseconds=1))
    add_runs(conn, cut)
    add_runs(conn, cut - timedelta(days=1), outcome="failed")
    add_runs(conn, cut - timedelta(days=1), kind="a kind without history_days")
    counts = run_at(url, conn, now)
    assert counts["runs"] == 60
    left = conn.execute("select kind, outcome, finished_at from job_runs order by finished_at, kind").fetchall()
    assert left == [
        ("a kind without history_days", "completed", cut - timedelta(days=1)),
        ("learner-state", "failed", cut - timedelta(days=1)),
        ("learner-state", "completed", cut),
    ]


def test_a_kill_between_batches_goes_on_from_there_with_the_same_cut_off(url, conn, monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 10)
    attempts.ask(conn, "retention")
    now = db.now(conn)
    start = partitions.month_start(now, -12)
    add_month(conn, start.year, start.month)
    for minute in range(45):
        add_runs(conn, start + timedelta(minutes=minute))
    real, calls = Context.checkpoint, []

    def checkpoint(self, cursor, in_transaction=None):
        calls.append(cursor)
        if len(calls) == 3:
            raise ConnectionError
        real(self, cursor, in_transaction)

    with monkeypatch.context() as patch, attempts.claimed(url, conn, "retention") as ctx:
        patch.setattr(Context, "checkpoint", checkpoint)
        with pytest.raises(ConnectionError):
            ctx.kind.run(ctx, ctx.kind.args())
        attempts.give_back(conn, ctx)
    assert conn.execute("select count(*) from job_runs where kind = 'learner-state'").fetchone() == (25,)
    with attempts.claimed(url, conn, "retention") as ctx:
        assert ctx.cursor()["now"] == calls[0]["now"]
        assert ctx.kind.run(ctx, ctx.kind.args())["runs"] == 45  # of both attempts together
    assert conn.execute("select count(*) from job_runs where kind = 'learner-state'").fetchone() == (0,)


def test_dead_processes_sessions_old_actions_and_orphaned_progress_go(url, conn, monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 2)
    conn.execute("insert into operators (name, password_hash, role) values ('night', 'x', 'viewer')")
    for age in ("8 days", "9 days", "10 days", "6 days", "0 days"):
        conn.execute(
            "insert into processes (id, host, pid, version, kinds, queues, lease_seconds, seen_at)"
            " values (%s, 'h', 1, 'v', '{}', '{}', 30, clock_now() - %s::interval)",
            (uuid4(), age),
        )
    for hours in (-3, -2, -1, 1):
        conn.execute(
            "insert into operator_sessions (token_hash, operator_id, expires_at)"
            " select %s, id, clock_now() + %s * interval '1 hour' from operators",
            (str(hours).encode(), hours),
        )
    for age in ("401 days", "402 days", "403 days", "399 days"):
        conn.execute(
            "insert into operator_actions (at, operator, action, target) values (clock_now() - %s::interval, 'night', 'pause', 'x')",
            (age,),
        )
    conn.execute("insert into job_progress (job_id, lease) select g, 1 from generate_series(1000001, 1000005) g")
    counts = attempts.run(url, conn, "retention")
    assert {name: counts[name] for name in ("processes", "sessions", "actions", "progress")} == {
        "processes": 3, "sessions": 3, "actions": 3, "progress": 5,
    }  # fmt: skip
    for table, left in (("processes", 2), ("operator_sessions", 1), ("operator_actions", 1)):
        assert conn.execute(f"select count(*) from {table}").fetchone() == (left,)


def test_the_progress_of_a_live_job_stays(url, conn):
    attempts.ask(conn, "learner-state")
    conn.execute(
        "insert into job_progress (job_id, lease, updated_at) select id, 1, clock_now() - interval '9 days' from jobs"
    )
    assert attempts.run(url, conn, "retention")["progress"] == 0
