"""From reviews to card summaries and mastery, for a few learners at a time, in the caller's transaction.

Invariant: after it, what is written equals a full replay of every review that was committed before the marks were read;
a mark that was renewed since then stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC
from itertools import groupby
from operator import itemgetter
from typing import Any
from uuid import UUID

from fsrs import Scheduler
from psycopg import Connection

from worker.engine import db
from worker.learning.memory import CardSummary, Review, replay, scheduler
from worker.learning.statements import statement

_SUMMARY = [field.name for field in fields(CardSummary)]


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What one pass did. `skipped` says why learners were left as they were, their marks in place."""

    counts: Counter[str]
    skipped: dict[UUID, str]


@dataclass(frozen=True, slots=True)
class _Learner:
    """Which model a learner's cards are replayed with; its scheduler is None when the parameters are unusable."""

    version: int
    retention: float
    model: Scheduler | str


def refresh(conn: Connection, learner_ids: Sequence[UUID], *, whole: bool = False) -> Refreshed:
    """Brings these learners' summaries and mastery up to their reviews, and clears their marks.

    Only touched cards are replayed, each from all its reviews; with `whole`, or where the mark says so, every card.
    The order is what makes it safe: lock the learners, read the marks, then the reviews, then clear what is unchanged.
    """
    learners = _lock(conn, learner_ids)
    marks = {id_: (seq, reason) for id_, seq, reason in conn.execute(statement("state_marks"), {"ids": list(learners)})}
    skipped = {id_: learner.model for id_, learner in learners.items() if isinstance(learner.model, str)}
    ids = [id_ for id_ in learners if id_ not in skipped]
    everything = [id_ for id_ in ids if whole or marks.get(id_, (0, ""))[1] == "recompute"]
    now = db.now(conn)
    counts: Counter[str] = Counter(learners=len(ids))

    summaries = []
    for learner_id, card_id, reviews in _touched(conn, ids, everything):
        learner = learners[learner_id]
        assert isinstance(learner.model, Scheduler)
        summaries.append((learner_id, card_id, learner, replay(learner.model, reviews)))
        counts["reviews"] += len(reviews)
    counts["cards"] = len(summaries)
    conn.execute(statement("state_summaries"), {**_columns(summaries), "computed_at": now})
    conn.execute(statement("state_gone"), {"whole": everything})
    counts["boxes"] = conn.execute(statement("state_mastery"), {"ids": ids, "as_of": now}).rowcount
    cleared = [(id_, marks[id_][0]) for id_ in ids if id_ in marks]
    conn.execute(statement("state_clear"), {"ids": [id_ for id_, _ in cleared], "seqs": [seq for _, seq in cleared]})
    return Refreshed(counts, skipped)


def _lock(conn: Connection, learner_ids: Sequence[UUID]) -> dict[UUID, _Learner]:
    """Locks the learners that exist, in the order of their ids, and looks their models up."""
    rows = conn.execute(statement("state_lock"), {"ids": list(learner_ids)}).fetchall()
    versions = list({version for _, version, _ in rows})
    weights: dict[int, list[float]] = dict(conn.execute(statement("state_params"), {"versions": versions}).fetchall())
    models: dict[tuple[int, float], Scheduler | str] = {}
    for version, retention in {(version, retention) for _, version, retention in rows}:
        try:
            models[version, retention] = scheduler(weights[version], retention)
        except ValueError as error:
            models[version, retention] = f"fsrs_params version {version} can't be used: {error}"
    return {id_: _Learner(version, retention, models[version, retention]) for id_, version, retention in rows}


def _touched(conn: Connection, ids: list[UUID], everything: list[UUID]) -> Iterator[tuple[UUID, UUID, list[Review]]]:
    """Each touched card with all its reviews. Read in pages: a few learners may have 20,000 reviews each."""
    with conn.cursor(name="touched", scrollable=False) as cursor:
        cursor.itersize = 5000
        cursor.execute(statement("state_reviews"), {"ids": ids, "whole": everything})
        for (learner_id, card_id), rows in groupby(cursor, key=itemgetter(0, 1)):
            # Converted, since the connection gives times in its own zone and py-fsrs takes only datetime.UTC itself.
            yield learner_id, card_id, [Review(id_, rating, at.astimezone(UTC)) for _, _, id_, rating, at in rows]


def _columns(summaries: list[tuple[UUID, UUID, _Learner, CardSummary]]) -> dict[str, list[Any]]:
    """The summaries as arrays, one for each column."""
    return {
        "learner_ids": [learner_id for learner_id, _, _, _ in summaries],
        "card_ids": [card_id for _, card_id, _, _ in summaries],
        "versions": [learner.version for _, _, learner, _ in summaries],
        "retentions": [learner.retention for _, _, learner, _ in summaries],
        **{name: [getattr(summary, name) for _, _, _, summary in summaries] for name in _SUMMARY},
    }
