"""learner-state and learner-recompute as jobs: cursors, kills, leases and what their runs say."""

from __future__ import annotations

import pytest

from tests.jobs import attempts
from tests.learning import sets
from worker.engine import executor
from worker.engine.context import Context
from worker.engine.model import LeaseLost, Outcome
from worker.jobs import learner_state

LEARNERS = 7


class KilledError(Exception):
    """Stands for the end of the process."""


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    monkeypatch.setattr(learner_state, "BATCH", 2)


def fill(conn) -> None:
    sets.add(conn, learner_count=LEARNERS, card_count=3)
    for learner in range(1, LEARNERS + 1):
        sets.record(
            conn, [sets.item(n, card=1 + n % 3, rating=1 + n % 4, hours=n * 30) for n in range(1, 10)], learner=learner
        )


def test_a_run_computes_every_marked_learner_and_says_what_it_did(url, conn):
    fill(conn)
    counts = attempts.run(url, conn, "learner-state")
    assert counts == {"learners": 7, "cards": 21, "reviews": 63, "boxes": 7, "skipped": 0}
    assert sets.marks(conn) == {}
    assert sets.summaries(conn) == sets.full_replay(conn)
    assert conn.execute("select count(*), sum(seen), sum(cards_total) from mastery").fetchone() == (7, 21, 21)


def test_a_run_with_nothing_to_do_says_so(url, conn):
    counts = attempts.run(url, conn, "learner-state")
    assert counts == {"learners": 0, "cards": 0, "reviews": 0, "boxes": 0, "skipped": 0}


@pytest.mark.parametrize("batch", range(4))
@pytest.mark.parametrize("moment", ["before its commit", "after its commit"])
def test_a_kill_at_any_batch_loses_that_batch_at_most_and_the_next_attempt_completes_the_rest(
    url, conn, monkeypatch, batch, moment
):
    fill(conn)
    attempts.ask(conn, "learner-state")
    real, calls = Context.checkpoint, []

    def checkpoint(self, cursor, in_transaction=None):
        calls.append(cursor)
        if moment == "before its commit" and len(calls) == batch + 1:
            raise KilledError
        real(self, cursor, in_transaction)

    def raise_if_cancelled(self):
        if moment == "after its commit" and len(calls) == batch + 1:
            raise KilledError

    with monkeypatch.context() as patch, attempts.claimed(url, conn, "learner-state") as ctx:
        patch.setattr(Context, "checkpoint", checkpoint)
        patch.setattr(Context, "raise_if_cancelled", raise_if_cancelled)
        with pytest.raises(KilledError):
            ctx.kind.run(ctx, ctx.kind.args())
        attempts.give_back(conn, ctx)
    committed = batch + (moment == "after its commit")
    assert len(sets.marks(conn)) == max(0, LEARNERS - 2 * committed)
    with attempts.claimed(url, conn, "learner-state") as ctx:
        counts = ctx.kind.run(ctx, ctx.kind.args())
    assert counts == {"learners": 7, "cards": 21, "reviews": 63, "boxes": 7, "skipped": 0}  # of both attempts together
    assert sets.marks(conn) == {}
    assert sets.summaries(conn) == sets.full_replay(conn)


def test_a_lost_lease_stops_the_run_and_takes_its_open_batch_back(url, conn, monkeypatch):
    fill(conn)
    attempts.ask(conn, "learner-state")
    real, calls = learner_state.refresh, []

    def refresh(*args):
        calls.append(args)
        if len(calls) == 3:  # another owner claims it while the third batch is being computed
            conn.execute("update jobs set lease = lease + 1")
        return real(*args)

    monkeypatch.setattr(learner_state, "refresh", refresh)
    with attempts.claimed(url, conn, "learner-state") as ctx, pytest.raises(LeaseLost):
        ctx.kind.run(ctx, ctx.kind.args())
    assert len(sets.marks(conn)) == LEARNERS - 4
    assert len({learner for learner, _ in sets.summaries(conn)}) == 4


def test_running_again_changes_nothing(url, conn):
    fill(conn)
    attempts.run(url, conn, "learner-state")
    before = sets.summaries(conn)
    conn.execute("insert into learner_dirty (learner_id) select id from learners")
    counts = attempts.run(url, conn, "learner-state")
    assert counts["reviews"] == 63  # a mark made by hand replays all
    assert sets.summaries(conn) == before


def test_learners_that_can_not_be_computed_are_counted_logged_and_left_marked(url, conn):
    fill(conn)
    conn.execute("insert into fsrs_params (version, weights) values (2, array_fill(-1.0::float8, array[21]))")
    conn.execute("update learners set fsrs_params_version = 2 where id = %s", (sets.number(4),))
    attempts.ask(conn, "learner-state")
    with attempts.claimed(url, conn, "learner-state") as ctx:
        counts = ctx.kind.run(ctx, ctx.kind.args())
        assert (counts["learners"], counts["skipped"]) == (6, 1)
        assert str(sets.number(4)) in ctx.log_tail()
    assert list(sets.marks(conn)) == [sets.number(4)]


def test_recompute_makes_one_learner_anew_and_completes_in_the_same_transaction(url, conn):
    fill(conn)
    attempts.run(url, conn, "learner-state")
    conn.execute("update learner_cards set stability = 99")
    counts = attempts.run(url, conn, "learner-recompute", {"learner_id": str(sets.number(3))})
    assert (counts["learners"], counts["cards"], counts["reviews"]) == (1, 3, 9)
    mended = {learner for (learner, _), summary in sets.summaries(conn).items() if summary.stability != 99}
    assert mended == {sets.number(3)}


def test_recompute_under_a_lost_lease_leaves_the_summaries_as_they_were(url, conn):
    fill(conn)
    attempts.ask(conn, "learner-recompute", {"learner_id": str(sets.number(1))})
    with attempts.claimed(url, conn, "learner-recompute") as ctx:
        conn.execute("update jobs set lease = lease + 1")
        assert executor.attempt(ctx).outcome is None
    assert sets.summaries(conn) == {}
    assert len(sets.marks(conn)) == LEARNERS


@pytest.mark.parametrize(("learner", "words"), [(99, "there is no learner"), (1, "can't be used")])
def test_recompute_fails_for_good_and_with_words_when_trying_again_is_no_use(url, conn, learner, words):
    fill(conn)
    conn.execute("insert into fsrs_params (version, weights) values (2, array_fill(-1.0::float8, array[21]))")
    conn.execute("update learners set fsrs_params_version = 2 where id = %s", (sets.number(1),))
    attempts.ask(conn, "learner-recompute", {"learner_id": str(sets.number(learner))})
    with attempts.claimed(url, conn, "learner-recompute") as ctx:
        result = executor.attempt(ctx)
    assert (result.outcome, result.is_final) == (Outcome.FAILED, True)
    assert words in (result.error or "")
    assert conn.execute("select count(*) from jobs").fetchone() == (1,)  # its transaction completed nothing
