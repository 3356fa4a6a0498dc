"""Rows as a jobs process would leave them, written by SQL, so that the pages are tested without one."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from psycopg import Connection, sql

WORKER = UUID(int=7)


def _insert(conn: Connection, table: str, values: dict[str, Any], returning: str = "1") -> Any:
    statement = sql.SQL("insert into {} ({}) values ({}) returning {}").format(
        sql.Identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, values)),
        sql.SQL(", ").join(sql.Placeholder() * len(values)),
        sql.SQL(returning),
    )
    row = conn.execute(statement, list(values.values())).fetchone()
    assert row is not None
    return row[0]


def now(conn: Connection) -> datetime:
    row = conn.execute("select clock_now()").fetchone()
    assert row is not None
    at: datetime = row[0]
    return at


def kind(conn: Connection, name: str = "nightly", *, schedule: str | None = "every 3600 s", **columns: Any) -> str:
    gap = None if schedule is None else 3600
    values = {"kind": name, "description": "What it does.", "schedule": schedule, "widest_gap_seconds": gap} | columns
    _insert(conn, "job_kinds", values)
    return name


def job(conn: Connection, name: str = "nightly", *, args: Any = None, **columns: Any) -> int:
    values = {"kind": name, "args": json.dumps({} if args is None else args)} | columns
    if values.get("status") == "running":
        at = now(conn)
        running = {
            "attempt": 1,
            "lease": 1,
            "locked_by": WORKER,
            "locked_at": at,
            "locked_until": at + timedelta(minutes=5),
        }
        values = running | values
    return int(_insert(conn, "jobs", values, "id"))


def run(conn: Connection, name: str = "nightly", *, job_id: int = 1, **columns: Any) -> None:
    at = columns.pop("finished_at", None) or now(conn)
    took = columns.get("duration_ms", 1500)
    values = {
        "job_id": job_id,
        "lease": 1,
        "kind": name,
        "queue": "default",
        "tenant": "",
        "attempt": 1,
        "outcome": "completed",
        "ended": "completed",
        "started_at": at - timedelta(milliseconds=took),
        "finished_at": at,
        "duration_ms": took,
        "worker": WORKER,
        "priority": 5,
        "max_attempts": 5,
        "enqueued_at": at - timedelta(minutes=1),
        "args": "{}",
    } | columns
    _insert(conn, "job_runs", values)


def process(conn: Connection, *, kinds: list[str] | None = None, **columns: Any) -> None:
    values = {
        "id": uuid4(),
        "host": "desk",
        "pid": 12,
        "version": "0.1.0",
        "kinds": kinds or ["nightly"],
        "queues": json.dumps({"default": 8}),
        "lease_seconds": 30,
        "listener": "listening",
    } | columns
    _insert(conn, "processes", values)


def progress(conn: Connection, job_id: int, **columns: Any) -> None:
    _insert(conn, "job_progress", {"job_id": job_id, "lease": 1, "done": 10, "total": 40} | columns)
