"""An attempt in a process of its own: a fork of a clean server, in a session of its own, with bounded memory.

The parent may kill it at any time; it notices its parent's death by the end of the pipe. Nothing but bytes comes back:
log lines as they are written, the word that the job is settled, and one Result. A child that ends without a Result has
died, whatever its exit code.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from typing import Any
from uuid import UUID

import msgspec

from worker.engine import clean, executor
from worker.engine.context import Context, Stop
from worker.engine.executor import Result
from worker.engine.model import Job, Kind, Outcome

_POLL_SECONDS = 0.25
_STOP_GRACE_SECONDS = 10.0
_LOST_GRACE_SECONDS = 1.0
_LOG_LINES = 200
_MAX_MESSAGE = 4 * 1024 * 1024
_KEPT_ENVIRONMENT = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "SSL_CERT_FILE",
)

_STOPS = {signal.SIGTERM, signal.SIGINT}

_context = multiprocessing.get_context("forkserver")
# Process.start and join reap every child they know of; two at once could read one's exit status twice.
_reaping = threading.Lock()


def prepare(modules: list[str]) -> None:
    """Starts the fork server with these modules loaded."""
    from multiprocessing import forkserver  # noqa: PLC0415  only the jobs process needs it

    _context.set_forkserver_preload(["worker.engine.child", *modules])
    with _stops_held():
        forkserver.ensure_running()


@contextlib.contextmanager
def _stops_held() -> Iterator[None]:
    """A fork server started in this block is deaf to SIGTERM and SIGINT, which some platforms send to every process at once.

    Held back, not ignored: one that reaches this process meanwhile is delivered when the block ends.
    """
    resource_tracker.ensure_running()  # before: where the fork server has to start it, that lets the signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(slots=True)
class Run:
    """What the parent needs to watch one child."""

    job: Job
    kind: Kind
    url: str
    worker: UUID
    stop: Stop
    log: deque[str]
    on_settled: Callable[[], None]
    is_pooled: bool = False
    is_settled: bool = False


def run(watched: Run) -> Result:
    """Runs one attempt in a child and waits for it, its deadline or the word to stop. Blocks; raises nothing of the child's."""
    ours, theirs = _context.Pipe()
    process = _context.Process(
        target=_main,
        args=(theirs, watched.job, watched.kind, watched.url, watched.worker, watched.is_pooled),
        name=f"nightshift {watched.kind.name}",
    )
    try:
        with _reaping, _stops_held():  # it starts the fork server again when that has died
            process.start()
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    try:
        return _watch(watched, ours, process.sentinel) or _death(process)
    finally:
        assert process.pid is not None
        _kill(process.pid)
        with _reaping:
            process.join()
        ours.close()


def _watch(watched: Run, pipe: Pipe, sentinel: int) -> Result | None:
    """The child's Result, or why it was stopped; None when it died, even where its own children still hold the pipe."""
    ends = time.monotonic() + watched.kind.deadline.total_seconds()
    told: float | None = None
    while (left := ends - time.monotonic()) > 0:
        reason = watched.stop.reason
        if reason is not None and told is None:
            told = time.monotonic()
            with contextlib.suppress(OSError):
                pipe.send_bytes(reason.encode())
        if (stopped := _stopped(watched, reason, told)) is not None:
            return stopped
        try:
            ready = wait([pipe, sentinel], min(_POLL_SECONDS, left))
            if pipe in ready:
                message = pipe.recv_bytes(_MAX_MESSAGE)
                match message[:1]:
                    case b"R":
                        return msgspec.json.decode(message[1:], type=Result)
                    case b"S":
                        watched.is_settled = True
                        watched.on_settled()
                    case _:
                        watched.log.append(message[1:].decode(errors="replace"))
            elif sentinel in ready:
                return None
        except (EOFError, OSError, msgspec.DecodeError):
            return None
    return Result(Outcome.FAILED, error=executor.overran(watched.kind))


def _stopped(watched: Run, reason: str | None, told: float | None) -> Result | None:
    """What comes of a child that must not go on; None while it may."""
    since = 0.0 if told is None else time.monotonic() - told
    match reason:
        # The row is gone, too, where the attempt has just settled its job: the word of that may be on its way.
        case "lease lost" if since > _LOST_GRACE_SECONDS and not watched.is_settled:
            return Result(None)
        case "killed":
            return Result(Outcome.INTERRUPTED, error="cut off at shutdown")
        case "cancelled" if since > _STOP_GRACE_SECONDS:
            return Result(Outcome.CANCELLED, error="cancelled; it did not stop by itself and was killed")
        case _:
            return None


def _death(process: multiprocessing.process.BaseProcess) -> Result:
    wait([process.sentinel], timeout=1)  # not in the lock below: others may start children meanwhile
    with _reaping:
        process.join(timeout=0)
    code = process.exitcode
    how = (
        "closed its pipe"
        if code is None
        else f"was killed by {_signal_name(-code)}"
        if code < 0
        else f"exited with code {code}"
    )
    return Result(Outcome.FAILED, error=f"the process that ran it {how} without a result")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _kill(pid: int) -> None:
    # The group first: what the attempt itself started goes with it. It has none until the child made its session.
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _main(pipe: Pipe, job: Job, kind: Kind, url: str, worker: UUID, is_pooled: bool) -> None:
    os.setsid()
    _die_with_parent()
    _take_stops()
    _limit(kind)
    for name in set(os.environ) - set(_KEPT_ENVIRONMENT):
        del os.environ[name]
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    stop = Stop()
    sending = threading.Lock()

    def send(message: bytes) -> None:
        with sending, contextlib.suppress(OSError):
            pipe.send_bytes(message)

    threading.Thread(target=_listen, args=(pipe, stop), daemon=True).start()
    ctx = Context(
        job,
        kind,
        url,
        worker,
        stop=stop,
        on_log=lambda line: send(b"L" + line.encode(errors="replace")),
        on_settled=lambda: send(b"S"),
        is_pooled=is_pooled,
    )
    result = executor.attempt(ctx)
    send(b"R" + msgspec.json.encode(result))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads that the handler left behind end here too


def _listen(pipe: Pipe, stop: Stop) -> None:
    while True:
        try:
            stop.reason = pipe.recv_bytes(100).decode()
        except (EOFError, OSError):
            os._exit(70)  # the parent is gone: whatever this attempt does now, its lease will not be renewed


def _die_with_parent() -> None:
    # The pipe's end needs the interpreter to run; the kernel's signal also reaches a child that is stuck in C. It comes when
    # the fork server ends, which waits for the end of a pipe of its own that multiprocessing hands to every child: ours must go.
    from multiprocessing import forkserver  # noqa: PLC0415

    server: Any = getattr(forkserver, "_forkserver", None)
    if (lifeline := getattr(server, "_forkserver_alive_fd", None)) is not None:
        os.close(lifeline)
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)


def _take_stops() -> None:
    # Ours is a parent that drains, not a signal. A handler that does nothing, unlike one that ignores, isn't inherited by
    # the programs that an attempt starts: it can end those by SIGTERM.
    for number in _STOPS:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)


def _limit(kind: Kind) -> None:
    # Data memory, not address space: libraries map far more than they use.
    limit = kind.memory_mb * 1024 * 1024
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def log_tail(lines: deque[str]) -> str | None:
    """The last lines that an attempt logged, cleaned and bounded as the run keeps them, whoever wrote them into the pipe."""
    return clean.text("\n".join(lines)) or None
