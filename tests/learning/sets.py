"""Learners, cards and reviews for tests: the real log, small sets made to measure, and what the tables then hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg import Connection

from worker.demo import files
from worker.learning import learners
from worker.learning.memory import CardSummary, Review, replay, scheduler
from worker.learning.reviews import Recorded, record_reviews

START = datetime(2026, 1, 5, 8, tzinfo=UTC)
_COLUMNS = "state, step, stability, difficulty, last_review_at, due_at, reps, lapses, last_rating, reviews_seen, greatest_review_id"


def number(n: int) -> UUID:
    """The n-th id."""
    return UUID(int=n)


def add(conn: Connection, *, learner_count: int = 1, card_count: int = 1, box_id: str = "box") -> None:
    """Learners 1.. and, in one box, cards 1.. (by `number`)."""
    learners.add_learners(conn, [number(n) for n in range(1, learner_count + 1)])
    learners.add_boxes(conn, [learners.Box(box_id, "A box", "deck")])
    learners.add_cards(conn, [learners.NewCard(box_id, str(n), id=number(n)) for n in range(1, card_count + 1)])


def item(n: int, *, card: int = 1, rating: int = 3, hours: float = 0) -> dict[str, Any]:
    """Review number n, so many hours after the start."""
    return {"id": number(n), "card_id": number(card), "rating": rating, "reviewed_at": START + timedelta(hours=hours)}


def record(conn: Connection, items: Sequence[dict[str, Any]], *, learner: int = 1) -> Recorded:
    """Records in a transaction of its own."""
    with conn.transaction():
        return record_reviews(conn, number(learner), items)


def log_items() -> list[dict[str, Any]]:
    """The real log of one learner, 12,580 reviews of 1,205 cards."""
    first = next(files.reviews()).learner_id
    return [review.item for review in files.reviews() if review.learner_id == first]


def full_replay(conn: Connection) -> dict[tuple[UUID, UUID], CardSummary]:
    """What all reviews in the table come to, by a replay that knows nothing of marks or of earlier summaries."""
    cards: defaultdict[tuple[UUID, UUID], list[Review]] = defaultdict(list)
    for learner_id, card_id, *fields, at in conn.execute(
        "select learner_id, card_id, id, rating, reviewed_at from reviews"
    ):
        cards[learner_id, card_id].append(Review(*fields, at.astimezone(UTC)))
    weights = conn.execute("select weights from fsrs_params where version = 1").fetchone()[0]
    model = scheduler(weights, 0.9)
    return {key: replay(model, reviews) for key, reviews in cards.items()}


def summaries(conn: Connection) -> dict[tuple[UUID, UUID], CardSummary]:
    """The summaries as they are written."""
    rows = conn.execute(f"select learner_id, card_id, {_COLUMNS} from learner_cards")
    return {(learner_id, card_id): CardSummary(*fields) for learner_id, card_id, *fields in rows}


def marks(conn: Connection) -> dict[UUID, tuple[int, str]]:
    """Who is dirty: seq and reason."""
    return {
        id_: (seq, reason) for id_, seq, reason in conn.execute("select learner_id, seq, reason from learner_dirty")
    }
