"""learner-state, hourly: what reviews come to, for every learner that has new ones or was marked by hand.

Learners are taken in the order of their ids, a batch a transaction; the cursor moves in the same transaction, so a kill
at any instant costs at most one batch. A learner marked behind the cursor waits for the next hour.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

from worker.engine import db
from worker.engine.context import Context
from worker.engine.model import Counts, NoArgs
from worker.learning.state import refresh

BATCH = 100  # learners a transaction

_HERE = Path(__file__).parent
_LEFT_SQL = db.load_sql(_HERE, "learner_state_left")
_BATCH_SQL = db.load_sql(_HERE, "learner_state_batch")
_NONE_YET = UUID(int=0)


def run(ctx: Context, _: NoArgs) -> Counts:
    """Takes batches until no marked learner is left after the cursor; returns what all attempts of this job did."""
    cursor: dict[str, Any] = ctx.cursor() or {"after": str(_NONE_YET), "counts": {}}
    after, counts = UUID(cursor["after"]), Counter[str](cursor["counts"])
    with ctx.connection() as conn:
        left = conn.execute(_LEFT_SQL, {"after": after}).fetchone()
    done = counts["learners"] + counts["skipped"]
    total = done + (left[0] if left else 0)
    while True:
        ctx.raise_if_cancelled()
        with ctx.connection() as conn:
            ids = db.column(conn.execute(_BATCH_SQL, {"after": after, "limit": BATCH}))
            if not ids:
                break
            refreshed = refresh(conn, ids)
            counts.update(refreshed.counts)
            counts["skipped"] += len(refreshed.skipped)
            after = ids[-1]
            ctx.checkpoint({"after": str(after), "counts": dict(counts)}, conn)
        for learner_id, reason in refreshed.skipped.items():
            ctx.log.warning("left learner %s as it was: %s", learner_id, reason)
        done += len(ids)
        ctx.progress(done, max(total, done), f"{counts['reviews']} reviews replayed")
    return {name: counts[name] for name in ("learners", "cards", "reviews", "boxes", "skipped")}
