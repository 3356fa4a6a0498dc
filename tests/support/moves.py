"""Short words for what the engine's tests do again and again. Each is one verb of the engine, or one look at a table."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.rows import dict_row

from tests.support.kinds import KINDS
from worker.engine import db, executor, kinds, queue, recovery
from worker.engine.context import Context
from worker.engine.executor import Result
from worker.engine.model import Job, Kind, Outcome

LEASE = timedelta(seconds=30)
BY_NAME = {kind.name: kind for kind in KINDS}
DONE = Result(Outcome.COMPLETED)


def publish(conn: psycopg.Connection, *more: Kind, queues: Iterable[str] = ("default",)) -> None:
    """The toy kinds, and more, as a starting process writes them."""
    kinds.publish(conn, [*KINDS, *more], queues)


def claim(conn: psycopg.Connection, limit: int = 100, **options: Any) -> list[Job]:
    """A claim of the default queue by some worker, of all toy kinds unless told otherwise."""
    values = {"queue": "default", "kinds": list(BY_NAME), "worker": uuid4(), "lease": LEASE} | options
    return queue.claim(conn, limit=limit, **values)


def claim_one(conn: psycopg.Connection, **options: Any) -> Job:
    """The one job that is due."""
    (job,) = claim(conn, **options)
    return job


def enqueued(conn: psycopg.Connection, kind: str = "ok", args: dict[str, Any] | None = None, **options: Any) -> int:
    """The id of a new job."""
    return queue.enqueue(conn, kind, args, **options).id


def begun(conn: psycopg.Connection, kind: str = "ok", **options: Any) -> Job:
    """A new job that is claimed already."""
    job_id = enqueued(conn, kind, **options)
    (job,) = [job for job in claim(conn) if job.id == job_id]
    return job


def ends(conn: psycopg.Connection, job: Job, result: Result = DONE, kind: Kind | None = None) -> bool:
    """Writes how an attempt went; whether the job was still ours."""
    at = time.monotonic()
    finish = executor.finish(job, kind or BY_NAME[job.kind], result, worker=uuid4(), claimed=at, started=at)
    with conn.transaction():
        return bool(queue.finish(conn, [finish]))


def context(url: str, job: Job, kind: Kind | None = None, worker: UUID | None = None) -> Context:
    """What the handler of a claimed job gets."""
    return Context(job, kind or BY_NAME[job.kind], url, worker or uuid4())


def runs_through(url: str, conn: psycopg.Connection, job: Job, kind: Kind | None = None) -> bool:
    """The whole way of an attempt: handler, verdict, verb."""
    ctx = context(url, job, kind)
    result = executor.attempt(ctx)
    if result.outcome is None:
        return False
    at = time.monotonic()
    finish = executor.finish(
        job, ctx.kind, result, worker=ctx.worker, claimed=at, started=at, log_tail=ctx.log_tail() or None
    )
    with conn.transaction():
        return bool(queue.finish(conn, [finish]))


def expire(conn: psycopg.Connection, *job_ids: int) -> None:
    """Lets leases run out."""
    conn.execute(
        "update jobs set locked_until = clock_now() - interval '1 ms' where id = any(%s) and status = 'running'",
        (list(job_ids),),
    )


def abandon(conn: psycopg.Connection, *job_ids: int) -> int:
    """Lets leases run out and has them recovered."""
    expire(conn, *job_ids)
    return recovery.turn(conn)


def set_clock(conn: psycopg.Connection, offset: str) -> None:
    """Moves the database's clock, as this session sees it."""
    conn.execute("select set_config('nightshift.clock_offset', %s, false)", (offset,))


def one(conn: psycopg.Connection, statement: str, *values: Any) -> Any:
    """The first column of the first row; None when there is none."""
    row = conn.execute(statement, values or None).fetchone()  # type: ignore[arg-type]
    return None if row is None else row[0]


def row(conn: psycopg.Connection, job_id: int) -> dict[str, Any] | None:
    """A live job without its args, which Python may not be able to read; None when it has left the table."""
    with conn.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(
            """select status, run_at, slot_at, queue, tenant, priority, attempt, max_attempts, lease, locked_by, locked_at,
               locked_until, cancel_requested_at, last_error, deaths, interruptions, recurrence_key, running_key, unique_key
               from jobs where id = %s""",
            (job_id,),
        )
        return found.fetchone()


def runs(conn: psycopg.Connection, job_id: int) -> list[dict[str, Any]]:
    """What the history has of a job but its args, the oldest first."""
    with conn.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(
            """select job_id, lease, kind, queue, tenant, attempt, outcome, ended, slot_at, started_at, finished_at,
               duration_ms, worker, counts, error, log_tail, priority, max_attempts, recurrence_key, enqueued_at
               from job_runs where job_id = %s order by lease""",
            (job_id,),
        )
        return found.fetchall()


def outcomes(conn: psycopg.Connection, job_id: int) -> list[tuple[str, str | None]]:
    """(outcome, ended) of each run of a job, the oldest first."""
    found = conn.execute("select outcome, ended from job_runs where job_id = %s order by lease", (job_id,))
    return [(outcome, ended) for outcome, ended in found]


def live(conn: psycopg.Connection) -> int:
    """How many jobs there are."""
    return int(one(conn, "select count(*) from jobs"))


class Aside:
    """One statement or function at work in a thread of its own, on a connection of its own."""

    def __init__(self, url: str, act: Callable[[psycopg.Connection], Any]) -> None:
        self.conn = db.connect(url, "aside")
        self.result: Any = None
        self.error: BaseException | None = None
        self._act = act
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._act(self.conn)
        except BaseException as error:  # noqa: BLE001  handed to whoever asks for the result
            self.error = error
        finally:
            with suppress(psycopg.Error):
                self.conn.close()

    def is_waiting_for_a_lock(self, conn: psycopg.Connection) -> bool:
        """Returns True once PostgreSQL says that a session of this database waits for a lock; False when this ended instead."""
        while self._thread.is_alive():
            if one(
                conn,
                "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
            ):
                return True
        return False

    def outcome(self) -> Any:
        """What it returned; raises what it raised."""
        self._thread.join(timeout=30)
        assert not self._thread.is_alive(), "it never ended"
        if self.error is not None:
            raise self.error
        return self.result


def in_parallel(acts: Iterable[Callable[[], Any]]) -> list[Any]:
    """Runs all from one starting gun and returns what each returned; raises the first error."""
    chosen = list(acts)
    results: list[Any] = [None] * len(chosen)
    gun = threading.Barrier(len(chosen))
    errors: list[BaseException] = []

    def run(place: int) -> None:
        try:
            gun.wait(timeout=30)
            results[place] = chosen[place]()
        except BaseException as error:  # noqa: BLE001  raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(chosen))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
