"""`./nightshift up`: everything on this machine, in order, until a signal. The database starts first and stops last.

Invariant: kill -9 of any process, this one too, leaves what the next `up` of the same home starts from.
"""

from __future__ import annotations

import errno
import fcntl
import http.client
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType

import click
from honcho.environ import parse_procfile

from worker import settings
from worker.engine.model import NightshiftError
from worker.local import disk
from worker.local.embedded import Server
from worker.local.parts import Parts, end_leftovers
from worker.local.programs import ServerError

_ROOT = Path(__file__).resolve().parent.parent.parent
_PARTS = ("web", "jobs")
_GRACE_SECONDS = 30.0  # `jobs` may drain for 25
_SERVER_CHECK_SECONDS = 2.0
_SLOW_SECONDS = 30.0


class UpError(NightshiftError):
    """It can't start here; the message says why and what to do."""


def up(home: Path, port: int) -> int:
    """Starts everything and stays until Ctrl-C or SIGTERM; returns the exit code."""
    bind = os.environ.get("NIGHTSHIFT_BIND") or "127.0.0.1"
    url = settings.database_url()
    with ExitStack() as stack:
        signals = stack.enter_context(_signals())
        stack.enter_context(_only_one(home))
        for name in end_leftovers(home / "up.json", _GRACE_SECONDS):
            click.echo(f"ended `{name}`, which an earlier `up` had left", err=True)
        _check_port(bind, port)
        server = None
        if url is None:
            server = Server(home)
            stack.callback(server.stop)
            click.echo("starting PostgreSQL ...", err=True)
            server.start()
            url = server.url
        try:
            _prepare(url, home, with_demo=server is not None)
            environment = _environment(url, home, bind, port)
            parts = Parts(_procfile(), environment, _ROOT, home / "up.json")
            signals.are_counted = True
            _run(parts, server, signals, (bind, port), lambda: _greet(bind, port, home, url))
        except KeyboardInterrupt:
            click.echo("stopped before everything was up", err=True)
    return 0


class _Signals:
    """Ctrl-C, SIGTERM and a closed terminal: an interrupt while starting, later a count that the loop looks at."""

    count = 0
    are_counted = False

    def receive(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if not self.are_counted:
            signal.default_int_handler(number, frame)


@contextmanager
def _signals() -> Iterator[_Signals]:
    signals = _Signals()
    before = {each: signal.signal(each, signals.receive) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield signals
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def _only_one(home: Path) -> Iterator[None]:
    """One `up` a home; the kernel frees the lock of a killed one."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(home / "up.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise UpError(disk.is_full(home)) from None
        raise UpError(f"{home} can't be used as home ({error.strerror}): choose another with --home DIR.") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UpError(f"Nightshift is already up with the home {home}: stop that one, or use --home DIR.") from None
    else:
        yield
    finally:
        os.close(lock)


def _check_port(bind: str, port: int) -> None:
    try:
        family, kind, _, _, address = socket.getaddrinfo(bind, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            # As gunicorn does: connections of a former server that linger don't count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UpError(f"Port {port} is taken by another program: use --port N with a free one.") from None
        if error.errno == errno.EACCES:
            raise UpError(f"This user may not listen on port {port}: use --port N with a number above 1023.") from None
        raise UpError(f"Can't listen on {bind}:{port}: {error.strerror}.") from None


def _prepare(url: str, home: Path, *, with_demo: bool) -> None:
    from worker import demo, schema  # noqa: PLC0415 - alembic takes a while; an error before this needn't wait for it

    schema.migrate(url)
    loaded = home / "demo-loaded"
    # Into our own new database only, never into one that was given to us.
    if with_demo and not loaded.exists():
        click.echo("loading the demo data (once) ...", err=True)
        demo.load(url)
        loaded.touch(mode=0o600)


def _environment(url: str, home: Path, bind: str, port: int) -> dict[str, str]:
    added = {
        "DATABASE_URL": url,
        "PORT": str(port),
        "NIGHTSHIFT_HOME": str(home),
        "NIGHTSHIFT_BIND": bind,
        "PYTHONUNBUFFERED": "1",
    }
    environment = {"SECRET_KEY": os.environ.get("SECRET_KEY") or _secret_key(home), **os.environ, **added}
    if bind in {"127.0.0.1", "::1", "localhost"}:
        environment.setdefault("SECURE_COOKIES", "no")  # there is no https on the way from this machine to itself
    return environment


def _secret_key(home: Path) -> str:
    """The key of this home, made once; without it every start would sign everyone out."""
    path = home / "secret_key"
    if not path.exists():
        fresh = home / "secret_key.new"
        fresh.unlink(missing_ok=True)
        fresh.touch(mode=0o600)
        fresh.write_text(secrets.token_hex(32))
        fresh.replace(path)
    return path.read_text().strip()


def _procfile() -> Mapping[str, str]:
    lines = parse_procfile((_ROOT / "Procfile").read_text(encoding="utf-8")).processes
    return {name: lines[name] for name in _PARTS}


def _run(
    parts: Parts, server: Server | None, signals: _Signals, address: tuple[str, int], greet: Callable[[], None]
) -> None:
    began = time.monotonic()
    next_check = began + _SERVER_CHECK_SECONDS
    greeted = complained = False
    try:
        while not signals.count:
            parts.turn(0.1)
            now = time.monotonic()
            if not greeted and _answers(*address):
                greeted = True
                greet()
            elif not greeted and not complained and now - began > _SLOW_SECONDS:
                complained = True
                parts.say(
                    f"port {address[1]} does not answer after {_SLOW_SECONDS:g} s: the lines of `web` above say why"
                )
            if server is not None and now >= next_check:
                next_check = time.monotonic() + _revive(parts, server)
    finally:
        parts.say("stopping; jobs that run may finish (again Ctrl-C ends them at once)")
        parts.end(_GRACE_SECONDS, is_urgent=lambda: signals.count > 1)


def _revive(parts: Parts, server: Server) -> float:
    """Starts the server again if it died; seconds until the next look."""
    if server.has_process:
        return _SERVER_CHECK_SECONDS
    parts.say("PostgreSQL died; starting it again")
    try:
        server.start()
    except ServerError as error:
        parts.say(f"{error}\ntrying again in 10 s")
        return 10.0
    parts.say("PostgreSQL runs again")
    return _SERVER_CHECK_SECONDS


def _answers(bind: str, port: int) -> bool:
    connection = http.client.HTTPConnection(_near(bind), port, timeout=1)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _near(bind: str) -> str:
    """An address of this machine that reaches what listens on all."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bind, bind)  # noqa: S104 - compared, not bound


def _greet(bind: str, port: int, home: Path, url: str) -> None:
    from worker import operators  # noqa: PLC0415 - see _prepare

    # Made now and not before: a password that nobody was shown would be lost.
    password = operators.ensure_operator(url)
    lines = ["", "  Nightshift is up.", f"  Page      http://{_near(bind)}:{port}"]
    if password is not None:
        lines += [f"  Sign in   {operators.FIRST_OPERATOR}", f"  Password  {password}   (shown this once)"]
    lines += [f"  Home      {home}", "  Stop      Ctrl-C", ""]
    with suppress(OSError):
        click.echo("\n".join(lines))
        sys.stdout.flush()
