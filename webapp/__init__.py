"""The web process: reads, enqueues, renders. It can not run a job by accident."""

from __future__ import annotations

from pathlib import Path

from flask import Flask
from werkzeug.middleware.proxy_fix import ProxyFix

from webapp import actions, dashboard, errors, filters, guards, login, statusz
from webapp.extensions import connect, db, htmx, migrate
from worker.settings import Settings

_ROOT = Path(__file__).resolve().parent.parent
_FORM_BYTES = 64 * 1024  # the largest form here is a reason for a pause


def create_app(settings: Settings) -> Flask:
    """Builds the app; connects to nothing until the first request that needs the database."""
    app = Flask(__name__, template_folder=str(_ROOT / "templates"), static_folder=str(_ROOT / "static"))
    app.config.update(
        SECRET_KEY=settings.secret_key,
        SECURE_COOKIES=settings.secure_cookies,
        SESSION_COOKIE_NAME=guards.cookie_name("nightshift-said", is_secure=settings.secure_cookies),
        SESSION_COOKIE_SECURE=settings.secure_cookies,
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Lax",
        MAX_CONTENT_LENGTH=_FORM_BYTES,
        MAX_FORM_MEMORY_SIZE=_FORM_BYTES,
        MAX_FORM_PARTS=50,
        SEND_FILE_MAX_AGE_DEFAULT=3600,
        SQLALCHEMY_DATABASE_URI="postgresql+psycopg://",
        SQLALCHEMY_ENGINE_OPTIONS={
            # Connecting is ours, so that the address stays one string, as libpq reads it, and out of the app's config.
            "creator": lambda: connect(settings.database_url),
            "pool_size": 5,
            "max_overflow": 5,
            "pool_timeout": 2,
            "pool_pre_ping": True,
            "pool_recycle": 1800,
        },
    )
    if hops := settings.trusted_proxies:
        # Off unless set: whoever may name the client's address may escape the limits on sign-in, and the audit trail.
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=hops, x_proto=hops)  # type: ignore[method-assign]
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    db.init_app(app)
    migrate.init_app(app, db, directory=str(_ROOT / "migrations"))
    htmx.init_app(app)
    filters.init_app(app)
    errors.init_app(app)
    app.register_blueprint(statusz.blueprint(settings.database_url))
    for blueprint in (login.blueprint, dashboard.blueprint, actions.blueprint):
        app.register_blueprint(blueprint)
    guards.init_app(app)
    return app
