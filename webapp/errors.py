"""Error pages: a sentence and an id that the log has too, never a stack trace."""

from __future__ import annotations

import logging
import secrets

import psycopg
from flask import Flask, Response, render_template, request
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from werkzeug.exceptions import HTTPException

from webapp.extensions import db

logger = logging.getLogger("nightshift.web")

_SENTENCES = {
    400: "That request could not be read.",
    403: "You may not do this.",
    404: "There is nothing here. A job's row may have been pruned, or the address has a typing error.",
    405: "This address can't be used in this way.",
    413: "That was too much to send.",
    429: "Too many requests. Wait a moment.",
    500: "Something went wrong here. The log has the details under this id.",
    503: "The database can't be reached or is too busy. Nothing was changed; try again in a moment.",
}


def init_app(app: Flask) -> None:
    """Answers every error in the same manner."""
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(SQLAlchemyError, _database_error)
    app.register_error_handler(psycopg.Error, _database_error)
    app.register_error_handler(Exception, _surprise)


DatabaseError = (SQLAlchemyError, psycopg.Error)  # the engine's verbs speak to psycopg itself


def is_outage(error: Exception) -> bool:
    """Whether the database was away or busy, which passes, and not a mistake of ours."""
    if isinstance(error, PoolTimeout):
        return True
    cause = error.orig if isinstance(error, DBAPIError) else error
    if not isinstance(cause, psycopg.Error):
        return False
    # Class 08: connection; 53: out of resources; 57: cancelled by a timeout or shutting down; 55P03: lock not available.
    # A connection that could not be made, or that broke, has no state.
    state = cause.sqlstate
    return isinstance(cause, psycopg.OperationalError) and (
        state is None or state[:2] in {"08", "53", "57"} or state == "55P03"
    )


def forget_transaction() -> None:
    """Rolls back what was begun; a connection that can't even do that is thrown away."""
    try:
        db.session.rollback()
    except DatabaseError:
        db.session().invalidate()


def _http_error(error: HTTPException) -> Response:
    code = error.code or 500
    said = error.description if code in {403, 409} and error.description != type(error).description else None
    response = _answer(code, said)
    for name, value in error.get_headers():
        if name in {"Allow", "Retry-After"}:
            response.headers[name] = value
    return response


def _database_error(error: Exception) -> Response:
    forget_transaction()
    if not is_outage(error):
        return _surprise(error)
    logger.warning("web.database_away path=%r error=%s", request.path, type(error).__name__)
    response = _answer(503, None)
    response.headers["Retry-After"] = "5"
    return response


def _surprise(error: Exception) -> Response:
    error_id = secrets.token_hex(4)
    logger.error("web.error id=%s path=%r", error_id, request.path, exc_info=error)
    return _answer(500, None, error_id)


def _answer(code: int, said: str | None, error_id: str | None = None) -> Response:
    error_id = error_id or secrets.token_hex(4)
    sentence = said or _SENTENCES.get(code, "That did not work.")
    if code < 500:
        logger.info("web.refused id=%s code=%d path=%r", error_id, code, request.path)
    if request.headers.get("HX-Request"):
        return Response(f"{sentence} ({code}, id {error_id})", code, mimetype="text/plain")
    return Response(render_template("error.html", code=code, sentence=sentence, error_id=error_id), code)
