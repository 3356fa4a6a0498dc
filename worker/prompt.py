"""psql on the database that the other commands use."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence

import psycopg

from worker import settings
from worker.engine.model import NightshiftError

_LIBPQ = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "dbname": "PGDATABASE",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "options": "PGOPTIONS",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
}


def psql(url: str, arguments: Sequence[str]) -> int:
    """Runs psql with these arguments and returns its exit code.

    The address goes by environment, not by argument: it may hold a password, and arguments are for all to see.
    """
    parts = psycopg.conninfo.conninfo_to_dict(url)
    environment = {_LIBPQ[name]: str(value) for name, value in parts.items() if name in _LIBPQ}
    program = _program()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C cancels psql's query, and must not end us under it
    try:
        done = subprocess.run(  # noqa: S603  the program is PostgreSQL's own
            [program, *arguments],
            env=os.environ | {"PGAPPNAME": "nightshift psql"} | environment,
            check=False,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    finally:
        signal.signal(signal.SIGINT, before)
    return done.returncode


def _program() -> str:
    if settings.database_url() is None:
        from worker.local import embedded  # noqa: PLC0415  a deployment with DATABASE_URL has no embedded server

        return str(embedded.Server(settings.home()).bin("psql"))
    program = shutil.which("psql")
    if program is None:
        raise NightshiftError("psql is not on the PATH: install PostgreSQL's client.")
    return program
