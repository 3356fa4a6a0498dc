"""Who may do what, and from where: sessions, roles, CSRF, headers, the audit trail.

Every route names the least role that may use it (`permission`); one that names none is refused. Nothing here decides
what an action does.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

from flask import Flask, Response, abort, current_app, g, redirect, request, url_for
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response as BaseResponse

from webapp.extensions import db
from webapp.models import OperatorAction
from webapp.queries import access

ROLES = ("viewer", "operator", "admin")
PUBLIC = "public"
_SAFE_METHODS = {"GET", "HEAD", "OPTIONS"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
View = TypeVar("View", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class SignedIn:
    """The operator behind this request, and the database's time when that was looked up."""

    id: int
    name: str
    role: str
    now: datetime

    def can(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


def permission(role: str) -> Callable[[View], View]:
    """Marks a view with the least role that may use it, or with PUBLIC."""

    def mark(view: View) -> View:
        view.permission = role  # type: ignore[attr-defined]
        return view

    return mark


def init_app(app: Flask) -> None:
    """Puts the guards before and after every request. Call it when all routes are there: one without a role is an error."""
    permission(PUBLIC)(app.view_functions["static"])
    for endpoint, view in app.view_functions.items():
        if getattr(view, "permission", None) not in {PUBLIC, *ROLES}:
            raise RuntimeError(f"The route {endpoint} names no permission.")
    app.before_request(_authorize)
    app.after_request(_set_headers)
    app.context_processor(lambda: {"csrf_token": csrf_token, "operator": g.get("operator")})


def _authorize() -> BaseResponse | None:
    if request.endpoint is None:
        return None  # no such page, or not with this method: Flask answers that
    needed = getattr(current_app.view_functions[request.endpoint], "permission", None)
    if needed is None:
        abort(403)
    is_unsafe = request.method not in _SAFE_METHODS
    if needed == PUBLIC:
        if is_unsafe:
            check_csrf()
        return None
    operator = load_operator()
    if operator is None:
        return to_sign_in()
    try:
        if not operator.can(needed):
            abort(403, f"Your role is {operator.role}; this needs {needed}.")
        if is_unsafe:
            check_csrf()
    except HTTPException as refusal:
        if is_unsafe:
            record(request.endpoint, request.path, result="refused", reason=refusal.description)
            db.session.commit()
        raise
    return None


# Sessions


def cookie_name(base: str, *, is_secure: bool) -> str:
    """The `__Host-` prefix makes browsers refuse the cookie from a subdomain or without TLS, so only secure sites can use it."""
    return f"__Host-{base}" if is_secure else base


def token_hash(token: str) -> bytes:
    """What is kept of a session's token."""
    return hashlib.sha256(token.encode()).digest()


def session_token() -> str | None:
    """The token that the browser sent, whatever it is worth."""
    token = request.cookies.get(_cookie("nightshift"), "")
    return token if 20 <= len(token) <= 100 else None


def load_operator() -> SignedIn | None:
    """The operator whose session this is; keeps the session awake. Looks once a request."""
    if "operator" not in g:
        g.operator = None
        token = session_token()
        if token is not None and (row := access.session(db.session, token_hash(token))) is not None:
            if row.is_stale:
                access.touch_session(db.session, token_hash(token))
                db.session.commit()
            g.operator = SignedIn(row.id, row.name, row.role, row.now)
    operator: SignedIn | None = g.operator
    return operator


def set_cookie(response: BaseResponse, base: str, value: str, seconds: int) -> None:
    """Sets a cookie that scripts can't read and other sites' forms don't send; an empty value removes it."""
    response.set_cookie(
        _cookie(base), value, max_age=seconds, path="/", secure=_is_secure(), httponly=True, samesite="Lax"
    )


def to_sign_in() -> BaseResponse:
    """Sends a visitor to the sign-in page, and back afterwards. A fragment can't be redirected, so htmx goes there itself."""
    if request.headers.get("HX-Request"):
        current = urlsplit(request.headers.get("HX-Current-URL", ""))
        back = safe_path(current.path + (f"?{current.query}" if current.query else ""))
        return Response(status=204, headers={"HX-Redirect": url_for("login.sign_in", next=back)})
    back = safe_path(request.full_path.rstrip("?")) if request.method == "GET" else None
    return redirect(url_for("login.sign_in", next=back), 303)


def safe_path(target: str | None) -> str | None:
    """The target when it is a page of this app, else None: nobody is sent away from here."""
    if not target or len(target) > 2000 or not target.isascii() or not target.isprintable():
        return None
    if not target.startswith("/") or target.startswith("//") or "\\" in target or " " in target:
        return None
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return None
    try:
        endpoint, _ = current_app.url_map.bind(request.host).match(parts.path, method="GET")
    except HTTPException:
        return None
    return None if endpoint == "static" else target


# Cross-site requests


def csrf_token() -> str:
    """The token for this browser's forms: bound to its session, or to a cookie of its visit before there is one."""
    return _token_for(session_token() or _visit())


def check_csrf() -> None:
    """Refuses an unsafe request that did not come from a page of ours. Three checks, each enough on its own for some browser."""
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in {"same-origin", "none"}:
        abort(403, "This request came from another site.")
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.host:
        abort(403, "This request came from another site.")
    sent = request.form.get("csrf_token") or request.headers.get("X-CSRF-Token") or ""
    cookie = session_token() or request.cookies.get(_cookie("nightshift-visit"), "")
    if not cookie or not hmac.compare_digest(_token_for(cookie).encode(), sent.encode("utf-8", "replace")):
        abort(403, "This form is out of date. Load the page again and repeat.")


def _token_for(cookie: str) -> str:
    key = str(current_app.config["SECRET_KEY"]).encode()
    return hmac.new(key, b"csrf:" + cookie.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _visit() -> str:
    visit = request.cookies.get(_cookie("nightshift-visit"), "")
    if not 20 <= len(visit) <= 100:
        visit = g.setdefault("visit", secrets.token_urlsafe(24))
    return str(visit)


# The audit trail


def record(
    action: str, target: str, *, result: str = "done", reason: str | None = None, details: dict[str, Any] | None = None
) -> None:
    """Adds an audit row to the transaction that is open. Texts are cut and cleaned: an audit row must never be why an action fails."""
    operator = g.get("operator")
    db.session.add(
        OperatorAction(
            operator=operator.name if operator else "nobody",
            action=action[:100],
            target=target.replace("\0", "\N{REPLACEMENT CHARACTER}")[:300],
            result=result,
            reason=reason and reason.replace("\0", "\N{REPLACEMENT CHARACTER}")[:500],
            details=details or {},
            address=request.remote_addr,
        )
    )
    db.session.flush()


# Headers


def _set_headers(response: Response) -> Response:
    headers = response.headers
    headers["Content-Security-Policy"] = _POLICY
    headers["X-Content-Type-Options"] = "nosniff"
    headers["X-Frame-Options"] = "DENY"
    headers["Referrer-Policy"] = "same-origin"
    headers["Cross-Origin-Opener-Policy"] = "same-origin"
    headers["Cross-Origin-Resource-Policy"] = "same-origin"
    if _is_secure():
        headers["Strict-Transport-Security"] = "max-age=31536000"
    if request.endpoint != "static" or response.status_code >= 400:
        headers["Cache-Control"] = "no-store"
        response.vary.add("HX-Request")
    if "visit" in g:
        set_cookie(response, "nightshift-visit", g.visit, 24 * 3600)
    return response


def _is_secure() -> bool:
    return bool(current_app.config["SECURE_COOKIES"])


def _cookie(base: str) -> str:
    return cookie_name(base, is_secure=_is_secure())
