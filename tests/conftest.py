"""One real PostgreSQL a test worker, one migrated template, a fresh database a test; nothing may be left behind."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

from worker import schema
from worker.engine import db
from worker.local import embedded

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of a server's maintenance database: NIGHTSHIFT_TEST_SERVER, or an embedded one of this session."""
    if given := os.environ.get("NIGHTSHIFT_TEST_SERVER"):
        yield given
        return
    home = Path(tempfile.mkdtemp(prefix="ns-test-"))
    with embedded.running(home) as running:
        # Tests that kill the server make one of their own; here a flush to disk proves nothing and costs minutes.
        with psycopg.connect(running.url, autocommit=True) as conn:
            for setting in ("fsync", "full_page_writes"):
                conn.execute(sql.SQL("alter system set {} = off").format(sql.Identifier(setting)))
            conn.execute("select pg_reload_conf()")
        yield running.url
    shutil.rmtree(home)


@pytest.fixture(scope="session")
def template(server: str) -> str:
    """A migrated database that tests are copied from."""
    name = f"template_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    schema.migrate(address(server, name))
    return name


@pytest.fixture
def url(server: str, template: str) -> Iterator[str]:
    """The address of a fresh, migrated database. Sessions and threads that a test leaves behind fail it."""
    name = f"test_{os.getpid()}_{next(_numbers)}"
    before = set(threading.enumerate())
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute(sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(template)))
        yield address(server, name)
        left = [thread.name for thread in set(threading.enumerate()) - before if not thread.daemon]
        conn.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
    assert not left, f"threads left behind: {left}"


@pytest.fixture
def conn(url: str) -> Iterator[psycopg.Connection]:
    """A connection in autocommit to the test's own database."""
    with db.connect(url, "test") as connection:
        yield connection


def address(server: str, name: str) -> str:
    """The address of another database on the same server."""
    parts = psycopg.conninfo.conninfo_to_dict(server) | {"dbname": name}
    host = parts.pop("host")
    user = parts.pop("user", "")
    rest = "&".join(
        f"{key}={value}"
        for key, value in {"host": host, "user": user, **{k: v for k, v in parts.items() if k != "dbname"}}.items()
    )
    return f"postgresql:///{name}?{rest}"
