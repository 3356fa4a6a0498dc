"""Content made safe before it meets a statement: finishing a job may never fail because of what the job said.

PostgreSQL refuses NUL, lone surrogates, NaN and infinities, and very deep JSON; drivers choke on numbers of thousands of
digits. `text`, `traceback_text` and `counts` clean and never raise; `check_args` refuses, and names the place.
"""

from __future__ import annotations

import linecache
import math
import operator
import re
import traceback
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from enum import Enum
from itertools import islice
from typing import Any

import msgspec

_NUL_OR_SURROGATE = re.compile("[\0\ud800-\udfff]")
_MOST_DIGITS = 64
_TOO_BIG = 10**_MOST_DIGITS
_RESULT_DEPTH = 32
_RESULT_TEXT = 16_384
_PLAIN = frozenset({str, bool, type(None)})


class ArgsError(ValueError):
    """Args that can't be kept or read; the message names the place."""


class _TooLarge(Exception):
    """A result for which the room ran out."""


def text(value: object, limit_bytes: int = 16_384) -> str:
    """Any object as text that a text column takes: NUL and lone surrogates shown as escapes, the middle of a long one cut."""
    raw = _raw(value)
    if len(raw) <= 2 * limit_bytes:
        encoded = _escape(raw).encode()
        if len(encoded) <= limit_bytes:
            return encoded.decode()
        head = tail = encoded
        size = len(encoded)
    else:  # what lies between is never copied
        head, tail = (_escape(part).encode() for part in (raw[:limit_bytes], raw[-limit_bytes:]))
        size = _size(raw)
    half = (limit_bytes - 48) // 2  # the words between take up to 46 bytes
    if half < 8:
        return head[: max(0, limit_bytes)].decode(errors="ignore")
    head, tail = head[:half], tail[-half:]
    cut = f"\n[... {size - len(head) - len(tail)} bytes cut ...]\n"
    return head.decode(errors="ignore") + cut + tail.decode(errors="ignore")


def _raw(value: object) -> str | bytes:
    """The value as text or bytes of exactly those types, whose own methods can't be overridden."""
    try:
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        return str.__str__(value if isinstance(value, str) else str(value))
    except BaseException as error:  # noqa: BLE001  a __str__ of a handler's own may raise anything
        return f"<{_name(value)} whose text could not be made: {_name(error)}>"


def _name(value: object) -> str:
    return str(type.__dict__["__qualname__"].__get__(type(value)))


def _escape(raw: str | bytes) -> str:
    whole = raw if isinstance(raw, str) else raw.decode(errors="backslashreplace")
    return _NUL_OR_SURROGATE.sub(lambda found: "\\x00" if found[0] == "\0" else f"\\u{ord(found[0]):04x}", whole)


def _size(raw: str | bytes) -> int:
    if isinstance(raw, bytes) or raw.isascii():
        return len(raw)
    return sum(len(raw[n : n + 65_536].encode(errors="surrogatepass")) for n in range(0, len(raw), 65_536))


def traceback_text(error: BaseException, limit_bytes: int = 16_384) -> str:
    """The traceback without locals, its first and last frames when there are thousands; never raises."""
    try:
        lines = _chain(error, limit_bytes // 3)
    except BaseException as problem:  # noqa: BLE001  an exception's own attributes may be properties that raise
        lines = [f"{_name(error)}: {text(error, limit_bytes // 3)}", f"(no traceback: {_name(problem)})"]
    return text("\n".join(lines), limit_bytes)


def _chain(error: BaseException, limit: int) -> list[str]:
    """The exception and what led to it, the first cause at the top as Python prints it."""
    lines: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        if len(seen) == 8:
            return ["[... earlier causes cut ...]", "", *lines]
        seen.add(id(current))
        lines = [*_block(current, limit), *(["", "The above led to:", ""] if lines else []), *lines]
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return lines


def _block(error: BaseException, limit: int, depth: int = 0) -> list[str]:
    name = f"{type(error).__module__}.{_name(error)}".removeprefix("builtins.")
    block = [*_frames(error), f"{name}: {text(error, limit)}"]
    notes = getattr(error, "__notes__", ())
    block += [text(note, 500) for note in (notes[:5] if isinstance(notes, list) else ())]
    if isinstance(error, BaseExceptionGroup):
        shown = error.exceptions[: 8 if depth == 0 else 2]
        for inner in shown if depth < 3 else ():
            block += ["  |", *(f"  | {line}" for line in _block(inner, 500, depth + 1))]
        if len(error.exceptions) > len(shown):
            block.append(f"  | [... {len(error.exceptions) - len(shown)} more ...]")
    return block


def _frames(error: BaseException) -> list[str]:
    steps = traceback.walk_tb(error.__traceback__)
    first = list(islice(steps, 10))
    last: deque[tuple[int, Any]] = deque(enumerate(steps), maxlen=30)
    found = ["Traceback (most recent call last):"] if first else []
    for count, (frame, line) in [*((0, step) for step in first), *last]:
        if last and count == last[0][0] and count > 0:
            found.append(f"  [... {count} frames cut ...]")
        code = frame.f_code
        found.append(f'  File "{code.co_filename}", line {line}, in {code.co_name}')
        if source := linecache.getline(code.co_filename, line).strip():
            found.append(f"    {source[:200]}")
    return found


def counts(value: object, limit_bytes: int = 65_536) -> str | None:
    """What a handler returned, as JSON text that jsonb takes: an object, or None for nothing. Never raises.

    Of a result that is too large, its short values stay, beside the word "cut".
    """
    if value is None:
        return None
    try:
        if (encoded := _flat(value)) and b"\\u0000" not in encoded and len(encoded) <= limit_bytes:
            return encoded.decode()
        whole = value if isinstance(value, Mapping) else {"result": value}
        try:
            return _encoded(_safe(whole, 0, [limit_bytes]), limit_bytes)
        except _TooLarge:
            short = {key: item for key, item in islice(whole.items(), 100) if _is_short(key) and _is_short(item)}
            short["cut"] = f"what it returned was larger than {limit_bytes} bytes"
            return _encoded(_safe(short, 0, [limit_bytes]), limit_bytes)
    except BaseException as error:  # noqa: BLE001  e.g. a mapping of the handler's own that raises
        return msgspec.json.encode({"cut": f"what it returned could not be kept: {_name(error)}"}).decode()


def _encoded(value: Any, limit: int) -> str:
    encoded = msgspec.json.encode(value)
    if len(encoded) > limit:
        raise _TooLarge
    return encoded.decode()


def _is_short(value: object) -> bool:
    return value is None or isinstance(value, int | float) or (isinstance(value, str) and len(value) <= 200)


def _safe(value: object, depth: int, room: list[int]) -> Any:  # noqa: C901, PLR0911, PLR0912  one line a type reads best
    """The value in JSON's own types. `room` holds the bytes left, and raises when they end."""
    room[0] -= 2
    if room[0] < 0:
        raise _TooLarge
    if depth > _RESULT_DEPTH:
        return "[... too deep ...]"
    match value:
        case None | bool():
            return value
        case Enum():
            return _safe(value.value, depth + 1, room)
        case int():
            return _whole(int(value), room)
        case float():
            if math.isfinite(value):
                return float(value)
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case str() | bytes() | bytearray() | memoryview():
            return _kept(value, room)
        case Mapping():
            return {_kept(key, room, 200): _safe(item, depth + 1, room) for key, item in value.items()}
        case list() | tuple() | set() | frozenset() | deque():
            return [_safe(item, depth + 1, room) for item in value]
        case datetime() | date() | time():
            return _kept(value.isoformat(), room)
        case msgspec.Struct():
            return {name: _safe(getattr(value, name, None), depth + 1, room) for name in value.__struct_fields__}
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: _safe(getattr(value, field.name, None), depth + 1, room) for field in fields(value)}
        case _ if hasattr(type(value), "__index__"):  # whole numbers of other libraries
            return _whole(operator.index(value), room)  # type: ignore[arg-type]
        case _:
            return _kept(value, room, 1000)


def _kept(value: object, room: list[int], limit: int = _RESULT_TEXT) -> str:
    kept = text(value, limit)
    room[0] -= len(kept)
    if room[0] < 0:
        raise _TooLarge
    return kept


def _whole(value: int, room: list[int]) -> int | str:
    if -_TOO_BIG < value < _TOO_BIG:
        return value
    is_shown = value.bit_length() < 3000  # some 900 digits; Python itself refuses to write 4,300
    return _kept(str(value) if is_shown else f"[... a number of {value.bit_length()} bits ...]", room)


def json_args(args_json: str) -> Any:
    """The args of a row, integers exact. Raises ArgsError for what PostgreSQL keeps but Python can't read."""
    try:
        return msgspec.json.decode(args_json)
    except RecursionError:
        raise ArgsError("they are nested too deeply to be read") from None
    except msgspec.ValidationError:
        raise ArgsError("they hold a number that is too long to be read") from None
    except ValueError as error:  # msgspec.DecodeError is one
        raise ArgsError(f"they can't be read: {text(error, 300)}") from None


def check_args(value: object, limit_bytes: int = 65_536, depth: int = 64) -> str:
    """The args as JSON text; raises ArgsError naming the places and what is wrong there.

    Only JSON's own types (and tuples) are taken, so that what comes out is what went in. The usual small object, of
    plain values by name, costs one encoding and a look at each; any other is walked.
    """
    encoded = _flat(value)
    if encoded is None or b"\\u0000" in encoded or len(encoded) > limit_bytes:
        room = [limit_bytes + 1]  # the least that n values take is 2n - 1
        try:
            problems = [text(problem, 400) for problem in islice(_problems(value, "args", 0, depth, room), 3)]
            if room[0] < 0 or (not problems and len(encoded := msgspec.json.encode(value)) > limit_bytes):
                raise _TooLarge
        except _TooLarge:
            problems = [
                f"args: {limit_bytes} bytes are the most that a job may carry; keep content in a table and pass its id"
            ]
        except (TypeError, ValueError, RecursionError) as error:  # a subclass that only looks like a type of JSON
            problems = [f"args: they can't be written as JSON: {text(error, 200)}"]
        if problems:
            raise ArgsError("; ".join(problems))
    assert encoded is not None
    return encoded.decode()


def _flat(value: object) -> bytes | None:
    """The JSON of an object of plain values by name; None for all else, and for what can't be encoded."""
    if type(value) is not dict:
        return None
    for key, item in value.items():
        kind = type(item)
        is_number = (kind is int or kind is float) and -_TOO_BIG < item < _TOO_BIG  # not so for NaN
        if type(key) is not str or not (is_number or kind in _PLAIN):
            return None
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return None


def _problems(value: object, place: str, level: int, depth: int, room: list[int]) -> Iterator[str]:
    """What is wrong and where. `room` holds the bytes left: a shared list may be small in memory and endless as text."""
    room[0] -= 2
    if room[0] < 0:
        raise _TooLarge
    if level > depth:
        yield f"{place}: nested more than {depth} levels deep"
    elif isinstance(value, str):
        room[0] -= len(value)
        if room[0] >= 0 and (found := _NUL_OR_SURROGATE.search(value)):
            what = "a NUL character" if found[0] == "\0" else "half of a character (a lone surrogate)"
            yield f"{place}: {what} can't be kept"
    elif isinstance(value, int | float):
        if not -_TOO_BIG < value < _TOO_BIG:
            what = str(value) if isinstance(value, float) else f"a number of more than {_MOST_DIGITS} digits"
            yield f"{place}: {what} can't be kept"
    elif isinstance(value, dict):
        for key, item in value.items():
            inner = f"{place}.{text(key, 60)}"
            if isinstance(key, str):
                yield from _problems(key, inner, level, depth, room)
            else:
                yield f"{inner}: a name must be text, not {_name(key)}"
            yield from _problems(item, inner, level + 1, depth, room)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _problems(item, f"{place}[{number}]", level + 1, depth, room)
    elif value is not None:
        yield f"{place}: {_name(value)} can't be written as JSON; pass text, numbers, lists and objects"
