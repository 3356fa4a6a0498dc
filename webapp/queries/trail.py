"""Reads of the audit trail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from webapp.models import OperatorAction
from webapp.queries.access import Db

PAGE = 50


@dataclass(frozen=True, slots=True)
class Trail:
    """A page of actions, the youngest first, and the id where the next page begins."""

    rows: Sequence[OperatorAction]
    next: int | None


def actions(db: Db, *, before: int | None = None, target: str | None = None) -> Trail:
    """What operators did, and what they were refused."""
    query: Any = select(OperatorAction)
    if target is not None:
        query = query.where(OperatorAction.target == target)
    if before is not None:
        query = query.where(OperatorAction.id < before)
    found = db.execute(query.order_by(OperatorAction.id.desc()).limit(PAGE + 1)).scalars().all()
    return Trail(found[:PAGE], found[PAGE - 1].id if len(found) > PAGE else None)
