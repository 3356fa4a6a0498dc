"""kill -9 of a jobs process: what it ran is found, charged and finished by the next, and nothing of it lives on."""

from __future__ import annotations

import signal

import psycopg
import pytest

from tests.support.processes import JobsProcess
from tests.support.waits import wait_ended, wait_mark, wait_until
from worker.engine import queue
from worker.local import pids

pytestmark = pytest.mark.chaos


def test_a_killed_process_leaves_its_job_to_the_next_which_runs_it_in_a_child(url: str, db: psycopg.Connection) -> None:
    with JobsProcess(url) as first:
        first.started()
        job = queue.enqueue(db, "steady", {"seconds": 30, "n": 1}).id
        wait_mark(db, job)
        with JobsProcess(url) as second:
            second.started()
            (killed_at,) = wait_until(db, "select clock_now()")
            first.kill()
            wait_ended(db, job, seconds=15)
            own_pids = second.alive()
            rows = db.execute(
                """select outcome, ended, attempt, error, started_at - %s < interval '7 seconds', counts->>'pid'
                   from job_runs where job_id = %s order by lease""",
                (killed_at, job),
            ).fetchall()
    assert [row[:3] for row in rows] == [("abandoned", None, 1), ("completed", "completed", 2)]
    assert "died or lost the database" in rows[0][3]
    assert rows[1][4], "the second attempt began later than lease + 5 s"
    assert int(rows[1][5]) not in {second.pid, *own_pids}, "it should have run in a child of its own"


def test_the_children_of_a_killed_process_are_gone_within_two_seconds(url: str, db: psycopg.Connection) -> None:
    """Whatever they are at: obedient, or looping in Python, in C with the interpreter's lock, in C without it."""
    kinds = ("obeys-alone", "loops-on-alone", "loops-in-c-on-alone", "waits-in-c-on-alone")
    with JobsProcess(url, lease_seconds=10) as jobs:
        jobs.started()
        for job in [queue.enqueue(db, kind).id for kind in kinds]:
            wait_mark(db, job)
        assert len(jobs.alive()) >= 2 + len(kinds)  # itself, the fork server, the children
        jobs.kill()
        assert jobs.is_all_gone(2), f"{jobs.alive()} live on"


def test_a_job_with_checkpoints_goes_on_from_its_cursor_after_a_kill(url: str, db: psycopg.Connection) -> None:
    with JobsProcess(url) as first:
        first.started()
        jobs = {kind: queue.enqueue(db, kind, {"n": 8, "seconds": 60}).id for kind in ("steps", "steps-alone")}
        for job in jobs.values():
            wait_mark(db, job)
        first.kill()
    with JobsProcess(url):
        for kind, job in jobs.items():
            wait_ended(db, job, seconds=15)
            (first_step,) = db.execute(
                "select (counts->>'first')::int from job_runs where job_id = %s and ended = 'completed'", (job,)
            ).fetchone() or (None,)
            assert first_step is not None
            assert first_step == 4, kind
            done = db.execute(
                "select what, count(*) from marks where job_id = %s and what like 'step %%' group by what", (job,)
            ).fetchall()
            assert sorted(done) == sorted((f"step {number}", 1) for number in range(8)), kind


def test_a_job_that_kills_its_process_each_time_ends_within_its_attempts(url: str, db: psycopg.Connection) -> None:
    """The count is raised by the claim: an attempt that dies before it can do anything is still counted."""
    job = queue.enqueue(db, "quick", run_at=None, max_attempts=2).id
    db.execute("insert into job_kinds (kind) values ('quick')")
    db.execute(
        """update jobs set status = 'running', attempt = 2, lease = 2, deaths = 1, locked_by = gen_random_uuid(),
           locked_at = clock_now(), locked_until = clock_now() where id = %s""",
        (job,),
    )
    with JobsProcess(url):
        wait_ended(db, job, "failed", seconds=15)
    (error,) = db.execute("select error from job_runs where job_id = %s", (job,)).fetchone() or ("",)
    assert "attempt 2 of 2" in error


def test_the_fork_server_may_die_and_the_next_child_has_another(url: str, db: psycopg.Connection) -> None:
    with JobsProcess(url) as jobs:
        jobs.started()
        first = queue.enqueue(db, "steady-alone", {"seconds": 60}, max_attempts=1).id
        wait_mark(db, first)
        (child,) = db.execute("select pid from marks where job_id = %s", (first,)).fetchone() or (0,)
        for pid in set(jobs.alive()) - {jobs.pid, child}:  # the fork server, and the tracker beside it
            pids.send(pid, signal.SIGKILL)
        wait_until(db, "select outcome = 'failed' from job_runs where job_id = %s", (first,))
        second = queue.enqueue(db, "steady-alone").id
        wait_ended(db, second)
        jobs.signal_all(signal.SIGTERM)
        assert jobs.wait(10) == 0
        assert jobs.is_all_gone(2)
