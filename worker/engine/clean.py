"""Content made safe before it meets a statement: finishing a job may never fail because of what the job said.

PostgreSQL refuses NUL, lone surrogates, NaN and infinities, and very deep JSON; drivers choke on numbers of thousands of
digits. `text`, `traceback_text` and `counts` clean and never raise; `check_args` refuses, and names the place.
"""

from __future__ import annotations

import itertools
import json
import linecache
import math
import re
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

_NUL_OR_SURROGATE = re.compile("[\x00\ud800-\udfff]")
_MOST_DIGITS = 64
_RESULT_DEPTH = 32
_RESULT_ITEMS = 1000
_SUSPECT = re.compile(rb'\\u0000|\\u[dD][89a-fA-F]|[0-9eE+.-]{60}|[\[{][^"]{0,9}[\[{]')
_PLAIN = (str, int, float, bool, type(None))


class ArgsError(ValueError):
    """Args that can't be kept or read; the message names the place."""


def text(value: object, limit_bytes: int = 16_384) -> str:
    """Any object as text that a text column takes: NUL and lone surrogates shown as escapes, the middle of a long one cut."""
    try:
        raw = str.__str__(value if isinstance(value, str) else str(value))  # a subclass may lie about its length
    except BaseException as error:  # noqa: BLE001  a __str__ of a handler's own may raise anything
        raw = f"<{type(value).__name__} whose text could not be made: {type(error).__name__}>"
    if len(raw) > 2 * limit_bytes:  # bound the work before it is done
        raw = _cut(raw[:limit_bytes], raw[-limit_bytes:], len(raw) - 2 * limit_bytes)
    safe = _NUL_OR_SURROGATE.sub(
        lambda found: f"\\x{ord(found[0]):02x}" if found[0] == "\0" else f"\\u{ord(found[0]):04x}", raw
    )
    encoded = safe.encode()
    if len(encoded) <= limit_bytes:
        return safe
    half = max(0, (limit_bytes - 40) // 2)
    head, tail = encoded[:half].decode(errors="ignore"), encoded[len(encoded) - half :].decode(errors="ignore")
    return _cut(head, tail, len(encoded) - 2 * half)[: limit_bytes if half else 0]


def _cut(head: str, tail: str, count: int) -> str:
    return f"{head}\n[... {count} bytes cut ...]\n{tail}"


def traceback_text(error: BaseException, limit_bytes: int = 16_384) -> str:
    """The traceback without locals, its first and last frames when there are thousands; never raises."""
    try:
        return _traceback_text(error, limit_bytes)
    except BaseException:  # noqa: BLE001  an error may have attributes of its own making
        return f"{type(error).__name__}, whose traceback could not be made"


def _traceback_text(error: BaseException, limit_bytes: int) -> str:
    lines: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(seen) < 8:
        seen.add(id(current))
        frames = _frames(current)
        block = [
            f"{type(current).__module__}.{type(current).__qualname__}: {text(current, limit_bytes // 3)}".removeprefix(
                "builtins."
            )
        ]
        if frames:
            block = ["Traceback (most recent call last):", *frames, *block]
        if isinstance(current, BaseExceptionGroup):
            block += [f"  | {type(inner).__qualname__}: {text(inner, 500)}" for inner in current.exceptions[:10]]
        lines = [*block, *(["", "The above led to:", ""] if lines else []), *lines]
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return text("\n".join(lines), limit_bytes)


def _frames(error: BaseException) -> list[str]:
    try:
        steps = list(itertools.islice(traceback.walk_tb(error.__traceback__), 100_000))
        shown = [*steps[:10], None, *steps[-30:]] if len(steps) > 50 else steps
        found = []
        for step in shown:
            if step is None:
                found.append(f"  [... {len(steps) - 40} frames cut ...]")
                continue
            frame, line = step
            code = frame.f_code
            found.append(f'  File "{code.co_filename}", line {line}, in {code.co_name}')
            if source := linecache.getline(code.co_filename, line).strip():
                found.append(f"    {source[:200]}")
    except BaseException:  # noqa: BLE001  whatever is wrong with the frames, the error's own words still count
        return []
    return found


def counts(value: object, limit_bytes: int = 65_536) -> str | None:
    """What a handler returned, as JSON text that jsonb takes: an object, or None for nothing. Never raises."""
    if value is None:
        return None
    try:
        whole = _safe(value if isinstance(value, Mapping) else {"result": value}, 0, itertools.count(), limit_bytes)
        encoded = json.dumps(whole, ensure_ascii=False, allow_nan=False)
    except BaseException as error:  # noqa: BLE001  e.g. an iterator of the handler's own that raises
        return json.dumps({"cut": f"what it returned could not be kept: {type(error).__name__}"})
    if len(encoded.encode()) > limit_bytes:
        return json.dumps({"cut": f"what it returned was larger than {limit_bytes} bytes"})
    return encoded


def _safe(value: object, depth: int, budget: Iterator[int], limit: int) -> Any:  # noqa: PLR0911  one line a type reads best
    if depth > _RESULT_DEPTH:
        return "[... too deep ...]"
    if next(budget) > limit:
        return "[... too much ...]"
    match value:
        case None | bool():
            return value
        case int():
            return value if abs(value) < 10**_MOST_DIGITS else f"[... a number of {value.bit_length()} bits ...]"
        case float():
            return value if math.isfinite(value) else str(value)
        case str():
            return text(value, limit)
        case bytes() | bytearray() | memoryview():
            return text(bytes(value[:limit]).decode(errors="backslashreplace"), limit)
        case Mapping():
            return {
                text(key, 200): _safe(item, depth + 1, budget, limit)
                for key, item in itertools.islice(value.items(), _RESULT_ITEMS)
            }
        case list() | tuple() | set() | frozenset():
            return [_safe(item, depth + 1, budget, limit) for item in itertools.islice(value, _RESULT_ITEMS)]
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta() | Decimal() | UUID():
            return str(value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: _safe(getattr(value, field.name), depth + 1, budget, limit) for field in fields(value)}
        case _:
            return text(value, 1000)


def json_args(args_json: str) -> Any:
    """The args of a row, integers exact. Raises ArgsError for what PostgreSQL keeps but Python can't read."""
    try:
        return msgspec.json.decode(args_json)
    except RecursionError:
        raise ArgsError("they are nested too deeply to be read") from None
    except (ValueError, msgspec.DecodeError) as error:
        raise ArgsError(f"they can't be read: {text(error, 300)}") from None


def check_args(value: object, limit_bytes: int = 65_536, depth: int = 64) -> str:
    """The args as JSON text; raises ArgsError naming the place and what is wrong there.

    The usual small object costs one encoding and one scan of its bytes; only a suspicious one is walked.
    """
    try:
        encoded = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError, OverflowError):
        _walk(value, "args", depth)
        raise ArgsError("args: they can't be written as JSON") from None
    if len(encoded) > limit_bytes:
        raise ArgsError(
            f"args: {len(encoded)} bytes are more than the {limit_bytes} that a job may carry; keep the content in a table and pass its id"
        )
    if b"null" in encoded or _SUSPECT.search(encoded):
        _walk(value, "args", depth)
    return encoded.decode()


def _walk(value: object, place: str, depth: int) -> None:
    if depth < 0:
        raise ArgsError(f"{place[:200]}: nested more than 64 levels deep")
    match value:
        case float() if not math.isfinite(value):
            raise ArgsError(f"{place}: {value} can't be kept in JSON")
        case int() if not isinstance(value, bool) and abs(value) >= 10**_MOST_DIGITS:
            raise ArgsError(f"{place}: a number of more than {_MOST_DIGITS} digits")
        case str() if found := _NUL_OR_SURROGATE.search(value):
            raise ArgsError(
                f"{place}: {'a NUL character' if found[0] == chr(0) else 'half of a character (a lone surrogate)'} can't be kept"
            )
        case Mapping():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise ArgsError(f"{place}: the name {key!r} must be text")
                _walk(key, f"{place}.{text(key, 60)}", depth - 1)
                _walk(item, f"{place}.{text(key, 60)}", depth - 1)
        case list() | tuple():
            for number, item in enumerate(value):
                _walk(item, f"{place}[{number}]", depth - 1)
        case _ if not isinstance(value, _PLAIN):
            _check_type(value, place)


def _check_type(value: object, place: str) -> None:
    try:
        msgspec.json.encode(value)
    except (TypeError, ValueError, msgspec.MsgspecError):
        raise ArgsError(f"{place}: {type(value).__name__} can't be written as JSON") from None
