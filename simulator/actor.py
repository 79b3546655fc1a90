"""One role on the memory log: folds, decides, appends, exactly as the live loop does, without waiting for anything."""

from collections.abc import Callable, Sequence
from typing import Generic

from tenure.domain.ids import LOG_START, Position
from tenure.domain.units import Millis
from tenure.events.fact import Fact
from tenure.log.memory import MemoryLog
from tenure.log.port import Conflict, Expect
from tenure.runtime.loop import stamped
from tenure.runtime.role import Role, S

DECISIONS_MAX = 10_000
"""Decisions in a row at one instant before we say that a role never comes to rest."""


class Actor(Generic[S]):
    """A role, its state and its place in the log."""

    def __init__(self, role: Role[S], log: MemoryLog, *, cluster: str) -> None:
        self.role = role
        self.state: S = role.initial()
        self.wake_at: Millis | None = 0
        self._kinds = frozenset(role.reads)
        self._log, self._cluster = log, cluster
        self._read: Position = LOG_START
        self._guarded: Position = LOG_START

    def fold(self) -> int:
        """Fold what is new in the log. Returns how many facts that were."""
        recorded, kinds, evolve, state = self._log.recorded, self._kinds, self.role.evolve, self.state
        guard, count = self.role.guard, 0
        for index in range(self._read, len(recorded)):
            entry = recorded[index]
            fact = entry.fact
            if type(fact) in kinds:
                count += 1
                evolve(state, entry)
                if guard is not None and (fact.lane is guard or guard.covers(fact.lane)):
                    self._guarded = entry.position
        self._read = Position(len(recorded))
        return count

    def turn(self, now: Millis) -> int:
        """Act if there is news or a wake-up is due, as the live loop does. Returns how many facts it said."""
        if not self.fold() and (self.wake_at is None or self.wake_at > now):
            return 0
        return self.act(now)

    def act(self, now: Millis) -> int:
        """Step until the role has nothing more to say now. Returns how many facts it said."""
        said = 0
        for _ in range(DECISIONS_MAX):
            facts = self.step(now)
            if not facts:
                return said
            said += len(facts)
        raise RuntimeError(f"{self.role.name} does not come to rest: {[type(fact).__name__ for fact in facts]}")

    def step(self, now: Millis, *, between: Callable[[], None] | None = None) -> Sequence[Fact]:
        """Fold what is new, decide once, append. Returns what was appended.

        `between` happens after the decision and before the append, as other processes may do; nothing is appended when
        it wrote in the guarded lane.
        """
        self.fold()
        decision = self.role.decide(self.state, now)
        self.wake_at = decision.wake_at
        if between is not None and decision.facts:
            between()
        if not decision.facts:
            return ()
        facts = [
            stamped(fact, role=self.role.name, assumes=decision.assumes, number=number, cluster=self._cluster)
            for number, fact in enumerate(decision.facts)
        ]
        guard = self.role.guard
        expect = None if guard is None else Expect(lane=guard, last=self._guarded)
        try:
            self._log.append_now(facts, expect=expect)
        except Conflict:
            return ()
        return facts

    def restart(self, *, with_snapshot: bool) -> None:
        """Lose the memory: begin again from a snapshot of the present state, or from the first fact."""
        if with_snapshot:
            self.state = self.role.load(self.role.dump(self.state))
        else:
            self.state, self._read, self._guarded = self.role.initial(), LOG_START, LOG_START
            self.fold()
