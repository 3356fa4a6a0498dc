"""Signing in and out. Passwords are checked by worker.operators; what a session may do is decided in guards."""

from __future__ import annotations

import secrets
from datetime import timedelta

from flask import Blueprint, Response, flash, g, redirect, render_template, request, url_for
from sqlalchemy import delete, func
from werkzeug.wrappers import Response as BaseResponse

from webapp import guards
from webapp.extensions import db
from webapp.models import OperatorSession
from webapp.queries import access
from worker import operators
from worker.engine.db import connection_of

_SESSION_DAYS = 7
blueprint = Blueprint("login", __name__)


@blueprint.get("/sign-in")
@guards.permission(guards.PUBLIC)
def sign_in() -> str | BaseResponse:
    """The form. Who is signed in already goes on."""
    back = guards.safe_path(request.args.get("next"))
    if guards.load_operator() is not None:
        return redirect(back or url_for("dashboard.overview_page"), 303)
    return render_template("sign_in.html", next=back, name="", problem=None)


@blueprint.post("/sign-in")
@guards.permission(guards.PUBLIC)
def start_session() -> BaseResponse:
    """Checks name and password; a new session gets a new token, whatever the browser sent."""
    name, password = request.form.get("name", "").strip()[:100], request.form.get("password", "")
    back = guards.safe_path(request.form.get("next"))
    target = f"operator {name}".replace("\0", "\N{REPLACEMENT CHARACTER}")
    wait = delay(access.refused(db.session, target=target, address=request.remote_addr or ""))
    if wait > 0:
        problem = f"Too many wrong tries from here. Try again in {wait} s."
        return Response(
            render_template("sign_in.html", next=back, name=name, problem=problem), 429, {"Retry-After": str(wait)}
        )
    operator = operators.verify(connection_of(db.session), name, password)
    if operator is None:
        guards.record("sign in", target, result="refused", reason="wrong name or password")
        db.session.commit()
        problem = "Name or password is wrong."
        return Response(render_template("sign_in.html", next=back, name=name, problem=problem), 403)
    token = secrets.token_urlsafe(32)
    now = db.session.execute(func.clock_now().select()).scalar_one()
    db.session.execute(delete(OperatorSession).where(OperatorSession.expires_at < now))
    if (old := guards.session_token()) is not None:
        db.session.execute(delete(OperatorSession).where(OperatorSession.token_hash == guards.token_hash(old)))
    db.session.add(
        OperatorSession(
            token_hash=guards.token_hash(token), operator_id=operator.id, expires_at=now + timedelta(days=_SESSION_DAYS)
        )
    )
    g.operator = guards.SignedIn(operator.id, operator.name, operator.role, now)
    guards.record("sign in", target)
    db.session.commit()
    response = redirect(back or url_for("dashboard.overview_page"), 303)
    guards.set_cookie(response, "nightshift", token, _SESSION_DAYS * 86_400)
    guards.set_cookie(response, "nightshift-visit", "", 0)
    return response


@blueprint.post("/sign-out")
@guards.permission("viewer")
def end_session() -> BaseResponse:
    """Deletes the session's row, so that a kept copy of the cookie is worth nothing."""
    token = guards.session_token()
    assert token is not None
    db.session.execute(delete(OperatorSession).where(OperatorSession.token_hash == guards.token_hash(token)))
    guards.record("sign out", f"operator {g.operator.name}")
    db.session.commit()
    flash("You are signed out.", "done")
    response = redirect(url_for("login.sign_in"), 303)
    guards.set_cookie(response, "nightshift", "", 0)
    # What a browser keeps of the pages goes too.
    response.headers["Clear-Site-Data"] = '"cache", "storage"'
    return response


def delay(refused: access.Refused) -> int:
    """Seconds to wait before the next try; 0 when it may be made now.

    The first try from an address is always allowed, so strangers can't lock an operator out. Once a name was guessed at
    from many places, every place gets one try instead of five. After the free tries the wait doubles, up to 15 minutes.
    """
    free = 5 if refused.by_name < 50 else 1
    waits = [0.0]
    for count, allowed, last_at in (
        (refused.by_both, free, refused.last_by_both_at),
        (refused.by_address, 20, refused.last_by_address_at),
    ):
        if count >= allowed and last_at is not None:
            pause = min(2.0 ** (count - allowed), 900.0)
            waits.append(pause - (refused.now - last_at).total_seconds())
    longest = max(waits)
    return 0 if longest <= 0 else int(longest) + 1
