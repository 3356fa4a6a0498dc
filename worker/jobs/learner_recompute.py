"""learner-recompute: one learner now, every card from its first review on, whatever the summaries know."""

from __future__ import annotations

from uuid import UUID

from worker.engine.context import Context
from worker.engine.model import Args, Fail, Verdict
from worker.learning.state import refresh


class RecomputeArgs(Args, frozen=True):
    """Whose summaries and mastery to make anew."""

    learner_id: UUID


class _UnusableError(Exception):
    """Rolls the transaction back: trying again would end the same way."""


def run(ctx: Context, args: RecomputeArgs) -> Verdict:
    """Computes and completes in one transaction; fails at once when there is nothing that could be computed."""
    counts: dict[str, int] = {}
    try:
        with ctx.transaction(counts) as conn:
            refreshed = refresh(conn, [args.learner_id], whole=True)
            if refreshed.skipped:
                raise _UnusableError(f"learner {args.learner_id}: {refreshed.skipped[args.learner_id]}")
            if not refreshed.counts["learners"]:
                raise _UnusableError(f"there is no learner {args.learner_id}")
            counts.update(refreshed.counts)
    except _UnusableError as error:
        return Fail(str(error))
    return None
