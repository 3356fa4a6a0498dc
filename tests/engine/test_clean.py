"""Content made safe: whatever a job says, returns or raises ends as text and JSON that PostgreSQL takes."""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
import threading
import time
import tracemalloc
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.engine.clean import ArgsError, check_args, counts, json_args, text, traceback_text

BAD = re.compile("[\0\ud800-\udfff]")


def holds_bad(value: object) -> bool:
    """Whether a decoded JSON value holds what jsonb refuses."""
    match value:
        case str():
            return bool(BAD.search(value))
        case float():
            return not math.isfinite(value)
        case dict():
            return any(holds_bad(key) or holds_bad(item) for key, item in value.items())
        case list():
            return any(map(holds_bad, value))
    return False


def kept(value: object, limit: int = 65_536) -> dict[str, Any]:
    """What counts() made of a value, after both parsers and the rules of jsonb have passed it."""
    encoded = counts(value, limit)
    assert encoded is not None
    assert len(encoded.encode()) <= max(limit, 100)
    decoded = json.loads(encoded, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert msgspec.json.decode(encoded) == decoded
    assert isinstance(decoded, dict)
    assert not holds_bad(decoded)
    assert not re.search(r'"[^"\\]*\\u(0000|d[89a-f])', encoded.replace(r"\\", ""))
    return decoded


class Hostile:
    def __str__(self) -> str:
        raise SystemExit(0)


class Lying(str):
    """Text whose own methods can't be trusted."""

    __slots__ = ()

    def __len__(self) -> int:
        raise OSError

    def __str__(self) -> str:
        raise OSError

    def encode(self, *args: object) -> bytes:  # type: ignore[override]
        raise OSError


class Disguised:
    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise OSError


class Loud(str):
    __slots__ = ()


@dataclass
class Point:
    x: int
    y: object


class Row(msgspec.Struct):
    n: int
    at: datetime


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Index:
    def __index__(self) -> int:
        return 7


# text


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("plain", "plain"),
        ("a\0b", r"a\x00b"),
        ("a\ud800b\udfff", r"a\ud800b\udfff"),
        (b"\xff.html".decode(errors="surrogateescape"), r"\udcff.html"),
        (b"\xffa\0", r"\xffa\x00"),
        (bytearray(b"abc"), "abc"),
        (memoryview(b"abc"), "abc"),
        (5, "5"),
        (None, "None"),
        ("å\n\x1b[31m", "å\n\x1b[31m"),
        (Loud("loud"), "loud"),
        (Lying("x"), "x"),
        (Hostile(), "<Hostile whose text could not be made: SystemExit>"),
        (Disguised(), None),
        (10**5000, "<int whose text could not be made: ValueError>"),
    ],
    ids=map(str, itertools.count()),  # some of the values have no text of their own
)
def test_any_object_becomes_text_that_a_text_column_takes(value: object, wanted: str | None) -> None:
    found = text(value)
    assert type(found) is str
    assert wanted is None or found == wanted


def test_a_long_text_keeps_its_head_and_its_tail_and_says_how_much_was_cut() -> None:
    for unit in ("a", "é", "\U0001f600"):
        whole = "HEAD" + unit * 50_000_000 + "TAIL"
        began = time.thread_time()
        found = text(whole)
        assert time.thread_time() - began < 2
        assert found.startswith("HEAD")
        assert found.endswith("TAIL")
        assert 16_000 < len(found.encode()) <= 16_384
        (cut,) = re.findall(r"\n\[\.\.\. (\d+) bytes cut \.\.\.\]\n", found)
        left = len(found.encode()) - len(f"\n[... {cut} bytes cut ...]\n")
        assert abs(int(cut) + left - (8 + len(unit.encode()) * 50_000_000)) < 8  # a character at the cut may go


@given(st.text(st.characters(exclude_categories=[]) | st.sampled_from("\0\ud800\udfffa")), st.integers(-5, 300))
def test_text_is_always_safe_and_within_its_limit(value: str, limit: int) -> None:
    found = text(value * 3, limit)
    assert not BAD.search(found)
    assert len(found.encode()) <= max(0, limit)


@given(st.binary(), st.integers(0, 200))
def test_bytes_are_always_safe_and_within_the_limit(value: bytes, limit: int) -> None:
    found = text(value * 3, limit)
    assert not BAD.search(found)
    assert len(found.encode()) <= limit


# tracebacks


def caught(act: Callable[[], object]) -> BaseException:
    try:
        act()
    except BaseException as error:  # noqa: BLE001
        return error
    raise AssertionError("it raised nothing")


def told(error: BaseException) -> str:
    began = time.thread_time()
    found = traceback_text(error)
    assert time.thread_time() - began < 5
    assert len(found.encode()) <= 16_384
    assert not BAD.search(found)
    return found


def test_a_traceback_shows_where_and_what_without_locals() -> None:
    def act() -> None:
        secret = "hunter2"
        raise LookupError(f"no row {len(secret)}")

    found = told(caught(act))
    assert found.startswith("Traceback (most recent call last):\n  File ")
    assert found.endswith("LookupError: no row 7")
    assert 'raise LookupError(f"no row {len(secret)}")' in found
    assert "hunter2" not in found.replace('secret = "hunter2"', "")


def test_the_first_and_last_frames_of_a_deep_recursion_are_shown() -> None:
    def dive(depth: int) -> None:
        if depth == 0:
            raise ValueError("bottom")
        dive(depth - 1)

    found: list[str] = []
    limit, size = sys.getrecursionlimit(), threading.stack_size(512 * 1024 * 1024)
    sys.setrecursionlimit(150_000)
    try:
        thread = threading.Thread(target=lambda: found.append(told(caught(lambda: dive(100_000)))))
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
        threading.stack_size(size)
    (shown,) = found
    assert re.search(r"\[\.\.\. 99\d{3} frames cut \.\.\.\]", shown)
    assert shown.endswith("ValueError: bottom")
    assert shown.count("in dive") == 38
    assert "Traceback" in shown


def test_a_few_frames_are_all_shown() -> None:
    def dive(depth: int) -> None:
        if depth == 0:
            raise ValueError("bottom")
        dive(depth - 1)

    for depth in (5, 20, 36, 37):  # beside the two frames of the test and one of the bottom
        found = told(caught(lambda depth=depth: dive(depth)))
        assert ("frames cut" in found) == (depth + 3 > 40), depth
        assert found.count("in dive") == min(depth + 1, 38)


def test_a_huge_message_is_bounded_in_memory_too() -> None:
    error = ValueError("m" * 50_000_000 + "END")
    tracemalloc.start()
    try:
        found = told(error)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.endswith("END")
    assert "bytes cut" in found
    assert peak < 2_000_000


def test_hostile_exceptions_are_told_by_their_type() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError

        __repr__ = __str__

    class Trap(Exception):
        @property
        def __traceback__(self) -> Any:  # type: ignore[override]
            raise RuntimeError

        @property
        def __cause__(self) -> Any:  # type: ignore[override]
            raise RuntimeError

    assert told(Silent()).endswith("Silent whose text could not be made: RuntimeError>")
    assert "Trap: told" in told(Trap("told"))
    assert r"a\x00b\ud800" in told(ValueError("a\0b\ud800"))
    noted = ValueError("x")
    noted.__notes__ = "not a list"  # type: ignore[assignment]
    assert told(noted) == "ValueError: x"
    assert told(SystemExit(0)) == "SystemExit: 0"


def test_causes_are_told_in_order_and_a_circle_of_them_ends() -> None:
    first, second = KeyError("first"), ValueError("second")
    second.__cause__ = first
    first.__context__ = second
    found = told(second)
    assert found.index("KeyError: 'first'") < found.index("ValueError: second")
    assert found.count("ValueError: second") == 1
    hidden = ValueError("shown")
    hidden.__context__, hidden.__suppress_context__ = KeyError("hidden"), True
    assert "hidden" not in told(hidden)


def test_a_thousand_causes_are_bounded() -> None:
    error = ValueError(0)
    for number in range(1000):
        later = ValueError(number)
        later.__cause__ = error
        error = later
    found = told(error)
    assert found.startswith("[... earlier causes cut ...]")
    assert found.endswith("ValueError: 999")


def test_a_group_tells_what_is_in_it() -> None:
    def act() -> None:
        raise OSError("disk")

    group = ExceptionGroup("several", [caught(act), ExceptionGroup("inner", [ValueError("deep")])])  # type: ignore[list-item]
    group.add_note("a note")
    found = told(group)
    for words in (
        "several (2 sub-exceptions)",
        "a note",
        "  | OSError: disk",
        'raise OSError("disk")',
        "  |   | ValueError: deep",
    ):
        assert words in found
    wide = ExceptionGroup("wide", [ValueError(n) for n in range(100_000)])
    assert "[... 99992 more ...]" in told(wide)
    nested: Exception = ValueError("core")
    for _ in range(200):
        nested = ExceptionGroup("shell", [nested, nested])
    told(nested)


# counts


def test_nothing_returned_is_nothing_kept_and_what_is_no_object_is_wrapped() -> None:
    assert counts(None) is None
    assert kept({}) == {}
    assert kept({"learners": 3, "share": 0.5, "note": "å", "none": None, "is_done": True}) == {
        "learners": 3, "share": 0.5, "note": "å", "none": None, "is_done": True,
    }  # fmt: skip
    for value in (5, "text", [1, 2], True, 0.5):
        assert kept(value) == {"result": value}


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        ("a\0b", r"a\x00b"),
        ("\ud800", r"\ud800"),
        ({"k\0": {"\udfff": 1}}, {r"k\x00": {r"\udfff": 1}}),
        ({1}, [1]),
        (frozenset(), []),
        (deque([1, 2]), [1, 2]),
        ((1, (2,)), [1, [2]]),
        (b"a\xff", r"a\xff"),
        (datetime(2030, 1, 2, 3, 4, tzinfo=UTC), "2030-01-02T03:04:00+00:00"),
        (date(2030, 1, 2), "2030-01-02"),
        (Decimal("1.50"), "1.50"),
        (Decimal("NaN"), "NaN"),
        (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (Point(1, {"a\0"}), {"x": 1, "y": [r"a\x00"]}),
        (Point, None),
        (Row(1, datetime(2030, 1, 2, tzinfo=UTC)), {"n": 1, "at": "2030-01-02T00:00:00+00:00"}),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Index(), 7),
        (2**63, 2**63),
        (10**64 - 1, 10**64 - 1),
        (10**64, str(10**64)),
        (-(10**100), str(-(10**100))),
        (10**5000, "[... a number of 16610 bits ...]"),
        (OrderedDict(a=1), {"a": 1}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (Lying("x"), "x"),
        (Hostile(), "<Hostile whose text could not be made: SystemExit>"),
        ({None: 1, 2: 3}, {"None": 1, "2": 3}),
        (1e308, 1e308),
        (iter([1]), None),
    ],
    ids=map(str, itertools.count()),  # some of the values have no text of their own
)
def test_every_type_has_a_form_that_jsonb_takes(value: object, wanted: object) -> None:
    found = kept({"it": value})["it"]
    assert wanted is None or found == wanted


def test_a_result_that_raises_is_told_instead() -> None:
    class Broken(dict[str, int]):
        def items(self) -> Any:
            raise LookupError

    assert "LookupError" in kept({"it": Broken(a=1)})["cut"]
    assert "OSError" in kept({"it": Disguised()})["cut"]


def test_depth_and_circles_are_cut_with_a_mark() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    for value in (circle, deep):
        found: Any = kept({"it": value, "n": 5})
        assert found["n"] == 5
        for _ in range(33):
            found = found["it"] if isinstance(found, dict) else found[0]
        assert found == "[... too deep ...]"
    while isinstance(deep, list):  # else its end would recurse
        deep = deep.pop()


def test_of_a_result_that_is_too_large_the_short_values_stay() -> None:
    began = time.thread_time()
    shared: list[Any] = [0]
    for _ in range(60):  # small in memory, endless as text
        shared = [shared, shared]
    for large in (
        list(range(10**6)),
        {n: n for n in range(10**6)},
        ["x" * 10**6] * 10**6,
        shared,
        ["\x01" * 16_000] * 4,
    ):
        found = kept({"rows": 7, "note": "ok", "large": large})
        assert found == {"rows": 7, "note": "ok", "cut": "what it returned was larger than 65536 bytes"}
    assert kept(list(range(10**6))) == {"cut": "what it returned was larger than 65536 bytes"}
    assert kept({f"n{n}": n for n in range(50_000)})["cut"]
    assert time.thread_time() - began < 5
    assert kept({"items": list(range(5000))})["items"] == list(range(5000))


def test_a_text_of_200_mb_is_cut_and_the_rest_stays() -> None:
    found = kept({"n": 1, "log": "x" * 200_000_000})
    assert found["n"] == 1
    assert len(found["log"]) < 17_000
    assert "bytes cut" in found["log"]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary() | st.datetimes() | st.decimals() | st.uuids()
    | st.text(st.characters(exclude_categories=[])) | st.sampled_from(["\0", "\ud800", "\\u0000", "\\ud800", 10**70, Hostile()]),
    lambda inner: st.lists(inner)
    | st.tuples(inner)
    | st.dictionaries(st.text(st.characters(exclude_categories=[])) | st.integers() | st.none(), inner)
    | st.builds(Point, st.integers(), inner),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=300)
@given(anything, st.sampled_from([100, 300, 65_536]))
def test_whatever_is_returned_ends_as_json_that_jsonb_takes(value: object, limit: int) -> None:
    if value is not None:
        kept(value, limit)


# args


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**64) + 1, 10**64 - 1)
    | st.floats(-1e60, 1e60) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=300)
@given(plain)
def test_what_json_can_hold_comes_back_as_it_went_in(value: object) -> None:
    assert json_args(check_args(value)) == value
    assert json_args(check_args({"it": value})) == {"it": value}


@settings(max_examples=300)
@given(anything)
def test_what_is_taken_is_exact_and_all_else_is_refused_with_its_place(value: object) -> None:
    try:
        taken = check_args({"it": value})
    except ArgsError as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        assert refused.startswith("args")
        assert not BAD.search(refused)
        return
    assert not holds_bad(json.loads(taken))
    assert json.loads(taken) == json.loads(json.dumps({"it": value}, allow_nan=False))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"items": [0, 1, 2, {"name": "a\0b"}]}, "args.items[3].name: a NUL character can't be kept"),
        ({"name": "\0"}, "args.name: a NUL character"),
        ({"a\0b": 1}, r"args.a\x00b: a NUL character"),
        ({"name": "\udc80"}, "args.name: half of a character"),
        ({"x": [float("nan")]}, "args.x[0]: nan"),
        ({"x": float("-inf")}, "args.x: -inf"),
        ({"x": 1e64}, "args.x: 1e+64"),
        ({"n": 10**64}, "args.n: a number of more than 64 digits"),
        ({"n": -(10**5000)}, "args.n: a number of more than 64 digits"),
        ({"a": {1, 2}}, "args.a: set can't be written as JSON"),
        ({"a": b"x"}, "args.a: bytes"),
        ({"a": datetime(2030, 1, 1, tzinfo=UTC)}, "args.a: datetime"),
        ({"a": Decimal(1)}, "args.a: Decimal"),
        ({"a": object()}, "args.a: object"),
        ({"a": {1: 2}}, "args.a.1: a name must be text, not int"),
        ({"text": "x" * 65_536}, "args: 65536 bytes are the most"),
        ({"n": list(range(10**6))}, "args: 65536 bytes"),
        ({"n": ["x" * 10**6] * 10**6}, "args: 65536 bytes"),
    ],
)  # fmt: skip
def test_args_that_cannot_be_kept_are_refused_with_their_place(value: object, words: str) -> None:
    began = time.thread_time()
    with pytest.raises(ArgsError) as refused:
        check_args(value)
    assert str(refused.value).startswith(words)
    assert len(str(refused.value)) < 1300
    assert time.thread_time() - began < 1


def test_several_mistakes_are_told_at_once() -> None:
    with pytest.raises(ArgsError, match=r"args\.a: a NUL .*; args\.b: nan .*; args\.c: set "):
        check_args({"a": "\0", "b": float("nan"), "c": set(), "d": set()})


def nest(depth: int, *, is_dict: bool) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value} if is_dict else [value]
    return value


@pytest.mark.parametrize("is_dict", [True, False])
def test_args_may_be_64_levels_deep_and_no_more(is_dict: bool) -> None:
    assert json_args(check_args(nest(64, is_dict=is_dict))) == nest(64, is_dict=is_dict)
    for depth in (65, 5000):
        with pytest.raises(ArgsError, match="nested more than 64 levels deep"):
            check_args(nest(depth, is_dict=is_dict))


def test_circles_and_endless_sharing_are_refused_quickly() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(ArgsError, match="nested more than 64 levels deep"):
        check_args({"x": circle})
    shared: list[Any] = [0]
    for _ in range(60):
        shared = [shared, shared]
    with pytest.raises(ArgsError, match="65536 bytes are the most"):
        check_args({"x": shared})


def test_the_limit_of_bytes_is_exact() -> None:
    for value, size in (({"t": "x" * 65_528}, 65_536), ({"t": [1] * 32_764}, 65_535), ({"t": ["é" * 32_763]}, 65_536)):
        assert len(check_args(value).encode()) == size
    for value in ({"t": "x" * 65_529}, {"t": [1] * 32_766}, {"t": ["é" * 32_764]}):
        with pytest.raises(ArgsError, match="bytes are the most"):
            check_args(value)


@pytest.mark.parametrize("number", [9223372036854775808, 2**53 + 1, 1970670598291982290, 10**400, -(10**63), 2**64])
def test_whole_numbers_of_a_row_are_exact(number: int) -> None:
    found = json_args(f'{{"n":{number}}}')["n"]
    assert (found, type(found)) == (number, int)


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ("1" + "0" * 5000, "a number that is too long"),
        ('{"a":[' + "1" * 5001 + "]}", "a number that is too long"),
        ("1" + "0" * 400 + ".5", "a number that is too long"),
        ("[" * 3000 + "]" * 3000, "nested too deeply"),
        ("[" * 1_000_000 + "]" * 1_000_000, "nested too deeply"),
        ('{"a":{' * 1, "can't be read"),
        ("", "can't be read"),
        ("\ud800", "can't be read"),
    ],
    ids=["digits", "digits-inside", "fraction", "deep", "deeper", "broken", "empty", "surrogate"],
)  # fmt: skip
def test_a_row_that_python_cannot_read_is_refused_with_words(stored: str, words: str) -> None:
    with pytest.raises(ArgsError, match=words):
        json_args(stored)


def test_the_usual_small_args_cost_microseconds() -> None:
    usual = {"learner": "0190a5b2-7c1e-7d3a-9f00-000000000001", "box": 5, "is_new": True}
    stored = check_args(usual)
    for act in (lambda: check_args(usual), lambda: json_args(stored), lambda: counts({"cards": 3, "learners": 4})):
        took = []
        for _ in range(20):  # the quickest of many: another process may hold the processor
            began = time.thread_time()
            for _ in range(100):
                act()
            took.append((time.thread_time() - began) / 100)
        assert min(took) < 10e-6
