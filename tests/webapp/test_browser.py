"""The pages in a real Chromium: what only a browser can show. Skipped where there is none."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from flask import Flask
from playwright.sync_api import Browser, Page, expect, sync_playwright
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.webapp import rows
from tests.webapp.conftest import PASSWORD
from tests.webapp.test_pages import HOSTILE
from worker import operators

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_: Any) -> None:
        """Nothing: the tests count requests in the browser."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM is not None, "Chromium is not installed: apt-get install chromium"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def site(app: Flask, conn: psycopg.Connection) -> Iterator[str]:
    """The app served on a port of its own, with one operator and a night's worth of rows."""
    operators.add(conn, "owner", PASSWORD, "operator")
    at = rows.now(conn)
    rows.kind(conn, last_completed_at=at)
    rows.kind(conn, "push-send", schedule=None, queue="push")
    rows.process(conn, kinds=["nightly", "push-send"])
    rows.job(conn, recurrence_key="nightly", run_at=at + timedelta(hours=1))
    rows.run(conn, job_id=7, outcome="failed", ended="failed", error="ValueError: no", log_tail="info one")
    rows.run(conn, job_id=8, counts='{"cards": 1290}', finished_at=at + timedelta(seconds=1))
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    server.daemon_threads = True  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@contextmanager
def _page(browser: Browser, site: str, **options: Any) -> Iterator[Page]:
    """A signed-in page; whatever the browser complains of fails the test."""
    with browser.new_context(base_url=site, **options) as context:
        page = context.new_page()
        complaints: list[str] = []
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type in {"error", "warning"} else None
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto("/jobs")
        page.get_by_label("Name").fill("owner")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Live jobs")).to_be_visible()
        page.goto("/")
        yield page
        assert complaints == []


def test_a_click_through_with_nothing_blocked_and_nothing_broken(
    browser: Browser, site: str, conn: psycopg.Connection
) -> None:
    with _page(browser, site) as page:
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.locator("#run-nightly").click()
        expect(page.locator("#said")).to_have_text("nightly: its next run was moved to now.")
        assert conn.execute("select 1 from jobs where run_at <= clock_now()").fetchone() == (1,)
        page.locator("#pause-kind-nightly").click()
        page.get_by_label("Why").first.fill("the move")
        page.get_by_role("button", name="Pause nightly").click()
        expect(page.locator("#resume-kind-nightly")).to_be_visible()
        page.locator("#resume-kind-nightly").click()
        expect(page.locator("#said")).to_have_text("nightly goes on.")
        page.get_by_role("link", name="nightly", exact=True).click()
        page.get_by_role("link", name="failed").first.click()
        page.get_by_role("link", name="7", exact=True).click()
        expect(page.locator("pre.error")).to_have_text("ValueError: no")
        page.get_by_role("button", name="Retry").click()
        expect(page.locator("#said")).to_have_text("Job 7 is queued again.")
        page.get_by_role("link", name="Jobs").click()
        page.get_by_label("Kind").fill("nightly")
        page.get_by_role("button", name="Show").click()
        page.get_by_role("link", name="Actions").click()
        expect(page.get_by_text("kind nightly").first).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.go_back()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        assert all(url.startswith((site, "data:")) for url in requests)


def test_polling_rests_while_the_tab_is_hidden_and_wakes_with_it(browser: Browser, site: str) -> None:
    with _page(browser, site) as page:
        page.clock.install()
        page.goto("/")
        polls: list[str] = []
        page.on("request", lambda request: polls.append(request.url) if request.headers.get("hx-request") else None)
        page.evaluate("Object.defineProperty(document, 'hidden', {configurable: true, get: () => true})")
        page.clock.run_for(60_000)
        assert polls == []
        with page.expect_response(lambda response: response.request.headers.get("hx-request") == "true"):
            page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
        with page.expect_response(lambda response: response.request.headers.get("hx-request") == "true"):
            page.clock.run_for(61_000)
        assert polls


def test_an_open_form_is_not_swapped_away(browser: Browser, site: str) -> None:
    with _page(browser, site) as page:
        page.clock.install()
        page.goto("/")
        polls: list[str] = []
        # The browser asks for its icon when it likes; a poll is one of htmx's requests.
        page.on("request", lambda request: polls.append(request.url) if "hx-request" in request.headers else None)
        page.locator("#pause-kind-nightly").click()
        page.get_by_label("Why").first.fill("half a sen")
        page.clock.run_for(61_000)
        assert polls == []
        assert page.get_by_label("Why").first.input_value() == "half a sen"


def test_a_refused_button_says_so(browser: Browser, site: str, conn: psycopg.Connection) -> None:
    with browser.new_context(base_url=site) as context:
        page = context.new_page()
        page.goto("/sign-in")
        page.get_by_label("Name").fill("owner")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("#run-nightly")).to_be_visible()
        conn.execute("update operators set role = 'viewer'")
        page.locator("#run-nightly").click()
        expect(page.locator("#said")).to_contain_text("Your role is viewer; this needs operator.")
        conn.execute("delete from operator_sessions")
        page.locator("#run-push-send").click()
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_everything_works_without_javascript(browser: Browser, site: str, conn: psycopg.Connection) -> None:
    with _page(browser, site, java_script_enabled=False) as page:
        page.locator("#run-nightly").click()
        expect(page.locator("#said")).to_have_text("nightly: its next run was moved to now.")
        page.locator("#pause-kind-nightly").click()
        page.get_by_label("Why").first.fill("the move")
        page.get_by_role("button", name="Pause nightly").click()
        expect(page.locator("#said")).to_contain_text("nightly is paused until someone resumes it")
        page.goto("/jobs/7")
        page.get_by_role("button", name="Retry").click()
        expect(page.locator("#said")).to_have_text("Job 7 is queued again.")
    assert conn.execute(
        "select count(*) from operator_actions where result = 'done' and action <> 'sign in'"
    ).fetchone() == (3,)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_scrolls_sideways_on_a_phone(
    scheme: Any, browser: Browser, site: str, conn: psycopg.Connection
) -> None:
    for text in HOSTILE:
        rows.job(conn, text[:100], queue=text[:100], tenant=text[:200], args={"t": text}, last_error=text)
        rows.run(
            conn,
            job_id=9,
            lease=rows.job(conn),
            outcome="failed",
            error=text,
            log_tail=text,
            counts=json.dumps({text[:60]: text}),
        )
        rows.process(conn, host=text, version=text)
        conn.execute(
            "insert into operator_actions (operator, action, target, reason) values (%s, %s, %s, %s)", [text] * 4
        )
    conn.execute("update job_kinds set description = %s", [HOSTILE[-1]])
    for width in (390, 1280):
        with _page(browser, site, viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
            for path in ("/", "/jobs", "/kinds/nightly", "/jobs/9", "/jobs/8", "/actions"):
                page.goto(path)
                wide = page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, (path, width, wide)


def test_hostile_text_runs_nothing_even_without_the_policy(
    browser: Browser, site: str, conn: psycopg.Connection
) -> None:
    for text in HOSTILE:
        running = rows.job(conn, status="running", args={"t": text}, tenant=text[:200])
        rows.progress(conn, running, note=text, log_tail=text)
        rows.run(
            conn,
            job_id=9,
            lease=running,
            outcome="failed",
            error=text,
            log_tail=text,
            counts=json.dumps({text[:60]: text}),
        )
        rows.job(conn, text[:100], queue=text[:100], last_error=text)
        rows.process(conn, host=text, version=text)
    with _page(browser, site, bypass_csp=True) as page:
        dialogs: list[str] = []
        page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        requests: list[str] = []
        page.on("request", lambda request: requests.append(f"{request.method} {request.url.removeprefix(site)}"))
        for path in ("/", "/jobs", "/kinds/nightly", "/jobs/9", "/jobs/2"):
            page.goto(path)
            page.evaluate("new Promise(done => setTimeout(done, 100))")
            assert page.title().endswith("· Nightshift")
        expected = ("GET /static/", "GET /jobs", "GET /kinds/nightly")
        assert [line for line in requests if not line.startswith(expected) and line != "GET /"] == []
        assert dialogs == []


def test_static_files_are_what_their_readme_says() -> None:
    vendor = Path(__file__).parents[2] / "static" / "vendor"
    readme = (vendor / "README.md").read_text(encoding="utf-8")
    files = [file for file in vendor.iterdir() if file.suffix in {".js", ".css"}]
    assert len(files) == 2
    for file in files:
        assert hashlib.sha256(file.read_bytes()).hexdigest() in readme
