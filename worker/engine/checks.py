"""Args on the way in: checked against the schema that the kind's own process published, before a row is written."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import fastjsonschema
import msgspec
from psycopg import Connection

from worker.engine import clean, db
from worker.engine.model import Args, EnqueueError

_FRESH_SECONDS = 30.0
_UUID = r"^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$"
_schemas: dict[tuple[str, int, str, str], tuple[float, str]] = {}


def check_args(conn: Connection, kind: str, args: Args | dict[str, Any] | None) -> str:
    """The args as JSON text; raises EnqueueError, which names the field. A kind that no process knows yet takes anything."""
    value = {} if args is None else msgspec.to_builtins(args) if isinstance(args, msgspec.Struct) else args
    if not isinstance(value, dict):
        raise EnqueueError(f"args of {kind} must be an object of named fields, not {type(value).__name__}.")
    try:
        text = clean.check_args(value)
    except clean.ArgsError as error:
        raise EnqueueError(f"{kind}: {error}") from error
    if (schema := _schema(conn, kind)) is not None:
        try:
            _validator(schema)(msgspec.json.decode(text))
        except fastjsonschema.JsonSchemaValueException as error:
            raise EnqueueError(f"{kind}: {error.message}.") from error
    return text


def _schema(conn: Connection, kind: str) -> str | None:
    key = (conn.info.host, conn.info.port, conn.info.dbname, kind)
    known = _schemas.get(key)
    if known is None or time.monotonic() - known[0] > _FRESH_SECONDS:
        row = conn.execute(db.statement("args_schema"), {"kind": kind}).fetchone()
        if row is None or row[0] is None:  # not kept: it may be published the next moment
            return None
        known = _schemas[key] = (time.monotonic(), row[0])
    return known[1]


@lru_cache(maxsize=500)
def _validator(schema: str) -> Callable[[Any], Any]:
    check: Callable[..., Any] = fastjsonschema.compile(
        msgspec.json.decode(schema), formats={"uuid": _UUID}, use_default=False
    )
    return lambda value: check(value, name_prefix="args")
