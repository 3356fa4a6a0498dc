"""From reviews to summaries and mastery: always what a full replay gives, and no mark lost on the way."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from fsrs import Card, Scheduler, State
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.learning import sets
from worker.engine import db
from worker.learning import learners, state
from worker.learning.reviews import record_reviews

LEARNERS, CARDS = 2, 3
EVERYONE = [sets.number(n) for n in range(1, LEARNERS + 1)]

one_review = st.tuples(
    st.integers(1, LEARNERS),
    st.integers(1, CARDS),
    st.integers(1, 4),
    st.one_of(st.integers(0, 72), st.integers(0, 20_000)),
)
# Reviews in the order of their arrival, with passes of the job between them: None is a pass.
arrivals = st.lists(st.one_of(one_review, one_review, one_review, st.none()), max_size=40)


def refresh(conn: psycopg.Connection, *, whole: bool = False) -> state.Refreshed:
    with conn.transaction():
        return state.refresh(conn, EVERYONE, whole=whole)


def mastery(conn: psycopg.Connection) -> list[tuple]:
    return rounded(
        conn.execute(
            "select learner_id, box_id, cards_total, seen, known, due, mean_retrievability from mastery order by 1, 2"
        )
    )


def rounded(rows: Iterable[tuple]) -> list[tuple]:
    """The order in which recall is added up may differ, and with it the last digits."""
    return [(*fields, round(recall, 12)) for *fields, recall in rows]


def during_the_first_replay(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Has something happen after the marks and reviews were read and before anything is written."""
    real, acts = state.replay, [act]

    def replay(model, reviews):
        if acts:
            acts.pop()()
        return real(model, reviews)

    monkeypatch.setattr(state, "replay", replay)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(events=arrivals)
def test_any_order_of_arrival_and_any_passes_between_equal_one_full_replay(conn, events):
    with conn.transaction(force_rollback=True):
        sets.add(conn, learner_count=LEARNERS, card_count=CARDS)
        for n, event in enumerate(events, start=1):
            if event is None:
                refresh(conn)
            else:
                learner, card, rating, hours = event
                sets.record(conn, [sets.item(n, card=card, rating=rating, hours=hours - 15_000)], learner=learner)
        refresh(conn)
        assert sets.summaries(conn) == sets.full_replay(conn)
        assert sets.marks(conn) == {}
        stepwise, as_of = mastery(conn), conn.execute("select max(as_of) from mastery").fetchone()[0]
        conn.execute("delete from learner_cards")
        refresh(conn, whole=True)
        assert stepwise == rounded(conn.execute("select * from mastery_at(%s, %s) order by 1, 2", (EVERYONE, as_of)))


@pytest.mark.parametrize("seed", range(3))
def test_the_real_log_split_at_random_and_shuffled_equals_its_full_replay(conn, seed):
    chance = random.Random(seed)
    items = sets.log_items()
    sets.add(conn)
    learners.add_cards(conn, [learners.NewCard("box", str(id_), id=id_) for id_ in {item["card_id"] for item in items}])
    chance.shuffle(items)
    cuts = sorted(chance.sample(range(len(items)), 4))
    for start, end in zip([0, *cuts], [*cuts, len(items)], strict=True):
        sets.record(conn, items[start:end])
        refresh(conn)
    assert len(sets.summaries(conn)) == 1205
    assert sets.summaries(conn) == sets.full_replay(conn)


def test_only_touched_cards_are_replayed(conn):
    sets.add(conn, card_count=3)
    sets.record(conn, [sets.item(n, card=n) for n in (1, 2, 3)])
    assert refresh(conn).counts["cards"] == 3
    sets.record(conn, [sets.item(4, card=2, hours=24), sets.item(5, card=2, hours=-24)])
    counts = refresh(conn).counts
    assert (counts["cards"], counts["reviews"]) == (1, 3)
    assert refresh(conn).counts["cards"] == 0


def test_a_review_that_comes_while_computing_keeps_the_mark(url, conn, monkeypatch):
    sets.add(conn)
    sets.record(conn, [sets.item(1)])
    with db.connect(url, "phone") as phone:
        # It isn't held up either: the lock of the computation lets new reviews pass.
        during_the_first_replay(monkeypatch, lambda: sets.record(phone, [sets.item(2, hours=30)]) and None)
        phone.execute("set lock_timeout = '2s'")
        refresh(conn)
    assert list(sets.marks(conn)) == [sets.number(1)]
    assert sets.summaries(conn)[sets.number(1), sets.number(1)].reviews_seen == 1
    refresh(conn)
    assert sets.marks(conn) == {}
    assert sets.summaries(conn) == sets.full_replay(conn)


def test_a_review_that_is_not_committed_yet_keeps_the_mark(url, conn):
    sets.add(conn)
    sets.record(conn, [sets.item(1)])
    with db.connect(url, "phone", autocommit=False) as phone, db.connect(url, "job") as job:
        record_reviews(phone, sets.number(1), [sets.item(2, hours=30)])
        computing = threading.Thread(target=refresh, args=(job,))
        computing.start()
        while not blocked(conn, job):
            assert computing.is_alive()
        phone.commit()
        computing.join()
    assert list(sets.marks(conn)) == [sets.number(1)]
    refresh(conn)
    assert sets.summaries(conn)[sets.number(1), sets.number(1)].reviews_seen == 2


def blocked(conn: psycopg.Connection, other: psycopg.Connection) -> bool:
    return conn.execute("select cardinality(pg_blocking_pids(%s)) > 0", (other.info.backend_pid,)).fetchone()[0]


def test_one_learner_is_computed_once_at_a_time(url, conn, monkeypatch):
    """Without the lock, the slower of two could write an older summary over a newer one whose mark is gone already."""
    sets.add(conn)
    sets.record(conn, [sets.item(1)])
    outcomes = []
    with db.connect(url, "second") as second:
        second.execute("set lock_timeout = '50ms'")

        def compute_too() -> None:
            try:
                refresh(second)
            except psycopg.errors.LockNotAvailable:
                outcomes.append("waited")

        during_the_first_replay(monkeypatch, compute_too)
        refresh(conn)
    assert outcomes == ["waited"]


def test_a_mark_made_by_hand_replays_every_card_and_takes_away_what_has_no_reviews(conn):
    sets.add(conn, card_count=3)
    sets.record(conn, [sets.item(n, card=n) for n in (1, 2, 3)])
    refresh(conn)
    conn.execute("update learner_cards set stability = 99 where card_id = %s", (sets.number(1),))
    conn.execute("delete from reviews where card_id = %s", (sets.number(3),))
    refresh(conn)
    assert sets.summaries(conn) != sets.full_replay(conn)  # counts agree: nothing to see without a mark
    assert learners.mark_dirty(conn, [sets.number(1), sets.number(77)]) == 1
    sets.record(conn, [sets.item(9, card=2, hours=1)])
    assert sets.marks(conn)[sets.number(1)][1] == "recompute"  # a review doesn't lower it
    refresh(conn)
    assert sets.summaries(conn) == sets.full_replay(conn)
    assert mastery(conn)[0][2:4] == (3, 2)


def test_mastery_of_a_box_that_lost_its_last_reviewed_card_goes(conn):
    sets.add(conn)
    sets.record(conn, [sets.item(1)])
    refresh(conn)
    assert len(mastery(conn)) == 1
    conn.execute("update cards set retired_at = clock_now()")
    refresh(conn)
    assert mastery(conn) == []


def test_changed_parameters_of_a_learner_replay_all_their_cards(conn):
    sets.add(conn, learner_count=2, card_count=2)
    for learner in (1, 2):
        sets.record(conn, [sets.item(1, rating=4), sets.item(2, card=2, rating=4)], learner=learner)
    refresh(conn)
    before = sets.summaries(conn)
    conn.execute("update learners set desired_retention = 0.8 where id = %s", (sets.number(2),))
    assert refresh(conn).counts["cards"] == 2
    after = sets.summaries(conn)
    for card in (1, 2):
        assert after[sets.number(1), sets.number(card)] == before[sets.number(1), sets.number(card)]
        assert after[sets.number(2), sets.number(card)].due_at > before[sets.number(2), sets.number(card)].due_at


def test_a_learner_whose_parameters_are_unusable_is_left_marked_and_stops_no_one(conn):
    sets.add(conn, learner_count=2)
    conn.execute("insert into fsrs_params (version, weights) values (2, array_fill(-1.0::float8, array[21]))")
    conn.execute("update learners set fsrs_params_version = 2 where id = %s", (sets.number(1),))
    for learner in (1, 2):
        sets.record(conn, [sets.item(1)], learner=learner)
    refreshed = refresh(conn)
    assert "version 2" in refreshed.skipped[sets.number(1)]
    assert refreshed.counts["learners"] == 1
    assert list(sets.marks(conn)) == [sets.number(1)]
    assert list(sets.summaries(conn)) == [(sets.number(2), sets.number(1))]


def test_a_session_in_another_zone_computes_the_same(conn):
    sets.add(conn)
    sets.record(conn, [sets.item(n, hours=n * 20) for n in range(1, 9)])
    conn.execute("set timezone = 'America/New_York'")
    refresh(conn)
    assert sets.summaries(conn) == sets.full_replay(conn)


def test_mastery_counts_cards_seen_known_and_due_and_averages_recall_over_all(conn):
    sets.add(conn, card_count=5)
    now = db.now(conn)
    learners.add_cards(conn, [learners.NewCard("box", "retired", id=sets.number(6))])
    ago = {1: 400, 2: 0.1, 3: 2, 6: 1}  # card -> days since its only review
    ratings = {1: 1, 2: 4, 3: 4, 6: 4}
    items = [
        {**sets.item(n, card=n, rating=ratings[n]), "reviewed_at": now - timedelta(days=days)}
        for n, days in ago.items()
    ]
    # Two more make card 3 known: stability grows with each success after a time.
    items += [
        {**sets.item(10 + n, card=3, rating=4), "reviewed_at": now - timedelta(days=days)}
        for n, days in ((1, 90), (2, 45))
    ]
    sets.record(conn, items)
    conn.execute("update cards set retired_at = clock_now() where id = %s", (sets.number(6),))
    refresh(conn)
    (row,) = conn.execute("select cards_total, seen, known, due, mean_retrievability, as_of from mastery").fetchall()
    assert row[:4] == (5, 3, 1, 1)
    model = Scheduler(enable_fuzzing=False)
    recalls = []
    for (_, card), summary in sets.full_replay(conn).items():
        if card != sets.number(6):
            known = Card(
                1,
                State(summary.state),
                summary.step,
                summary.stability,
                summary.difficulty,
                row[5],
                summary.last_review_at,
            )
            recalls.append(model.get_card_retrievability(known, row[5]))
    assert row[4] == pytest.approx(sum(recalls) / 5, abs=1e-9)
    later = conn.execute(
        "select due, mean_retrievability from mastery_at(%s, clock_now() + interval '10 years')", (EVERYONE,)
    )
    due, recall = later.fetchone()
    assert due == 3
    assert recall < row[4]


def test_retrievability_in_sql_is_py_fsrs_own(conn):
    model = Scheduler(enable_fuzzing=False)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    for days, stability in itertools.product((-1, 0, 0.99, 1, 1.5, 30, 365, 36_500), (0.001, 0.212, 3.7, 21, 36_500)):
        card = Card(1, State.Review, None, stability, 5, at, at)
        expected = model.get_card_retrievability(card, at + timedelta(days=days))
        found = conn.execute("select retrievability(0.1542, %s, %s)", (stability, days)).fetchone()[0]
        assert found == pytest.approx(expected, rel=1e-12), (days, stability)


def test_the_first_parameters_in_the_database_are_py_fsrs_defaults(conn):
    weights = conn.execute("select weights from fsrs_params where version = 1").fetchone()[0]
    assert tuple(weights) == Scheduler().parameters
