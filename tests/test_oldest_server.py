"""The oldest PostgreSQL that is supported, Debian's 15: the engine's statements and the partitions, on a server of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from worker.local.unprivileged import identity

PROGRAMS = Path("/usr/lib/postgresql/15/bin")
ROOT = Path(__file__).resolve().parent.parent
# What says most in the least time: every verb, real races, and all that is done to partitions.
FILES = [
    "engine/test_claim.py",
    "engine/test_recovery.py",
    "engine/test_verbs.py",
    "engine/test_partitions.py",
    "races",
    "jobs/test_retention.py",
]


@pytest.fixture
def oldest() -> Iterator[str]:
    """The address of a PostgreSQL 15 without TCP, gone afterwards."""
    home = Path(tempfile.mkdtemp(prefix="ns-15-"))
    who = identity(home)
    who.give(home)
    data = home / "data"

    def run(program: str, *arguments: str) -> None:
        done = who.run([str(PROGRAMS / program), *arguments], cwd=home)
        assert done.returncode == 0, done.stdout

    run(
        "initdb",
        "-D",
        str(data),
        "-U",
        "nightshift",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C.UTF-8",
        "--no-sync",
    )
    settings = f"-k {home} -c listen_addresses='' -c fsync=off"
    run("pg_ctl", "-D", str(data), "-l", str(home / "log"), "-o", settings, "-w", "start")
    yield f"postgresql:///postgres?host={home}&user=nightshift"
    run("pg_ctl", "-D", str(data), "-m", "immediate", "stop")
    shutil.rmtree(home)


def test_the_engine_works_on_postgresql_15(oldest: str) -> None:
    with psycopg.connect(oldest) as conn:
        assert conn.info.server_version // 10_000 == 15
    paths = [str(ROOT / "tests" / name) for name in FILES]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.reports", "-o", "timeout=110", *paths],
        cwd=ROOT,
        env=environment | {"NIGHTSHIFT_TEST_SERVER": oldest},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout
