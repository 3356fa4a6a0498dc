"""Asking for work: in the caller's transaction, checked before it is written, once a unique key."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import flask
import flask_sqlalchemy
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from tests.support.kinds import Number
from tests.support.moves import Aside, begun, claim, ends, enqueued, live, one, publish, row
from worker.engine import clean, db, queue
from worker.engine.model import Args, EnqueueError, Kind


def engine_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://", 1)


def test_a_job_exists_from_the_commit_on_and_not_before(url: str, conn: psycopg.Connection) -> None:
    with db.connect(url, "caller", autocommit=False) as caller:
        job_id = enqueued(caller)
        assert live(conn) == 0
        caller.commit()
        assert row(conn, job_id) is not None


def test_a_rollback_leaves_nothing(url: str, conn: psycopg.Connection) -> None:
    with db.connect(url, "caller", autocommit=False) as caller:
        enqueued(caller)
        assert caller.info.transaction_status.name == "INTRANS"
        caller.rollback()
    assert live(conn) == 0


def test_a_sqlalchemy_session_carries_the_job_in_its_own_transaction(url: str, conn: psycopg.Connection) -> None:
    engine = create_engine(engine_url(url))
    with Session(engine) as session:
        queue.enqueue(session, "ok", {"n": 1})
        assert live(conn) == 0
        session.rollback()
        assert live(conn) == 0
        queue.enqueue(session, "ok", {"n": 2})
        session.commit()
    engine.dispose()
    assert one(conn, "select args from jobs") == {"n": 2}


def test_a_flask_app_enqueues_beside_its_own_rows(url: str, conn: psycopg.Connection) -> None:
    store = flask_sqlalchemy.SQLAlchemy()
    app = flask.Flask("shop")
    app.config["SQLALCHEMY_DATABASE_URI"] = engine_url(url)
    store.init_app(app)
    conn.execute("create table orders (id int primary key)")

    class Order(store.Model):  # type: ignore[name-defined]
        __tablename__ = "orders"
        id = store.Column(store.Integer, primary_key=True)

    with app.app_context():
        store.session.add(Order(id=1))
        # What is pending in the session is flushed first, so that the job's row never precedes what it is about.
        queue.enqueue(store.session, "ok", {"n": 1})
        assert store.session.connection().exec_driver_sql("select count(*) from orders").scalar_one() == 1
        store.session.rollback()
        assert (live(conn), one(conn, "select count(*) from orders")) == (0, 0)
        store.session.add(Order(id=2))
        queue.enqueue(store.session, "ok", {"n": 2})
        store.session.commit()
        assert (live(conn), one(conn, "select count(*) from orders")) == (1, 1)
        store.engine.dispose()


def test_something_else_than_a_connection_is_refused() -> None:
    with pytest.raises(TypeError, match="psycopg connection, or an SQLAlchemy session"):
        queue.enqueue("postgresql:///", "ok")  # type: ignore[arg-type]


def test_a_plain_insert_is_a_complete_enqueue(conn: psycopg.Connection) -> None:
    publish(conn)
    conn.execute("insert into jobs (kind, args) values ('raises', '{\"n\": 3}')")
    (job,) = claim(conn)
    assert (job.kind, job.args_json, job.attempt, job.max_attempts) == ("raises", '{"n": 3}', 1, 3)


def test_every_option_reaches_its_column(conn: psycopg.Connection) -> None:
    at = datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
    job_id = enqueued(
        conn,
        "unheard-of",
        {"a": 1},
        run_at=at,
        queue="slow",
        priority=0,
        tenant="acme",
        unique_key="k",
        max_attempts=7,
    )
    found = row(conn, job_id)
    assert found is not None
    assert found["run_at"] == at
    assert (found["queue"], found["priority"], found["tenant"]) == ("slow", 0, "acme")
    assert (found["unique_key"], found["max_attempts"], found["status"]) == ("k", 7, "queued")


def test_a_job_goes_to_its_kinds_queue_unless_told_otherwise(conn: psycopg.Connection) -> None:
    publish(conn, Kind("bulky", lambda ctx, args: None, "", queue="bulk"))
    assert [
        (row(conn, enqueued(conn, "bulky")) or {})["queue"],
        (row(conn, enqueued(conn, "bulky", queue="default")) or {})["queue"],
        (row(conn, enqueued(conn, "unheard-of")) or {})["queue"],
    ] == ["bulk", "default", "default"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("kind", ""),
        ("kind", "k" * 101),
        ("kind", "a\0b"),
        ("kind", "\ud800"),
        ("kind", 5),
        ("kind", None),
        ("queue", ""),
        ("queue", "q" * 101),
        ("queue", "a\0b"),
        ("tenant", "t" * 201),
        ("tenant", "\udfff"),
        ("tenant", "a\0b"),
        ("unique_key", ""),
        ("unique_key", "u" * 600),
        ("unique_key", "é" * 300),
        ("unique_key", "a\0b"),
        ("unique_key", b"bytes"),
        ("run_at", datetime(2030, 1, 1)),  # noqa: DTZ001  naive on purpose
        ("run_at", date(2030, 1, 1)),
        ("run_at", datetime(2030, 1, 1, tzinfo=UTC).timetz()),
        ("run_at", "2030-01-01T00:00:00Z"),
        ("run_at", 1_900_000_000),
        ("priority", 10),
        ("priority", -1),
        ("priority", "5"),
        ("priority", 2.5),
        ("priority", True),
        ("max_attempts", 0),
        ("max_attempts", -1),
        ("max_attempts", 10**12),
        ("max_attempts", "3"),
        ("max_attempts", True),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(url: str, field: str, value: Any) -> None:
    options = {"kind": "ok"} | {field: value}
    with db.connect(url, "caller", autocommit=False) as caller:
        with pytest.raises(EnqueueError, match=f"^{field} "):
            queue.enqueue(caller, **options)
        # Nothing reached the database, so the caller's transaction is as good as before.
        assert caller.info.transaction_status.name == "IDLE"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tenant", ""),
        ("unique_key", "u" * 512),
        ("kind", "k" * 100),
        ("priority", 0),
        ("priority", 9),
        ("run_at", datetime.max.replace(tzinfo=UTC)),
    ],
)
def test_the_last_value_inside_each_bound_is_taken(conn: psycopg.Connection, field: str, value: Any) -> None:
    assert queue.enqueue(conn, **({"kind": "ok"} | {field: value})).is_new


class Letter(Args, frozen=True):
    to: UUID
    lines: list[str]
    at: datetime | None = None
    copies: int = 1


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ({"to": "nobody", "lines": []}, r"args\.to"),
        ({"to": "00000000-0000-0000-0000-000000000000", "lines": ["a", 5]}, r"args\.lines\[1\]"),
        ({"to": "00000000-0000-0000-0000-000000000000"}, r"lines"),
        ({"to": "00000000-0000-0000-0000-000000000000", "lines": [], "copies": "2"}, r"args\.copies"),
        ({"to": "00000000-0000-0000-0000-000000000000", "lines": [], "colour": "red"}, r"colour"),
        ({"to": "00000000-0000-0000-0000-000000000000", "lines": ["a\0b"]}, r"args\.lines\[0\]: a NUL"),
        ({"to": "00000000-0000-0000-0000-000000000000", "lines": ["\ud800"]}, r"args\.lines\[0\]: half of a character"),
        ({"to": "00000000-0000-0000-0000-000000000000", "lines": [], "copies": float("nan")}, r"args\.copies: nan"),
        ({"to": "00000000-0000-0000-0000-000000000000", "lines": [], "copies": 10**5000}, r"args\.copies: a number"),
        ({"to": "00000000-0000-0000-0000-000000000000", "lines": ["x" * 70_000]}, r"args: \d+ bytes"),
        ({"to": {1, 2}, "lines": [object()]}, r"args\.lines\[0\]: object"),
        ([1, 2], "must be an object of named fields, not list"),
        ("text", "must be an object of named fields, not str"),
    ],
)
def test_args_that_do_not_fit_their_kind_are_refused_with_the_field_named(
    conn: psycopg.Connection, args: Any, word: str
) -> None:
    publish(conn, Kind("letter", lambda ctx, args: None, "", args=Letter))
    with pytest.raises(EnqueueError, match=word):
        queue.enqueue(conn, "letter", args)
    assert live(conn) == 0


def test_typed_args_come_back_as_they_went_in(conn: psycopg.Connection) -> None:
    publish(conn, Kind("letter", lambda ctx, args: None, "", args=Letter))
    queue.enqueue(conn, "letter", Letter(UUID(int=5), ["å"], datetime(2030, 1, 1, tzinfo=UTC), 3))
    assert one(conn, "select args from jobs") == {
        "to": str(UUID(int=5)),
        "lines": ["å"],
        "at": "2030-01-01T00:00:00Z",
        "copies": 3,
    }


def test_a_kind_that_nobody_published_takes_any_args(conn: psycopg.Connection) -> None:
    queue.enqueue(conn, "of-the-next-release", {"anything": [1, {"x": None}]})
    assert one(conn, "select args from jobs") == {"anything": [1, {"x": None}]}


def test_a_kind_is_checked_from_the_moment_it_is_published(conn: psycopg.Connection) -> None:
    queue.enqueue(conn, "ok", {"any": "thing"})
    publish(conn)
    with pytest.raises(EnqueueError, match="any"):
        queue.enqueue(conn, "ok", {"any": "thing"})


@pytest.mark.parametrize("number", [2**53 + 1, 1970670598291982290, 2**63 - 1, 2**63, 10**63, -(2**64)], ids=str)
def test_whole_numbers_keep_every_digit(conn: psycopg.Connection, number: int) -> None:
    publish(conn)
    queue.enqueue(conn, "ok", {"n": number})
    (job,) = claim(conn)
    assert clean.json_args(job.args_json) == {"n": number}
    assert one(conn, "select args->>'n' from jobs") == str(number)


def test_a_unique_key_admits_one_live_job_a_kind(conn: psycopg.Connection) -> None:
    publish(conn)
    first = queue.enqueue(conn, "ok", unique_key="k")
    again = queue.enqueue(conn, "ok", Number(9), unique_key="k")
    other = queue.enqueue(conn, "raises", unique_key="k")
    assert (first.is_new, again.is_new, other.is_new) == (True, False, True)
    assert again.id == first.id != other.id
    assert one(conn, "select args from jobs where id = %s", first.id) == {}


def test_a_unique_key_is_held_while_the_job_runs_and_free_once_it_ended(conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn, unique_key="k")
    assert queue.enqueue(conn, "ok", unique_key="k").id == job.id
    assert ends(conn, job)
    fresh = queue.enqueue(conn, "ok", unique_key="k")
    assert fresh.is_new
    assert fresh.id != job.id


def test_a_duplicate_waits_for_the_first_and_follows_its_fate(url: str, conn: psycopg.Connection) -> None:
    for fate in ("commit", "rollback"):
        with db.connect(url, "first", autocommit=False) as first:
            one_id = queue.enqueue(first, "ok", unique_key=fate).id
            second = Aside(url, lambda own, key=fate: queue.enqueue(own, "ok", unique_key=key))
            assert second.is_waiting_for_a_lock(conn)
            getattr(first, fate)()
            found = second.outcome()
        assert found.is_new == (fate == "rollback")
        assert (found.id == one_id) == (fate == "commit")
    assert live(conn) == 2


def test_a_duplicate_whose_first_ended_in_between_is_new(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    job = begun(conn, unique_key="k")
    with db.connect(url, "owner", autocommit=False) as owner:
        # The insert sees the key taken and waits; by the time it looks for the holder, that has left.
        owner.execute("delete from jobs where id = %s", (job.id,))
        second = Aside(url, lambda own: queue.enqueue(own, "ok", unique_key="k"))
        assert second.is_waiting_for_a_lock(conn)
        owner.commit()
    assert second.outcome().is_new


def test_a_future_time_is_kept_to_the_microsecond(conn: psycopg.Connection) -> None:
    at = datetime(2030, 6, 1, 12, 0, 0, 1, tzinfo=UTC) + timedelta(hours=1)
    assert (row(conn, enqueued(conn, run_at=at)) or {})["run_at"] == at
