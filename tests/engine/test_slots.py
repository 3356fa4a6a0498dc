"""The places where jobs run: what is claimed always ends, whatever happens to its thread or its child."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.support.kinds import Number, loops, waits
from tests.support.moves import BY_NAME
from worker.engine import child
from worker.engine.model import Finish, Job, Kind, Outcome
from worker.engine.slots import Slots


def job(kind: str, number: int = 1, **changes: Any) -> Job:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    return replace(Job(number, 1, kind, "default", "", "{}", 5, 1, 1, 0, None, False, None, at), **changes)


@contextmanager
def slots(kind: Kind, count: int = 1) -> Iterator[tuple[Slots, Callable[[], list[Finish]]]]:
    """Slots for one kind, and a function that waits for the next ends."""
    woken = threading.Event()
    made = Slots("postgresql:///nowhere", uuid4(), {kind.name: kind}, {"default": count}, wake=woken.set)

    def wait() -> list[Finish]:
        assert woken.wait(timeout=30)
        woken.clear()
        return made.take()

    yield made, wait
    for waiting in made._waiting.values():
        for _ in range(count + made.stuck):
            waiting.put(None)


def test_a_slot_runs_one_job_after_the_other() -> None:
    with slots(BY_NAME["ok"]) as (made, wait):
        assert made.room("default") == 1
        made.submit([job("ok", 1), job("ok", 2)])
        done = [*wait(), *made.take()]
        while len(done) < 2:
            done += wait()
        assert [finish.job.id for finish in done] == [1, 2]
        assert {finish.outcome for finish in done} == {Outcome.COMPLETED}


def test_a_slot_is_free_once_its_attempt_ended_and_its_job_held_until_that_is_written() -> None:
    with slots(BY_NAME["ok"]) as (made, wait):
        made.submit([job("ok")])
        (finish,) = wait()
        assert (made.room("default"), len(made.held())) == (1, 1)
        made.give_back([finish])
        assert made.take() == [finish]
        made.let_go([(1, 1)])
        assert made.held() == []


def test_a_child_that_cannot_be_started_fails_its_own_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: child.Run) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(child, "run", refuse)
    with slots(BY_NAME["exits"]) as (made, wait):
        made.submit([job("exits")])
        (finish,) = wait()
        assert finish.outcome is Outcome.FAILED
        assert "could not be run: BlockingIOError" in (finish.error or "")
        # The slot goes on.
        made.submit([job("exits", 2)])
        assert wait()[0].job.id == 2


def test_a_job_whose_owner_died_under_it_runs_in_a_child_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    alone: list[int] = []

    def note(run: child.Run) -> child.Result:
        alone.append(run.job.id)
        return child.Result(Outcome.COMPLETED)

    monkeypatch.setattr(child, "run", note)
    with slots(BY_NAME["ok"]) as (made, wait):
        for number, deaths in ((1, 0), (2, 1)):
            made.submit([job("ok", number, deaths=deaths)])
            assert wait()
    assert alone == [2]


def test_a_thread_is_asked_at_its_deadline_and_its_job_fails() -> None:
    kind = Kind("loops", loops, "", args=Number, deadline=timedelta(0))
    with slots(kind) as (made, _):
        made.submit([job("loops")])
        while not (done := made.take()):
            made.watch()
        assert done[0].outcome is Outcome.FAILED
        assert "overran its deadline" in (done[0].error or "")
        assert made.stuck == 0


def test_a_thread_that_does_not_listen_is_left_behind_and_another_takes_its_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("worker.engine.slots._OVERRUN_GRACE_SECONDS", 0.0)
    begun, free = threading.Event(), threading.Event()

    def deaf(ctx: Any, args: Any) -> None:
        begun.set()
        free.wait()

    kind = Kind("deaf", deaf, "", args=Number, deadline=timedelta(0))
    with slots(kind) as (made, wait):
        made.submit([job("deaf")])
        assert begun.wait(timeout=30)
        while not made.stuck:
            made.watch()
        (finish,) = wait()
        assert "its thread is still busy" in (finish.error or "")
        assert made.room("default") == 1
        free.set()  # what the thread says now is late: its attempt ended without it
        assert made.take() == []


def test_the_word_to_stop_reaches_a_handler_that_asks() -> None:
    for reason, outcome in (("cancelled", Outcome.CANCELLED), ("shutdown", Outcome.INTERRUPTED)):
        with slots(Kind("waits", waits, "", args=Number)) as (made, wait):
            made.submit([job("waits")])
            (held,) = made.held()
            made.tell(held, reason)
            assert wait()[0].outcome is outcome


def test_a_job_whose_lease_was_lost_leaves_nothing_to_write() -> None:
    with slots(Kind("waits", waits, "", args=Number)) as (made, wait):
        made.submit([job("waits")])
        (held,) = made.held()
        made.tell(held, "cancelled")
        made.tell(held, "lease lost")
        assert wait() == []
        assert made.held() == []


def test_a_handler_that_fails_after_an_operators_cancel_is_not_tried_again() -> None:
    def fails_when_told(ctx: Any, args: Any) -> None:
        while not ctx.cancelled:
            pass
        raise RuntimeError("could not tidy up")

    with slots(Kind("untidy", fails_when_told, "", args=Number)) as (made, wait):
        made.submit([job("untidy", max_attempts=9)])
        made.tell(made.held()[0], "cancelled")
        (finish,) = wait()
        assert (finish.outcome, finish.ended) == (Outcome.FAILED, "cancelled")


def test_draining_gives_back_what_had_not_begun_and_tells_the_rest() -> None:
    with slots(Kind("waits", waits, "", args=Number)) as (made, wait):
        made.submit([job("waits", number) for number in (1, 2, 3)])
        while made.held()[0].started is None:
            pass
        made.drain()
        done = wait()
        while len(done) < 3:
            done += wait()
        assert sorted(finish.job.id for finish in done) == [1, 2, 3]
        assert {finish.outcome for finish in done} == {Outcome.INTERRUPTED}
        assert not any(finish.is_charged for finish in done)


def test_what_still_runs_at_the_end_of_the_grace_time_is_given_back() -> None:
    free = threading.Event()
    kind = Kind("deaf", lambda ctx, args: free.wait() and None, "", args=Number)
    with slots(kind) as (made, wait):
        made.submit([job("deaf")])
        while made.held()[0].started is None:
            pass
        made.cut_off()
        (finish,) = wait()
        assert (finish.outcome, finish.is_charged) == (Outcome.INTERRUPTED, False)
        free.set()
