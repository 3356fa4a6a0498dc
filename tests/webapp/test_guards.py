from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from flask import Flask
from werkzeug.test import TestResponse

from tests.webapp import rows
from tests.webapp.conftest import Visitor, actions, build
from webapp import guards
from webapp.extensions import db

SAMPLES = {"kind": "nightly", "name": "nightly", "job_id": 1, "lease": 1, "part": "error", "filename": "nightshift.css"}


def _routes(app: Flask) -> Iterator[tuple[str, str, str]]:
    """Every route as method, address and the permission that it names."""
    adapter = app.url_map.bind("localhost")
    for rule in app.url_map.iter_rules():
        path = adapter.build(rule.endpoint, {name: SAMPLES[name] for name in rule.arguments})
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            yield method, path, app.view_functions[rule.endpoint].permission  # type: ignore[attr-defined]


def _ask(visitor: Visitor, method: str, path: str) -> TestResponse:
    if method == "GET":
        return visitor.get(path)
    return visitor.post(
        path, {"reason": "test"}, token=visitor.token("/" if visitor.get("/").status_code == 200 else "/sign-in")
    )


def _is_let_in(answer: TestResponse) -> bool:
    return answer.status_code != 403 and not answer.headers.get("Location", "").startswith("/sign-in")


@pytest.mark.parametrize("role", [None, "viewer", "operator", "admin"])
def test_each_role_gets_exactly_what_each_route_names(
    role: str | None, app: Flask, visitor: Visitor, signed_in: Callable[..., Visitor], conn: psycopg.Connection
) -> None:
    rows.kind(conn)
    rows.run(conn, error="it broke")
    someone = visitor if role is None else signed_in(role)
    wrong = []
    for method, path, needed in _routes(app):
        if path in {"/sign-out", "/sign-in"}:
            continue  # they end or begin the session that this test is about
        is_allowed = needed == guards.PUBLIC or (
            role is not None and guards.ROLES.index(role) >= guards.ROLES.index(needed)
        )
        answer = _ask(someone, method, path)
        if _is_let_in(answer) != is_allowed or answer.status_code >= 500:
            wrong.append((method, path, answer.status_code))
    assert not wrong


def test_every_route_that_changes_something_needs_an_operator(app: Flask) -> None:
    unsafe = {(path, needed) for method, path, needed in _routes(app) if method != "GET"}
    assert len(unsafe) >= 8
    assert {path for path, needed in unsafe if needed not in {"operator", "admin"}} == {"/sign-in", "/sign-out"}


def test_a_route_that_names_no_permission_is_an_error_at_the_start_and_closed_anyway(
    url: str, visitor: Visitor
) -> None:
    app = visitor.client.application
    app.add_url_rule("/forgotten", "forgotten", lambda: "open")
    assert visitor.get("/forgotten").status_code == 403
    with pytest.raises(RuntimeError, match="forgotten"):
        guards.init_app(build_with_hole(url))


def build_with_hole(url: str) -> Flask:
    app = build(url)
    app.add_url_rule("/forgotten", "forgotten", lambda: "open")
    return app


FOREIGN: list[dict[str, Any]] = [
    {"token": ""},
    {"token": "0" * 64},
    {"headers": {"Origin": "https://evil.example"}},
    {"headers": {"Origin": "null"}},
    {"headers": {"Origin": "http://localhost:81"}},
    {"headers": {"Sec-Fetch-Site": "cross-site"}},
    {"headers": {"Sec-Fetch-Site": "same-site"}},
    {"headers": {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"}},
    {"content_type": "text/plain"},
    {"content_type": "application/json"},
]


@pytest.mark.parametrize("forged", FOREIGN, ids=str)
def test_nothing_that_another_site_can_send_changes_anything(
    forged: dict[str, Any], app: Flask, operator: Visitor, conn: psycopg.Connection
) -> None:
    rows.kind(conn)
    rows.job(conn, recurrence_key="nightly", run_at=rows.now(conn).replace(year=2099))
    for method, path, needed in _routes(app):
        if method == "GET" or needed == guards.PUBLIC:
            continue
        form = {"csrf_token": forged.get("token", operator.token()), "reason": "x"}
        body = {"data": "&".join(f"{k}={v}" for k, v in form.items())} if "content_type" in forged else {"data": form}
        options = {name: value for name, value in forged.items() if name != "token"}
        assert operator.client.post(path, **body, **options).status_code == 403, path
    assert not actions(conn, "done")
    assert conn.execute("select 1 from jobs where run_at < clock_now()").fetchone() is None
    assert len(actions(conn, "refused")) >= 8


def test_another_sessions_token_is_refused(signed_in: Callable[..., Visitor], conn: psycopg.Connection) -> None:
    rows.kind(conn)
    other = signed_in("admin").token()
    assert signed_in("operator").post("/kinds/nightly/run-now", token=other).status_code == 403


def test_signing_someone_in_from_another_site_is_refused(visitor: Visitor) -> None:
    for forged in FOREIGN:
        if "content_type" not in forged:
            token = forged.get("token", visitor.token("/sign-in"))
            form = {"name": "x", "password": "y"}
            assert visitor.post("/sign-in", form, token=token, headers=forged.get("headers")).status_code == 403


@pytest.mark.parametrize("origin", ["http://localhost", None])
def test_our_own_forms_pass(origin: str | None, operator: Visitor, conn: psycopg.Connection) -> None:
    rows.kind(conn)
    headers = {"Origin": origin, "Sec-Fetch-Site": "same-origin"} if origin else {}
    assert operator.post("/kinds/nightly/run-now", headers=headers).status_code == 303
    assert actions(conn) == [("run now", "kind nightly", "done")]


def test_actions_do_not_listen_to_get(app: Flask, operator: Visitor) -> None:
    for method, path, _ in list(_routes(app)):
        if method == "POST" and path != "/sign-in":
            assert operator.get(path).status_code in {404, 405}, path


def test_all_answers_carry_the_headers(app: Flask, operator: Visitor, conn: psycopg.Connection) -> None:
    rows.kind(conn)
    answers = [_ask(operator, method, path) for method, path, _ in _routes(app) if path != "/sign-out"]
    answers += [operator.get("/nowhere"), operator.client.put("/"), operator.get("/static/nowhere.css")]
    for answer in answers:
        policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "same-origin"
        if "static/nightshift.css" not in answer.request.path:
            assert answer.headers["Cache-Control"] == "no-store", answer.request.path
            assert "HX-Request" in answer.headers["Vary"]


def test_a_refused_viewer_leaves_a_row(signed_in: Callable[..., Visitor], conn: psycopg.Connection) -> None:
    rows.kind(conn)
    assert signed_in("viewer").post("/kinds/nightly/pause", {"reason": "x"}).status_code == 403
    assert actions(conn) == [("actions.pause_kind", "/kinds/nightly/pause", "refused")]


def test_a_body_that_is_too_large_is_refused(operator: Visitor) -> None:
    answer = operator.post("/kinds/nightly/pause", {"reason": "x" * 70_000})
    assert answer.status_code == 413


ODD = [
    ("/nowhere", 404),
    ("/kinds/none-of-that-name", 404),
    ("/jobs/1", 404),
    ("/jobs/99999999999999999999", 404),
    ("/jobs?status=dead", 400),
    ("/jobs?before=x", 400),
    ("/jobs?before=99999999999999999999", 400),
    ("/jobs?kind=a%00b", 400),
    ("/jobs?queue=" + "q" * 301, 400),
    ("/actions?before=-1", 400),
    ("/kinds/a%00b", 400),
    ("/jobs?before=\u0661", 400),
]


def test_odd_addresses_get_a_sentence_and_an_id(operator: Visitor) -> None:
    for path, code in ODD:
        answer = operator.get(path)
        assert answer.status_code == code, path
        assert "id <code>" in answer.text
        fragment = operator.fragment(path)
        assert fragment.status_code == code
        assert fragment.mimetype == "text/plain"


INJECTED = [
    "' or 1=1 --",
    "'; drop table jobs; --",
    "\\",
    "%",
    "$1",
    ":id",
    "%(id)s",
    "1) union select 1",
    "\u2019",
    "{{7*7}}",
    "-1",
    "1e9",
]


@pytest.mark.parametrize("name", ["status", "kind", "queue", "tenant", "before", "after", "outcome", "target"])
def test_no_parameter_reaches_the_statement_as_text(name: str, operator: Visitor, conn: psycopg.Connection) -> None:
    rows.kind(conn)
    for text in INJECTED:
        for path in ("/jobs", "/kinds/nightly", "/actions"):
            assert operator.client.get(path, query_string={name: text}).status_code in {200, 400}, (path, text)


def test_a_surprise_shows_an_id_and_no_trace(
    url: str, operator: Visitor, conn: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    conn.execute("alter table operator_actions drop column reason")
    answer = operator.get("/actions")
    assert answer.status_code == 500
    assert "column" not in answer.text
    error_id = answer.text.split("id <code>")[1].split("<")[0]
    assert f"id={error_id}" in caplog.text
    with operator.client.application.app_context():
        db.engine.dispose()
