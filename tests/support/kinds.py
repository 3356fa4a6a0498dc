"""Toy kinds for the engine's tests. They live here, never in the product."""

from __future__ import annotations

import ctypes
import os
import time
from datetime import timedelta
from typing import Any

from worker.engine.context import Context
from worker.engine.model import Args, Cancel, Fail, Kind, Snooze, Verdict
from worker.engine.schedules import every


class Number(Args, frozen=True):
    """Args with one field that must be a whole number."""

    n: int = 0


def ok(ctx: Context, args: Number) -> Verdict:
    return {"n": args.n}


def raises(ctx: Context, args: Number) -> Verdict:
    raise RuntimeError(f"no luck with {args.n}")


def snoozes(ctx: Context, args: Number) -> Verdict:
    return Snooze(timedelta(hours=1), "later")


def cancels(ctx: Context, args: Number) -> Verdict:
    return Cancel("not wanted")


def fails(ctx: Context, args: Number) -> Verdict:
    return Fail("never")


def waits(ctx: Context, args: Number) -> Verdict:
    """Runs until told to stop, and obeys."""
    while not ctx.cancelled:
        time.sleep(0.01)
    ctx.raise_if_cancelled()
    return None


def loops(ctx: Context, args: Number) -> Verdict:
    while True:
        pass


def exits(ctx: Context, args: Number) -> Verdict:
    os._exit(0)


def segfaults(ctx: Context, args: Number) -> Verdict:
    ctypes.string_at(0)
    return None


def hogs(ctx: Context, args: Number) -> Verdict:
    return {"size": len(bytearray(1 << 30))}


def returns(value: Any) -> Any:
    return lambda ctx, args: value


KINDS = (
    Kind("ok", ok, "returns its number", args=Number),
    Kind("raises", raises, "raises", args=Number, max_attempts=3),
    Kind("snoozes", snoozes, "asks for later", args=Number),
    Kind("cancels", cancels, "gives up its work", args=Number),
    Kind("fails", fails, "fails for good", args=Number),
    Kind("waits", waits, "obeys", args=Number),
    Kind("loops", loops, "overruns its deadline", args=Number, deadline=timedelta(seconds=1), max_attempts=1),
    Kind(
        "loops-alone",
        loops,
        "the same in a child",
        args=Number,
        deadline=timedelta(seconds=1),
        max_attempts=1,
        isolation="process",
    ),
    Kind("exits", exits, "leaves with code 0", args=Number, max_attempts=1, isolation="process"),
    Kind("segfaults", segfaults, "dies", args=Number, max_attempts=1, isolation="process"),
    Kind("hogs", hogs, "wants too much memory", args=Number, max_attempts=1, isolation="process", memory_mb=256),
    Kind("waits-alone", waits, "obeys, in a child", args=Number, isolation="process"),
    Kind("nightly", ok, "recurring", args=Number, schedule=every(hours=1)),
    Kind("nightly-waits", waits, "recurring and slow", args=Number, schedule=every(hours=1), isolation="process"),
)
