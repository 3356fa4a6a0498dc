"""Run as a program: becomes a shell line that gets SIGTERM when the process that started it dies, even by kill -9.

    python -I -S tether.py PARENT_PID LINE

A program of its own, since code between fork and exec is unsafe where threads run. Standard library only.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, line = int(sys.argv[1]), sys.argv[2]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == parent:  # else it died before we could ask the kernel to watch it
        os.execv("/bin/sh", ["/bin/sh", "-c", f"exec {line}"])  # noqa: S606 - a line of the Procfile
