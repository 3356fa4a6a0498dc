"""What a loop says while something stays broken: the first failure, one line a minute, and that it is over."""

from __future__ import annotations

import logging
import random
import time

from worker.engine import clean

_QUIET_SECONDS = 60.0
_LONGEST_PAUSE_SECONDS = 5.0


class Outage:
    """The failures in a row of one loop."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log, self._what = log, what
        self.failures = 0
        self._began = self._said = 0.0

    def note(self, error: BaseException | str) -> None:
        """One more failure."""
        now = time.monotonic()
        self.failures += 1
        if self.failures == 1:
            self._began = now
        elif now - self._said < _QUIET_SECONDS:
            return
        self._said = now
        self._log.warning("%s.failed times=%d: %s", self._what, self.failures, clean.text(error, 500))

    def end(self) -> None:
        """It works: says so if it didn't before."""
        if self.failures > 1:
            self._log.info(
                "%s.back after %d failures in %.1f s", self._what, self.failures, time.monotonic() - self._began
            )
        self.failures = 0

    def pause(self) -> float:
        """Seconds to wait before the next try: longer with each failure, and jittered, lest all come back at once."""
        most = min(_LONGEST_PAUSE_SECONDS, 0.1 * 2.0 ** min(self.failures, 10))  # a power of thousands would not end
        return most * (0.5 + random.random() / 2)  # noqa: S311  no secret
