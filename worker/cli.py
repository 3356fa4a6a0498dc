"""The command line. No logic: each command opens the database and calls a verb that the page and the API call too."""

from __future__ import annotations

import contextlib
import getpass
import json
import secrets
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import psycopg

from worker import prompt, settings
from worker.engine import db, kinds, overview, queue
from worker.engine.model import NightshiftError

_home = click.option(
    "--home",
    type=click.Path(path_type=Path),
    default=None,
    help="Where the embedded server lives (NIGHTSHIFT_HOME; .nightshift).",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def cli() -> None:
    """Nightshift: the work that no one waits on, kept as rows in PostgreSQL."""


def main() -> None:
    """Runs a command; what goes wrong on purpose is said in words, not in a traceback."""
    try:
        cli(prog_name="nightshift")
    except settings.SettingsError as error:
        _fail("The settings are not right:", *(f"  - {problem}" for problem in error.problems), code=2)
    except NightshiftError as error:
        _fail(str(error))
    except psycopg.errors.UndefinedTable:
        _fail("The database has no tables yet: run ./nightshift migrate")
    except psycopg.OperationalError as error:
        _fail(f"The database can't be reached: {error}".strip(), "Is DATABASE_URL right, and is the server up?")


def _fail(*lines: str, code: int = 1) -> None:
    for line in lines:
        click.echo(line, err=True)
    sys.exit(code)


def _home_folder(home: Path | None) -> Path:
    return home.absolute() if home else settings.home()


@contextlib.contextmanager
def _database(home: Path | None, *, may_create: bool = False) -> Iterator[str]:
    """The address of the database: DATABASE_URL, or the embedded server of that home, started for this command if need be."""
    if settings.database_url():
        yield settings.load().database_url
        return
    from worker.local import embedded  # noqa: PLC0415  a deployment with DATABASE_URL has no embedded server

    folder = _home_folder(home)
    if not may_create and not embedded.exists(folder):
        raise NightshiftError(f"There is no database in {folder} yet: run ./nightshift up, or set DATABASE_URL.")
    with embedded.running(folder) as server:
        yield server.url


@contextlib.contextmanager
def _connection(home: Path | None) -> Iterator[psycopg.Connection]:
    with _database(home) as url, db.connect(url, "command line", autocommit=False) as conn:
        yield conn


def _print(value: Any, as_json: bool, text: Callable[[], str]) -> None:
    click.echo(json.dumps(value, default=_plain, ensure_ascii=False) if as_json else text())


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)


@cli.command()
@click.option("--port", type=click.IntRange(1, 65_535), default=None, help="Port of the page (PORT; 8000).")
@_home
def up(port: int | None, home: Path | None) -> None:
    """Start everything on this machine: database, migrations, web and jobs. Ctrl-C stops it all."""
    from worker.local import up as starter  # noqa: PLC0415  honcho is only needed here

    sys.exit(starter.up(_home_folder(home), port or settings.port()))


@cli.command()
def jobs() -> None:
    """Run the jobs process: claim, run, record (the Procfile's `jobs`)."""
    from worker import process  # noqa: PLC0415  the other commands start faster without the catalogue

    chosen = settings.load()
    process.configure_logging(chosen.log_level)
    sys.exit(process.Process(chosen).run())


@cli.command()
@_home
@_json
def migrate(home: Path | None, as_json: bool) -> None:
    """Bring the database's schema up to this code."""
    from worker import schema  # noqa: PLC0415

    with _database(home, may_create=True) as url:
        revision = schema.migrate(url)
    _print({"revision": revision}, as_json, lambda: f"The schema is at revision {revision}.")


@cli.command()
@_home
@_json
def status(home: Path | None, as_json: bool) -> None:
    """Is the night fine? Kinds, queues and processes. Exits with 1 when a kind is late or no process is alive."""
    with _connection(home) as conn:
        seen = overview.status(conn)
    _print(seen, as_json, lambda: overview.text(seen))
    sys.exit(0 if seen["status"] == "ok" else 1)


@cli.command()
@click.option("--kind", default=None, help="Only runs of this kind.")
@click.option("--job", type=int, default=None, help="Only attempts at this job.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@_home
@_json
def runs(kind: str | None, job: int | None, limit: int, home: Path | None, as_json: bool) -> None:
    """List attempts, the newest first; those that run now too."""
    with _connection(home) as conn:
        listed = overview.runs(conn, kind=kind, job_id=job, limit=limit)
    _print(listed, as_json, lambda: overview.runs_text(listed))


@cli.command("run-now")
@click.argument("kind")
@_home
@_json
def run_now(kind: str, home: Path | None, as_json: bool) -> None:
    """Run KIND now: a recurring kind's waiting row moves to now, another kind is enqueued."""
    with _connection(home) as conn:
        done = kinds.run_now(conn, kind)
        overview.record_action(conn, _who(), "run now", kind, {"job": done.job_id, "state": done.state})
    words = {"moved": "its next run was moved to now", "enqueued": "enqueued", "running": "it is running already"}
    _print(
        {"kind": kind, "id": done.job_id, "state": done.state},
        as_json,
        lambda: f"{kind}: {words[done.state]} (job {done.job_id}).",
    )


@cli.command()
@click.argument("kind")
@click.argument("args", default="{}")
@click.option("--in", "delay", type=float, default=None, help="Seconds from now.")
@click.option("--queue", "queue_name", default=None)
@click.option("--priority", type=int, default=None, help="0 (first) to 9.")
@click.option("--tenant", default=None)
@click.option("--unique-key", default=None)
@click.option("--max-attempts", type=int, default=None)
@_home
@_json
def enqueue(
    kind: str, args: str, delay: float | None, queue_name: str | None, home: Path | None, as_json: bool, **options: Any
) -> None:
    """Enqueue KIND with ARGS, a JSON object."""
    try:
        value = json.loads(args)
    except ValueError as error:
        raise NightshiftError(f'ARGS must be a JSON object, such as \'{{"learner_id": "..."}}\': {error}') from error
    with _connection(home) as conn:
        run_at = None if delay is None else db.now(conn) + timedelta(seconds=delay)
        done = queue.enqueue(conn, kind, value, run_at=run_at, queue=queue_name, **options)
        is_known = conn.execute(db.statement("kind"), {"kind": kind}).fetchone() is not None
        overview.record_action(conn, _who(), "enqueue", kind, {"job": done.id})
    if not is_known:
        click.echo(f"No process has published a kind {kind!r}: the job waits until one does.", err=True)
    _print(
        {"id": done.id, "is_new": done.is_new},
        as_json,
        lambda: f"Job {done.id}{'' if done.is_new else ' was there already'}.",
    )


@cli.command()
@click.argument("kind")
@click.option("--reason", required=True, help="Why, for whoever finds it paused.")
@click.option("--for", "hours", type=float, default=None, help="Hours until it resumes by itself.")
@_home
@_json
def pause(kind: str, reason: str, hours: float | None, home: Path | None, as_json: bool) -> None:
    """Claim no more jobs of KIND; what runs goes on."""
    with _connection(home) as conn:
        until = None if hours is None else db.now(conn) + timedelta(hours=hours)
        if not kinds.pause(conn, kind, by=_who(), reason=reason, until=until):
            raise NightshiftError(f"There is no kind {kind!r}.")
        overview.record_action(conn, _who(), "pause", kind, {"until": until and until.isoformat()}, reason)
    _print(
        {"kind": kind, "paused": True, "until": until},
        as_json,
        lambda: f"{kind} is paused{f' until {until.astimezone(UTC):%F %T} UTC' if until else ''}.",
    )


@cli.command()
@click.argument("kind")
@_home
@_json
def resume(kind: str, home: Path | None, as_json: bool) -> None:
    """Let jobs of KIND be claimed again."""
    with _connection(home) as conn:
        is_changed = kinds.resume(conn, kind)
        if is_changed:
            overview.record_action(conn, _who(), "resume", kind, {})
    _print(
        {"kind": kind, "paused": False, "changed": is_changed},
        as_json,
        lambda: f"{kind} {'goes on' if is_changed else 'was not paused'}.",
    )


@cli.command()
@click.argument("name")
@click.option("--role", type=click.Choice(["viewer", "operator", "admin"]), default="operator", show_default=True)
@_home
@_json
def operator(name: str, role: str, home: Path | None, as_json: bool) -> None:
    """Let NAME sign in to the page: adds them, or gives them a new password; prints it once."""
    from worker import operators  # noqa: PLC0415

    password = secrets.token_urlsafe(18)
    with _connection(home) as conn:
        is_new = not operators.set_password(conn, name, password)
        if is_new:
            operators.add(conn, name, password, role)
        action = "add operator" if is_new else "new password"
        overview.record_action(conn, _who(), action, name, {"role": role} if is_new else {})
    values = {"name": name, "password": password, "is_new": is_new}
    _print(values, as_json, lambda: f"{name} signs in with the password {password} (shown this once).")


@cli.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def psql(arguments: tuple[str, ...]) -> None:
    """Open psql on the database; arguments are handed on."""
    with _database(None) as url:
        sys.exit(prompt.psql(url, arguments))


def _who() -> str:
    try:
        return f"{getpass.getuser()} (command line)"
    except (OSError, KeyError):
        return "command line"
