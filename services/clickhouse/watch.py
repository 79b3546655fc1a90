"""Ends the SELECTs of clients that have left: a dashboard that is closed must not keep the machine busy."""

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from services.clickhouse.trouble import DatabaseError

_EVERY_S = 0.25


class Watch:
    """Looks at the connections of running SELECTs now and then; short ones are never looked at."""

    def __init__(self, kill: Callable[[str], None]) -> None:
        """`kill` ends the statements of a query id."""
        self._kill = kill
        self._running: dict[str, tuple[socket.socket, float]] = {}
        self._stop = threading.Event()
        threading.Thread(target=self._look, name="watch", daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._stop.set()

    @contextmanager
    def over(self, query_id: str, connection: socket.socket) -> Iterator[None]:
        """While inside, `query_id` runs for the client of `connection`, which has nothing more to send."""
        self._running[query_id] = (connection, time.monotonic() + _EVERY_S)
        try:
            yield
        finally:
            self._running.pop(query_id, None)

    def _look(self) -> None:
        while not self._stop.wait(_EVERY_S):
            now = time.monotonic()
            for query_id, (connection, since) in list(self._running.items()):
                if since < now and _has_left(connection):
                    self._running.pop(query_id, None)
                    with suppress(DatabaseError):  # it has ended by itself meanwhile
                        self._kill(query_id)


def _has_left(connection: socket.socket) -> bool:
    try:
        readable, _, _ = select.select([connection], [], [], 0)
        return bool(readable) and not connection.recv(1, socket.MSG_PEEK)
    except (OSError, ValueError):  # closed here, by its own thread
        return True
