"""The Procfile as a platform runs it: with its own environment, and nothing of `up` around it."""

from __future__ import annotations

import http.client
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from honcho.environ import parse_procfile

from worker.local import pids

ROOT = Path(__file__).resolve().parent.parent
APP = "def app(environ, start):\n    start('200 OK', [('Content-Type', 'text/plain')])\n    return [environ['wsgi.url_scheme'].encode()]\n"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.fixture
def lines() -> dict[str, str]:
    return dict(parse_procfile((ROOT / "Procfile").read_text()).processes)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a gunicorn with our settings and an application of one line."""
    (tmp_path / "tiny.py").write_text(APP)
    number = free_port()
    command = [sys.executable, "-m", "gunicorn", "--config", str(ROOT / "webapp" / "gunicorn.py"), "tiny:app"]
    own = {"PORT": str(number), "NIGHTSHIFT_BIND": "127.0.0.1", "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    with subprocess.Popen(command, cwd=tmp_path, env=os.environ | own, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert pids.wait(lambda: ask(number)[0] == 200, seconds=20)
            yield number
            server.terminate()
            assert server.communicate(timeout=20)[1] == ""  # nothing to say while all is well
            assert server.returncode == 0
        finally:
            server.kill()


def ask(port: int, host: str = "127.0.0.1", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", "/", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


def test_every_line_goes_through_the_launcher(lines: dict[str, str]) -> None:
    assert list(lines) == ["release", "web", "jobs"]
    assert all(line.startswith("./nightshift ") for line in lines.values())
    assert os.access(ROOT / "nightshift", os.X_OK)


def test_the_lines_are_commands_that_exist(lines: dict[str, str]) -> None:
    for name in ("release", "jobs"):
        command = lines[name].removeprefix("./nightshift ")
        shown = subprocess.run(
            [sys.executable, "-m", "worker", command, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        assert f"Usage: nightshift {command}" in shown.stdout


def test_gunicorn_answers_where_it_is_told_and_ends_on_sigterm(port: int) -> None:
    assert ask(port) == (200, "http")
    assert ask(port, "127.0.0.2")[0] == 0


def test_a_proxy_on_this_machine_may_say_that_the_visitor_came_by_https(port: int) -> None:
    assert ask(port, **{"X-Forwarded-Proto": "https"}) == (200, "https")


def test_a_port_that_is_no_number_is_named() -> None:
    gunicorn = shutil.which("gunicorn", path=str(Path(sys.executable).parent))
    assert gunicorn is not None
    done = subprocess.run(
        [gunicorn, "--check-config", "--config", "webapp/gunicorn.py", "webapp.wsgi:app"],
        cwd=ROOT, env={**os.environ, "PORT": "http"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "PORT must be a number" in done.stderr
