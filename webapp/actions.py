"""The buttons: every POST of an operator. An action is one transaction: the engine's verb and its audit row, or neither.

What was refused gets an audit row too, in a transaction of its own. Each answers by sending the browser back to the page
that it came from, with one line on what happened; htmx follows that and swaps the page's part.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from flask import Blueprint, flash, g, redirect, request, url_for
from werkzeug.wrappers import Response

from webapp import guards
from webapp.errors import DatabaseError, forget_transaction, is_outage
from webapp.extensions import db
from webapp.queries import job as job_query
from webapp.words import span
from worker.engine import kinds, queue
from worker.engine.model import NightshiftError

PAUSES = {
    "": ("until someone resumes it", None),
    "1h": ("for 1 hour", timedelta(hours=1)),
    "8h": ("for 8 hours", timedelta(hours=8)),
    "1d": ("for 1 day", timedelta(days=1)),
    "7d": ("for 7 days", timedelta(days=7)),
}
blueprint = Blueprint("actions", __name__)
_JOB = "/jobs/<int(max=9223372036854775807):job_id>"


@blueprint.post("/kinds/<path:kind>/run-now")
@guards.permission("operator")
def run_now(kind: str) -> Response:
    """Moves a recurring kind's next run to now, or enqueues a job of another kind."""

    def verb() -> str:
        done = kinds.run_now(db.session, kind)
        if done.state == "running":
            found = job_query.job(db.session, done.job_id)
            since = (
                f" for {span(g.operator.now - found.live.locked_at)}"
                if found and found.live and found.live.locked_at
                else ""
            )
            return f"{kind} is running already{since}. Nothing was changed."
        if done.state == "moved":
            return f"{kind}: its next run was moved to now."
        return f"{kind}: job {done.job_id} was enqueued."

    return _act("run now", f"kind {kind}", verb, home=_kind_page(kind))


@blueprint.post("/kinds/<path:name>/pause")
@guards.permission("operator")
def pause_kind(name: str) -> Response:
    """No job of the kind starts until it is resumed, or until the time is over."""
    return _pause("kind", name, kinds.pause, home=_kind_page(name))


@blueprint.post("/kinds/<path:name>/resume")
@guards.permission("operator")
def resume_kind(name: str) -> Response:
    """Ends a pause."""
    return _resume("kind", name, kinds.resume, home=_kind_page(name))


@blueprint.post("/queues/<path:name>/pause")
@guards.permission("operator")
def pause_queue(name: str) -> Response:
    """No job of the queue starts until it is resumed, or until the time is over."""
    return _pause("queue", name, kinds.pause_queue, home=url_for("dashboard.overview_page"))


@blueprint.post("/queues/<path:name>/resume")
@guards.permission("operator")
def resume_queue(name: str) -> Response:
    """Ends a pause."""
    return _resume("queue", name, kinds.resume_queue, home=url_for("dashboard.overview_page"))


@blueprint.post(f"{_JOB}/cancel")
@guards.permission("operator")
def cancel(job_id: int) -> Response:
    """Ends a job that waits, asks a running one to stop."""
    reason = _reason()

    def verb() -> str:
        state = queue.cancel(db.session, job_id, f"cancelled by {g.operator.name}" + (f": {reason}" if reason else ""))
        if state is None:
            raise NightshiftError(f"Job {job_id} is not live any more, so there is nothing to cancel.")
        return f"Job {job_id} was cancelled." if state == "cancelled" else f"Job {job_id} was asked to stop."

    return _act("cancel", f"job {job_id}", verb, home=url_for("dashboard.job_page", job_id=job_id), reason=reason)


@blueprint.post(f"{_JOB}/retry")
@guards.permission("operator")
def retry(job_id: int) -> Response:
    """A job that waits for its time becomes due now; one that failed or was cancelled is queued again."""

    def verb() -> str:
        done = queue.requeue(db.session, job_id)
        if done is None:
            raise NightshiftError(
                f"Job {job_id} can't be retried: it runs, waits for other jobs, completed, or its row is gone."
            )
        return f"Job {job_id} is queued again." if done.is_new else f"Job {job_id} is due now."

    return _act("retry", f"job {job_id}", verb, home=url_for("dashboard.job_page", job_id=job_id))


def _pause(noun: str, name: str, verb: Callable[..., bool], *, home: str) -> Response:
    reason, length = _reason(), request.form.get("until", "")

    def pause() -> str:
        if length not in PAUSES:
            raise NightshiftError("Until when? Choose one of the times offered.")
        if not reason:
            raise NightshiftError(f"Say why: the next one who sees {name} paused will want to know.")
        words, duration = PAUSES[length]
        until = None if duration is None else g.operator.now + duration
        if not verb(db.session, name, by=g.operator.name, reason=reason, until=until):
            raise NightshiftError(f"There is no {noun} {name!r} to pause.")
        return f"{name} is paused {words}. What runs now goes on."

    return _act(f"pause {noun}", f"{noun} {name}", pause, home=home, reason=reason, details={"until": length or None})


def _resume(noun: str, name: str, verb: Callable[..., bool], *, home: str) -> Response:
    def resume() -> str:
        if not verb(db.session, name):
            raise NightshiftError(f"{name} was not paused.")
        return f"{name} goes on."

    return _act(f"resume {noun}", f"{noun} {name}", resume, home=home)


def _act(
    action: str,
    target: str,
    verb: Callable[[], str],
    *,
    home: str,
    reason: str | None = None,
    details: dict[str, Any] | None = None,
) -> Response:
    try:
        if "\0" in target or len(target) > 300:
            raise NightshiftError("That name holds what no name has.")
        message = verb()
        guards.record(action, target, reason=reason, details={**(details or {}), "said": message})
        db.session.commit()
        flash(message, "done")
    except NightshiftError as refusal:
        db.session.rollback()
        guards.record(action, target, result="refused", reason=str(refusal), details=details)
        db.session.commit()
        flash(str(refusal), "refused")
    except DatabaseError as error:
        forget_transaction()
        if not is_outage(error):
            raise
        flash("The database did not answer in time. Nothing was changed; try again in a moment.", "refused")
    return redirect(guards.safe_path(request.form.get("back")) or home, 303)


def _reason() -> str | None:
    return " ".join(request.form.get("reason", "").replace("\0", "").split())[:300] or None


def _kind_page(kind: str) -> str:
    return url_for("dashboard.kind_page", kind=kind)
