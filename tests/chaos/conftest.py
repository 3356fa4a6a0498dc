"""What tests with real processes share."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.poison import MARKS


@pytest.fixture
def db(conn: psycopg.Connection) -> psycopg.Connection:
    """A connection in autocommit to a fresh database in which handlers can leave marks."""
    conn.execute(MARKS)
    return conn
