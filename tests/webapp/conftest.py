"""The web process against a fresh database, and a browser's view of it without a browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from flask import Flask
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from webapp import create_app
from webapp.extensions import db
from worker import operators, settings

PASSWORD = "twelve cards wait"
SECRET = "0123456789abcdefghijklmnopqrstuvwxyz"


def build(url: str, *, secure: str = "no", proxies: int = 0) -> Flask:
    """An app as wsgi builds it."""
    environ = {"DATABASE_URL": url, "SECRET_KEY": SECRET, "SECURE_COOKIES": secure, "TRUSTED_PROXIES": str(proxies)}
    return create_app(settings.load(environ, web=True))


@pytest.fixture
def app(url: str) -> Iterator[Flask]:
    app = build(url)
    yield app
    with app.app_context():
        db.engine.dispose()


class Visitor:
    """Someone with a browser: keeps cookies, fills forms with the token that the page gave."""

    def __init__(self, client: FlaskClient, address: str = "192.0.2.1") -> None:
        self.client = client
        self.environ = {"REMOTE_ADDR": address}

    def get(self, path: str, **options: Any) -> TestResponse:
        return self.client.get(path, environ_overrides=self.environ, buffered=True, **options)

    def fragment(self, path: str) -> TestResponse:
        return self.get(path, headers={"HX-Request": "true"})

    def token(self, page: str = "/") -> str:
        found = re.search(r'name="csrf_token" value="([0-9a-f]+)"', self.get(page).text)
        assert found is not None, f"{page} has no form"
        return found[1]

    def post(
        self, path: str, data: dict[str, str] | None = None, *, token: str | None = None, **options: Any
    ) -> TestResponse:
        form = {"csrf_token": self.token() if token is None else token, **(data or {})}
        return self.client.post(path, data=form, environ_overrides=self.environ, **options)

    def sign_in(self, name: str, password: str = PASSWORD, **form: str) -> TestResponse:
        token = self.token("/sign-in")
        return self.post("/sign-in", {"name": name, "password": password, **form}, token=token)


@pytest.fixture
def visitor(app: Flask) -> Visitor:
    """Nobody yet."""
    return Visitor(app.test_client())


@pytest.fixture
def signed_in(app: Flask, conn: psycopg.Connection) -> Callable[..., Visitor]:
    """Makes an operator of a role and signs it in."""

    def make(role: str = "operator", address: str = "192.0.2.1") -> Visitor:
        if conn.execute("select 1 from operators where name = %s", [role]).fetchone() is None:
            operators.add(conn, role, PASSWORD, role)
        visitor = Visitor(app.test_client(), address)
        assert visitor.sign_in(role).status_code == 303
        return visitor

    return make


@pytest.fixture
def operator(signed_in: Callable[..., Visitor]) -> Visitor:
    return signed_in("operator")


def actions(conn: psycopg.Connection, result: str | None = None) -> list[tuple[str, str, str]]:
    """The audit trail without signing in and out: action, target, result."""
    rows = conn.execute(
        "select action, target, result from operator_actions where action not in ('sign in', 'sign out') order by id"
    ).fetchall()
    return [row for row in rows if result is None or row[2] == result]
