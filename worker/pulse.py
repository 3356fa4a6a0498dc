"""Ends this process when none of its threads can any more, so that what it holds is taken over and it is started anew.

A handler in C that never lets go of the interpreter's lock (a regular expression that runs for years) stops the heartbeat,
the deadlines and the signals too. Only the kernel still acts then: it counts the processor time since the last beat. Not the
time of day, for a process that was only stopped, or whose machine slept, has done nothing wrong.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from datetime import timedelta


def prepare() -> None:
    """From now on the end comes with the traceback of every thread, which names the handler."""
    faulthandler.register(signal.SIGPROF, all_threads=True, chain=True)


def beat(lease: timedelta) -> None:
    """Called every second: one more lease's worth of processor time, and what all cores may burn between two beats."""
    signal.setitimer(signal.ITIMER_PROF, lease.total_seconds() + 2 * (os.cpu_count() or 1))


def stop() -> None:
    """Ends the watch."""
    signal.setitimer(signal.ITIMER_PROF, 0)
