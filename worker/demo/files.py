"""Reads the demo's files and says what their rows mean: whose card, which rating, when. No database.

Ids are derived from the sources' own numbers, so that every load anywhere gives the same rows.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import NAMESPACE_OID, UUID, uuid5

from worker.learning.learners import Box, NewCard

_DATA = Path(__file__).parent / "data"
_NAMESPACE = uuid5(NAMESPACE_OID, "nightshift demo")
_LOG_BOX = Box("py-fsrs-log", "One learner's deck (py-fsrs review log)", "deck")
_LOG_LEARNER = uuid5(_NAMESPACE, "learner py-fsrs")
_MONTHS = {"B": 2, "J": 10}


class Submission(NamedTuple):
    """A review on its way in: whose, and what a client would send."""

    learner_id: UUID
    item: dict[str, Any]


def boxes() -> list[Box]:
    """The deck, and a box for each presentation of a module."""
    presentations = {_box_id(row): row for row in _rows("oulad_assessments")}
    return [_LOG_BOX] + [
        Box(box_id, f"Module {row['code_module']}, from {started_at(row['code_presentation']):%B %Y}", "course")
        for box_id, row in sorted(presentations.items())
    ]


def cards() -> list[NewCard]:
    """The deck's cards, and a card for each assessment."""
    deck = dict.fromkeys(row["card_id"] for row in _rows("review_log"))
    return [NewCard(_LOG_BOX.box_id, number, "card", _card_id(_LOG_BOX.box_id, number)) for number in deck] + [
        NewCard(box_id, row["id_assessment"], row["assessment_type"].lower(), _card_id(box_id, row["id_assessment"]))
        for row in _rows("oulad_assessments")
        for box_id in [_box_id(row)]
    ]


def reviews() -> Iterator[Submission]:
    """Every review: the log's, then the submissions that have a score."""
    for number, row in enumerate(_rows("review_log")):
        yield Submission(
            _LOG_LEARNER,
            {
                "id": uuid5(_NAMESPACE, f"review py-fsrs {number}"),
                "card_id": _card_id(_LOG_BOX.box_id, row["card_id"]),
                "rating": int(row["review_rating"]),
                "reviewed_at": datetime.fromisoformat(row["review_time"]),
                "duration_ms": int(row["review_duration"]),
            },
        )
    assessments = {row["id_assessment"]: row for row in _rows("oulad_assessments")}
    for row in _rows("oulad_submissions"):
        if row["score"]:
            assessment = assessments[row["id_assessment"]]
            presentation = assessment["code_presentation"]
            yield Submission(
                uuid5(_NAMESPACE, f"learner oulad {row['id_student']}"),
                {
                    "id": uuid5(_NAMESPACE, f"review oulad {row['id_student']} {row['id_assessment']}"),
                    "card_id": _card_id(_box_id(assessment), row["id_assessment"]),
                    "rating": rating(float(row["score"])),
                    "reviewed_at": started_at(presentation) + timedelta(days=int(row["date_submitted"])),
                },
            )


def rating(score: float) -> int:
    """A score from 0 to 100 as a rating, by the marks at which the university passes (40) and distinguishes (85)."""
    return 1 + (score >= 40) + (score >= 55) + (score >= 85)


def started_at(presentation: str) -> datetime:
    """Noon UTC of the first day of the month in which it began: 2013B in February, 2013J in October."""
    return datetime(int(presentation[:4]), _MONTHS[presentation[4]], 1, 12, tzinfo=UTC)


def _box_id(assessment: dict[str, str]) -> str:
    return f"oulad-{assessment['code_module']}-{assessment['code_presentation']}"


def _card_id(box_id: str, number: str) -> UUID:
    return uuid5(_NAMESPACE, f"card {box_id} {number}")


def _rows(name: str) -> Iterator[dict[str, str]]:
    with gzip.open(_DATA / f"{name}.csv.gz", "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)
