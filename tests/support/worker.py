"""A jobs process of the toy kinds: `python -m tests.support.worker`, with its settings in the environment, as in the product.

TEST_CLOCK_SECONDS sets this process's wall clock wrong by so much; TEST_CLOCK_FILE holds that number and may change.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from pathlib import Path

from worker import process, settings


def _set_clock_wrong() -> None:
    """Only this process's idea of the time of day; its monotonic clock stays true, as on a machine with a bad clock."""
    true_time = time.time
    file = os.environ.get("TEST_CLOCK_FILE")

    def offset() -> float:
        return float(Path(file).read_text()) if file else float(os.environ["TEST_CLOCK_SECONDS"])

    class WrongDatetime(dt.datetime):
        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
            return dt.datetime.fromtimestamp(time.time(), tz)

    time.time = lambda: true_time() + offset()
    from apscheduler.schedulers import base  # noqa: PLC0415

    base.datetime = WrongDatetime


def main() -> None:
    """Runs until a signal."""
    from tests.support.poison import KINDS, QUEUES  # noqa: PLC0415  the children of this process import this module too

    if "TEST_CLOCK_SECONDS" in os.environ or "TEST_CLOCK_FILE" in os.environ:
        _set_clock_wrong()
    chosen = settings.load()
    process.configure_logging(chosen.log_level)
    wanted = os.environ.get("TEST_KINDS")
    kinds = [kind for kind in KINDS if (kind.name in wanted.split(",") if wanted else kind.schedule is None)]
    sys.exit(process.Process(chosen, kinds, QUEUES).run())


if __name__ == "__main__":
    main()
