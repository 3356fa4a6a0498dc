"""What `./nightshift test` runs: lint, types and import contracts, then all tests. With pytest arguments: only pytest.

Everything runs even where something failed before, so that one look shows all. pytest comes last: its summary closes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

BIN = Path(sys.executable).parent
STAGES = {
    "lint": ["ruff", "check", ".", "nightshift"],
    "format": ["ruff", "format", "--check", ".", "nightshift"],
    "types": ["mypy"],
    "imports": ["lint-imports"],
}
# Three, for the tests wait more than they work. A file stays with one of them, since its tests share what was made for them.
OPTIONS = ["-n", "3", "--dist", "loadfile", "-p", "tests.support.reports"]
# Not packages of Python: what they are, where they may be, the Debian package, and what fails without them.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
OLD_SERVER = Path("/usr/lib/postgresql/15/bin/postgres")


def main(arguments: list[str]) -> int:
    """Runs it all; 0 only if everything passed."""
    failed = [] if arguments else [name for name, command in STAGES.items() if not _passes(name, command)]
    _provide()
    if failed:
        _say(f"FAILED: {', '.join(failed)} (see above); the tests run all the same")
    tested = subprocess.call([sys.executable, "-m", "pytest", *OPTIONS, *arguments])
    return tested or bool(failed)


def _passes(name: str, command: list[str]) -> bool:
    began = time.monotonic()
    code = subprocess.call([str(BIN / command[0]), *command[1:]])
    _say(f"{name}: {'ok' if code == 0 else 'FAILED'} ({time.monotonic() - began:.1f} s)")
    return code == 0


def _provide() -> None:
    """Installs the browser and the oldest supported server where possible; says what to do where not."""
    missing = {}
    if not any(map(shutil.which, BROWSERS)):
        missing["chromium"] = "the tests that open pages in a browser"
    if not OLD_SERVER.exists():
        missing["postgresql-15"] = "the tests on PostgreSQL 15"
    if not missing:
        return
    why = "this user isn't root" if os.geteuid() != 0 else "there is no apt-get" if not shutil.which("apt-get") else ""
    if not why:
        _say(f"installing {' and '.join(missing)} ...")
        why = _install(list(missing))
    if why:
        for package, tests in missing.items():
            _say(f"{tests} will fail: {package} is missing ({why}). Debian: apt-get install {package}")


def _install(packages: list[str]) -> str:
    """Installs Debian packages; why it could not."""
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", "-q", *command],
            check=False,
            env=quiet,
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
        if done.returncode != 0:
            return f"apt-get {command[0]} said: {' '.join(done.stderr.split())[-300:]}"
    return ""


def _say(line: str) -> None:
    sys.stdout.write(f"==> {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
