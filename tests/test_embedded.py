"""The embedded server on real processes: started twice, killed at the worst moments, in awkward places."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from worker.local import disk, embedded, pids, programs, unprivileged
from worker.local.embedded import Server
from worker.local.programs import ServerError

START = (
    "import sys, pathlib; from worker.local.embedded import Server; "
    "s = Server(pathlib.Path(sys.argv[1])); s.start(); print(s.started_here)"
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short private folder; what still runs in it is stopped."""
    path = Path(tempfile.mkdtemp(prefix="ns-"))
    yield path
    for data in path.rglob("PG_VERSION"):
        if data.parent.name == "data":
            Server(data.parent.parent).stop()
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def made() -> Iterator[Server]:
    """One database for the tests that don't look at how it is made."""
    home = Path(tempfile.mkdtemp(prefix="ns-"))
    server = Server(home)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(home)


@pytest.fixture
def server(made: Server) -> Iterator[Server]:
    """That database, down."""
    made.stop()
    yield made
    made.stop()


def start_elsewhere(home: Path) -> subprocess.Popen[str]:
    root, command = Path(embedded.__file__).parents[1], [sys.executable, "-c", START, str(home)]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True, start_new_session=True)


def postmaster(server: Server) -> int:
    return int((server.home / "data" / "postmaster.pid").read_text().split()[0])


def value(url: str, query: str) -> object:
    with psycopg.connect(url) as conn:
        row = conn.execute(query).fetchone()  # type: ignore[arg-type]
        assert row is not None
        return row[0]


def test_a_new_database_has_checksums_builtin_locale_and_no_tcp(server: Server) -> None:
    server.start()
    settings = {
        "data_checksums": "on",
        "listen_addresses": "",
        "fsync": "on",
        "server_encoding": "UTF8",
        "TimeZone": "UTC",
    }
    for setting, expected in settings.items():
        assert value(server.url, f"show {setting}") == expected
    assert (
        value(
            server.url, "select datlocprovider::text || datlocale from pg_database where datname = current_database()"
        )
        == "bC.UTF-8"
    )
    assert value(server.url, "select current_database() || '/' || current_user") == "nightshift/nightshift"
    for name in ("data", "socket", "log"):
        assert stat.S_IMODE((server.home / name).stat().st_mode) == 0o700


def test_a_second_start_uses_the_server_that_runs(server: Server) -> None:
    server.start()
    first = postmaster(server)
    other = Server(server.home)
    other.start()
    assert server.started_here
    assert not other.started_here
    assert postmaster(server) == first
    other.leave()
    assert server.is_running


def test_stop_leaves_no_process_and_no_socket(server: Server) -> None:
    server.start()
    assert pids.in_folder(server.home / "data")
    server.stop()
    assert not server.is_running
    assert not pids.in_folder(server.home / "data")
    assert not list((server.home / "socket").iterdir())


def test_a_killed_server_starts_again_while_its_orphans_still_work(server: Server) -> None:
    server.start()
    with psycopg.connect(server.url, autocommit=True) as conn:
        conn.execute("create table if not exists kept (id int)")
        conn.execute("insert into kept values (1)")
    with contextlib.closing(psycopg.connect(server.url, autocommit=True)) as conn:
        # Pure computing: this backend doesn't look whether the server is still there, and holds its memory.
        conn.pgconn.send_query(b"select sum(g) from (select generate_series(1, 1000000000000)) as numbers(g)")
        orphan = conn.info.backend_pid
        os.kill(postmaster(server), signal.SIGKILL)
        assert pids.wait(lambda: not server.has_process, seconds=5)
        assert pids.in_folder(server.home / "data", [orphan])
        server.start()
        assert not pids.in_folder(server.home / "data", [orphan])
    assert value(server.url, "select count(*) > 0 from kept") is True


@pytest.mark.parametrize("file", ["data/postmaster.pid", "socket/.s.PGSQL.5432.lock"])
def test_a_pid_that_went_to_another_process_is_not_taken_for_the_server(server: Server, file: str) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            (server.home / file).write_text(
                f"{other.pid}\n{server.home / 'data'}\n1\n5432\n{server.home / 'socket'}\n\n"
            )
            assert not server.is_running
            server.start()
            assert server.is_running
        finally:
            other.kill()


def test_a_kill_in_the_middle_of_initdb_leaves_nothing_half_made(folder: Path) -> None:
    home = folder / "home"
    killed = start_elsewhere(home)
    assert pids.wait(lambda: any(home.glob("data.new-*/base")), seconds=20)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert not (home / "data").exists()
    server = Server(home)
    server.start()
    assert value(server.url, "select 1") == 1


def test_two_starts_at_once_make_one_server(folder: Path) -> None:
    both = [start_elsewhere(folder / "home") for _ in range(2)]
    assert sorted(each.communicate(timeout=60)[0].strip() for each in both) == ["False", "True"]
    assert [each.returncode for each in both] == [0, 0]
    assert Server(folder / "home").is_running


@pytest.mark.parametrize("name", ['it\'s a "long" $HOME' + "x" * 90, "with, comma"])
def test_a_home_that_no_socket_fits_in_gets_a_short_private_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    server = Server(folder / name)
    server.start()
    (short,) = folder.glob(f"nightshift-{os.geteuid()}-*")
    assert stat.S_IMODE(short.stat().st_mode) == 0o700
    assert value(server.url, "select 1") == 1
    # A cron line has no XDG_RUNTIME_DIR, and finds the server all the same.
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert Server(server.home).is_running


@pytest.mark.parametrize("prepared", ["open to others", "a link"])
def test_a_socket_folder_that_somebody_prepared_is_refused(folder: Path, prepared: str) -> None:
    target = folder / "nightshift"
    if prepared == "a link":
        (folder / "elsewhere").mkdir(mode=0o700)
        target.symlink_to(folder / "elsewhere")
    else:
        target.mkdir()
        target.chmod(0o755)
    with pytest.raises(ServerError, match="only this user"):
        programs.claim(target)


def test_private_parent_folders_keep_their_mode_and_owner(folder: Path) -> None:
    home = folder / "private" / "home"
    home.parent.mkdir(mode=0o700)
    home.mkdir(mode=0o750)
    before = [(path, path.stat().st_mode, path.stat().st_uid) for path in [home, *home.parents]]
    with embedded.running(home) as server:
        assert server.is_running
    assert [(path, path.stat().st_mode, path.stat().st_uid) for path in [home, *home.parents]] == before


def test_the_last_user_of_a_server_started_on_demand_stops_it(server: Server) -> None:
    with embedded.running(server.home) as first:
        assert first.started_here
        second = embedded.running(server.home)
        assert not second.__enter__().started_here
    assert server.is_running
    second.__exit__(None, None, None)
    assert not server.is_running


def test_a_command_does_not_stop_the_server_under_up(server: Server) -> None:
    with embedded.running(server.home):
        server.start()  # `up` comes while a command that started the server still runs
    assert server.is_running


def test_variables_of_the_caller_change_nothing(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "PGHOST": "nowhere",
        "PGPORT": "1",
        "PGUSER": "nobody",
        "PGDATABASE": "none",
        "PGDATA": "/none",
    }.items():
        monkeypatch.setenv(name, text)
    server.start()
    assert value(server.url, "select current_database()") == "nightshift"


def test_data_of_another_version_is_left_alone(server: Server) -> None:
    version = server.home / "data" / "PG_VERSION"
    version.write_text("16\n")
    try:
        with pytest.raises(ServerError, match=r"made by PostgreSQL 16.*Nothing was changed"):
            server.start()
    finally:
        version.write_text("18\n")


def test_a_folder_in_the_way_is_named(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "notes").touch()
    with pytest.raises(ServerError, match="exists and is no database"):
        Server(folder).start()
    assert (folder / "data" / "notes").exists()
    assert not list(folder.glob("data.new-*"))


def test_a_home_that_cannot_be_made_is_named(folder: Path) -> None:
    (folder / "file").touch()
    with pytest.raises(ServerError, match=r"can't be used as home.*--home DIR"):
        Server(folder / "file" / "home").start()


def test_a_failed_start_shows_the_end_of_the_servers_log(folder: Path) -> None:
    with embedded.running(folder):
        pass
    with (folder / "data" / "postgresql.conf").open("a") as conf:
        conf.write("no_such_setting = 1\n")
    with pytest.raises(ServerError, match="no_such_setting"):
        Server(folder).start()


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "x"), ServerError("FATAL: could not write: No space left on device")]
)
def test_a_full_disk_is_called_so(error: Exception) -> None:
    with pytest.raises(ServerError, match=r"disk of .* is full: free some space"), disk.in_words(Path("home")):
        raise error


def test_without_the_package_the_error_says_to_set_database_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ServerError, match="Set DATABASE_URL"):
        programs.install()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_root_without_user_namespaces_runs_it_as_another_user_and_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder.chmod(0o755)
    monkeypatch.setattr(unprivileged, "_namespace", tuple)
    monkeypatch.setattr(unprivileged, "_STATE", folder)
    server = Server(folder / "home")
    server.start()
    try:
        (own,) = folder.glob("nightshift-*")
        assert own.stat().st_uid != 0
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
        assert (
            Path(f"/proc/{(own / 'data' / 'postmaster.pid').read_text().split()[0]}").stat().st_uid == own.stat().st_uid
        )
        assert str(own) in capfd.readouterr().err
        assert value(server.url, "select 1") == 1
    finally:
        server.stop()
