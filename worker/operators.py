"""Who may sign in: names, roles and password hashes in `operators`. Sessions and throttling are the web process's."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cache

from psycopg import Connection
from werkzeug.security import check_password_hash, generate_password_hash

from worker.engine import db
from worker.engine.model import NightshiftError

FIRST_OPERATOR = "operator"
SHORTEST_PASSWORD = 12
LONGEST_PASSWORD = 1000  # a hash of megabytes would be a way to keep the web process busy


class OperatorError(NightshiftError, ValueError):
    """What was asked for an operator can't be done; the message says why."""


@dataclass(frozen=True, slots=True)
class Operator:
    """Someone who has proved who they are."""

    id: int
    name: str
    role: str


def ensure_operator(url: str) -> str | None:
    """Makes the first operator when there is none, and returns its password, this once; None when there is one."""
    password = secrets.token_urlsafe(18)
    with db.connect(url, "operators", autocommit=False) as conn:
        # Two starts at once must not both believe that they were first.
        conn.execute("lock table operators in share row exclusive mode")
        if conn.execute("select 1 from operators limit 1").fetchone() is not None:
            return None
        _insert(conn, FIRST_OPERATOR, password, "admin")
    return password


def add(conn: Connection, name: str, password: str, role: str) -> None:
    """Adds an operator, in the caller's transaction."""
    if not 1 <= len(name) <= 100 or not name.isprintable() or name != name.strip():
        raise OperatorError("A name has 1 to 100 printable characters, and no blanks at its ends.")
    if role not in {"viewer", "operator", "admin"}:
        raise OperatorError(f"role must be viewer, operator or admin, not {role!r}.")
    _check(password)
    _insert(conn, name, password, role)


def set_password(conn: Connection, name: str, password: str) -> bool:
    """Changes the password and ends that operator's sessions; False when there is no such operator."""
    _check(password)
    values = {"name": name, "hash": generate_password_hash(password)}
    row = conn.execute(
        "update operators set password_hash = %(hash)s where name = %(name)s returning id", values
    ).fetchone()
    if row is None:
        return False
    conn.execute("delete from operator_sessions where operator_id = %s", row)
    return True


def verify(conn: Connection, name: str, password: str) -> Operator | None:
    """Who this is, or None. Takes as long for a name that nobody has as for a wrong password."""
    if len(password) > LONGEST_PASSWORD:
        return None
    row = None
    if "\0" not in name:
        row = conn.execute(
            "select id, name, role, password_hash, disabled_at from operators where name = %s", [name]
        ).fetchone()
    matches = check_password_hash(_nobody() if row is None else row[3], password)
    if row is None or not matches or row[4] is not None:
        return None
    return Operator(*row[:3])


def _check(password: str) -> None:
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise OperatorError(f"A password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters.")
    if len(set(password)) < 5:
        raise OperatorError("That password is too easy to guess: use more different characters.")


def _insert(conn: Connection, name: str, password: str, role: str) -> None:
    conn.execute(
        "insert into operators (name, password_hash, role) values (%s, %s, %s)",
        [name, generate_password_hash(password), role],
    )


@cache
def _nobody() -> str:
    return generate_password_hash(secrets.token_urlsafe(18))
