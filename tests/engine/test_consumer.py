"""What a turn says of the next: whether more may be due already."""

from __future__ import annotations

import threading
from datetime import timedelta
from uuid import uuid4

import psycopg

from tests.support.kinds import KINDS
from tests.support.moves import enqueued, live, publish
from worker.engine import db
from worker.engine.consumer import Consumer
from worker.engine.slots import Slots

BY_NAME = {kind.name: kind for kind in KINDS}
LONG = timedelta(minutes=5)


def test_rows_of_one_recurring_kind_do_not_make_others_wait_for_the_poll(url: str, conn: psycopg.Connection) -> None:
    publish(conn)
    for _ in range(3):
        enqueued(conn, "nightly", priority=0)
    other = enqueued(conn, "ok", {"n": 1})
    link, woken, worker = db.Link(url, "consumer"), threading.Event(), uuid4()
    slots = Slots(url, worker, BY_NAME, {"default": 2}, wake=woken.set)
    consumer = Consumer(link, slots, BY_NAME, wake=woken, worker=worker, lease=LONG, poll=LONG)
    # Two places, and the two most urgent rows are of one recurring kind, of which one may run: the other place stays free.
    first = consumer.turn()
    assert (first.claimed, first.has_more) == (1, True)
    over = threading.Event()
    loop = threading.Thread(target=consumer.run, args=(over,))
    loop.start()
    try:
        with psycopg.connect(url, autocommit=True) as watcher:
            while watcher.execute("select 1 from jobs where id = %s", (other,)).fetchone() or live(watcher):
                assert loop.is_alive()
                over.wait(0.02)
    finally:
        over.set()
        woken.set()
        loop.join(10)
        link.close()
