"""Real attempts at real jobs: published, enqueued, claimed, run by the handler or the executor, finished."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

from psycopg import Connection, sql

from worker.catalog import KINDS, QUEUES
from worker.engine import executor, kinds, queue
from worker.engine.context import Context
from worker.engine.model import Ended, Finish, Outcome

_KINDS = {kind.name: kind for kind in KINDS}


def ask(conn: Connection, name: str, args: dict[str, Any] | None = None) -> None:
    """Publishes the catalogue and makes a job of the kind due."""
    kinds.publish(conn, KINDS, QUEUES)
    kinds.run_now(conn, name, args)


@contextmanager
def claimed(url: str, conn: Connection, name: str) -> Iterator[Context]:
    """An attempt at the kind's due job, with all that its handler needs."""
    kind = _KINDS[name]
    worker = uuid4()
    lease = timedelta(minutes=5)
    (job,) = queue.claim(conn, queue=kind.queue, kinds=[name], limit=1, worker=worker, lease=lease)
    ctx = Context(job, kind, url, worker)
    try:
        yield ctx
    finally:
        ctx.close()


def run(url: str, conn: Connection, name: str, args: dict[str, Any] | None = None) -> dict[str, Any]:
    """A whole life: asked for, claimed, run and completed; returns the counts of its run."""
    ask(conn, name, args)
    with claimed(url, conn, name) as ctx:
        result = executor.attempt(ctx)
        if result.outcome is not None:
            assert result.outcome is Outcome.COMPLETED, result.error
            done = Finish(ctx.job, result.outcome, Ended.COMPLETED, ctx.worker, counts_json=result.counts_json)
            with conn.transaction():
                assert queue.finish(conn, [done])
        counts = conn.execute("select counts from job_runs where job_id = %s", (ctx.job.id,)).fetchone()
    assert counts is not None
    return counts[0]


def give_back(conn: Connection, ctx: Context) -> None:
    """Ends the attempt as failed, to be tried again at once."""
    back = Finish(ctx.job, Outcome.FAILED, None, ctx.worker, delay=timedelta(0))
    with conn.transaction():
        assert queue.finish(conn, [back])


def configure(conn: Connection, name: str, value: str) -> None:
    """Sets a setting for every session of this database from now on, and for this one."""
    for text in ("alter database {} set {} = {}", "set {1} = {2}"):
        names = sql.Identifier(conn.info.dbname), sql.SQL(name), sql.Literal(value)
        conn.execute(sql.SQL(text).format(*names))
