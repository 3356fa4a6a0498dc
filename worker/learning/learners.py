"""Learners, boxes and cards: making them, and asking for a learner to be computed anew. Never commits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from psycopg import Connection

from worker.engine import db
from worker.learning.statements import statement


@dataclass(frozen=True, slots=True)
class Box:
    """A box of cards, by its source's own id."""

    box_id: str
    title: str
    kind: str


@dataclass(frozen=True, slots=True)
class NewCard:
    """A card of a box that exists; `guid` is its source's name for it, unique within the box."""

    box_id: str
    guid: str
    kind: str = "card"
    id: UUID = field(default_factory=uuid4)


def add_learners(conn_or_session: Connection | db.Session, ids: Iterable[UUID]) -> int:
    """Makes learners; returns how many are new."""
    rows = db.connection_of(conn_or_session).execute(statement("learners_add"), {"ids": list(ids)})
    return rows.rowcount


def add_boxes(conn_or_session: Connection | db.Session, boxes: Sequence[Box]) -> int:
    """Makes boxes, or gives those that exist their new title and kind; returns how many there were. No id twice."""
    values = {
        "box_ids": [box.box_id for box in boxes],
        "titles": [box.title for box in boxes],
        "kinds": [box.kind for box in boxes],
    }
    return db.connection_of(conn_or_session).execute(statement("boxes_add"), values).rowcount


def add_cards(conn_or_session: Connection | db.Session, cards: Sequence[NewCard]) -> int:
    """Makes cards; returns how many are new."""
    values = {
        "ids": [card.id for card in cards],
        "box_ids": [card.box_id for card in cards],
        "guids": [card.guid for card in cards],
        "kinds": [card.kind for card in cards],
    }
    return db.connection_of(conn_or_session).execute(statement("cards_add"), values).rowcount


def mark_dirty(conn_or_session: Connection | db.Session, ids: Iterable[UUID]) -> int:
    """Asks for all cards of these learners to be replayed; returns how many of them exist."""
    rows = db.connection_of(conn_or_session).execute(statement("learners_mark"), {"ids": list(ids)})
    return rows.rowcount
