"""Any order of the verbs, against the tables: after every step each invariant of a job's life still holds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.support.kinds import KINDS
from tests.support.moves import claim, ends, expire, one, set_clock
from worker.engine import db, kinds, queue, recovery, scheduler
from worker.engine.executor import Result
from worker.engine.model import Job, Outcome

CATALOGUE = [kind for kind in KINDS if kind.name in {"ok", "raises", "nightly"}]
RESULTS = [
    Result(Outcome.COMPLETED),
    Result(Outcome.FAILED, error="x"),
    Result(Outcome.FAILED, error="y", is_final=True),
    Result(Outcome.SNOOZED, delay_seconds=30),
    Result(Outcome.CANCELLED),
    Result(Outcome.INTERRUPTED),
]


class Lives(RuleBasedStateMachine):
    """The model is small: who holds which lease, how often each job was asked for, and the highest lease number seen."""

    def __init__(self, conn: psycopg.Connection) -> None:
        super().__init__()
        self.conn = conn
        self.claimed: list[Job] = []  # every claim ever made, most of them stale by now
        self.held: dict[int, int] = {}  # job id -> the lease number that may still write
        self.asked: dict[int, int] = {}  # job id -> how often it was enqueued or requeued
        self.leases: dict[int, int] = {}
        self.offset = 0

    @initialize()
    def begin(self) -> None:
        self.conn.execute("truncate jobs, job_runs, job_progress, job_kinds")
        set_clock(self.conn, "0")
        kinds.publish(self.conn, CATALOGUE)
        scheduler.tick(self.conn, CATALOGUE, uuid4())
        self.meet()

    def meet(self) -> None:
        """Rows that the engine wrote by itself (occurrences) count as asked for once."""
        for (job_id,) in self.conn.execute("select id from jobs").fetchall():
            self.asked.setdefault(job_id, 1)

    def some_job(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.asked)))

    @rule(
        kind=st.sampled_from(["ok", "raises", "nightly"]),
        key=st.sampled_from([None, None, "a"]),
        delay=st.sampled_from([0, 0, 60]),
    )
    def enqueue(self, kind: str, key: str | None, delay: int) -> None:
        there = one(self.conn, "select id from jobs where kind = %s and unique_key = %s", kind, key)
        at = db.now(self.conn) + timedelta(seconds=delay) if delay else None
        done = queue.enqueue(self.conn, kind, unique_key=key, run_at=at)
        assert done.is_new == (there is None)
        assert there in {None, done.id}
        self.asked.setdefault(done.id, 1)

    @rule(limit=st.integers(1, 4))
    def take(self, limit: int) -> None:
        for job in claim(self.conn, limit):
            assert job.id not in self.held
            assert job.attempt <= job.max_attempts
            self.held[job.id] = job.lease
            self.claimed.append(job)

    @rule(result=st.sampled_from(RESULTS), data=st.data())
    def finish(self, result: Result, data: st.DataObject) -> None:
        if self.claimed:
            self.end(data.draw(st.sampled_from(self.claimed[-8:])), result)

    @rule(result=st.sampled_from(RESULTS))
    def finish_the_last_claimed(self, result: Result) -> None:
        if self.claimed:
            self.end(self.claimed[-1], result)

    def end(self, job: Job, result: Result) -> None:
        is_ours = self.held.get(job.id) == job.lease
        assert ends(self.conn, job, result) == is_ours
        if is_ours:
            del self.held[job.id]

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        if self.held:
            dead = data.draw(st.sets(st.sampled_from(sorted(self.held)), min_size=1))
            expire(self.conn, *dead)
            late = {j for (j,) in self.conn.execute("select id from jobs where locked_until < clock_now()")}
            assert recovery.turn(self.conn) == len(late)
            for job_id in late:
                del self.held[job_id]

    @rule(seconds=st.sampled_from([10, 45, 3700]))
    def wait(self, seconds: int) -> None:
        self.offset += seconds
        set_clock(self.conn, f"{self.offset} s")

    @rule()
    def beat(self) -> None:
        late = {j for (j,) in self.conn.execute("select id from jobs where status = 'running'")}
        beats = queue.extend(self.conn, [(j.id, j.lease) for j in self.claimed[-8:]], lease=timedelta(seconds=30))
        for told in beats:
            is_ours = self.held.get(told.job_id) == told.lease
            assert (told.is_renewed, told.is_lost) == (is_ours, not is_ours)
        assert late == set(self.held)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job_id = self.some_job(data)
        is_live = one(self.conn, "select count(*) from jobs where id = %s", job_id) == 1
        wanted = "requested" if job_id in self.held else "cancelled" if is_live else None
        assert queue.cancel(self.conn, job_id, "not wanted") == wanted

    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        done = queue.requeue(self.conn, self.some_job(data))
        if done is not None and done.is_new:
            self.asked[done.id] += 1

    @rule()
    def press_run_now(self) -> None:
        kinds.run_now(self.conn, "nightly")

    @rule()
    def tick(self) -> None:
        assert scheduler.tick(self.conn, CATALOGUE, uuid4()) == []

    @invariant()
    def every_job_is_live_or_has_ended_as_often_as_it_was_asked_for(self) -> None:
        self.meet()
        rows = self.conn.execute(
            """select job_id, sum(is_live), sum(has_ended) from (
                   select id, 1, 0 from jobs
                   union all select job_id, 0, (ended is not null)::int from job_runs
               ) as t (job_id, is_live, has_ended) group by 1"""
        ).fetchall()
        assert {job_id: live + ended for job_id, live, ended in rows} == self.asked

    @invariant()
    def what_runs_is_what_someone_holds(self) -> None:
        rows: list[Any] = self.conn.execute("select id, lease from jobs where status = 'running'").fetchall()
        assert dict(rows) == self.held
        together = "select count(*) from jobs where status = 'running' and kind = 'nightly'"
        assert one(self.conn, together) <= 1

    @invariant()
    def lease_numbers_only_rise_and_each_names_one_run(self) -> None:
        for job_id, lease in self.conn.execute("select id, lease from jobs").fetchall():
            assert lease >= self.leases.get(job_id, 0)
            self.leases[job_id] = lease
        assert one(self.conn, "select count(*) - count(distinct (job_id, lease)) from job_runs") == 0

    @invariant()
    def no_job_has_more_attempts_than_it_may(self) -> None:
        too_many = """select count(*) from jobs j join job_kinds k using (kind)
                      where j.attempt > coalesce(j.max_attempts, k.max_attempts)"""
        assert one(self.conn, too_many) == 0

    @invariant()
    def a_recurring_kind_has_one_row(self) -> None:
        rows = self.conn.execute("select recurrence_key from jobs where recurrence_key is not null").fetchall()
        assert rows == [("nightly",)]


def test_no_order_of_the_verbs_breaks_an_invariant(conn: psycopg.Connection) -> None:
    chosen = settings(max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(lambda: Lives(conn), settings=chosen)
