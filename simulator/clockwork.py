"""What turns a simulated system: roles and agents act until nobody has more to say, then time jumps.

It jumps to the next instant at which anything can change: an action of the script, a process, a wake-up of a role.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from simulator.actor import Actor
from simulator.agents import VirtualAgents
from tenure.domain.units import Millis
from tenure.events.fact import Recorded
from tenure.log.memory import MemoryLog

ROUNDS_MAX = 10_000
"""Rounds at one instant before we say that the roles go round in circles."""


class Clockwork:
    """Roles and agents on one memory log under a virtual clock, which shows `now` (milliseconds)."""

    def __init__(self, log: MemoryLog, agents: VirtualAgents, actors: Sequence[Actor[Any]], *, now: Millis) -> None:
        self.log, self.agents, self.now = log, agents, now
        self.actors = list(actors)
        self._script: list[tuple[Millis, int, Callable[[], None]]] = []
        self._planned = 0

    @property
    def recorded(self) -> list[Recorded]:
        """Everything that has happened."""
        return self.log.recorded

    def at(self, when: Millis, action: Callable[[], None]) -> None:
        """Do `action` when the clock shows `when`."""
        self._planned += 1
        heapq.heappush(self._script, (when, self._planned, action))

    def run(self, until: Millis) -> None:
        """Let time pass up to and including `until`."""
        while True:
            self._settle()
            due = self._next_at()
            if due > until:
                break
            self.now = max(self.now, due)
            while self._script and self._script[0][0] <= self.now:
                heapq.heappop(self._script)[2]()
        self.now = max(self.now, until)

    def _settle(self) -> None:
        """Let agents and roles act at this instant until nobody has more to say."""
        now, agents, actors = self.now, self.agents, self.actors
        for _ in range(ROUNDS_MAX):
            said = agents.act(now)
            for actor in actors:
                wake_at = actor.wake_at
                if actor.inbox or (wake_at is not None and wake_at <= now):
                    said += actor.act(now)
            if not said:
                return
        raise RuntimeError(f"the world does not come to rest at {now} ms: {self.recorded[-1].fact}")

    def _next_at(self) -> Millis:
        """The next instant at which anything can change. An action that is due is due now."""
        next_at = self.agents.next_at
        for actor in self.actors:
            if actor.wake_at is not None and self.now < actor.wake_at < next_at:
                next_at = actor.wake_at
        if self._script and self._script[0][0] < next_at:
            next_at = max(self._script[0][0], self.now)
        return next_at
