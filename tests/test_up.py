"""Parts under kills, and what `up` says before it starts anything."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from worker.local import pids, up
from worker.local.parts import Parts, end_leftovers
from worker.local.up import UpError

ROOT = Path(__file__).resolve().parent.parent
STUBBORN = "python3 -c 'import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(\"deaf\", flush=True); time.sleep(600)'"
RUN = """
import os, pathlib, sys
from worker.local.parts import Parts
record = pathlib.Path(sys.argv[1])
parts = Parts({"part": sys.argv[2]}, os.environ, record.parent, record)
while True:
    parts.turn(0.05)
"""


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Path]:
    """Where the parts are noted; none of them outlives the test."""
    path = tmp_path / "up.json"
    yield path
    with suppress(FileNotFoundError):
        for pid in noted(path).values():
            pids.send(pid, signal.SIGKILL)


def noted(record: Path) -> dict[str, int]:
    return {name: pid for name, (pid, _) in json.loads(record.read_text()).items()}


def turn_until(parts: Parts, capsys: pytest.CaptureFixture[str], words: str) -> str:
    """Lets the parts work until these words are printed."""
    seen = ""

    def has_come() -> bool:
        nonlocal seen
        parts.turn(0.02)
        seen += capsys.readouterr().out
        return words in seen

    assert pids.wait(has_come, seconds=20), seen
    return seen


def test_a_part_that_dies_is_started_again_alone(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = Parts({"web": "sh -c 'echo web is up; sleep 600'", "jobs": "sleep 600"}, os.environ, record.parent, record)
    turn_until(parts, capsys, "web is up")
    before = noted(record)
    os.kill(before["web"], signal.SIGKILL)
    seen = turn_until(parts, capsys, "web is up")
    assert "web was killed by SIGKILL; starting it again in 1 s" in seen
    assert noted(record)["jobs"] == before["jobs"]
    parts.end(5, is_urgent=lambda: False)
    assert not record.exists()
    assert pids.started(before["jobs"]) is None


def test_what_a_dead_part_left_running_ends_with_it(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = Parts({"web": "sh -c 'sleep 600 & echo child $!; wait'"}, os.environ, record.parent, record)
    child = int(turn_until(parts, capsys, "child").split("child ")[1].split()[0])
    os.kill(noted(record)["web"], signal.SIGKILL)
    turn_until(parts, capsys, "starting it again")
    assert pids.wait(lambda: pids.started(child) is None, seconds=5)
    parts.end(5, is_urgent=lambda: False)


def test_a_part_that_keeps_failing_waits_longer_each_time(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = Parts({"web": "sh -c 'exit 3'"}, os.environ, record.parent, record)
    assert "ended (exit code 3); starting it again in 1 s" in turn_until(parts, capsys, "in 1 s")
    turn_until(parts, capsys, "in 2 s")
    parts.end(5, is_urgent=lambda: False)


def test_a_part_may_finish_its_work_and_a_second_signal_cuts_it_off(
    record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    finishing = "sh -c 'trap \"echo finished; exit 0\" TERM; echo ready; while :; do sleep 0.05; done'"
    parts = Parts({"jobs": finishing}, os.environ, record.parent, record)
    turn_until(parts, capsys, "ready")
    parts.end(20, is_urgent=lambda: False)
    assert "finished" in capsys.readouterr().out
    parts = Parts({"jobs": STUBBORN}, os.environ, record.parent, record)
    turn_until(parts, capsys, "deaf")
    pid = noted(record)["jobs"]
    parts.end(600, is_urgent=lambda: True)
    assert pids.started(pid) is None


def test_a_signal_of_the_terminal_does_not_reach_the_parts(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = Parts({"jobs": "sh -c 'echo ready; sleep 600'"}, os.environ, record.parent, record)
    turn_until(parts, capsys, "ready")
    assert os.getsid(noted(record)["jobs"]) != os.getsid(0)
    parts.end(5, is_urgent=lambda: False)


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells a process that its parent died; elsewhere the next start ends it"
)
def test_the_parts_end_when_up_is_killed(record: Path) -> None:
    killed = subprocess.Popen(
        [sys.executable, "-c", RUN, str(record), "sleep 600"], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    assert pids.wait(record.exists, seconds=20)
    pid = noted(record)["part"]
    assert pids.wait(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", seconds=20)
    killed.kill()
    killed.wait()
    assert pids.wait(lambda: pids.started(pid) is None, seconds=10)


def test_the_next_start_ends_what_a_killed_one_left_and_nothing_else(record: Path) -> None:
    with (
        subprocess.Popen(["sleep", "600"], start_new_session=True) as left,
        subprocess.Popen(["sleep", "600"]) as other,
    ):
        record.write_text(json.dumps({"web": [left.pid, pids.started(left.pid)], "jobs": [other.pid, "1"]}))
        try:
            assert end_leftovers(record, grace=5) == ["web"]
            assert left.wait(timeout=5) == -signal.SIGTERM
            assert other.poll() is None
        finally:
            left.kill()
            other.kill()
    assert end_leftovers(record, grace=5) == []


def test_a_taken_port_is_named_before_anything_starts(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(UpError, match=r"Port \d+ is taken .* --port N"),
    ):
        up.up(tmp_path / "home", taken.getsockname()[1])
    assert not (tmp_path / "home" / "data").exists()


def test_a_second_up_of_the_same_home_is_refused(tmp_path: Path) -> None:
    with up._only_one(tmp_path / "home"), pytest.raises(UpError, match="already up"):
        up.up(tmp_path / "home", 1)
    assert stat.S_IMODE((tmp_path / "home").stat().st_mode) == 0o700


def test_a_home_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UpError, match=r"can't be used as home.*--home DIR"):
        up.up(tmp_path / "file" / "home", 1)


def test_the_secret_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    (tmp_path / "secret_key.new").write_text("cut off")  # by a kill
    first = up._secret_key(tmp_path)
    assert len(first) == 64
    assert up._secret_key(tmp_path) == first
    assert stat.S_IMODE((tmp_path / "secret_key").stat().st_mode) == 0o600


def test_a_killed_start_after_the_key_keeps_who_is_signed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SECRET_KEY", raising=False)
    made = [up._environment("postgresql:///x", tmp_path, "127.0.0.1", 8000) for _ in range(2)]
    assert made[0]["SECRET_KEY"] == made[1]["SECRET_KEY"]
    assert (made[0]["PORT"], made[0]["NIGHTSHIFT_BIND"], made[0]["SECURE_COOKIES"]) == ("8000", "127.0.0.1", "no")
    assert "SECURE_COOKIES" not in up._environment("postgresql:///x", tmp_path, "0.0.0.0", 8000)
