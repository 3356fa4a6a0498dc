"""Reads for the command line (the page has its own in webapp.queries), the audit row, and their words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from psycopg import Connection
from psycopg.rows import dict_row

from worker.engine import clean, db, kinds
from worker.engine.schedules import describe, parse


def status(conn: Connection) -> dict[str, Any]:
    """Kinds, queues and processes; `status` is "ok", "late" or "no process"."""
    health = {one.kind: one for one in kinds.health(conn)}
    processes = _rows(conn, "status_processes")
    late = [name for name, one in health.items() if one.state == "late"]
    return {
        "status": "late" if late else "ok" if any(one["is_alive"] for one in processes) else "no process",
        "late": late,
        "kinds": [
            row
            | (
                {"state": health[row["kind"]].state, "late_after": health[row["kind"]].late_after}
                if row["kind"] in health
                else {}
            )
            for row in _rows(conn, "status_kinds")
        ],
        "queues": _rows(conn, "status_queues"),
        "processes": processes,
    }


def runs(
    conn: Connection, *, kind: str | None = None, job_id: int | None = None, limit: int = 20
) -> list[dict[str, Any]]:
    """Attempts, the newest first. `id` is the job's, (id, lease) the run's; durations in milliseconds, times aware."""
    statement = "runs" if job_id is None else "runs_of_job"
    rows = _rows(conn, statement, {"kind": kind, "job_id": job_id, "limit": limit})
    return [{"id": row.pop("job_id"), **row} for row in rows]


def record_action(
    conn: Connection,
    operator: str,
    action: str,
    target: str,
    details: dict[str, Any],
    reason: str | None = None,
    *,
    result: str = "done",
    address: str | None = None,
) -> None:
    """Writes who did what to what, in the caller's transaction."""
    values = {
        "operator": clean.text(operator, 200),
        "action": action,
        "target": clean.text(target, 200),
        "result": result,
        "reason": None if reason is None else clean.text(reason, 1000),
        "details": msgspec.json.encode(details).decode(),
        "address": address,
    }
    conn.execute(db.statement("action"), values)


def _rows(conn: Connection, statement: str, values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    with conn.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(db.statement(statement), values).fetchall()


def text(seen: dict[str, Any]) -> str:
    """The status for people."""
    first = {
        "ok": "The night is fine.",
        "late": f"Late: {', '.join(seen['late'])}.",
        "no process": "No jobs process is alive: nothing runs.",
    }
    lines = [first[seen["status"]], ""]
    lines += _table(
        ("KIND", "STATE", "SCHEDULE", "LAST", "ENDED", "NEXT"),
        [
            (
                k["kind"],
                k.get("state", "-"),
                describe(parse(k["schedule"])) if k["schedule"] else "on demand",
                k["last_outcome"] or "never",
                _at(k["last_finished_at"]),
                _at(k["next_run_at"]),
            )
            for k in seen["kinds"]
        ],
    )
    lines += [
        "",
        *_table(
            ("QUEUE", "DUE", "SCHEDULED", "WAITING", "RUNNING", ""),
            [
                (q["queue"], q["due"], q["scheduled"], q["waiting"], q["running"], "paused" if q["is_paused"] else "")
                for q in seen["queues"]
            ],
        ),
    ]
    lines += [
        "",
        *_table(
            ("PROCESS", "PID", "STATE", "BUSY", "LISTENER", "SEEN"),
            [
                (
                    p["host"],
                    p["pid"],
                    p["state"] if p["is_alive"] else "gone",
                    p["busy"],
                    p["listener"],
                    _at(p["seen_at"]),
                )
                for p in seen["processes"]
            ],
        ),
    ]
    return "\n".join(lines)


def runs_text(listed: list[dict[str, Any]]) -> str:
    """Runs for people."""
    return "\n".join(
        _table(
            ("JOB", "KIND", "ATTEMPT", "OUTCOME", "STARTED", "MS", "COUNTS", "ERROR"),
            [
                (
                    r["id"],
                    r["kind"],
                    r["attempt"],
                    r["outcome"],
                    _at(r["started_at"]),
                    r["duration_ms"],
                    " ".join(f"{key}={value}" for key, value in (r["counts"] or {}).items())[:60],
                    (r["error"] or "").strip().rsplit("\n", 1)[-1][:80],
                )
                for r in listed
            ],
        )
    )


def _at(at: datetime | None) -> str:
    return "-" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[str]:
    cells = [head, *(tuple(str(cell) for cell in row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
