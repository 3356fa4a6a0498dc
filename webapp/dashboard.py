"""The pages: every GET that an operator sees. Reads only; buttons are in actions.

A page is one template. For htmx it is rendered without its frame, so the first paint and every later swap are the same.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from flask import Blueprint, Response, abort, g, make_response, render_template, request
from htmx_flask import request as htmx_request

from webapp import actions, guards, panels
from webapp.extensions import db
from webapp.night import Night, judge
from webapp.queries import job as job_query
from webapp.queries import jobs as jobs_query
from webapp.queries import kind as kind_query
from webapp.queries import night, overview, trail
from webapp.reasons import why
from worker.engine.model import Outcome
from worker.engine.schedules import Cron, describe, next_after, parse

_BIGGEST_ID = 2**63 - 1
_STOP_POLLING = 286  # htmx's own code: swap this answer, and poll no more
Parts = dict[str, panels.Panel[Any]]
_STATUSES = ("running", "queued", "waiting")
blueprint = Blueprint("dashboard", __name__)


@blueprint.get("/")
@guards.permission("viewer")
def overview_page() -> Response:
    """Is the night fine? Kinds, queues, processes."""
    parts: Parts = {
        "kinds": panels.read(lambda: overview.kinds(db.session)),
        "lanes": panels.read(lambda: overview.lanes(db.session)),
        "unknown": panels.read(lambda: overview.unknown_kinds(db.session)),
        "processes": panels.read(lambda: overview.processes(db.session)),
    }
    return _page("overview.html", parts, describe=_in_words)


@blueprint.get("/kinds/<path:kind>")
@guards.permission("viewer")
def kind_page(kind: str) -> Response:
    """One kind: what it does, when it is due, how its runs went."""
    found = kind_query.kind(db.session, _text("kind", kind))
    if found is None:
        abort(404)
    after, outcome = request.args.get("after"), request.args.get("outcome") or None
    if outcome is not None and outcome not in set(Outcome):
        abort(400)
    try:
        cursor = None if after is None else kind_query.Cursor.parse(after)
    except (ValueError, OverflowError):
        abort(400)
    parts: Parts = {
        "live": panels.read(lambda: kind_query.live(db.session, kind)),
        "history": panels.read(lambda: kind_query.history(db.session, kind, after=cursor, outcome=outcome)),
    }
    due, zone, problem = _next_due(found.schedule, g.operator.now)
    return _page(
        "kind.html",
        parts,
        polls=cursor is None,
        kind=found,
        needs_args=kind_query.needs_args(found),
        describe=_in_words,
        due=due,
        zone=zone,
        schedule_problem=problem,
        outcome=outcome,
        outcomes=list(Outcome),
        after=after,
    )


@blueprint.get("/jobs/<int(max=9223372036854775807):job_id>")
@guards.permission("viewer")
def job_page(job_id: int) -> Response:
    """One job: every attempt at it, and what it says of itself while it runs."""
    panel = panels.read(lambda: job_query.job(db.session, job_id))
    if panel.value is None and panel.problem is None:
        abort(404)
    around = panels.read(lambda: jobs_query.surroundings(db.session))
    found = panel.value
    is_live = found is None or found.live is not None
    reason = why(found.live, around.value) if found and found.live and around.value else None
    response = _page("job.html", {"job": panel, "around": around}, polls=is_live, job_id=job_id, reason=reason)
    if not is_live and _is_fragment():
        response.status_code = _STOP_POLLING
    return response


@blueprint.get("/jobs/<int(max=9223372036854775807):job_id>/args")
@guards.permission("viewer")
def job_args(job_id: int) -> Response:
    """The args whole, as text."""
    return _as_text(job_query.args(db.session, job_id))


@blueprint.get(
    "/jobs/<int(max=9223372036854775807):job_id>/attempts/<int(max=2147483647):lease>/<any(error, log):part>"
)
@guards.permission("viewer")
def attempt_text(job_id: int, lease: int, part: str) -> Response:
    """The error or the log tail of one attempt whole, as text."""
    query = job_query.error if part == "error" else job_query.log
    return _as_text(query(db.session, job_id, lease))


@blueprint.get("/jobs")
@guards.permission("viewer")
def jobs_page() -> Response:
    """Live jobs, and why each isn't running."""
    filters = {name: _text(name, request.args[name]) for name in jobs_query.FILTERS if request.args.get(name)}
    if filters.get("status", "running") not in _STATUSES:
        abort(400)
    before = _before()
    parts: Parts = {
        "jobs": panels.read(lambda: jobs_query.jobs(db.session, filters, before=before)),
        "around": panels.read(lambda: jobs_query.surroundings(db.session)),
    }
    return _page("jobs.html", parts, polls=before is None, filters=filters, statuses=_STATUSES, before=before, why=why)


@blueprint.get("/actions")
@guards.permission("viewer")
def actions_page() -> Response:
    """Who did what, and what was refused."""
    target = _text("target", request.args["target"]) if request.args.get("target") else None
    before = _before()
    parts: Parts = {"trail": panels.read(lambda: trail.actions(db.session, before=before, target=target))}
    return _page("actions.html", parts, polls=False, target=target)


def _page(template: str, parts: Parts, *, polls: bool = True, **values: Any) -> Response:
    """Renders a page around its panels, with the line on the night first."""
    signs = panels.read(lambda: night.signs(db.session))
    line = (
        judge(signs.value)
        if signs.value
        else Night("failing", "The database did not say in time whether the night is fine.")
    )
    health = {found.kind: found for found in signs.value.health} if signs.value else {}
    every = panels.poll_seconds(signs, *parts.values())
    layout = "fragment.html" if _is_fragment() else "base.html"
    return make_response(
        render_template(
            template,
            layout=layout,
            night=line,
            health=health,
            poll=f"every {every}s, wake" if polls else None,
            pauses=actions.PAUSES,
            now=signs.value.now if signs.value else g.operator.now,
            here=request.full_path.rstrip("?"),
            **parts,
            **values,
        )
    )


def _is_fragment() -> bool:
    """Whether htmx wants the part alone. A restored page and a boosted link want the whole."""
    asked = htmx_request.htmx
    return bool(asked) and not asked.boosted and not asked.history_restore_request


def _as_text(text: str | None) -> Response:
    if text is None:
        abort(404)
    return Response(text, mimetype="text/plain")


def _text(name: str, value: str) -> str:
    if len(value) > 300 or "\0" in value:
        abort(400, f"{name} is too long or holds a character that no name has.")
    return value


def _before() -> int | None:
    written = request.args.get("before")
    if written is None:
        return None
    if not (written.isascii() and written.isdigit() and len(written) < 20 and int(written) <= _BIGGEST_ID):
        abort(400)
    return int(written)


def _in_words(schedule: str | None) -> str:
    """A schedule in words; one that this code can't read as it is written."""
    if schedule is None:
        return "on demand"
    try:
        return describe(parse(schedule))
    except (ValueError, KeyError):
        return schedule


def _next_due(schedule: str | None, now: datetime) -> tuple[list[datetime], ZoneInfo | None, str | None]:
    """The next five due times, the schedule's zone, and why they can't be told if so."""
    if schedule is None:
        return [], None, None
    due: list[datetime] = []
    try:
        parsed = parse(schedule)
        at = now
        for _ in range(5):
            at = next_after(parsed, at)
            due.append(at)
    except (ValueError, KeyError, OverflowError) as error:
        return due, None, f"This schedule can't be read: {error}"
    return due, ZoneInfo(parsed.zone) if isinstance(parsed, Cron) else None, None
