from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import timedelta
from html.parser import HTMLParser

import psycopg
import pytest

from tests.webapp import rows
from tests.webapp.conftest import Visitor
from worker.engine import kinds

PAGES = ["/", "/jobs", "/actions", "/kinds/nightly"]
HOSTILE = [
    "<script>document.title='x'</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg/onload=alert(1)>",
    '<a hx-post="/jobs/1/cancel" hx-trigger="load">x</a>',
    '<div data-hx-get="/" data-hx-trigger="load"></div>',
    "<b hx-on:click=alert(1)>",
    "javascript:alert(1)",
    "</pre></td></table><form action=//evil.example>",
    "</title><script>1</script>",
    "{{ 7 * 7 }}{% include 'x' %}",
    "\u202egnp.exe",
    "a" + "\u0301" * 10_000,
    "<!--",
    "&lt;script&gt;",
    "x" * 5000,
]


class _Elements(HTMLParser):
    """What a browser would make of a page: tags, and the attributes that do something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.active: list[tuple[str, str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.active += [
            (tag, name, value)
            for name, value in attrs
            if name.startswith(("on", "hx-", "data-hx-", "style")) or (name in {"href", "src", "action"})
        ]


def elements(html: str) -> _Elements:
    parser = _Elements()
    parser.feed(html)
    return parser


@pytest.mark.parametrize("page", PAGES)
def test_a_page_with_nothing_to_show_teaches(page: str, operator: Visitor, conn: psycopg.Connection) -> None:
    conn.execute("delete from operator_actions")
    if page == "/kinds/nightly":
        rows.kind(conn, schedule=None)
    answer = operator.get(page)
    assert answer.status_code == 200
    assert 'class="empty"' in answer.text


def test_a_full_overview(operator: Visitor, conn: psycopg.Connection) -> None:
    at = rows.now(conn)
    rows.kind(conn, last_completed_at=at)
    rows.run(conn, counts='{"learners": 41, "cards": 1290}')
    rows.kind(conn, "push-send", schedule=None, queue="push")
    rows.process(conn, kinds=["nightly", "push-send"])
    rows.process(conn, host="gone-host", seen_at=at - timedelta(hours=1))
    rows.job(conn, recurrence_key="nightly", run_at=at + timedelta(minutes=30))
    rows.job(conn, "push-send", queue="push", run_at=at - timedelta(minutes=3))
    rows.job(conn, "unheard-of", queue="elsewhere")
    conn.execute("insert into queues values ('push', clock_now(), 'owner', 'the move', null)")
    page = operator.get("/").text
    for text in (
        "The night is fine.",
        "every hour",
        "on time",
        "1,290",
        "in 29 min",
        "unheard-of",
        "gone-host",
        "the move",
        "elsewhere",
    ):
        assert text in page, text
    assert page.count("<h1") == 1


def test_no_process_alive_is_said_first(operator: Visitor, conn: psycopg.Connection) -> None:
    rows.kind(conn)
    rows.process(conn, seen_at=rows.now(conn) - timedelta(minutes=2))
    for page in PAGES:
        assert "no jobs process is alive" in operator.get(page).text


def test_counts_of_queues_are_capped(operator: Visitor, conn: psycopg.Connection) -> None:
    conn.execute("insert into jobs (kind, priority) select 'k', n % 10 from generate_series(1, 1500) n")
    assert "1,000+" in operator.get("/").text


def test_hostile_text_is_shown_and_does_nothing(operator: Visitor, conn: psycopg.Connection) -> None:
    rows.kind(conn)
    clean = {page: elements(operator.get(page).text) for page in ("/", "/jobs")}
    allowed = {name for page in clean.values() for _, name, _ in page.active} | {"hx-disable"}
    ids = []
    for text in HOSTILE:
        short = text[:100]
        ids.append(
            rows.job(
                conn,
                short,
                queue=short,
                tenant=text[:200],
                args={"t": text, text[:50]: 1},
                last_error=text,
                unique_key=short[:50],
            )
        )
        running = rows.job(conn, status="running", args=[text])
        rows.progress(conn, running, note=text, log_tail=text)
        rows.run(
            conn,
            job_id=running + 10_000,
            outcome="failed",
            ended="failed",
            error=text,
            log_tail=text,
            counts=json.dumps({text[:50]: 1, "t": text}),
            args=json.dumps({"t": text}),
        )
        ids += [running, running + 10_000]
        rows.kind(
            conn, short[:100] + "!", description=text, paused_at=rows.now(conn), paused_by=short, paused_reason=text
        )
        rows.process(conn, host=text, version=text)
        conn.execute("insert into queues values (%s, clock_now(), %s, %s, null)", [short, text, text])
        conn.execute(
            "insert into operator_actions (operator, action, target, reason) values (%s, %s, %s, %s)", [text] * 4
        )
    for page in ["/", "/jobs", "/actions", "/kinds/nightly", *(f"/jobs/{job_id}" for job_id in ids)]:
        html = operator.get(page).text
        found = elements(html)
        assert found.tags.count("script") == 2, page
        assert not {"img", "iframe", "object", "b hx-on"} & set(found.tags), page
        assert {name for _, name, _ in found.active} <= allowed, page
        for tag, name, value in found.active:
            if name in {"href", "src", "action", "hx-get", "hx-post"}:
                assert value is not None
                assert value.startswith(("/", "#")), (tag, name, value)
                assert not value.startswith("//")


def test_fifty_jobs_with_huge_args_keep_the_list_small_and_quick(operator: Visitor, conn: psycopg.Connection) -> None:
    noise = "select string_agg(md5(n::text), '') from generate_series(1, 65536) n"
    conn.execute(
        f"insert into jobs (kind, args) select 'k', jsonb_build_object('x', ({noise})) from generate_series(1, 50)"
    )
    operator.get("/jobs")
    started = time.monotonic()
    answer = operator.get("/jobs")
    assert time.monotonic() - started < 0.5
    assert len(answer.data) < 300_000
    [(job_id,)] = conn.execute("select min(id) from jobs").fetchall()
    page = operator.get(f"/jobs/{job_id}").text
    assert len(page) < 40_000
    assert "Show all 2.1 million characters" in page
    whole = operator.get(f"/jobs/{job_id}/args")
    assert whole.mimetype == "text/plain"
    assert len(whole.data) > 2_000_000


def test_no_digit_is_lost(operator: Visitor, conn: psycopg.Connection) -> None:
    for number in (1970670598291982290, 3889108265204450030, 9223372036854775807, 9007199254740993):
        job_id = rows.job(conn, "k", args={"id": number})
        for page in ("/jobs", f"/jobs/{job_id}"):
            assert f": {number}" in operator.get(page).text
        assert json.loads(operator.get(f"/jobs/{job_id}/args").text) == {"id": number}


def _walk(operator: Visitor, path: str, pattern: str, link: str) -> list[str]:
    seen: list[str] = []
    while True:
        page = operator.get(path).text
        seen += re.findall(pattern, page)
        following = re.search(rf'<a href="([^"]+)">{link}</a>', page)
        if following is None:
            return seen
        path = following[1].replace("&amp;", "&")


def test_paging_lists_each_run_once_though_all_ended_at_the_same_moment(
    operator: Visitor, conn: psycopg.Connection
) -> None:
    rows.kind(conn)
    at = rows.now(conn)
    for job_id in range(1, 76):
        rows.run(conn, job_id=job_id % 40, lease=job_id, finished_at=at)
    seen = _walk(operator, "/kinds/nightly", r'<th scope="row"><a href="/jobs/(\d+)"', "Older runs")
    assert len(seen) == 75
    assert sorted(map(int, seen)) == sorted(n % 40 for n in range(1, 76))


def test_paging_lists_each_live_job_once_while_others_arrive(operator: Visitor, conn: psycopg.Connection) -> None:
    ids = [rows.job(conn, "k") for _ in range(120)]
    first = operator.get("/jobs").text
    rows.job(conn, "k")
    seen = re.findall(r'<th scope="row"><a href="/jobs/(\d+)"', first)
    following = re.search(r'<a href="([^"]+)">Older jobs</a>', first)
    assert following is not None
    seen += _walk(operator, following[1], r'<th scope="row"><a href="/jobs/(\d+)"', "Older jobs")
    assert sorted(map(int, seen)) == ids


def test_filters_hold_together_and_over_pages(operator: Visitor, conn: psycopg.Connection) -> None:
    for n in range(60):
        rows.job(conn, "k", queue="push", tenant="acme" if n % 2 else "lyceum")
    rows.job(conn, "other", queue="push", tenant="acme")
    page = operator.get("/jobs?kind=k&queue=push&tenant=acme&status=queued").text
    assert len(re.findall(r'<th scope="row"><a href="/jobs/', page)) == 30
    assert "No live job fits" in operator.get("/jobs?kind=nothing").text


def test_the_list_says_why_each_job_is_not_running(operator: Visitor, conn: psycopg.Connection) -> None:
    at = rows.now(conn)
    rows.kind(conn)
    rows.kind(conn, "paused-kind", schedule=None)
    rows.kind(conn, "push-send", schedule=None)
    rows.kind(conn, "stranger", schedule=None)
    rows.process(conn, kinds=["nightly", "paused-kind", "push-send"])
    kinds.pause(conn, "paused-kind", by="owner", reason="too many")
    conn.execute("insert into queues values ('import', clock_now(), 'owner', 'the move', null)")
    expected = {
        rows.job(conn, "unheard-of"): "no process knows this kind",
        rows.job(conn, "paused-kind"): "its kind is paused by owner: too many",
        rows.job(conn, "push-send", queue="import"): "queue import is paused by owner: the move",
        rows.job(conn, "push-send", run_at=at + timedelta(hours=2)): "due in 1 h 59 min",
        rows.job(conn, "push-send", status="waiting", waiting_for=3): "waits for 3 other jobs",
        rows.job(conn, "push-send", queue="nowhere"): "no live process serves queue nowhere",
        rows.job(conn, "stranger"): "no live process of queue default knows this kind",
        rows.job(conn, "push-send"): "waits for a free slot",
        rows.job(conn, status="running", running_key="nightly", recurrence_key="nightly"): "running for",
        rows.job(conn): "its kind is running already",
    }
    page = operator.get("/jobs").text
    for job_id, reason in expected.items():
        row = page.split(f'<a href="/jobs/{job_id}">')[1].split("</tr>")[0]
        assert reason in row, (job_id, reason)
    conn.execute("delete from processes")
    assert "no jobs process is alive" in operator.get("/jobs").text


def test_a_running_job_shows_its_progress_and_polls_until_it_ends(operator: Visitor, conn: psycopg.Connection) -> None:
    rows.kind(conn)
    job_id = rows.job(conn, status="running")
    rows.progress(conn, job_id, done=2600, total=7049, note="box es-a1", log_tail="info one\ninfo two")
    page = operator.get(f"/jobs/{job_id}").text
    for text in ("2,600 of 7,049", "box es-a1", "info one", 'hx-trigger="every 4s, wake"'):
        assert text in page
    assert operator.fragment(f"/jobs/{job_id}").status_code == 200
    conn.execute("delete from jobs")
    rows.run(conn, job_id=job_id, error="psycopg.errors.DeadlockDetected: no", outcome="failed", ended="failed")
    ended = operator.fragment(f"/jobs/{job_id}")
    assert ended.status_code == 286
    assert "hx-trigger" not in ended.text
    assert "DeadlockDetected" in ended.text
    assert operator.get(f"/jobs/{job_id}").status_code == 200


def test_all_attempts_are_on_the_jobs_page(operator: Visitor, conn: psycopg.Connection) -> None:
    rows.kind(conn)
    at = rows.now(conn)
    for lease, outcome, ended in ((1, "failed", None), (2, "abandoned", None), (3, "completed", "completed")):
        rows.run(
            conn,
            job_id=9,
            lease=lease,
            attempt=lease,
            outcome=outcome,
            ended=ended,
            finished_at=at + timedelta(seconds=lease),
            error=f"error of {lease}" if lease < 3 else None,
            log_tail="x" * 7000 if lease == 3 else None,
        )
    page = operator.get("/jobs/9").text
    for text in (
        "Attempt 1",
        "Attempt 2",
        "Attempt 3",
        "abandoned",
        "error of 1",
        "error of 2",
        "Show all 7 thousand characters",
    ):
        assert text in page
    assert operator.get("/jobs/9/attempts/3/log").text == "x" * 7000
    assert operator.get("/jobs/9/attempts/1/error").text == "error of 1"
    assert operator.get("/jobs/9/attempts/7/error").status_code == 404


def test_a_kind_shows_its_next_due_times_in_its_zone(operator: Visitor, conn: psycopg.Connection) -> None:
    rows.kind(conn, schedule="15 2 * * * Europe/Berlin")
    page = operator.get("/kinds/nightly").text
    assert "Europe/Berlin" in page
    table = page.split("Next due")[1].split("</table>")[0]
    assert table.count(", 02:15") == 5


ZONES = ["US/Pacific-New", "SystemV/PST8", "localtime", "Factory", "zone.tab", "../../etc/passwd", "x" * 5000, ""]


def test_a_stored_zone_that_nobody_knows_is_said_and_breaks_nothing(
    operator: Visitor, conn: psycopg.Connection
) -> None:
    rows.kind(conn)
    for zone in ZONES:
        conn.execute("update job_kinds set schedule = %s", [f"15 2 * * * {zone}"])
        assert operator.get("/").status_code == 200
        page = operator.get("/kinds/nightly")
        assert page.status_code == 200
        assert "can&#39;t be read" in page.text, zone


def test_outcomes_can_be_picked(operator: Visitor, conn: psycopg.Connection) -> None:
    rows.kind(conn)
    rows.run(conn, job_id=1)
    rows.run(conn, job_id=2, outcome="failed", ended="failed", error="ValueError: no")
    page = operator.get("/kinds/nightly?outcome=failed").text
    assert '<a href="/jobs/2">' in page
    assert '<a href="/jobs/1">' not in page


def test_a_panel_that_is_locked_does_not_take_the_page_down(operator: Visitor, conn: psycopg.Connection) -> None:
    rows.kind(conn)
    with conn.transaction():
        conn.execute("lock table queues in access exclusive mode")
        answer = operator.get("/")
    assert answer.status_code == 200
    assert "did not answer for this panel" in answer.text
    assert "nightly" in answer.text
    # the wait made the read dear, so the page polls less often
    assert 'hx-trigger="every 4' in answer.text or 'hx-trigger="every 6' in answer.text
    assert 'hx-trigger="every 4s' not in answer.text


def test_a_fragment_is_the_part_of_the_page_and_history_gets_it_whole(
    operator: Visitor, conn: psycopg.Connection
) -> None:
    rows.kind(conn)
    for page in PAGES:
        whole, part = operator.get(page).text, operator.fragment(page).text
        assert "<html" in whole
        assert "<html" not in part
        assert 'id="part"' in part
        assert 'id="night"' in part
        for header in ("HX-Boosted", "HX-History-Restore-Request"):
            assert "<html" in operator.get(page, headers={"HX-Request": "true", header: "true"}).text


def test_a_viewer_sees_everything_and_no_buttons(signed_in: Callable[..., Visitor], conn: psycopg.Connection) -> None:
    rows.kind(conn)
    rows.job(conn, recurrence_key="nightly", run_at=rows.now(conn) + timedelta(hours=1))
    viewer = signed_in("viewer")
    for page in PAGES:
        assert "/run-now" not in viewer.get(page).text
        assert "/pause" not in viewer.get(page).text


def test_a_kind_that_needs_args_has_no_run_now_button(operator: Visitor, conn: psycopg.Connection) -> None:
    schema = {
        "$ref": "#/$defs/A",
        "$defs": {"A": {"type": "object", "required": ["device"], "properties": {"device": {"type": "integer"}}}},
    }
    rows.kind(conn, "push-send", schedule=None, args_schema=json.dumps(schema))
    for page in ("/", "/kinds/push-send"):
        assert "needs args" in operator.get(page).text
        assert "/kinds/push-send/run-now" not in operator.get(page).text


def test_no_page_holds_inline_script_or_style(operator: Visitor, conn: psycopg.Connection) -> None:
    rows.kind(conn)
    rows.run(conn, outcome="failed", error="x")
    for page in [*PAGES, "/jobs/1", "/sign-in", "/nowhere"]:
        html = operator.get(page).text
        assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son[a-z]+=", html), page
