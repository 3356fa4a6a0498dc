"""Real jobs processes for tests: started with the toy kinds, watched by their log lines, signalled, and counted when gone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID, uuid4

from worker.local import pids

_ROOT = Path(__file__).resolve().parents[2]
_MARK = "TEST_PROCESS_MARK"


class JobsProcess:
    """One jobs process in a session of its own. Leaving the block kills it and everything that came from it."""

    def __init__(
        self, url: str, *, module: str = "tests.support.worker", is_heard: bool = True, **settings: Any
    ) -> None:
        self.mark = uuid4().hex
        self._is_heard = is_heard  # else nobody reads its log until the end
        chosen = {"lease_seconds": 2, "poll_seconds": 60, "grace_seconds": 20, "slots": 8} | {
            name: value for name, value in settings.items() if not name.isupper()
        }
        self._env = (
            {name: value for name, value in os.environ.items() if not name.startswith(("DATABASE_", "JOBS_"))}
            | {"DATABASE_URL": url, _MARK: self.mark, "PYTHONUNBUFFERED": "1"}
            | {f"JOBS_{name.upper()}": str(value) for name, value in chosen.items()}
            | {name: str(value) for name, value in settings.items() if name.isupper()}
        )
        self._module = module
        self.lines: list[str] = []
        self._changed = threading.Condition()

    def __enter__(self) -> JobsProcess:
        self._popen = subprocess.Popen(
            [sys.executable, "-m", self._module],
            cwd=_ROOT,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        if self._is_heard:
            self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._popen.kill()
        self._popen.wait()
        assert pids.wait(lambda: not self._kill_all(), 10), "processes that can't be killed"
        if not self._is_heard:
            self._reader.start()
        self._reader.join(timeout=10)
        assert self._popen.stderr is not None
        self._popen.stderr.close()
        if error is not None and hasattr(error, "add_note"):
            error.add_note("the jobs process said:\n" + self.tail())

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def id(self) -> UUID:
        """The process's own name for itself; waits until it has started."""
        line = self.wait_line("process.started")
        found = re.search(r"id=([0-9a-f-]{36})", line)
        assert found is not None
        return UUID(found[1])

    def started(self) -> JobsProcess:
        """Waits until it has entered itself in the database and begins to claim."""
        self.wait_line("process.started", 30)
        return self

    def wait_line(self, text: str, seconds: float = 15, after: int = 0) -> str:
        """The first line of its log, not before line `after`, that holds the text."""
        limit = time.monotonic() + seconds
        with self._changed:
            while True:
                for line in self.lines[after:]:
                    if text in line:
                        return line
                left = limit - time.monotonic()
                if left <= 0 or (self._popen.poll() is not None and not self._reader.is_alive()):
                    raise AssertionError(f"no line {text!r} came; it said:\n" + self.tail())
                self._changed.wait(min(left, 0.2))

    def signal(self, number: signal.Signals) -> None:
        """To the process alone."""
        self._popen.send_signal(number)

    def signal_all(self, number: signal.Signals) -> None:
        """To it and all that came from it at once, as some platforms do."""
        for pid in self.alive():
            pids.send(pid, number)

    def wait(self, seconds: float) -> int:
        """Its exit code; negative when a signal ended it. Fails when it is still there after so long."""
        try:
            return self._popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {seconds} s; it said:\n" + self.tail()) from None

    def kill(self) -> None:
        """kill -9 of the process alone."""
        self._popen.kill()
        self._popen.wait()

    def alive(self) -> list[int]:
        """Every live process that came from this start, whoever its parent is by now."""
        mark = f"{_MARK}={self.mark}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                if mark in (folder / "environ").read_bytes().split(b"\0") and pids.started(int(folder.name)):
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def is_all_gone(self, seconds: float) -> bool:
        """Whether nothing of it is alive within so long."""
        return pids.wait(lambda: not self.alive(), seconds)

    def tail(self) -> str:
        """The end of its log, without the lines that all went well."""
        return "".join(line[:300].rstrip() + "\n" for line in self.lines if "job.completed" not in line)[-6000:]

    def _kill_all(self) -> list[int]:
        left = self.alive()
        for pid in left:
            pids.send(pid, signal.SIGKILL)
        return left

    def _read(self) -> None:
        assert self._popen.stderr is not None
        for line in self._popen.stderr:
            with self._changed:
                self.lines.append(line)
                self._changed.notify_all()
