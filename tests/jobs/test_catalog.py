"""The catalogue as a whole."""

from __future__ import annotations

from datetime import timedelta

from worker.catalog import KINDS, QUEUES
from worker.engine import kinds


def test_names_are_unique_and_queues_known():
    assert len({kind.name for kind in KINDS}) == len(KINDS)
    assert {kind.queue for kind in KINDS} <= set(QUEUES)


def test_recurring_kinds_run_at_night_in_a_child_with_half_an_hour():
    for kind in KINDS:
        if kind.is_recurring:
            assert (kind.queue, kind.isolation, kind.deadline) == ("night", "process", timedelta(minutes=30))


def test_it_can_be_published_twice(conn):
    for _ in range(2):
        kinds.publish(conn, KINDS, QUEUES)
    published = {kind for (kind,) in conn.execute("select kind from job_kinds")}
    assert published == {kind.name for kind in KINDS}
