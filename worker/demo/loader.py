"""Puts the demo into an empty product, through the same functions as the product's own API, and starts its first night.

All in one transaction: a load that was killed left nothing, so the next one does it all.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any
from uuid import UUID

from psycopg import Connection

from worker.catalog import KINDS, QUEUES
from worker.demo import files
from worker.engine import db, kinds
from worker.engine.model import NightshiftError
from worker.learning import learners
from worker.learning.reviews import Status, record_reviews

_SQL = Path(__file__).parent


def load(url: str) -> dict[str, int]:
    """Adds the demo's learners, boxes, cards and reviews; returns how many. All 0 when there are learners already."""
    with db.connect(url, "demo", autocommit=False) as conn:
        # Two that load at once take turns. A statement of its own looks, so that the second sees what the first did.
        conn.execute(db.load_sql(_SQL, "lock"))
        (is_empty,) = conn.execute(db.load_sql(_SQL, "empty")).fetchone() or (False,)
        if not is_empty:
            return dict.fromkeys(("learners", "boxes", "cards", "reviews"), 0)
        counts = _fill(conn)
        start_night(conn)
        return counts


def start_night(conn: Connection) -> None:
    """Publishes the catalogue and makes every recurring kind due now, so that a first visitor sees them run."""
    kinds.publish(conn, KINDS, QUEUES)
    for kind in KINDS:
        if kind.is_recurring:
            kinds.run_now(conn, kind.name)


def _fill(conn: Connection) -> dict[str, int]:
    items: defaultdict[UUID, list[dict[str, Any]]] = defaultdict(list)
    for learner_id, item in files.reviews():
        items[learner_id].append(item)
    counts = {
        "learners": learners.add_learners(conn, items),
        "boxes": learners.add_boxes(conn, files.boxes()),
        "cards": learners.add_cards(conn, files.cards()),
        "reviews": 0,
    }
    for learner_id in sorted(items):
        recorded = record_reviews(conn, learner_id, items[learner_id])
        refused = [result.reason for result in recorded.results if result.status is not Status.ACCEPTED]
        if refused:
            raise NightshiftError(
                f"The demo's files are damaged: {len(refused)} reviews not taken. The first: {refused[0]}"
            )
        counts["reviews"] += len(recorded.results)
    return counts
