"""Toy kinds that do what no handler should, and a few that only take their time. For tests with real jobs processes.

`marks` is a table that the tests make: what a handler writes there tells the test how far it came.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.support.oddities import odd, odd_error
from worker.engine.context import Context
from worker.engine.model import Args, Handler, Kind, Verdict
from worker.engine.schedules import every

MARKS = """create table marks (
    job_id bigint, lease int, pid int, what text, at timestamptz default clock_timestamp()
)"""
QUEUES = {"default": 8, "night": 4}


class Plan(Args, frozen=True):
    """How long, or how many."""

    seconds: float = 0
    n: int = 0
    value: str = ""


def mark(ctx: Context, what: str = "begun") -> None:
    """One row in `marks`, committed at once."""
    with ctx.connection() as conn:
        mark_in(conn, ctx, what)


def mark_in(conn: Any, ctx: Context, what: str) -> None:
    conn.execute(
        "insert into marks (job_id, lease, pid, what) values (%s, %s, %s, %s)",
        (ctx.job.id, ctx.job.lease, os.getpid(), what),
    )


# What only takes time.


def quick(ctx: Context, args: Plan) -> Verdict:
    return {"at": time.time(), "n": args.n}


def instant(ctx: Context, args: Plan) -> Verdict:
    return None


def steady(ctx: Context, args: Plan) -> Verdict:
    """Takes its time whatever it is told; with n, only in its first n attempts."""
    mark(ctx)
    if ctx.job.attempt <= (args.n or ctx.job.attempt):
        time.sleep(args.seconds)
    mark(ctx, "ended")
    return {"pid": os.getpid()}


def obeys(ctx: Context, args: Plan) -> Verdict:
    """Runs until told to stop."""
    mark(ctx)
    while not ctx.cancelled:
        time.sleep(0.01)
    ctx.raise_if_cancelled()
    return None


def steps(ctx: Context, args: Plan) -> Verdict:
    """Counts to n, a checkpoint a step, each step's effect in that transaction; its first attempt stays at the fourth step."""
    first = ctx.cursor() or 0
    for number in range(first, args.n):
        with ctx.connection() as conn:
            mark_in(conn, ctx, f"step {number}")
            ctx.checkpoint(number + 1, conn)
        if ctx.job.attempt == 1 and number == 3:
            mark(ctx)
            time.sleep(args.seconds)
    return {"first": first, "n": args.n}


def settles(ctx: Context, args: Plan) -> Verdict:
    """Work and completion in one transaction; on its first attempt it takes its time before the commit."""
    mark(ctx)
    with ctx.transaction() as conn:
        mark_in(conn, ctx, "effect")
        if ctx.job.attempt == 1:
            time.sleep(args.seconds)
    return None


def settles_slowly(ctx: Context, args: Plan) -> Verdict:
    """Goes on for a while after its completion was committed."""
    with ctx.transaction() as conn:
        mark_in(conn, ctx, "effect")
    time.sleep(args.seconds)
    mark(ctx, "ended")
    return None


def prepares(ctx: Context, args: Plan) -> Verdict:
    with ctx.connection() as conn:
        return {"threshold": conn.prepare_threshold}


def fails_once(ctx: Context, args: Plan) -> Verdict:
    if ctx.job.attempt == 1:
        raise RuntimeError("not yet")
    return {"at": time.time()}


def alone(ctx: Context, args: Plan) -> Verdict:
    """A span in `marks`, by which an overlap would be seen."""
    mark(ctx)
    time.sleep(0.05)
    mark(ctx, "ended")
    return None


# What ends badly.


def loops(ctx: Context, args: Plan) -> Verdict:
    mark(ctx)
    while True:
        pass


def loops_in_c(ctx: Context, args: Plan) -> Verdict:
    """Holds the interpreter's lock for years."""
    mark(ctx)
    re.match(r"(a+)+$", "a" * 60 + "b")
    return None


def waits_in_c(ctx: Context, args: Plan) -> Verdict:
    """Lets go of the lock, and can't be interrupted by an exception."""
    mark(ctx)
    ctypes.CDLL(None).sleep(3600)
    return None


def exits(ctx: Context, args: Plan) -> Verdict:
    mark(ctx)
    os._exit(0)


def segfaults(ctx: Context, args: Plan) -> Verdict:
    ctypes.string_at(0)
    return None


def aborts(ctx: Context, args: Plan) -> Verdict:
    os.abort()


def hogs(ctx: Context, args: Plan) -> Verdict:
    kept = []
    while True:
        kept.append(bytearray(50_000_000))


def many_threads(ctx: Context, args: Plan) -> Verdict:
    """Fails, whether or not there was room for all of them. Limits are a child's: a process that shares itself gets fewer,
    for 10,000 starve its heartbeat and it is ended, as one is that loops in C."""
    over = threading.Event()
    count = 10_000 if ctx.kind.isolation == "process" else 1_000
    try:
        for _ in range(count):
            threading.Thread(target=over.wait, daemon=True).start()
        raise RuntimeError(f"{count} threads ran")
    finally:
        over.set()


class Raise:
    """A handler that raises what it was made with; an instance, so that it fits through a pipe."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __call__(self, ctx: Context, args: Plan) -> Verdict:
        raise self.error


def floods(ctx: Context, args: Plan) -> Verdict:
    line = "x" * 1000 + "\n"
    for _ in range(10_000):
        sys.stdout.write(line)
        ctx.log.info("%s", line)
    raise RuntimeError("said it all")


def closes_everything(ctx: Context, args: Plan) -> Verdict:
    os.closerange(0, 4096)
    while True:
        pass


def leaves_a_grandchild(ctx: Context, args: Plan) -> Verdict:
    """Dies while a process that it started holds its pipe and everything else that it had open."""
    if os.fork() == 0:
        while True:
            time.sleep(60)
    os.kill(os.getpid(), signal.SIGKILL)
    return None


def starts_a_program(ctx: Context, args: Plan) -> Verdict:
    """Ends a program of its own by SIGTERM, as handlers do, and reports how that ended."""
    with subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL) as program:
        program.terminate()
        return {"code": program.wait(timeout=10)}


# As a child and as a thread: the name in a child ends in "-alone".
_BOTH: dict[str, Handler] = {
    "steady": steady, "obeys": obeys, "steps": steps, "settles": settles, "settles-slowly": settles_slowly,
    "loops": loops, "loops-in-c": loops_in_c, "waits-in-c": waits_in_c, "exits": exits,
    "prepares": prepares, "loops-on": loops, "loops-in-c-on": loops_in_c, "waits-in-c-on": waits_in_c,  # the same with a deadline far away
    "exit-raised": Raise(SystemExit(0)), "interrupt-raised": Raise(KeyboardInterrupt()),
    "generator-raised": Raise(GeneratorExit()), "stop-raised": Raise(StopIteration()),
    "odd": odd, "odd-error": odd_error, "many-threads": many_threads, "floods": floods,
}  # fmt: skip
_CHILD_ONLY: dict[str, Handler] = {
    "segfaults": segfaults, "aborts": aborts, "hogs": hogs, "closes-everything": closes_everything,
    "leaves-a-grandchild": leaves_a_grandchild, "starts-a-program": starts_a_program,
}  # fmt: skip
_SHORT = {"loops", "loops-in-c", "waits-in-c", "closes-everything"}


def _kind(name: str, run: Handler, *, is_alone: bool) -> Kind:
    patient = Kind(
        name + ("-alone" if is_alone else ""), run, "a toy", args=Plan, deadline=timedelta(seconds=60), max_attempts=3,
        backoff=timedelta(seconds=1), backoff_ceiling=timedelta(seconds=1), memory_mb=512,
        isolation="process" if is_alone else "thread",
    )  # fmt: skip
    return replace(patient, deadline=timedelta(seconds=2), max_attempts=1) if name in _SHORT else patient


KINDS: tuple[Kind, ...] = (
    *(_kind(name, run, is_alone=False) for name, run in _BOTH.items()),
    *(_kind(name, run, is_alone=True) for name, run in (_BOTH | _CHILD_ONLY).items()),
    Kind("quick", quick, "a toy", args=Plan),
    Kind("fails-once", fails_once, "a toy", args=Plan, backoff=timedelta(seconds=2), backoff_ceiling=timedelta(seconds=2)),
    Kind("instant", instant, "a toy", args=Plan, deadline=timedelta(microseconds=1), max_attempts=1),
    Kind("closure", lambda ctx, args: {"pid": os.getpid()}, "no child can be given this one", args=Plan, max_attempts=1),
    Kind("every-second", alone, "a toy", args=Plan, schedule=every(seconds=1), queue="night"),
    Kind("every-second-alone", alone, "a toy", args=Plan, schedule=every(seconds=1), queue="night", isolation="process"),
)  # fmt: skip
