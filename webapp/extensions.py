"""The Flask extensions, made without an app and bound to one by create_app, and how the web process connects."""

import psycopg
from flask_migrate import Migrate
from flask_sqlalchemy import SQLAlchemy
from htmx_flask import Htmx

db = SQLAlchemy()
migrate = Migrate()
htmx = Htmx()


def connect(url: str, *, statement_timeout_ms: int = 3000) -> psycopg.Connection:
    """A connection whose statements can't run for long: a page may be late, the database must not be."""
    own = psycopg.conninfo.conninfo_to_dict(url).get("options") or ""
    return psycopg.connect(
        url,
        options=f"{own} -c statement_timeout={statement_timeout_ms} -c lock_timeout=2000 -c idle_in_transaction_session_timeout=10000",
        application_name="nightshift web",
        connect_timeout=2,
        keepalives_idle=5,
        keepalives_interval=2,
        keepalives_count=3,
        tcp_user_timeout=8000,
        prepare_threshold=None,
    )
