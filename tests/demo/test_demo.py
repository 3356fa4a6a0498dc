"""The demo: real data, exact counts, and a load that can be killed, repeated and raced."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg
import pytest

from tests.jobs import attempts
from tests.learning import sets
from worker import demo
from worker.catalog import KINDS
from worker.demo import files, loader

COUNTS = {"learners": 546, "boxes": 23, "cards": 1411, "reviews": 16_585}
NOTHING = dict.fromkeys(COUNTS, 0)


def in_tables(conn) -> dict[str, int]:
    names = {"learners": "learners", "boxes": "content_boxes", "cards": "cards", "reviews": "reviews"}
    return {key: conn.execute(f"select count(*) from {table}").fetchone()[0] for key, table in names.items()}


def test_it_loads_once_and_a_second_load_does_nothing(url, conn):
    assert demo.load(url) == COUNTS
    assert in_tables(conn) == COUNTS
    assert demo.load(url) == NOTHING
    assert in_tables(conn) == COUNTS


def test_what_it_holds_is_what_its_sources_say(url, conn):
    demo.load(url)
    rows = conn.execute(
        "select box_id = 'py-fsrs-log', rating, count(*) from reviews r join cards c on c.id = r.card_id group by 1, 2"
    )
    assert {row[:2]: row[2] for row in rows} == {
        (True, 1): 3676, (True, 2): 1, (True, 3): 8903,
        (False, 1): 145, (False, 2): 306, (False, 3): 2121, (False, 4): 1433,
    }  # fmt: skip
    first, last = conn.execute(
        "select min(reviewed_at), max(reviewed_at) from reviews r join cards c on c.id = r.card_id where box_id = 'py-fsrs-log'"
    ).fetchone()
    assert (f"{first:%Y-%m-%d}", f"{last:%Y-%m-%d}") == ("2024-03-29", "2024-10-06")


def test_its_first_night_computes_it_all(url, conn):
    demo.load(url)
    due = {kind for (kind,) in conn.execute("select kind from jobs where status = 'queued' and run_at <= clock_now()")}
    assert due == {kind.name for kind in KINDS if kind.is_recurring} == {"learner-state", "upkeep", "retention"}
    counts = attempts.run(url, conn, "learner-state")
    assert counts == {"learners": 546, "cards": 5210, "reviews": 16_585, "boxes": 609, "skipped": 0}
    assert sets.summaries(conn) == sets.full_replay(conn)
    assert sets.marks(conn) == {}


def test_a_load_that_was_killed_left_nothing_and_the_next_does_it_all(url, conn, monkeypatch):
    def kill(loading: psycopg.Connection) -> None:
        conn.execute("select pg_terminate_backend(%s)", (loading.info.backend_pid,))
        loading.execute("select 1")

    with monkeypatch.context() as patch:
        patch.setattr(loader, "start_night", kill)
        with pytest.raises(psycopg.OperationalError):
            demo.load(url)
    assert in_tables(conn) == NOTHING
    assert demo.load(url) == COUNTS


def test_two_loads_at_once_load_once(url, conn):
    results = []
    threads = [threading.Thread(target=lambda: results.append(demo.load(url))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(result["reviews"] for result in results) == [0, 16_585]
    assert in_tables(conn) == COUNTS


def test_a_product_that_has_learners_is_left_alone(url, conn):
    sets.add(conn)
    assert demo.load(url) == NOTHING
    assert conn.execute("select count(*) from jobs").fetchone() == (0,)


@pytest.mark.parametrize(
    ("score", "rating"), [(0, 1), (39.9, 1), (40, 2), (54, 2), (55, 3), (84, 3), (85, 4), (100, 4)]
)
def test_scores_are_rated_by_the_universitys_marks(score, rating):
    assert files.rating(score) == rating


def test_presentations_start_in_february_and_october():
    assert f"{files.started_at('2013B'):%Y-%m-%d %H:%M %Z}" == "2013-02-01 12:00 UTC"
    assert f"{files.started_at('2014J'):%Y-%m-%d %H:%M %Z}" == "2014-10-01 12:00 UTC"


def test_every_data_file_is_small_and_has_its_origin_and_licence_beside_it():
    folder = Path(files.__file__).parent / "data"
    sources = (folder / "SOURCES.md").read_text(encoding="utf-8")
    data = sorted(folder.glob("*.csv.gz"))
    assert len(data) == 3
    assert sum(file.stat().st_size for file in folder.iterdir()) < 3_000_000
    for file in data:
        assert f"`{file.name}`" in sources
    for licence, words in (
        ("LICENSE-py-fsrs.txt", "Copyright (c) 2022 Open Spaced Repetition"),
        ("LICENSE-oulad.txt", "Kuzilek"),
    ):
        assert licence in sources
        assert words in (folder / licence).read_text(encoding="utf-8")
