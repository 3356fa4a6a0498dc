"""The replay against py-fsrs itself, on a real learner's log."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from fsrs import Card, Rating, ReviewLog, Scheduler, State

from tests.learning import sets
from worker.learning.memory import Review, replay

MODEL = Scheduler(enable_fuzzing=False)


def log_by_card() -> dict[UUID, list[Review]]:
    cards: defaultdict[UUID, list[Review]] = defaultdict(list)
    for item in sets.log_items():
        cards[item["card_id"]].append(Review(item["id"], item["rating"], item["reviewed_at"]))
    return cards


def test_every_card_of_the_real_log_ends_as_py_fsrs_reschedules_it():
    cards = log_by_card()
    assert (len(cards), sum(len(reviews) for reviews in cards.values())) == (1205, 12_580)
    for reviews in cards.values():
        logs = [ReviewLog(1, Rating(review.rating), review.reviewed_at, None) for review in reviews]
        expected = MODEL.reschedule_card(Card(card_id=1, due=reviews[0].reviewed_at), logs)
        summary = replay(MODEL, reviews)
        assert (summary.state, summary.step) == (expected.state.value, expected.step)
        assert (summary.stability, summary.difficulty) == (expected.stability, expected.difficulty)
        assert (summary.last_review_at, summary.due_at) == (expected.last_review, expected.due)


def test_reps_count_reviews_and_lapses_count_forgetting_what_had_been_learned():
    for reviews in log_by_card().values():
        card, lapses = Card(card_id=1, due=reviews[0].reviewed_at), 0
        for review in reviews:
            if card.state is State.Review and review.rating == 1:
                lapses += 1
            card, _ = MODEL.review_card(card, Rating(review.rating), review.reviewed_at)
        summary = replay(MODEL, reviews)
        assert (summary.reps, summary.reviews_seen, summary.lapses) == (len(reviews), len(reviews), lapses)
        assert summary.last_rating == reviews[-1].rating
        assert summary.greatest_review_id == max(review.id for review in reviews)


def test_an_again_on_a_new_card_is_no_lapse_and_one_on_a_learned_card_is():
    at = datetime(2026, 1, 1, tzinfo=UTC)
    learning = [Review(UUID(int=n), 1, at + timedelta(days=n)) for n in range(3)]
    assert replay(MODEL, learning).lapses == 0
    learned = [Review(UUID(int=1), 4, at), Review(UUID(int=2), 1, at + timedelta(days=9))]
    assert replay(MODEL, learned).lapses == 1


def test_the_order_in_which_reviews_are_given_does_not_matter():
    chance = random.Random(7)
    for reviews in log_by_card().values():
        shuffled = chance.sample(reviews, len(reviews))
        assert replay(MODEL, shuffled) == replay(MODEL, reviews)


def test_reviews_of_the_same_instant_are_taken_by_their_ids():
    at = datetime(2026, 1, 1, tzinfo=UTC)
    again, easy = Review(UUID(int=1), 1, at), Review(UUID(int=2), 4, at)
    assert replay(MODEL, [easy, again]) == replay(MODEL, [again, easy])
    assert replay(MODEL, [easy, again]).last_rating == 4


def test_a_card_without_reviews_has_no_summary():
    with pytest.raises(ValueError, match="without reviews"):
        replay(MODEL, [])
