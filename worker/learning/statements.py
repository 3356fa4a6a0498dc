"""The named statements of the learning app."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import LiteralString

from worker.engine import db

_SQL = Path(__file__).parent / "sql"


@cache
def statement(name: str) -> LiteralString:
    """The text of sql/NAME.sql."""
    return db.load_sql(_SQL, name)
