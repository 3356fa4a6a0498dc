"""What the hot statements read on 50,000 rows: by an index, and no more than in proportion to what they answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.kinds import ok
from tests.support.moves import claim, one, publish
from worker.engine import db, queue
from worker.engine.model import Kind

ROWS = 50_000
MANY = [Kind(f"kind-{number}", ok, "one of many") for number in range(10)]


def explained(conn: psycopg.Connection, name: str, values: dict[str, Any]) -> list[dict[str, Any]]:
    """Every node of a statement's plan, executed and taken back."""
    with conn.transaction(force_rollback=True):
        found = conn.execute(
            "explain (analyze, buffers, timing off, format json) " + db.statement(name), values
        ).fetchone()
    assert found is not None
    nodes: list[dict[str, Any]] = []

    def walk(node: dict[str, Any]) -> None:
        nodes.append(node)
        for inner in node.get("Plans", []):
            walk(inner)

    walk(found[0][0]["Plan"])
    return nodes


def rows_read(nodes: list[dict[str, Any]], *tables: str) -> float:
    """How many rows of these tables were looked at, those that a filter or a recheck threw away included."""
    seen = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck")
    return sum(
        sum(node.get(key, 0) for key in seen) * node["Actual Loops"]
        for node in nodes
        if "Scan" in node["Node Type"] and node.get("Relation Name", "").startswith(tables)
    )


def indexes(nodes: list[dict[str, Any]]) -> set[str]:
    return {node["Index Name"] for node in nodes if "Index Name" in node}


@contextmanager
def statistics(conn: psycopg.Connection) -> Iterator[None]:
    yield
    conn.execute("analyze")


def due(conn: psycopg.Connection, count: int, **columns: Any) -> None:
    """Many rows of the past, or as told."""
    values = {"kind": "ok", "queue": "default", "priority": 5, "age": "1 h"} | columns
    conn.execute(
        """insert into jobs (kind, queue, priority, run_at)
           select %(kind)s, %(queue)s, %(priority)s, clock_now() - %(age)s::interval + i * interval '1 ms'
           from generate_series(1, %(count)s) as i""",
        values | {"count": count},
    )


def claim_values(limit: int) -> dict[str, Any]:
    return {
        "queue": "default",
        "kinds": ["ok", "raises"],
        "limit": limit,
        "worker": uuid4(),
        "duration": timedelta(seconds=30),
    }


def test_a_claim_reads_as_many_rows_as_it_takes(conn: psycopg.Connection) -> None:
    with statistics(conn):
        publish(conn)
        due(conn, ROWS)
    nodes = explained(conn, "claim", claim_values(100))
    assert "jobs_claim" in indexes(nodes)
    assert rows_read(nodes, "jobs") <= 4 * 100


@pytest.mark.parametrize("analyzed", [True, False])
def test_a_pile_of_urgent_rows_of_the_future_does_not_stand_before_a_due_lesser_one(
    conn: psycopg.Connection, analyzed: bool
) -> None:
    publish(conn)
    due(conn, ROWS, priority=0, age="-1 d")
    if analyzed:
        conn.execute("analyze")
    due(conn, 1, priority=9)
    nodes = explained(conn, "claim", claim_values(100))
    assert rows_read(nodes, "jobs") <= 10
    (job,) = claim(conn)
    assert job.priority == 9


def test_a_claim_of_a_full_queue_does_not_read_the_neighbours(conn: psycopg.Connection) -> None:
    with statistics(conn):
        publish(conn)
        due(conn, ROWS, queue="other")
        due(conn, 5)
    assert rows_read(explained(conn, "claim", claim_values(100)), "jobs") <= 5 * 4


def test_the_next_due_time_is_found_by_probes(conn: psycopg.Connection) -> None:
    with statistics(conn):
        publish(conn)
        due(conn, ROWS, age="1 d")
        due(conn, ROWS, age="-1 d", priority=3)
    nodes = explained(conn, "next_due", {"queues": ["default", "other"]})
    assert rows_read(nodes, "jobs") <= 20
    assert "jobs_claim" in indexes(nodes)


def running(conn: psycopg.Connection, count: int) -> list[queue.Job]:
    """So many running jobs among 50,000."""
    publish(conn)
    due(conn, ROWS)
    jobs = claim(conn, count)
    conn.execute("analyze")
    return jobs


def columns(jobs: list[queue.Job]) -> dict[str, Any]:
    many = len(jobs)
    return {
        "ids": [job.id for job in jobs],
        "leases": [job.lease for job in jobs],
        "outcomes": ["completed"] * many,
        "endeds": ["completed"] * many,
        "workers": [uuid4()] * many,
        "durations": [0.1] * many,
        "agos": [0.1] * many,
        "counts": [None] * many,
        "errors": [None] * many,
        "log_tails": [None] * many,
        "delays": [1.0] * many,
        "charged": [True] * many,
        "duration": timedelta(seconds=30),
    }


@pytest.mark.parametrize("name", ["end", "put_back", "extend"])
def test_writes_of_what_is_held_go_by_the_primary_key(conn: psycopg.Connection, name: str) -> None:
    jobs = running(conn, 500)[:100]
    nodes = explained(conn, name, columns(jobs))
    assert "jobs_pkey" in indexes(nodes)
    assert rows_read(nodes, "jobs") <= 4 * 100
    assert not [node for node in nodes if node["Node Type"] == "Seq Scan" and node.get("Relation Name") == "jobs"]


def test_recovery_reads_the_run_out_leases_alone(conn: psycopg.Connection) -> None:
    jobs = running(conn, 2000)
    conn.execute("update jobs set locked_until = clock_now() - interval '1 s' where id = any(%s)", ([jobs[7].id],))
    conn.execute("analyze")
    nodes = explained(conn, "recover", {"limit": 500})
    assert "jobs_lease" in indexes(nodes)
    assert rows_read(nodes, "jobs") <= 4


@pytest.mark.parametrize(
    ("name", "values"), [("run_now", {"kind": "nightly"}), ("running_of_kind", {"kind": "nightly"})]
)
def test_looks_by_key_use_their_unique_index(conn: psycopg.Connection, name: str, values: dict[str, Any]) -> None:
    with statistics(conn):
        publish(conn)
        due(conn, ROWS)
        conn.execute("insert into jobs (kind, recurrence_key) values ('nightly', 'nightly')")
    assert rows_read(explained(conn, name, values), "jobs") <= 2


def test_a_duplicate_is_found_by_its_key(conn: psycopg.Connection) -> None:
    with statistics(conn):
        conn.execute(
            "insert into jobs (kind, unique_key) select 'ok', i::text from generate_series(1, %s) as i", (ROWS,)
        )
    nodes = explained(conn, "enqueue_duplicate", {"kind": "ok", "unique_key": "777"})
    assert indexes(nodes) == {"jobs_unique"}
    assert rows_read(nodes, "jobs") == 1


def history(conn: psycopg.Connection) -> None:
    """50,000 runs as they come: nearly in the order of their jobs, of ten kinds."""
    conn.execute(
        """insert into job_runs (job_id, lease, kind, queue, tenant, attempt, outcome, ended, started_at, finished_at,
               duration_ms, priority, enqueued_at, args, counts)
           select i, 1, 'kind-' || i %% 10, 'default', '', 1, 'completed', 'completed', at, at, 1, 5, at, %s, %s
           from generate_series(1, %s) as i, lateral (select clock_now() - interval '1 ms' * (100000 - i)) as t (at)""",
        (Jsonb({"learner": 12345, "more": "x" * 60}), Jsonb({"cards": 5}), ROWS),
    )
    conn.execute("analyze")
    # Autovacuum summarises block ranges as they fill; nothing does so for a table that was filled a moment ago.
    for (name,) in conn.execute(
        "select indexrelid::regclass::text from pg_index where indexrelid::regclass::text like '%job_id_idx'"
    ):
        conn.execute("select brin_summarize_new_values(%s::regclass)", (name,))


def test_the_list_of_a_kinds_runs_reads_a_page_and_not_the_history(conn: psycopg.Connection) -> None:
    publish(conn, *MANY)
    history(conn)
    nodes = explained(conn, "runs", {"kind": "kind-3", "job_id": None, "limit": 20})
    assert rows_read(nodes, "job_runs") <= 100
    assert any("kind_finished_at" in name for name in indexes(nodes))


def test_the_list_of_all_runs_reads_a_page_a_kind(conn: psycopg.Connection) -> None:
    publish(conn, *MANY)
    history(conn)
    nodes = explained(conn, "runs", {"kind": None, "limit": 20})
    assert rows_read(nodes, "job_runs") <= 10 * 20


def test_the_runs_of_a_job_are_found_by_their_block_range(conn: psycopg.Connection) -> None:
    publish(conn)
    history(conn)
    nodes = explained(conn, "runs_of_job", {"kind": None, "job_id": 20_000, "limit": 20})
    assert any("job_id" in name for name in indexes(nodes))
    assert rows_read(nodes, "job_runs") <= 2500
    assert one(conn, "select count(*) from job_runs where job_id = 20000") == 1
