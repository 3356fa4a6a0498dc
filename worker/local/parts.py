"""The Procfile's lines as processes: started, watched, started again when they die, ended together.

It differs from honcho's own loop, which ends everything when one process ends. Knows nothing of the database.
"""

from __future__ import annotations

import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from honcho.colour import get_colours
from honcho.printer import Message, Printer
from honcho.process import Popen

from worker.local import pids, tether

_FIRST_DELAY, _LONGEST_DELAY = 1.0, 30.0  # seconds
_STEADY_SECONDS = 60.0  # who ran as long starts again with the first delay
_WE = "up"


@dataclass(slots=True)
class Part:
    """One line of the Procfile and the process that runs it now."""

    name: str
    line: str
    colour: str
    child: subprocess.Popen[bytes] | None = None
    reader: threading.Thread | None = None
    began: float = 0.0
    due: float = 0.0
    delay: float = _FIRST_DELAY


class Parts:
    """All parts of one `up`. The record tells the next `up` which processes to look for."""

    def __init__(self, lines: Mapping[str, str], environment: Mapping[str, str], folder: Path, record: Path) -> None:
        self._environment = dict(environment)
        self._folder = folder
        self._record = record
        self._printed: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._printer = Printer(sys.stdout, width=max(map(len, [_WE, *lines])))
        self._parts = [
            Part(name, line, colour) for (name, line), colour in zip(lines.items(), get_colours(), strict=False)
        ]

    def say(self, text: str) -> None:
        """Prints a line of ours among those of the parts."""
        self._print(Message("line", text, datetime.now().astimezone(), _WE, None))

    def turn(self, seconds: float) -> None:
        """Prints what the parts wrote, waiting so long for the first line; starts what is due; notes what has ended."""
        with suppress(queue.Empty):
            self._print(self._printed.get(timeout=seconds))
            while True:
                self._print(self._printed.get_nowait())
        for part in self._parts:
            if part.child is None:
                if time.monotonic() >= part.due:
                    self._start(part)
            elif part.child.poll() is not None:
                self._note_end(part, part.child)

    def end(self, grace: float, is_urgent: Callable[[], bool]) -> None:
        """SIGTERM to all; after the grace time, or when it gets urgent, SIGKILL to what is left."""
        alive = {part.name: part.child for part in self._parts if part.child is not None}
        for child in alive.values():
            pids.send(child.pid, signal.SIGTERM)  # to the leader alone: it ends its own children in its own order
        limit = time.monotonic() + grace
        while any(child.poll() is None for child in alive.values()) and time.monotonic() < limit and not is_urgent():
            with suppress(queue.Empty):
                self._print(self._printed.get(timeout=0.05))
        for part in self._parts:
            if part.child is not None:
                if part.child.poll() is None:
                    self.say(f"{part.name} did not end in time and is killed")
                self._bury(part, part.child)
        while not self._printed.empty():
            self._print(self._printed.get())
        self._record.unlink(missing_ok=True)

    def _start(self, part: Part) -> None:
        command = [sys.executable, "-I", "-S", str(Path(tether.__file__)), str(os.getpid()), part.line]
        part.began = time.monotonic()
        # honcho's Popen runs a shell line in a session of its own: a Ctrl-C in the terminal reaches only us.
        part.child = child = Popen(
            f"exec {shlex.join(command)}", env=self._environment, cwd=self._folder, stdin=subprocess.DEVNULL
        )
        part.reader = threading.Thread(
            target=self._read, args=(part, child), name=f"output of {part.name}", daemon=True
        )
        part.reader.start()
        record = {each.name: [each.child.pid, pids.started(each.child.pid)] for each in self._parts if each.child}
        fresh = self._record.with_suffix(".new")
        fresh.write_text(json.dumps(record))
        fresh.replace(self._record)

    def _read(self, part: Part, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        with child.stdout as lines:
            for line in lines:
                self._printed.put(Message("line", line, datetime.now().astimezone(), part.name, part.colour))

    def _note_end(self, part: Part, child: subprocess.Popen[bytes]) -> None:
        self._bury(part, child)
        now = time.monotonic()
        if now - part.began > _STEADY_SECONDS:
            part.delay = _FIRST_DELAY
        part.due = now + part.delay
        self.say(f"{part.name} {_how(child.returncode)}; starting it again in {part.delay:g} s")
        part.delay = min(_LONGEST_DELAY, part.delay * 2)

    def _bury(self, part: Part, child: subprocess.Popen[bytes]) -> None:
        # What a dead leader left behind would hold its port and its output.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if part.reader is not None:
            part.reader.join(timeout=2)
        part.child = part.reader = None

    def _print(self, message: Message) -> None:
        with suppress(OSError):  # a closed terminal must not keep us from ending the parts
            self._printer.write(message)


def end_leftovers(record: Path, grace: float) -> list[str]:
    """Ends parts that an earlier `up` left when it was killed; their names."""
    try:
        left = {name: (pid, started) for name, (pid, started) in json.loads(record.read_text()).items()}
    except (FileNotFoundError, ValueError, TypeError):
        return []

    def alive() -> dict[str, int]:
        return {name: pid for name, (pid, started) in left.items() if started and pids.started(pid) == started}

    found = alive()
    for pid in found.values():
        pids.send(pid, signal.SIGTERM)
    pids.wait(lambda: not alive(), grace)
    for pid in alive().values():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    record.unlink(missing_ok=True)
    return list(found)


def _how(code: int) -> str:
    if code >= 0:
        return f"ended (exit code {code})"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
