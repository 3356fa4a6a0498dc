"""Processes known only by their pid: who is alive, since when and where. Nothing here knows PostgreSQL or the Procfile.

A pid is reused, so it never identifies a process alone: it goes with a start time or with a working folder.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from signal import Signals

_PROC = Path("/proc")


def send(pid: int, number: Signals | int) -> bool:
    """Sends a signal (0 only asks); whether there was such a process that we may signal."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True


def started(pid: int) -> str | None:
    """When it started, as the kernel tells it: equal for the same process only. None when it is gone or a zombie."""
    try:
        # The name in the second field may hold spaces and brackets, so count from its end.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None if _PROC.joinpath("self").exists() or not send(pid, 0) else "unknown"
    return None if fields[0] in "ZX" else fields[19]


def in_folder(folder: Path, among: list[int] | None = None) -> list[int]:
    """Processes whose working folder is this one; without /proc, those of the given that live."""
    if not _PROC.joinpath("self", "cwd").exists():
        return [pid for pid in among or [] if send(pid, 0)]
    pids = among if among is not None else [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if _working_folder(pid) == str(folder)]


def _working_folder(pid: int) -> str | None:
    try:
        return str((_PROC / str(pid) / "cwd").readlink())
    except OSError:
        return None


def wait(condition: Callable[[], bool], seconds: float) -> bool:
    """Looks until the condition holds, at most so long; whether it held."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
