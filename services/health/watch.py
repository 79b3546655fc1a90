"""Which host becomes silent next, without looking at every host for every heartbeat.

A heap of instants that may be too early: a host that was heard since is moved to its true instant only when it reaches
the top. It equals `sorted((deadline_of(host), host) for host in watched)`, at a cost of log(hosts) a decision.
"""

import heapq
from collections.abc import Callable

from tenure.domain.ids import HostId
from tenure.domain.units import Millis


class Watch:
    """Hosts that are heard and the instants at which they will count as silent."""

    def __init__(self) -> None:
        self._heap: list[tuple[Millis, HostId]] = []
        self._watched: dict[HostId, None] = {}

    def add(self, host: HostId) -> None:
        """Watch the host; it leaves by itself when it has no deadline any more."""
        if host not in self._watched:
            self._watched[host] = None
            heapq.heappush(self._heap, (0, host))

    def due(self, now: Millis, *, deadline_of: Callable[[HostId], Millis | None]) -> list[HostId]:
        """The hosts whose deadline has passed, earliest first. They stay due until their deadline moves."""
        heap, due = self._heap, []
        while heap:
            at, host = heap[0]
            deadline = deadline_of(host)
            if deadline is None:
                heapq.heappop(heap)
                del self._watched[host]
            elif deadline > at:
                heapq.heapreplace(heap, (deadline, host))
            elif at <= now:
                due.append(heapq.heappop(heap))
            else:
                break
        for entry in due:
            heapq.heappush(heap, entry)
        return [host for _, host in due]

    @property
    def next_at(self) -> Millis | None:
        """The earliest deadline after `due` was asked; None when nothing is watched."""
        return self._heap[0][0] if self._heap else None
