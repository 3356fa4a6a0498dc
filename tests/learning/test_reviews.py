"""Taking reviews in: what is checked, what is idempotent, and the mark that every new review leaves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import psycopg
import pytest

from tests.learning import sets
from worker.engine import db
from worker.learning.learners import NewCard, add_cards, add_learners
from worker.learning.reviews import Status, UnknownLearnerError, record_reviews


def test_bad_items_lose_no_good_ones_and_each_says_what_was_wrong(conn):
    sets.add(conn)
    good = sets.item(1)
    items = [
        good,
        {**good, "id": "not an id"},
        {**good, "id": sets.number(2), "rating": 5},
        {**good, "id": sets.number(3), "rating": True},
        {**good, "id": sets.number(4), "reviewed_at": datetime(2026, 1, 5, 8)},  # noqa: DTZ001
        {**good, "id": sets.number(5), "reviewed_at": "yesterday"},
        {**good, "id": sets.number(6), "reviewed_at": datetime(1970, 1, 1, tzinfo=UTC)},
        {**good, "id": sets.number(7), "card_id": sets.number(99)},
        {**good, "id": sets.number(8), "duration_ms": -1},
        {name: good[name] for name in ("id", "card_id", "rating")},
        ["a list"],
        {**good, "id": str(sets.number(9)), "reviewed_at": "2026-01-05T09:00:00+01:00", "from a newer app": 1},
    ]
    recorded = sets.record(conn, items)
    words = ["$.id", "$.rating", "$.rating", "$.reviewed_at", "$.reviewed_at", "year 2000", "no card", "$.duration_ms"]
    for result, word in zip(recorded.results[1:9], words, strict=True):
        assert result.status is Status.REFUSED
        assert word in (result.reason or "")
    assert "reviewed_at" in (recorded.results[9].reason or "")
    assert "array" in (recorded.results[10].reason or "")
    assert [recorded.count(status) for status in Status] == [2, 0, 10]
    rows = conn.execute("select id, rating, reviewed_at from reviews order by id").fetchall()
    assert rows == [(sets.number(1), 3, sets.START), (sets.number(9), 3, sets.START)]


def test_an_upload_sent_twice_counts_once_and_its_second_answer_is_duplicate(conn):
    sets.add(conn)
    items = [sets.item(n) for n in range(1, 6)]
    assert sets.record(conn, items).count(Status.ACCEPTED) == 5
    again = sets.record(conn, [*items, sets.item(6), sets.item(6)])
    assert [again.count(status) for status in Status] == [1, 6, 0]
    assert conn.execute("select count(*) from reviews").fetchone() == (6,)


def test_an_id_that_names_another_review_is_refused_and_changes_nothing(conn):
    sets.add(conn, card_count=2)
    sets.record(conn, [sets.item(1, rating=3)])
    recorded = sets.record(conn, [sets.item(1, rating=1), sets.item(1, card=2), sets.item(2), sets.item(2, rating=4)])
    assert [result.status.value for result in recorded.results] == ["refused", "refused", "accepted", "refused"]
    assert conn.execute("select card_id, rating from reviews where id = %s", (sets.number(1),)).fetchone() == (
        sets.number(1),
        3,
    )


def test_two_learners_may_use_the_same_review_id(conn):
    sets.add(conn, learner_count=2)
    assert sets.record(conn, [sets.item(1)], learner=1).count(Status.ACCEPTED) == 1
    assert sets.record(conn, [sets.item(1)], learner=2).count(Status.ACCEPTED) == 1


def test_a_time_within_a_day_ahead_is_kept_and_one_beyond_is_set_to_the_servers(conn):
    sets.add(conn)
    now = db.now(conn)
    near, far = now + timedelta(hours=20), now + timedelta(days=400)
    last = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone(timedelta(hours=-23)))
    items = [{**sets.item(n), "reviewed_at": at} for n, at in enumerate((near, far, last), start=1)]
    recorded = sets.record(conn, items)
    assert (recorded.count(Status.ACCEPTED), recorded.clamped) == (3, 2)
    kept = [at for (at,) in conn.execute("select reviewed_at from reviews order by id")]
    assert kept[0] == near
    assert all(now <= at <= db.now(conn) for at in kept[1:])


def test_an_unknown_learner_is_an_error_with_words(conn):
    with pytest.raises(UnknownLearnerError, match="There is no learner"):
        sets.record(conn, [sets.item(1)], learner=7)


def test_more_items_than_a_statement_has_parameters_go_in_at_once(conn):
    sets.add(conn)
    items = [sets.item(n) for n in range(1, 70_001)]
    assert sets.record(conn, items).count(Status.ACCEPTED) == 70_000


def test_no_items_are_no_work_and_no_mark(conn):
    sets.add(conn)
    assert sets.record(conn, []).results == []
    assert sets.marks(conn) == {}


def test_every_new_review_marks_its_learner_with_a_greater_seq(conn):
    sets.add(conn, learner_count=2)
    seqs = []
    for n in range(1, 4):
        sets.record(conn, [sets.item(n)])
        seqs.append(sets.marks(conn)[sets.number(1)][0])
    assert seqs == sorted(set(seqs))
    sets.record(conn, [sets.item(3)])
    assert sets.marks(conn) == {sets.number(1): (seqs[-1], "review")}  # a duplicate is nothing new


def test_the_mark_stands_or_falls_with_the_review(conn):
    sets.add(conn)
    with conn.transaction(force_rollback=True):
        record_reviews(conn, sets.number(1), [sets.item(1)])
        assert sets.marks(conn)
    assert sets.marks(conn) == {}
    conn.execute(
        "insert into reviews (learner_id, id, card_id, rating, reviewed_at) values (%s, %s, %s, 3, '2026-01-01 00:00+00')",
        (sets.number(1), sets.number(1), sets.number(1)),
    )
    assert list(sets.marks(conn)) == [sets.number(1)]  # plain SQL marks as well


@pytest.mark.parametrize("at", ["infinity", "-infinity", "1999-12-31 23:59:59+00", "2200-01-01 00:00:00+00"])
def test_plain_sql_can_not_put_in_a_time_that_no_replay_can_bear(conn, at):
    sets.add(conn)
    with pytest.raises(psycopg.errors.CheckViolation):
        conn.execute(
            "insert into reviews (learner_id, id, card_id, rating, reviewed_at) values (%s, %s, %s, 3, %s)",
            (sets.number(1), sets.number(1), sets.number(1), at),
        )


def test_cards_and_learners_that_exist_stay_as_they_are(conn):
    sets.add(conn)
    assert add_learners(conn, [sets.number(1), sets.number(2)]) == 1
    assert add_cards(conn, [NewCard("box", "1"), NewCard("box", "new")]) == 1
    assert conn.execute("select id from cards where guid = '1'").fetchone() == (UUID(int=1),)
