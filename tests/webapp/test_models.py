from __future__ import annotations

import psycopg
import pytest
from sqlalchemy import Table
from sqlalchemy.dialects import postgresql

from webapp.models import Base

_COLUMNS = """
    select a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, c.relkind
    from pg_attribute a join pg_class c on c.oid = a.attrelid
    where c.oid = %s::regclass and a.attnum > 0 and not a.attisdropped
"""
_NAMES = {"TIMESTAMP WITH TIME ZONE": "timestamp with time zone"}


def _type(column: object) -> str:
    name = column.type.compile(postgresql.dialect())  # type: ignore[attr-defined]
    return _NAMES.get(name, name.lower())


@pytest.mark.parametrize("table", Base.metadata.sorted_tables, ids=str)
def test_each_model_is_what_the_migrations_made(table: Table, conn: psycopg.Connection) -> None:
    found = {name: (kind, not_null) for name, kind, not_null, _ in conn.execute(_COLUMNS, [table.name])}
    modelled = {column.name: (_type(column), not column.nullable) for column in table.columns}
    if table.info.get("is_view"):  # a view's columns can't be declared not null
        found, modelled = ({n: k for n, (k, _) in side.items()} for side in (found, modelled))  # type: ignore[misc]
    assert modelled == found
