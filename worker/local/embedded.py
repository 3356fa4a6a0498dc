"""The embedded PostgreSQL: made, started and stopped under a home folder, reached by a unix socket only.

Invariant: a kill at any moment, of the server or of us, leaves what the next start can use.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import click
import psycopg
from psycopg.pq import PGconn, Ping

from worker.local import disk, pids, programs
from worker.local.programs import ServerError
from worker.local.unprivileged import identity

_INITDB = (
    # Trust is safe where only the owner can enter the socket's folder and there is no TCP.
    *("--auth=trust", "--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
    *("--data-checksums", "--no-instructions"),
)
_SETTINGS = {
    "listen_addresses": "",
    "port": "5432",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "logging_collector": "on",
    "log_directory": "../log",
    "log_filename": "server-%Y%m%d-%H%M%S.log",
    "log_rotation_age": "0",
    "log_rotation_size": "10MB",
    "log_line_prefix": "%m [%p] %a ",
}
_LOGS_KEPT = 5


class Server:
    """One embedded server and its home."""

    def __init__(self, home: Path) -> None:
        self.home = Path(os.path.realpath(home))
        self.started_here = False
        self._identity = identity(self.home)
        self._base = self._identity.folder or self.home
        self._data = self._base / "data"
        self._log = self._base / "log"
        self._on_demand = self.home / "stop-when-unused"
        self._use: int | None = None

    @property
    def url(self) -> str:
        """The address of the database, complete: no PG* variable of the caller changes where it leads."""
        return self._url("nightshift")

    @property
    def is_running(self) -> bool:
        """Whether it is up and accepts connections."""
        if not self.has_process:
            return False
        return PGconn.ping(f"{self._url('postgres')}&connect_timeout=3".encode()) == Ping.OK

    @property
    def has_process(self) -> bool:
        """Whether its main process lives, even where it doesn't accept connections yet."""
        return self._postmaster() is not None

    def bin(self, name: str) -> Path:
        """Where one of PostgreSQL's own programs is: psql, pg_dump, pgbench."""
        return programs.install() / "bin" / name

    def start(self, *, on_demand: bool = False) -> None:
        """Makes the database if there is none, starts it if it is down. On demand: its last user's `leave` stops it."""
        with self._locked():
            self._enter(on_demand=on_demand)
            if not self.is_running:
                with disk.in_words(self._base):
                    self._start()
                self.started_here = True

    def stop(self) -> None:
        """Stops it, whoever started it; running statements are rolled back."""
        with self._locked():
            self._stop()
            self._close()

    def leave(self) -> None:
        """Ends this use. A server that was started on demand stops with its last use."""
        with self._locked():
            if self._use is not None:
                if self._on_demand.exists() and self._is_last_user(self._use):
                    self._stop()
                self._close()

    # The life of the server; callers hold the lock.

    def _start(self) -> None:
        if not (self._data / "PG_VERSION").exists():
            self._create()
        made_by = (self._data / "PG_VERSION").read_text().strip()
        if made_by != programs.MAJOR:
            raise ServerError(
                f"{self._data} was made by PostgreSQL {made_by}, and this is {programs.MAJOR}. Nothing was changed: "
                "dump it with the Nightshift that made it, move the folder away, start, and restore the dump."
            )
        if self._postmaster() is None:
            self._clear_after_kill()
            self._launch()
        elif not pids.wait(lambda: self.is_running, seconds=60):
            raise ServerError(f"The server in {self._data} was starting or stopping and doesn't answer.{self._tail()}")
        with psycopg.connect(self._url("postgres"), autocommit=True) as conn:
            # Here and not after initdb: a kill between the two leaves nothing to repair.
            if conn.execute("select 1 from pg_database where datname = 'nightshift'").fetchone() is None:
                conn.execute("create database nightshift")

    def _create(self) -> None:
        """Runs initdb in a folder beside, moved into place when it is whole."""
        if self._identity.user is not None:
            click.echo(
                "Running as root where user namespaces are off: PostgreSQL runs as user "
                f"{self._identity.user.pw_name} and keeps its data in {self._base}.",
                err=True,
            )
        for left in self._base.glob("data.new-*"):
            shutil.rmtree(left, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix="data.new-", dir=self._base))
        self._identity.give(fresh)
        settings = [word for name, value in _SETTINGS.items() for word in ("--set", f"{name}={value}")]
        done = self._run("initdb", "-D", fresh.name, "-U", "nightshift", *_INITDB, *settings)
        if done.returncode != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            raise ServerError(f"initdb could not make a database in {self._base}:\n{_last(done.stdout)}")
        try:
            fresh.rename(self._data)
        except OSError as error:
            shutil.rmtree(fresh, ignore_errors=True)
            raise ServerError(f"{self._data} exists and is no database: move it away. ({error.strerror})") from None

    def _launch(self) -> None:
        self._folder(self._log)
        for old in sorted(self._log.glob("server-*.log"))[:-_LOGS_KEPT]:
            old.unlink(missing_ok=True)
        (self._log / "startup.log").unlink(missing_ok=True)
        socket = programs.socket_folder(self.home, self._base)
        if socket.parent == self._base:
            self._folder(socket)
        else:
            programs.claim(socket)
        # None of this home lives, yet PostgreSQL may take a killed one for alive: its pid reused, or not reaped.
        (socket / ".s.PGSQL.5432.lock").unlink(missing_ok=True)
        # Relative paths, since pg_ctl puts them into a shell's line between double quotes.
        options = f"-k {shlex.quote(str(socket))}"
        done = self._run("pg_ctl", "start", "-D", "data", "-w", "-t", "120", "-l", "log/startup.log", "-o", options)
        if done.returncode != 0:
            raise ServerError(f"PostgreSQL did not start in {self._data}.{self._tail() or _last(done.stdout)}")

    def _stop(self) -> None:
        self._on_demand.unlink(missing_ok=True)
        self.started_here = False
        if self._postmaster() is None:
            return
        for how in (["-m", "fast", "-t", "20"], ["-m", "immediate", "-t", "10"]):
            done = self._run("pg_ctl", "stop", "-D", "data", "-w", *how)
            if done.returncode == 0 or self._postmaster() is None:
                return
        raise ServerError(f"PostgreSQL in {self._data} does not stop: {_last(done.stdout)}")

    def _clear_after_kill(self) -> None:
        """Ends backends of a killed postmaster, which still hold the shared memory, and removes its pid file."""
        pid_file = self._data / "postmaster.pid"
        if not pid_file.exists():
            return
        for number in (signal.SIGQUIT, signal.SIGKILL):
            for pid in pids.in_folder(self._data):
                pids.send(pid, number)
            if pids.wait(lambda: not pids.in_folder(self._data), seconds=5):
                break
        pid_file.unlink(missing_ok=True)

    def _run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._identity.run([str(programs.program(name, self._identity)), *arguments], cwd=self._base)

    # What is where.

    def _url(self, database: str) -> str:
        # What the running server says comes first: XDG_RUNTIME_DIR may differ between a login and a cron line.
        recorded = self._pid_file()[4:5] if self._postmaster() is not None else []
        folder = "".join(recorded) or str(programs.socket_folder(self.home, self._base))
        return f"postgresql:///{database}?host={quote(folder, safe='')}&port=5432&user=nightshift"

    def _folder(self, path: Path) -> None:
        """Makes a folder of the server's, 0700, unless it is there."""
        if not path.is_dir():
            path.mkdir(mode=0o700)
            self._identity.give(path)

    def _pid_file(self) -> list[str]:
        try:
            return (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []
        except PermissionError:
            raise ServerError(f"{self._data} belongs to another user: use a --home of your own.") from None

    def _postmaster(self) -> int | None:
        """The pid of the live postmaster of this data folder."""
        first = "".join(self._pid_file()[:1])
        return int(first) if first.isdigit() and pids.in_folder(self._data, [int(first)]) else None

    def _tail(self) -> str:
        logs = [self._log / "startup.log", *sorted(self._log.glob("server-*.log"))[-1:]]
        return "".join(f"\n{path}:\n{_last(path.read_text(errors='replace'))}" for path in logs if path.is_file())

    # Who uses it: each user holds a shared lock, which the kernel frees when that process dies.

    def _enter(self, *, on_demand: bool) -> None:
        if self._use is None:
            self._use = os.open(self.home / "server.users", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._use, fcntl.LOCK_SH)
        if on_demand and not self.is_running:
            self._on_demand.touch(mode=0o600)

    def _is_last_user(self, use: int) -> bool:
        try:
            fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _close(self) -> None:
        if self._use is not None:
            os.close(self._use)
            self._use = None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One start or stop at a time, over all processes."""
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder(self._base)
            lock = os.open(self.home / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise ServerError(disk.is_full(self.home)) from None
            raise ServerError(
                f"{self.home} can't be used as home: {error.strerror}. Choose another with --home DIR, "
                "or set DATABASE_URL to a PostgreSQL 15 to 18 server."
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def exists(home: Path) -> bool:
    """Whether this home has a database. Makes nothing."""
    base = identity(Path(os.path.realpath(home))).folder or home
    return (base / "data" / "PG_VERSION").exists()


@contextmanager
def running(home: Path) -> Iterator[Server]:
    """The home's server for as long as the block runs: started if it was down, and then stopped by its last user."""
    server = Server(home)
    server.start(on_demand=True)
    try:
        yield server
    finally:
        server.leave()


def _last(text: str, lines: int = 12) -> str:
    return "\n".join(text.rstrip().splitlines()[-lines:])
