"""A TCP door to a server behind a unix socket, which a test can shut in the ways that networks do."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from urllib.parse import parse_qs, urlsplit

_CHUNK = 65_536


class Proxy:
    """Passes bytes on until told to stall (nothing moves, nothing closes), to drop what the server says, or to cut."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self._target = f"{query['host']}/.s.PGSQL.{query.get('port', '5432')}"
        self._listening = socket.create_server(("127.0.0.1", 0))
        port = self._listening.getsockname()[1]
        self.url = f"postgresql://{query['user']}@127.0.0.1:{port}{parts.path}?sslmode=disable&gssencmode=disable"
        self._flows, self._answers = threading.Event(), threading.Event()
        self._flows.set()
        self._answers.set()
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.connections = 0

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        self._close_door()
        self._flows.set()
        self._answers.set()
        self.cut()

    def stall(self) -> None:
        """Nothing passes any more, in either direction, on old and new connections; none is closed."""
        self._flows.clear()

    def drop_answers(self) -> None:
        """What the server says is lost; what the client says still arrives."""
        self._answers.clear()

    def refuse(self) -> None:
        """As a server that is down: what is open is closed, and nobody answers the door."""
        self._close_door()
        self.cut()

    def flow(self) -> None:
        """Everything passes again."""
        self._flows.set()
        self._answers.set()

    def cut(self) -> None:
        """Closes what is open."""
        with self._lock:
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def _close_door(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._target)
                with self._lock:
                    self._sockets |= {client, server}
                    self.connections += 1
                for source, sink, may_drop in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pump, args=(source, sink, may_drop), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, may_drop: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                self._flows.wait()
                if may_drop and not self._answers.is_set():
                    continue
                sink.sendall(data)
        self._flows.wait()  # an end is news too: it must not pass a stalled door
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        with self._lock:
            self._sockets.discard(source)
        source.close()
