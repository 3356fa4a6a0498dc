"""Why a live job isn't running, in one sentence. Pure: the surroundings are read once, for all rows of a page."""

from __future__ import annotations

from typing import Any

from webapp.queries.jobs import Surroundings
from webapp.words import ago, span


def why(job: Any, around: Surroundings) -> tuple[str, bool]:
    """The reason, and whether someone should look: a wait that passes by itself is not worth an operator's eye."""
    if job["status"] == "running":
        return (
            f"running for {span(around.now - job['locked_at'])}{', asked to stop' if job['cancel_requested_at'] else ''}",
            False,
        )
    if job["status"] == "waiting":
        count = job["waiting_for"]
        return f"waits for {count} other job{'' if count == 1 else 's'}", False
    return _held(job, around) or _unclaimed(job, around)


def _held(job: Any, around: Surroundings) -> tuple[str, bool] | None:
    kind = around.kinds.get(job["kind"])
    if kind is None or kind["is_retired"]:
        return "no process knows this kind", True
    if job["queue"] in around.paused_queues:
        return f"queue {job['queue']} is {_paused(around.paused_queues[job['queue']], around)}", True
    if kind["is_paused"]:
        return f"its kind is {_paused(kind, around)}", True
    if job["run_at"] > around.now:
        attempt = f" (attempt {job['attempt'] + 1})" if job["attempt"] else ""
        return f"due {ago(job['run_at'], around.now)}{attempt}", False
    if kind["is_recurring"] and job["kind"] in around.running_kinds:
        return "its kind is running already, and never runs twice at once", False
    return None


def _unclaimed(job: Any, around: Surroundings) -> tuple[str, bool]:
    if not around.served:
        return "no jobs process is alive", True
    serving = [kinds for kinds, queues in around.served if job["queue"] in queues]
    if not serving:
        return f"no live process serves queue {job['queue']}", True
    if not any(job["kind"] in kinds for kinds in serving):
        return f"no live process of queue {job['queue']} knows this kind", True
    return f"due for {span(around.now - job['run_at'])}, waits for a free slot", False


def _paused(row: Any, around: Surroundings) -> str:
    until = f" for another {span(row['paused_until'] - around.now)}" if row["paused_until"] else ""
    return f"paused by {row['paused_by']}{until}: {row['paused_reason']}"
