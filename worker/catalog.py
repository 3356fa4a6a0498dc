"""The list of kinds: the whole night on one screen. To add a job: its file, its line here, its test."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from worker.engine.model import Kind
from worker.engine.schedules import cron, every
from worker.jobs import learner_recompute, learner_state, retention, upkeep

# Queue -> how many of its jobs one process runs at once.
QUEUES: dict[str, int] = {
    "default": 8,  # what someone will look for soon
    "night": 2,  # the recurring work: it can wait, and must not fill the house
}

# Recurring: in a child with a hard deadline, and tried again within the night.
_recurring = partial(Kind, queue="night", isolation="process", deadline=timedelta(minutes=30), max_attempts=5)

KINDS: tuple[Kind, ...] = (
    _recurring(
        "learner-state", learner_state.run, "Brings card summaries and mastery up to the newest reviews",
        schedule=every(hours=1), history_days=90,
    ),
    _recurring(
        "upkeep", upkeep.run, "Makes the coming months' partitions of the run history",
        schedule=cron("15 2 * * *", "UTC"), history_days=365,
    ),
    _recurring(
        "retention", retention.run, "Drops old months of the run history and deletes what is too old",
        schedule=cron("45 3 * * *", "UTC"), history_days=365,
    ),
    Kind(
        "learner-recompute", learner_recompute.run, "Computes one learner anew from all their reviews",
        args=learner_recompute.RecomputeArgs, history_days=30,
    ),
)  # fmt: skip
