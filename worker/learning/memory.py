"""What a card's reviews come to, by FSRS-6 (the py-fsrs package). Pure: no SQL, no clock, no chance.

A summary is always made from all reviews of its card. So a review that arrives late is no special case, and any order
of arrival gives the same summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from fsrs import Card, Rating, Scheduler, State

_RATINGS = {rating.value: rating for rating in Rating}


@dataclass(frozen=True, slots=True)
class Review:
    """One review as the model sees it; reviewed_at carries `datetime.UTC` itself, as py-fsrs demands."""

    id: UUID
    rating: int
    reviewed_at: datetime


@dataclass(frozen=True, slots=True)
class CardSummary:
    """A card as its reviews leave it. Stability is in days; a lapse is an Again on a card that had been learned."""

    state: int
    step: int | None
    stability: float
    difficulty: float
    last_review_at: datetime
    due_at: datetime
    reps: int
    lapses: int
    last_rating: int
    reviews_seen: int
    greatest_review_id: UUID


def scheduler(weights: Sequence[float], desired_retention: float) -> Scheduler:
    """The model with these 21 weights. Fuzzing is off: with it, no two replays agree."""
    return Scheduler(parameters=tuple(weights), desired_retention=desired_retention, enable_fuzzing=False)


def replay(model: Scheduler, reviews: Sequence[Review]) -> CardSummary:
    """Replays a card's reviews by (reviewed_at, id), whatever order they are given in; there must be one at least."""
    if not reviews:
        raise ValueError("A card without reviews has no summary.")
    ordered = sorted(reviews, key=lambda review: (review.reviewed_at, review.id))
    # The id is given since py-fsrs sleeps a millisecond to make one, and `due` since it would ask the clock.
    card = Card(card_id=0, due=ordered[0].reviewed_at)
    lapses = 0
    for review in ordered:
        lapses += review.rating == Rating.Again and card.state == State.Review
        card, _ = model.review_card(card, _RATINGS[review.rating], review.reviewed_at)
    assert card.stability is not None
    assert card.difficulty is not None
    assert card.last_review is not None
    return CardSummary(
        state=card.state.value,
        step=card.step,
        stability=card.stability,
        difficulty=card.difficulty,
        last_review_at=card.last_review,
        due_at=card.due,
        reps=len(ordered),
        lapses=lapses,
        last_rating=ordered[-1].rating,
        reviews_seen=len(ordered),
        greatest_review_id=max(review.id for review in ordered),
    )
