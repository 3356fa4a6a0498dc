"""Is the night fine, for machines: /statusz, and /healthz, which says only that the process answers.

Its way to the database is its own and short: it must answer while the pool hangs and when PostgreSQL is gone.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from typing import Any

from flask import Blueprint, Response, jsonify

from webapp import guards
from webapp.errors import DatabaseError
from webapp.extensions import connect
from worker.engine import kinds
from worker.engine.kinds import KindHealth

logger = logging.getLogger("nightshift.web")


class Probe:
    """Looks at the database, one look at a time, so that a database that hangs can't pile up threads.

    Who asks while a look is under way shares its answer. The thread is a daemon: it may hang longer than the process lives.
    """

    def __init__(self, url: str, *, deadline_seconds: float = 1.5) -> None:
        self._url = url
        self._deadline = deadline_seconds
        self._lock = threading.Lock()
        self._current: Future[list[KindHealth]] | None = None

    def look(self) -> list[KindHealth] | None:
        """The health of every recurring kind; None when the database did not say in time."""
        with self._lock:
            look = self._current
            if look is None or look.done():
                look = self._current = Future()
                threading.Thread(target=self._run, args=[look], name="statusz", daemon=True).start()
        try:
            return look.result(timeout=self._deadline)
        except Exception as error:  # noqa: BLE001  (whatever it is, the answer is "down")
            logger.warning("statusz.down error=%r", error)
            return None

    def _run(self, look: Future[list[KindHealth]]) -> None:
        try:
            with connect(self._url, statement_timeout_ms=1000) as conn:
                found = kinds.health(conn)
            look.set_result(found)
        except BaseException as error:  # noqa: BLE001  (handed to whoever waits)
            look.set_exception(error)


def blueprint(url: str) -> Blueprint:
    """The two routes, with a probe of their own."""
    routes = Blueprint("statusz", __name__)
    probe = Probe(url)

    @routes.get("/healthz")
    @guards.permission(guards.PUBLIC)
    def healthz() -> Response:
        return Response("ok\n", mimetype="text/plain")

    @routes.get("/statusz")
    @guards.permission(guards.PUBLIC)
    def statusz() -> tuple[Response, int]:
        found = probe.look()
        if found is None:
            return jsonify(status="down"), 503
        late = sum(health.state == "late" for health in found)
        body: dict[str, Any] = {"status": "late" if late else "ok", "late": late}
        if _is_operator():
            body["kinds"] = [_as_json(health) for health in found]
        return jsonify(body), 503 if late else 200

    return routes


def _is_operator() -> bool:
    try:
        return guards.load_operator() is not None
    except DatabaseError:
        return False  # the word matters more than the detail


def _as_json(health: KindHealth) -> dict[str, Any]:
    times = ("last_completed_at", "first_published_at", "late_after", "paused_at", "paused_until")
    texts = ("kind", "schedule", "state", "paused_by", "paused_reason")
    found = {name: getattr(health, name) for name in texts + times}
    return {name: value.isoformat() if name in times and value is not None else value for name, value in found.items()}
