from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import psycopg
import pytest
from flask import Flask

from tests.webapp.conftest import PASSWORD, Visitor, build
from webapp import guards
from webapp.extensions import db
from worker import operators


@pytest.fixture
def known(conn: psycopg.Connection) -> None:
    operators.add(conn, "owner", PASSWORD, "operator")


def test_the_first_operator_is_made_once_with_a_password_that_works(url: str, visitor: Visitor) -> None:
    password = operators.ensure_operator(url)
    assert password is not None
    assert operators.ensure_operator(url) is None
    assert visitor.sign_in("operator", password).status_code == 303
    assert visitor.get("/").status_code == 200


@pytest.mark.usefixtures("known")
def test_only_a_hash_of_the_token_is_kept(visitor: Visitor, conn: psycopg.Connection) -> None:
    visitor.sign_in("owner")
    cookie = visitor.client.get_cookie("nightshift")
    assert cookie is not None
    [(kept,)] = conn.execute("select token_hash from operator_sessions").fetchall()
    assert cookie.value.encode() not in kept
    assert len(kept) == 32
    [(hash_,)] = conn.execute("select password_hash from operators").fetchall()
    assert hash_.startswith("scrypt:")


@pytest.mark.usefixtures("known")
def test_a_wrong_password_and_an_unknown_name_get_the_same_words(visitor: Visitor) -> None:
    wrong, unknown = (
        visitor.sign_in("owner", "not the password"),
        visitor.sign_in("nobody-of-that-name", "not the password"),
    )
    assert wrong.status_code == unknown.status_code == 403
    assert "Name or password is wrong." in wrong.text
    assert "Name or password is wrong." in unknown.text
    assert visitor.get("/").status_code == 303


@pytest.mark.usefixtures("known")
def test_an_unknown_name_takes_as_long_as_a_wrong_password(conn: psycopg.Connection) -> None:
    def seconds(name: str) -> float:
        started = time.perf_counter()
        assert operators.verify(conn, name, "not the password") is None
        return time.perf_counter() - started

    operators.verify(conn, "nobody", "warm")  # makes the hash that nobody has
    wrong, unknown = zip(*((seconds("owner"), seconds("nobody")) for _ in range(7)), strict=True)
    assert 0.5 < median(unknown) / median(wrong) < 2


@pytest.mark.usefixtures("known")
def test_signing_in_gives_a_new_token_whatever_the_browser_brought(visitor: Visitor) -> None:
    visitor.client.set_cookie("nightshift", "a" * 43)
    visitor.sign_in("owner")
    cookie = visitor.client.get_cookie("nightshift")
    assert cookie is not None
    assert cookie.value != "a" * 43


@pytest.mark.usefixtures("known")
def test_a_copied_cookie_is_worth_nothing_after_signing_out(app: Flask, visitor: Visitor) -> None:
    visitor.sign_in("owner")
    cookie = visitor.client.get_cookie("nightshift")
    assert cookie is not None
    thief = Visitor(app.test_client())
    thief.client.set_cookie("nightshift", cookie.value)
    assert thief.get("/").status_code == 200
    assert visitor.post("/sign-out").status_code == 303
    assert thief.get("/").status_code == 303


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    "change",
    [
        "update operators set disabled_at = clock_now()",
        "update operator_sessions set seen_at = seen_at - interval '12 hours 1 second'",
        "update operator_sessions set expires_at = clock_now() - interval '1 second'",
        "delete from operator_sessions",
    ],
)
def test_a_session_ends(change: str, visitor: Visitor, conn: psycopg.Connection) -> None:
    visitor.sign_in("owner")
    assert visitor.get("/").status_code == 200
    conn.execute(change)
    assert visitor.get("/").status_code == 303


@pytest.mark.usefixtures("known")
def test_a_session_in_use_stays_awake(visitor: Visitor, conn: psycopg.Connection) -> None:
    visitor.sign_in("owner")
    conn.execute("update operator_sessions set seen_at = seen_at - interval '11 hours'")
    visitor.get("/")
    row = conn.execute("select clock_now() - seen_at < interval '1 minute' from operator_sessions").fetchone()
    assert row == (True,)


@pytest.mark.usefixtures("known")
def test_a_new_password_ends_the_old_sessions(visitor: Visitor, conn: psycopg.Connection) -> None:
    visitor.sign_in("owner")
    assert operators.set_password(conn, "owner", "another long password")
    assert visitor.get("/").status_code == 303
    assert not operators.set_password(conn, "nobody", "another long password")


@pytest.mark.parametrize("password", ["short", "aaaaaaaaaaaaaaaa", "x" * 1001])
def test_weak_and_endless_passwords_are_refused(password: str, conn: psycopg.Connection) -> None:
    with pytest.raises(operators.OperatorError, match=r"password"):
        operators.add(conn, "owner", password, "viewer")


def test_cookies_are_out_of_reach_of_scripts_and_other_sites(url: str, conn: psycopg.Connection) -> None:
    operators.add(conn, "owner", PASSWORD, "operator")
    app = build(url, secure="yes")
    visitor = Visitor(app.test_client())
    visitor.client.get("/sign-in", base_url="https://localhost")
    page = visitor.client.get("/sign-in", base_url="https://localhost").text
    token = page.split('name="csrf_token" value="')[1].split('"')[0]
    answer = visitor.client.post(
        "/sign-in", data={"name": "owner", "password": PASSWORD, "csrf_token": token}, base_url="https://localhost"
    )
    with app.app_context():
        db.engine.dispose()
    assert answer.status_code == 303
    [cookie] = [line for line in answer.headers.getlist("Set-Cookie") if line.startswith("__Host-nightshift=")]
    for part in ("Secure", "HttpOnly", "SameSite=Lax", "Path=/"):
        assert part in cookie
    assert "Domain" not in cookie
    assert answer.headers["Strict-Transport-Security"]


@pytest.mark.usefixtures("known")
def test_guessing_is_slowed_down_and_strangers_cannot_lock_the_owner_out(
    app: Flask, visitor: Visitor, conn: psycopg.Connection
) -> None:
    answers = [visitor.sign_in("owner", "guess").status_code for _ in range(7)]
    assert answers[:5] == [403] * 5
    refused = visitor.sign_in("owner")
    assert refused.status_code == 429
    assert int(refused.headers["Retry-After"]) > 0
    assert Visitor(app.test_client(), "198.51.100.9").sign_in("owner").status_code == 303
    conn.execute("update operator_actions set at = at - interval '16 minutes'")
    assert visitor.sign_in("owner").status_code == 303


@pytest.mark.usefixtures("known")
def test_one_address_that_tries_many_names_is_slowed_down(visitor: Visitor) -> None:
    answers = [visitor.sign_in(f"name{number}", "guess").status_code for number in range(22)]
    assert answers[:20] == [403] * 20
    assert answers[20:] == [429] * 2


@pytest.mark.usefixtures("known")
def test_a_name_that_is_guessed_at_from_everywhere_gets_one_try_a_place(app: Flask, conn: psycopg.Connection) -> None:
    conn.execute(
        """insert into operator_actions (operator, action, target, result, address)
           select 'nobody', 'sign in', 'operator owner', 'refused', '203.0.113.' || n from generate_series(1, 60) n"""
    )
    stranger = Visitor(app.test_client(), "198.51.100.9")
    assert [stranger.sign_in("owner", "guess").status_code for _ in range(2)] == [403, 429]
    assert Visitor(app.test_client(), "198.51.100.10").sign_in("owner").status_code == 303


def test_a_forged_forwarding_header_gives_no_new_address(visitor: Visitor, conn: psycopg.Connection) -> None:
    token = visitor.token("/sign-in")
    form = {"name": "owner", "password": "x", "csrf_token": token}
    visitor.client.post(
        "/sign-in", data=form, headers={"X-Forwarded-For": "8.8.8.8"}, environ_overrides=visitor.environ
    )
    assert conn.execute("select address from operator_actions").fetchall() == [("192.0.2.1",)]


def test_the_proxies_that_were_named_say_who_the_client_is_and_nobody_before_them(
    url: str, conn: psycopg.Connection
) -> None:
    app = build(url, proxies=1)
    visitor = Visitor(app.test_client(), "10.0.0.5")
    form = {"name": "owner", "password": "x", "csrf_token": visitor.token("/sign-in")}
    forwarded = {"X-Forwarded-For": "8.8.8.8, 192.0.2.77"}
    visitor.client.post("/sign-in", data=form, headers=forwarded, environ_overrides=visitor.environ)
    with app.app_context():
        db.engine.dispose()
    assert conn.execute("select address from operator_actions").fetchall() == [("192.0.2.77",)]


AWAY = [
    "//evil.example",
    "///evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "https://evil.example",
    "https:evil.example",
    "http:///evil.example",
    "javascript:alert(1)",
    "data:text/html,x",
    " //evil.example",
    "/ /evil.example",
    "\t//evil.example",
    "/\t/evil.example",
    "//evil.example/%2f..",
    "/%09/evil.example",
    "/%5cevil.example",
    "/%2f%2fevil.example",
    "evil.example",
    "/nowhere",
    "/sign-in\r\nSet-Cookie: x=y",
    "//localhost@evil.example",
    "/..//evil.example",
    "/static/nightshift.css",
    "",
    "/\u202eevil",
]


@pytest.mark.usefixtures("known")
def test_nobody_is_sent_away_after_signing_in(app: Flask, visitor: Visitor) -> None:
    with app.test_request_context():
        assert [target for target in AWAY if guards.safe_path(target) is not None] == []
    for target in AWAY[:3]:
        assert visitor.sign_in("owner", next=target).headers["Location"] == "/"
        visitor.post("/sign-out")


@pytest.mark.usefixtures("known")
def test_signing_in_leads_back_to_the_page_that_was_asked_for(visitor: Visitor) -> None:
    asked = visitor.get("/jobs?status=running")
    assert asked.headers["Location"] == "/sign-in?next=/jobs?status%3Drunning"
    assert visitor.sign_in("owner", next="/jobs?status=running").headers["Location"] == "/jobs?status=running"


def test_a_fragment_without_a_session_tells_htmx_where_to_go(visitor: Visitor) -> None:
    for current in ("http://localhost/jobs", "http://localhost//evil.example", "https://evil.example/jobs"):
        answer = visitor.get("/jobs", headers={"HX-Request": "true", "HX-Current-URL": current})
        assert answer.status_code == 204
        assert answer.headers["HX-Redirect"] in {"/sign-in", "/sign-in?next=/jobs"}


def test_odd_names_are_refused_like_any_other(visitor: Visitor) -> None:
    for name in ("", "x" * 5000, "a\0b", "'; drop table operators; --", "\ufffd\u202e"):
        assert visitor.sign_in(name, "guess").status_code == 403


def test_the_trail_tells_of_both(signed_in: Callable[..., Visitor], conn: psycopg.Connection) -> None:
    signed_in("viewer").post("/sign-out")
    found = conn.execute(
        "select operator, action, target, result, address from operator_actions order by id"
    ).fetchall()
    assert found == [
        ("viewer", "sign in", "operator viewer", "done", "192.0.2.1"),
        ("viewer", "sign out", "operator viewer", "done", "192.0.2.1"),
    ]
