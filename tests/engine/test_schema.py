"""Migrations: safe to run again and at once, and never upon what another made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count

import psycopg
import pytest
from psycopg import sql

from tests.conftest import address
from tests.support.moves import in_parallel, one
from worker import schema
from worker.engine import db
from worker.schema import SchemaError

_numbers = count()


@pytest.fixture
def empty(server: str) -> Iterator[str]:
    """The address of a database that nobody migrated."""
    name = f"empty_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        yield address(server, name)
        conn.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def dump(url: str) -> list[tuple[str, ...]]:
    """Every table, column, index and function of the schema."""
    with db.connect(url, "test") as conn:
        return conn.execute(
            """select 'column', table_name::text, column_name::text, data_type::text from information_schema.columns
               where table_schema = 'public'
               union all select 'index', tablename, indexname, indexdef from pg_indexes where schemaname = 'public'
               union all select 'function', proname, '', prosrc from pg_proc where pronamespace = 'public'::regnamespace
               order by 1, 2, 3"""
        ).fetchall()


def test_migrating_again_changes_nothing(url: str) -> None:
    before = dump(url)
    revision = schema.migrate(url)
    assert schema.migrate(url) == revision
    assert dump(url) == before


def test_four_migrations_at_once_end_as_one(empty: str, url: str) -> None:
    assert len(set(in_parallel([lambda: schema.migrate(empty)] * 4))) == 1
    assert dump(empty) == dump(url)
    with db.connect(empty, "test") as conn:
        assert one(conn, "select count(*) from pg_inherits where inhparent = 'job_runs'::regclass") == 4


def test_a_newer_schema_is_refused_with_words_and_left_as_it_is(url: str, conn: psycopg.Connection) -> None:
    conn.execute("update alembic_version set version_num = '9999_of_tomorrow'")
    before = dump(url)
    with pytest.raises(SchemaError, match=r"9999_of_tomorrow.*newer code"):
        schema.migrate(url)
    assert dump(url) == before
    assert one(conn, "select version_num from alembic_version") == "9999_of_tomorrow"


def test_a_jobs_table_of_another_making_is_refused(empty: str) -> None:
    with db.connect(empty, "test") as conn:
        conn.execute("create table jobs (title text)")
        with pytest.raises(SchemaError, match="a database of its own"):
            schema.migrate(empty)
        assert one(conn, "select to_regclass('job_runs')") is None


def test_no_identifier_can_run_out(conn: psycopg.Connection) -> None:
    narrow = """select table_name || '.' || column_name from information_schema.columns
                where table_schema = 'public' and column_name ~ '(^|_)id$' and data_type in ('integer', 'smallint')"""
    assert conn.execute(narrow).fetchall() == []


def test_the_clock_bounds_an_index_scan_and_moves_with_its_setting(conn: psycopg.Connection) -> None:
    assert one(conn, "select provolatile from pg_proc where proname = 'clock_now'") == "s"
    apart = "select extract(epoch from clock_now() - statement_timestamp())::float8"
    assert one(conn, apart) == 0
    conn.execute("set nightshift.clock_offset = '1 h'")
    assert one(conn, apart) == 3600
    conn.execute("reset nightshift.clock_offset")
    assert one(conn, apart) == 0


@pytest.mark.parametrize(
    "columns",
    [
        "(kind) values ('')",
        "(kind, priority) values ('ok', 10)",
        "(kind, status) values ('ok', 'running')",
        "(kind, status) values ('ok', 'completed')",
        "(kind, status) values ('ok', 'waiting')",
        "(kind, waiting_for) values ('ok', 1)",
        "(kind, locked_until) values ('ok', now())",
        "(kind, running_key) values ('ok', 'ok')",
        "(kind, attempt) values ('ok', -1)",
        "(kind, max_attempts) values ('ok', 0)",
        "(kind, unique_key) values ('ok', '')",
        "(kind, args) values ('ok', null)",
    ],
)
def test_a_row_that_cannot_be_is_refused_by_the_table_itself(conn: psycopg.Connection, columns: str) -> None:
    with pytest.raises(psycopg.IntegrityError):
        conn.execute("insert into jobs " + columns)  # type: ignore[arg-type]
