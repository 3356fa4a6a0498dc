"""The whole product as a new user starts it: a first start, kills, a second start, Ctrl-C, and commands beside it."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.local import pids

ROOT = Path(__file__).resolve().parent.parent


class Up:
    """One `up` and what it prints."""

    def __init__(self, home: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = int(probe.getsockname()[1])
        self.home = home
        self.printed = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "worker", "up", "--port", str(self.port), "--home", str(home)],
            cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.printed += line

    def wait_for(self, words: str, times: int = 1) -> None:
        assert pids.wait(lambda: self.printed.count(words) >= times, seconds=60), self.printed

    def parts(self) -> dict[str, int]:
        return {name: pid for name, (pid, _) in json.loads((self.home / "up.json").read_text()).items()}

    def is_healthy(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def end(self, number: signal.Signals) -> int:
        """Signals the whole group, as a terminal does for Ctrl-C, and waits."""
        os.killpg(self.process.pid, number)
        code = self.process.wait(timeout=60)
        self._reader.join(timeout=10)
        return code


def environment() -> dict[str, str]:
    """The caller's, without what would choose another database or port."""
    mine = {"DATABASE_URL", "PORT", "NIGHTSHIFT_HOME", "SECRET_KEY", "NIGHTSHIFT_BIND"}
    return {name: text for name, text in os.environ.items() if name not in mine}


@pytest.fixture
def home() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="ns-"))
    yield path
    for pid in pids.in_folder(path / "data"):
        pids.send(pid, signal.SIGKILL)
    shutil.rmtree(path)


def command(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "worker", *arguments, "--home", str(home)],
        cwd=ROOT, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip


def completed(home: Path) -> dict[str, dict[str, object]]:
    shown = command(home, "runs", "--json")
    assert shown.returncode == 0, shown.stderr
    return {run["kind"]: run["counts"] for run in json.loads(shown.stdout) if run["outcome"] == "completed"}


def test_a_first_start_runs_the_night_survives_kills_and_starts_again(home: Path) -> None:
    first = Up(home)
    first.wait_for("Stop      Ctrl-C")
    assert len(re.findall(r"Password  \S{20,}   \(shown this once\)", first.printed)) == 1
    assert first.is_healthy()
    assert pids.wait(lambda: {"learner-state", "upkeep", "retention"} <= set(completed(home)), seconds=60), (
        first.printed
    )
    assert completed(home)["learner-state"]["reviews"]

    for name, words in {"jobs": "process.started", "web": "web was killed by SIGKILL"}.items():
        count = first.printed.count(words)
        os.kill(first.parts()[name], signal.SIGKILL)
        first.wait_for(words, count + 1)
    assert pids.wait(first.is_healthy, seconds=30)
    os.kill(int((home / "data" / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    first.wait_for("PostgreSQL runs again")
    left = first.parts()
    first.end(signal.SIGKILL)
    assert pids.in_folder(home / "data")  # a killed `up` could not stop the database

    second = Up(home)
    second.wait_for("Stop      Ctrl-C")
    assert "Password" not in second.printed
    assert not {pid for pid in left.values() if pids.started(pid)} - set(second.parts().values())
    parts = second.parts()
    assert second.end(signal.SIGINT) == 0
    assert not pids.in_folder(home / "data")
    assert not [pid for pid in parts.values() if pids.started(pid)]

    # A command finds the home's server, starts it for itself, and leaves nothing running.
    assert "learner-state" in completed(home)
    assert not pids.in_folder(home / "data")


def test_ctrl_c_while_it_starts_stops_what_had_started(home: Path) -> None:
    up = Up(home)
    up.wait_for("starting PostgreSQL")
    up.end(signal.SIGINT)
    assert not pids.in_folder(home / "data")
    assert up.process.returncode is not None
    assert not (home / "up.json").exists()
