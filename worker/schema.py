"""Brings the database's schema to this code's version, and refuses to touch one that is newer."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from worker.engine import partitions
from worker.engine.model import NightshiftError

_ROOT = Path(__file__).resolve().parent.parent
_LOCK = 0x6E696768  # one migrator at a time, whatever the number of release processes
_MINIMUM_SERVER = 150_000


class SchemaError(NightshiftError):
    """The database and this code don't fit together."""


def migrate(url: str) -> str:
    """Applies what is missing and returns the revision; safe to run by many at once and again."""
    config = Config()
    config.set_main_option("script_location", str(_ROOT / "migrations"))
    scripts = ScriptDirectory.from_config(config)
    head = scripts.get_current_head()
    assert head is not None
    engine = sqlalchemy.create_engine(
        url.replace("postgresql://", "postgresql+psycopg://", 1), poolclass=sqlalchemy.NullPool
    )
    try:
        # Two connections: the lock outlives the migrations' own transactions, which may run statements in autocommit.
        with engine.connect() as lock, engine.connect() as connection:
            lock.exec_driver_sql(f"select pg_advisory_xact_lock({_LOCK})")
            _check(connection, {script.revision for script in scripts.walk_revisions()})
            # A migration that waits for a lock makes every query behind it wait too: give up early, the release can be run again.
            connection.exec_driver_sql("set lock_timeout = '5s'")
            connection.commit()
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            connection.commit()
            driver = connection.connection.driver_connection
            assert driver is not None
            # The driver's own commit: SQLAlchemy's knows nothing of statements that went past it.
            partitions.ensure(driver, months_ahead=3)
            driver.commit()
    finally:
        engine.dispose()
    return head


def _check(connection: sqlalchemy.Connection, known: set[str]) -> None:
    server = connection.exec_driver_sql("select current_setting('server_version_num')::int").scalar_one()
    if server < _MINIMUM_SERVER:
        raise SchemaError(f"This is PostgreSQL {server // 10_000}; Nightshift needs 15 or newer.")
    if connection.exec_driver_sql("select to_regclass('alembic_version')").scalar_one() is None:
        taken = connection.exec_driver_sql("select to_regclass('jobs')").scalar_one()
        if taken is not None:
            raise SchemaError(
                "There is a table `jobs` here that Nightshift did not make: give Nightshift a database of its own."
            )
    else:
        present = set(connection.exec_driver_sql("select version_num from alembic_version").scalars())
        if newer := sorted(present - known):
            raise SchemaError(
                f"The database is at revision {', '.join(newer)}, which this code does not know: it was migrated by newer code. "
                "Deploy that code again, or restore a backup from before its migration. Nothing was changed."
            )
    connection.commit()
