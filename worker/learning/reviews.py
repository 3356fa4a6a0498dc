"""Taking reviews in. A bad item never loses a good one, and an upload that is sent twice counts once.

The learner's dirty mark is not made here: the table makes it, in the statement that adds the reviews.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

import msgspec
from psycopg import Connection

from worker.engine import db
from worker.engine.model import NightshiftError
from worker.learning.statements import statement

_AHEAD = timedelta(days=1)  # what a wrong time zone or a bad clock may make up; more is no time at all
_EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)


Items = Sequence[Mapping[str, Any]]


class UnknownLearnerError(NightshiftError, LookupError):
    """Reviews were given for a learner that isn't there."""


class ReviewItem(msgspec.Struct, frozen=True):
    """What a client says of one review. Other fields are passed over, so that newer clients can say more."""

    id: UUID
    card_id: UUID
    rating: Annotated[int, msgspec.Meta(ge=1, le=4)]
    reviewed_at: Annotated[datetime, msgspec.Meta(tz=True)]
    duration_ms: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None


class Status(StrEnum):
    """What became of one item."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one item, and why when it was refused."""

    status: Status
    reason: str | None = None


# Both by the item's place in the upload.
Checked = dict[int, ReviewItem]
Results = dict[int, Result]


@dataclass(frozen=True, slots=True)
class Recorded:
    """What became of each item, in the order given; `clamped` counts times that were set back to the server's."""

    results: list[Result]
    clamped: int

    def count(self, status: Status) -> int:
        """How many items ended so."""
        return sum(result.status is status for result in self.results)


def record_reviews(conn_or_session: Connection | db.Session, learner_id: UUID, items: Items) -> Recorded:
    """Adds a learner's reviews in the caller's transaction; raises UnknownLearnerError when there is no such learner.

    A time up to a day ahead of the server's is kept; one further ahead is set to the server's, since the review
    happened and its time can't have.
    """
    conn = db.connection_of(conn_or_session)
    row = conn.execute(statement("reviews_learner"), {"learner_id": learner_id}).fetchone()
    if row is None:
        raise UnknownLearnerError(f"There is no learner {learner_id}: add the learner first.")
    results: Results = {}
    checked, clamped = _check(items, row[0], results)
    checked = _drop_unknown_cards(conn, checked, results)
    fresh = _drop_repeated(checked, results)
    added = _insert(conn, learner_id, list(fresh.values()))
    _explain_present(conn, learner_id, {at: item for at, item in fresh.items() if item.id not in added}, results)
    for at, item in fresh.items():
        if item.id in added:
            results[at] = Result(Status.ACCEPTED)
    return Recorded([results[at] for at in range(len(items))], clamped)


def _check(items: Items, now: datetime, results: Results) -> tuple[Checked, int]:
    """The items that are well formed, by their place, with times in UTC; how many times were set back."""
    checked: Checked = {}
    clamped = 0
    for at, raw in enumerate(items):
        try:
            item = msgspec.convert(raw, ReviewItem)
        except msgspec.ValidationError as error:
            results[at] = Result(Status.REFUSED, str(error))
            continue
        if item.reviewed_at < _EARLIEST:
            results[at] = Result(Status.REFUSED, "The time lies before the year 2000 - at `$.reviewed_at`")
            continue
        # Compared before it is converted: the last hours of the year 9999 have no UTC.
        is_ahead = item.reviewed_at > now + _AHEAD
        clamped += is_ahead
        checked[at] = msgspec.structs.replace(item, reviewed_at=(now if is_ahead else item.reviewed_at).astimezone(UTC))
    return checked, clamped


def _drop_unknown_cards(conn: Connection, checked: Checked, results: Results) -> Checked:
    rows = conn.execute(statement("reviews_cards"), {"card_ids": list({item.card_id for item in checked.values()})})
    known = set(db.column(rows))
    results.update(
        (at, Result(Status.REFUSED, f"There is no card {item.card_id} - at `$.card_id`"))
        for at, item in checked.items()
        if item.card_id not in known
    )
    return {at: item for at, item in checked.items() if item.card_id in known}


def _drop_repeated(checked: Checked, results: Results) -> Checked:
    """Keeps the first item of each id."""
    first: dict[UUID, ReviewItem] = {}
    fresh = {}
    for at, item in checked.items():
        if first.setdefault(item.id, item) is item:
            fresh[at] = item
        else:
            results[at] = _compare(item, first[item.id].card_id, first[item.id].rating)
    return fresh


def _insert(conn: Connection, learner_id: UUID, items: list[ReviewItem]) -> set[UUID]:
    """Adds them by arrays, one parameter a column: no number of items is too many for one statement."""
    if not items:
        return set()
    values = {
        "learner_id": learner_id,
        "ids": [item.id for item in items],
        "card_ids": [item.card_id for item in items],
        "ratings": [item.rating for item in items],
        "reviewed_at": [item.reviewed_at for item in items],
        "durations": [item.duration_ms for item in items],
    }
    return set(db.column(conn.execute(statement("reviews_add"), values)))


def _explain_present(conn: Connection, learner_id: UUID, left: Checked, results: Results) -> None:
    if not left:
        return
    values = {"learner_id": learner_id, "ids": [item.id for item in left.values()]}
    kept = {id_: (card_id, rating) for id_, card_id, rating in conn.execute(statement("reviews_present"), values)}
    results.update((at, _compare(item, *kept[item.id])) for at, item in left.items())


def _compare(item: ReviewItem, card_id: UUID, rating: int) -> Result:
    """A review that is known already, or another one under an id that is taken."""
    if (item.card_id, item.rating) == (card_id, rating):
        return Result(Status.DUPLICATE)
    return Result(Status.REFUSED, "The id names another review already - at `$.id`")
