from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.webapp import rows
from tests.webapp.conftest import Visitor, actions
from worker.engine import kinds


def said(visitor: Visitor, answer: Any) -> str:
    """The line that the page shows after the button."""
    assert answer.status_code == 303
    page = visitor.get(answer.headers["Location"]).text
    return str(page.split('<p class="said s-')[1].split(">", 1)[1].split("</p>")[0])


@pytest.fixture
def nightly(conn: psycopg.Connection) -> int:
    """A recurring kind whose next run is an hour away."""
    rows.kind(conn)
    return rows.job(conn, recurrence_key="nightly", run_at=rows.now(conn) + timedelta(hours=1))


def test_run_now_moves_the_waiting_row(nightly: int, operator: Visitor, conn: psycopg.Connection) -> None:
    assert said(operator, operator.post("/kinds/nightly/run-now")) == "nightly: its next run was moved to now."
    assert conn.execute("select id from jobs where run_at <= clock_now()").fetchall() == [(nightly,)]
    assert actions(conn) == [("run now", "kind nightly", "done")]


def test_run_now_of_what_runs_says_since_when_and_changes_nothing(operator: Visitor, conn: psycopg.Connection) -> None:
    rows.kind(conn)
    rows.job(
        conn,
        status="running",
        recurrence_key="nightly",
        running_key="nightly",
        locked_at=rows.now(conn) - timedelta(seconds=12),
    )
    words = said(operator, operator.post("/kinds/nightly/run-now"))
    assert words.startswith("nightly is running already for 1")
    assert conn.execute("select count(*) from jobs").fetchone() == (1,)


def test_run_now_enqueues_a_kind_on_demand(operator: Visitor, conn: psycopg.Connection) -> None:
    rows.kind(conn, "push-send", schedule=None)
    assert "was enqueued" in said(operator, operator.post("/kinds/push-send/run-now"))
    assert conn.execute("select kind, status from jobs").fetchall() == [("push-send", "queued")]


def test_an_unknown_kind_is_refused_and_the_refusal_is_kept(operator: Visitor, conn: psycopg.Connection) -> None:
    answer = operator.post("/kinds/os.system/run-now", {"back": "/"})
    assert "no kind" in said(operator, answer)
    assert actions(conn) == [("run now", "kind os.system", "refused")]
    assert conn.execute("select count(*) from jobs").fetchone() == (0,)


def test_the_action_and_its_audit_row_stand_or_fall_together(
    nightly: int, operator: Visitor, conn: psycopg.Connection
) -> None:
    token = operator.token()
    conn.execute("alter table operator_actions add check (action <> 'run now') not valid")
    assert operator.post("/kinds/nightly/run-now", token=token).status_code == 500
    assert conn.execute("select 1 from jobs where run_at <= clock_now()").fetchone() is None
    conn.execute("alter table operator_actions drop constraint operator_actions_action_check")
    conn.execute("alter table jobs add check (run_at > now() + interval '1 minute') not valid")
    assert operator.post("/kinds/nightly/run-now", token=token).status_code == 500
    assert actions(conn) == []


def test_pause_says_who_why_and_until_and_resume_ends_it(
    nightly: int, operator: Visitor, conn: psycopg.Connection
) -> None:
    answer = operator.post("/kinds/nightly/pause", {"reason": " the  move ", "until": "8h"})
    assert said(operator, answer) == "nightly is paused for 8 hours. What runs now goes on."
    row = conn.execute("select paused_by, paused_reason, paused_until - clock_now() from job_kinds").fetchone()
    assert row is not None
    assert row[:2] == ("operator", "the move")
    assert timedelta(hours=7, minutes=59) < row[2] <= timedelta(hours=8)
    assert "paused" in operator.get("/").text
    assert said(operator, operator.post("/kinds/nightly/resume")) == "nightly goes on."
    assert kinds.health(conn)[0].state == "ok"
    assert [action for action, _, _ in actions(conn, "done")] == ["pause kind", "resume kind"]


@pytest.mark.parametrize("form", [{"reason": "  "}, {"reason": "x", "until": "10^9"}, {}], ids=str)
def test_a_pause_without_a_reason_or_with_an_odd_end_is_refused(
    form: dict[str, str], nightly: int, operator: Visitor, conn: psycopg.Connection
) -> None:
    operator.post("/kinds/nightly/pause", form)
    assert conn.execute("select paused_at from job_kinds").fetchone() == (None,)
    assert actions(conn) == [("pause kind", "kind nightly", "refused")]


def test_a_queue_is_paused_and_resumed(operator: Visitor, conn: psycopg.Connection) -> None:
    conn.execute("insert into queues (queue) values ('import')")
    operator.post("/queues/import/pause", {"reason": "the move"})
    assert conn.execute("select paused_by from queues where queue = 'import'").fetchone() == ("operator",)
    operator.post("/queues/import/resume")
    assert conn.execute("select paused_at from queues where queue = 'import'").fetchone() == (None,)
    assert actions(conn) == [("pause queue", "queue import", "done"), ("resume queue", "queue import", "done")]


def test_cancel_ends_a_waiting_job_and_asks_a_running_one(operator: Visitor, conn: psycopg.Connection) -> None:
    rows.kind(conn, "push-send", schedule=None)
    queued, running = rows.job(conn, "push-send"), rows.job(conn, "push-send", status="running")
    assert (
        said(operator, operator.post(f"/jobs/{queued}/cancel", {"reason": "twice"})) == f"Job {queued} was cancelled."
    )
    assert said(operator, operator.post(f"/jobs/{running}/cancel")) == f"Job {running} was asked to stop."
    assert conn.execute("select outcome, error from job_runs").fetchall() == [
        ("cancelled", "cancelled by operator: twice")
    ]
    assert "not live" in said(operator, operator.post(f"/jobs/{queued}/cancel"))
    assert [result for _, _, result in actions(conn)] == ["done", "done", "refused"]


def test_retry_makes_a_waiting_job_due_and_queues_a_failed_one_again(
    operator: Visitor, conn: psycopg.Connection
) -> None:
    rows.kind(conn, "push-send", schedule=None)
    waiting = rows.job(conn, "push-send", run_at=rows.now(conn) + timedelta(hours=1), attempt=2)
    assert said(operator, operator.post(f"/jobs/{waiting}/retry")) == f"Job {waiting} is due now."
    rows.run(conn, "push-send", job_id=0, outcome="failed", ended="failed", args='{"n": 7}')
    assert said(operator, operator.post("/jobs/0/retry")) == "Job 0 is queued again."
    assert conn.execute("select id, args from jobs where id = 0").fetchall() == [(0, {"n": 7})]
    assert "can&#39;t be retried" in said(operator, operator.post("/jobs/31/retry"))


def test_htmx_gets_the_part_and_the_line_in_the_same_answer(nightly: int, operator: Visitor) -> None:
    answer = operator.post(
        "/kinds/nightly/run-now", {"back": "/"}, headers={"HX-Request": "true"}, follow_redirects=True
    )
    # the client drops headers when it follows, as no browser does; so the second half is asked for by hand
    assert answer.status_code == 200
    operator.post("/kinds/nightly/run-now", {"back": "/"}, headers={"HX-Request": "true"})
    fragment = operator.fragment("/").text
    assert "<html" not in fragment
    assert 'id="said"' in fragment
    assert "moved to now" in fragment
    assert 'id="said"' not in operator.fragment("/").text


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example", "/\\evil.example"])
def test_back_leads_only_to_our_own_pages(back: str, nightly: int, operator: Visitor) -> None:
    assert operator.post("/kinds/nightly/run-now", {"back": back}).headers["Location"] == "/kinds/nightly"


def test_a_lock_that_is_held_is_said_and_nothing_changes(
    nightly: int, operator: Visitor, conn: psycopg.Connection
) -> None:
    token = operator.token()
    with conn.transaction():
        conn.execute("select 1 from jobs for update")
        answer = operator.post("/kinds/nightly/run-now", {"back": "/"}, token=token)
    assert "did not answer in time" in said(operator, answer)
    assert actions(conn) == []
