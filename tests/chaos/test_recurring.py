"""Recurring work under two and then ten processes, with every way to make a row of it mixed in: never two at once."""

from __future__ import annotations

from contextlib import ExitStack

import psycopg
import pytest

from tests.support.processes import JobsProcess
from tests.support.waits import wait_until
from worker.engine import kinds, queue

pytestmark = pytest.mark.chaos
KINDS = ("every-second", "every-second-alone")


def test_two_and_then_ten_processes_run_it_once_a_slot_and_never_twice_at_once(
    url: str, db: psycopg.Connection
) -> None:
    asked = dict.fromkeys(KINDS, 0)

    def ask(count: int) -> None:
        """Rows that are due at once, from each of the other ways in."""
        for kind in KINDS:
            for number in range(count):
                if number % 3 == 0:
                    db.execute("insert into jobs (kind, queue) values (%s, 'night')", (kind,))
                elif number % 3 == 1:
                    queue.enqueue(db, kind)
                else:
                    kinds.run_now(db, kind)
                asked[kind] += number % 3 != 2

    def slots_done(count: int, seconds: float) -> None:
        for kind in KINDS:
            wait_until(
                db,
                "select count(*) >= %s from job_runs where kind = %s and slot_at is not null",
                (count, kind),
                seconds,
            )

    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(JobsProcess(url, poll_seconds=1, TEST_KINDS=",".join(KINDS))).started()
        ask(6)
        slots_done(4, 30)
        more = [stack.enter_context(JobsProcess(url, poll_seconds=1, TEST_KINDS=",".join(KINDS))) for _ in range(8)]
        for jobs in more:
            jobs.started()
        assert db.execute("select count(*) from processes").fetchone() == (10,)
        ask(12)
        slots_done(10, 40)
        wait_until(db, "select not exists (select from jobs where recurrence_key is null)", seconds=20)
    for kind in KINDS:
        spans = db.execute(
            """select count(*), count(*) filter (where begun < before) from (
                   select min(at) filter (where what = 'begun') as begun,
                          lag(max(at)) over (order by min(at)) as before
                   from marks where job_id in (select job_id from job_runs where kind = %s) group by job_id, lease
               ) as s""",
            (kind,),
        ).fetchone()
        assert spans is not None
        assert spans[1] == 0, f"{kind} ran twice at once"
        assert spans[0] >= 10 + asked[kind]
        by_slot = db.execute(
            # A run now comes before its row's slot, and the slot still gets its own run.
            """select count(*) filter (where slot_at <= started_at),
                      count(distinct slot_at) filter (where slot_at <= started_at), count(*) filter (where slot_at is null)
               from job_runs where kind = %s and ended = 'completed'""",
            (kind,),
        ).fetchone()
        assert by_slot is not None
        assert by_slot[0] == by_slot[1], f"{kind}: a slot ran twice"
        assert by_slot[2] == asked[kind]
