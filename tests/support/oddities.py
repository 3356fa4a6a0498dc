"""Results and errors that no JSON holds, or whose text is a trap."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.poison import Plan
    from worker.engine.context import Context
    from worker.engine.model import Verdict


class Unreadable:
    """Nothing about it can be read."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


def _deep() -> Any:
    value: Any = []
    for _ in range(10_000):
        value = [value]
    return value


def odd(ctx: Context, args: Plan) -> Any:
    """Returns something that no JSON holds."""
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    values: dict[str, Callable[[], Any]] = {
        "nul": lambda: {"text": "a\0b"},
        "surrogate": lambda: {"text": "\ud800"},
        "nan": lambda: {"n": float("nan")},
        "huge": lambda: {"text": "x" * 10_000_000},
        "deep": lambda: {"list": _deep()},
        "bytes": lambda: {"b": b"\xff\xfe"},
        "set": lambda: {"s": {1, 2}},
        "big": lambda: {"n": 10**5000},
        "cycle": lambda: cycle,
        "unreadable": lambda: {"x": Unreadable()},
        "text": lambda: "just text",
        "object": Unreadable,
    }
    return values[args.value]()


def odd_error(ctx: Context, args: Plan) -> Verdict:
    """Raises something whose text is a trap."""
    if args.value == "deep":
        return odd_error(ctx, args)
    errors: dict[str, Any] = {
        "nul": lambda: RuntimeError("a\0b \ud800"),
        "huge": lambda: RuntimeError("x" * 50_000_000),
        "unreadable": lambda: RuntimeError(Unreadable()),
    }
    raise errors[args.value]()
