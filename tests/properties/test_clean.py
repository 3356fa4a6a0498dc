"""What `clean` lets pass is taken by a real PostgreSQL, and what PostgreSQL gives back is what went in."""

from __future__ import annotations

import math
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from worker.engine import clean

WHATEVER = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
# Text with all that PostgreSQL refuses in it: NUL and the halves of characters.
TEXT = st.text(st.one_of(st.characters(), st.sampled_from("\0\ud800\udfff\\\"'\n")))
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        TEXT,
        st.binary(),
        st.decimals(),
        st.timedeltas(),
        st.uuids(),
    ),
    lambda inner: st.one_of(
        st.lists(inner),
        st.dictionaries(st.one_of(TEXT, st.integers()), inner),
        st.sets(st.integers()),
        st.tuples(inner),
    ),
)


@WHATEVER
@given(value=TEXT, limit=st.integers(0, 200))
@example(value="\0" * 100, limit=80)
@example(value="é" * 1000, limit=99)
def test_any_text_is_taken_by_a_text_column_within_its_limit(conn: psycopg.Connection, value: str, limit: int) -> None:
    made = clean.text(value, limit)
    assert len(made.encode()) <= limit
    assert conn.execute("select %s::text", (made,)).fetchone() == (made,)


@WHATEVER
@given(value=TEXT)
def test_text_that_postgresql_takes_is_left_as_it_is(value: str) -> None:
    if "\0" not in value and value.isprintable():
        assert clean.text(value, 10_000) == value


@WHATEVER
@given(value=VALUES)
def test_any_result_is_taken_by_a_jsonb_column(conn: psycopg.Connection, value: Any) -> None:
    made = clean.counts(value)
    row = conn.execute("select jsonb_typeof(%s::jsonb)", (made,)).fetchone()
    assert row == (None if value is None else "object",)


@WHATEVER
@given(value=st.dictionaries(TEXT, VALUES))
def test_args_are_refused_or_come_back_as_they_went_in(conn: psycopg.Connection, value: dict[str, Any]) -> None:
    made, refusal = checked(value)
    if made is None:
        assert refusal.startswith("args")
        return
    row = conn.execute("select (%s::jsonb)::text", (made,)).fetchone()
    assert row is not None
    assert alike(clean.json_args(row[0]), clean.json_args(made))


def checked(value: Any) -> tuple[str | None, str]:
    """What check_args made of it, or None and why it was refused."""
    try:
        return clean.check_args(value), ""
    except clean.ArgsError as error:
        return None, str(error)


def alike(left: Any, right: Any) -> bool:
    """Equal, but for floats: jsonb keeps the digits, and 1e2 comes back as 100."""
    match left, right:
        case (int() | float(), int() | float()):
            return math.isclose(left, right, rel_tol=1e-12)
        case dict(), dict():
            return left.keys() == right.keys() and all(alike(left[key], right[key]) for key in left)
        case list(), list():
            return len(left) == len(right) and all(map(alike, left, right))
    return bool(left == right)


@WHATEVER
@given(value=st.integers(-(10**64) + 1, 10**64 - 1))
def test_whole_numbers_in_args_keep_every_digit(conn: psycopg.Connection, value: int) -> None:
    row = conn.execute("select (%s::jsonb)::text", (clean.check_args({"n": value}),)).fetchone()
    assert row is not None
    assert clean.json_args(row[0]) == {"n": value}


@pytest.mark.parametrize("depth", [62, 63, 64, 65, 66, 3000])
def test_args_are_read_back_or_refused_at_any_depth(conn: psycopg.Connection, depth: int) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    made, refusal = checked({"k": value})
    if made is None:
        assert "64 levels" in refusal
        assert depth > 62
        return
    row = conn.execute("select (%s::jsonb)::text", (made,)).fetchone()
    assert row is not None
    assert clean.json_args(row[0]) == {"k": value}
