"""Handlers that do what no handler should: that job ends with a reason, and its neighbours never notice."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack

import psycopg
import pytest

from tests.support.processes import JobsProcess
from tests.support.waits import wait_ended, wait_mark, wait_until
from worker.engine import queue
from worker.local import pids

pytestmark = pytest.mark.chaos
NEIGHBOURS = 50
ODD = ("nul", "surrogate", "nan", "huge", "deep", "bytes", "set", "big", "cycle", "unreadable", "text", "object")


def neighbours(db: psycopg.Connection) -> list[int]:
    return [queue.enqueue(db, "quick", {"n": number}).id for number in range(NEIGHBOURS)]


def ended(db: psycopg.Connection, jobs: list[int]) -> dict[str, int]:
    return dict(
        db.execute(
            "select ended, count(*) from job_runs where job_id = any(%s) and ended is not null group by 1", (jobs,)
        ).fetchall()
    )


def wait_gone(db: psycopg.Connection, jobs: list[int], seconds: float) -> None:
    wait_until(db, "select not exists (select from jobs where id = any(%s))", (jobs,), seconds)


def error_of(db: psycopg.Connection, job: int) -> str:
    row = db.execute("select error from job_runs where job_id = %s and ended is not null", (job,)).fetchone()
    assert row is not None
    return str(row[0])


CHILDREN = {
    "exits-alone": "exited with code 0 without a result",
    "segfaults-alone": "was killed by SIGSEGV",
    "aborts-alone": "was killed by SIGABRT",
    "loops-alone": "overran its deadline",
    "loops-in-c-alone": "overran its deadline",
    "waits-in-c-alone": "overran its deadline",
    "hogs-alone": "MemoryError",
    "many-threads-alone": "RuntimeError",
    "exit-raised-alone": "SystemExit",
    "interrupt-raised-alone": "KeyboardInterrupt",
    "generator-raised-alone": "GeneratorExit",
    "stop-raised-alone": "StopIteration",
    "floods-alone": "said it all",
    # A thread of the child that reads from its pipe keeps that open, unless it was between two reads.
    "closes-everything-alone": "without a result|overran its deadline",
    "leaves-a-grandchild-alone": "was killed by SIGKILL",
}


def test_every_poison_in_a_child_fails_alone_with_its_reason(url: str, db: psycopg.Connection) -> None:
    with JobsProcess(url, lease_seconds=10) as jobs:
        jobs.started()
        before = len(jobs.alive())
        poison = {kind: queue.enqueue(db, kind, max_attempts=1).id for kind in CHILDREN}
        beside = neighbours(db)
        wait_gone(db, [*poison.values(), *beside], 45)
        assert ended(db, beside) == {"completed": NEIGHBOURS}
        assert ended(db, list(poison.values())) == {"failed": len(poison)}
        for kind, reason in CHILDREN.items():
            assert re.search(reason, error_of(db, poison[kind])), kind
        assert pids.wait(lambda: len(jobs.alive()) <= before, 3), "something that an attempt started lives on"
        tail = db.execute("select length(log_tail) from job_runs where kind = 'floods-alone'").fetchone()
        assert tail is not None
        assert 0 < tail[0] <= 16_384


THREADS = {
    "exit-raised": "SystemExit",
    "interrupt-raised": "KeyboardInterrupt",
    "generator-raised": "GeneratorExit",
    "stop-raised": "StopIteration",
    "many-threads": "RuntimeError",
    "loops": "overran its deadline",
}


def test_poison_in_a_thread_fails_with_its_reason_and_costs_no_slot(url: str, db: psycopg.Connection) -> None:
    """A thread that can't be stopped (it waits in C, without the interpreter's lock) is replaced at its deadline and a grace."""
    with JobsProcess(url, slots=2, lease_seconds=10) as jobs:
        jobs.started()
        stuck = [queue.enqueue(db, "waits-in-c", priority=0).id for _ in range(2)]  # as many as there are slots
        poison = {kind: queue.enqueue(db, kind, max_attempts=1).id for kind in THREADS}
        wait_mark(db, stuck[1])
        began = time.monotonic()
        beside = neighbours(db)
        wait_gone(db, [*stuck, *poison.values(), *beside], 45)
        assert time.monotonic() - began > 6, "deadline and grace were not waited for"
        assert ended(db, beside) == {"completed": NEIGHBOURS}
        for kind, reason in THREADS.items():
            assert re.search(reason, error_of(db, poison[kind])), kind
        for job in stuck:
            assert "its thread is still busy" in error_of(db, job)
        slots = [queue.enqueue(db, "steady", {"seconds": 0.5}).id for _ in range(2)]
        for job in slots:
            wait_ended(db, job)
        overlap = db.execute(
            "select max(at) filter (where what = 'begun') < min(at) filter (where what = 'ended') from marks where job_id = any(%s)",
            (slots,),
        ).fetchone()
        assert overlap == (True,), "both slots should be there"


@pytest.mark.parametrize("kind", ["exits", "loops-in-c"])
def test_a_thread_that_takes_its_process_down_runs_in_a_child_the_second_time_and_fails_there_alone(
    url: str, db: psycopg.Connection, kind: str
) -> None:
    """os._exit ends the process at once; a loop in C that keeps the interpreter's lock stops it, and the kernel ends it."""
    poison = queue.enqueue(db, kind, max_attempts=2).id
    beside: list[int] = []
    with ExitStack() as stack:
        first = stack.enter_context(JobsProcess(url, slots=NEIGHBOURS + 2)).started()
        # Neighbours that are at work when it happens, and others that come later.
        beside += [queue.enqueue(db, "steady", {"seconds": 1, "n": 1}).id for _ in range(4)]
        wait_mark(db, poison)
        first.wait(60)
        if kind == "loops-in-c":
            assert first.wait_line("in loops_in_c"), "its last words name the handler"
        second = stack.enter_context(JobsProcess(url)).started()
        beside += neighbours(db)
        wait_gone(db, [poison, *beside], 30)
        assert ended(db, beside) == {"completed": len(beside)}
        most = db.execute(
            "select max(n) from (select count(*) as n from job_runs where outcome = 'abandoned' group by job_id) as c"
        ).fetchone()
        assert most == (1,)
        outcomes = db.execute(
            "select outcome, ended from job_runs where job_id = %s order by lease", (poison,)
        ).fetchall()
        assert outcomes == [("abandoned", None), ("failed", "failed")]
        assert second.wait_line("process.started")


def test_whatever_a_handler_returns_or_raises_the_job_ends(url: str, db: psycopg.Connection) -> None:
    with JobsProcess(url, lease_seconds=10) as jobs:
        jobs.started()
        poison = [
            queue.enqueue(db, kind, {"value": value}, max_attempts=1).id
            for value in ODD
            for kind in ("odd", "odd-alone")
        ]
        errors = [
            queue.enqueue(db, kind, {"value": value}, max_attempts=1).id
            for value in ("nul", "huge", "unreadable", "deep")
            for kind in ("odd-error", "odd-error-alone")
        ]
        beside = neighbours(db)
        wait_gone(db, [*poison, *errors, *beside], 45)
        assert ended(db, beside) == {"completed": NEIGHBOURS}
        assert sum(ended(db, poison).values()) == len(poison)
        assert ended(db, errors) == {"failed": len(errors)}
        sizes = db.execute("select max(octet_length(error)), max(octet_length(counts::text)) from job_runs").fetchone()
        assert sizes is not None
        assert sizes[0] <= 16_384
        assert sizes[1] <= 65_536
        assert db.execute("select count(*) from job_runs where outcome = 'abandoned'").fetchone() == (0,)


def test_args_that_do_not_fit_fail_by_name_and_an_unknown_kind_waits_uncharged(
    url: str, db: psycopg.Connection
) -> None:
    """A row that the handler's args don't fit, by SQL, beside an unknown kind: each says so in its own way."""
    with JobsProcess(url) as jobs:
        jobs.started()
        (odd,) = db.execute(
            "insert into jobs (kind, args) values ('quick', '{\"n\": \"x\"}') returning id"
        ).fetchone() or (0,)
        (unknown,) = db.execute("insert into jobs (kind) values ('nobody-knows') returning id").fetchone() or (0,)
        wait_ended(db, odd, "failed")
        assert "$.n" in error_of(db, odd)
        assert db.execute("select status, attempt from jobs where id = %s", (unknown,)).fetchone() == ("queued", 0)
