"""One role on the memory log: folds, decides, appends, exactly as the live loop does, without waiting for anything."""

from collections.abc import Callable, Sequence
from typing import Generic

from tenure.domain.ids import LOG_START, Position
from tenure.domain.units import Millis
from tenure.events.fact import Fact
from tenure.log.memory import MemoryLog
from tenure.log.port import Conflict, Expect
from tenure.runtime.role import Role, S
from tenure.runtime.stamp import stamped

DECISIONS_MAX = 10_000
"""Decisions in a row at one instant before we say that a role never comes to rest."""


class Actor(Generic[S]):
    """A role, its state and its place in the log. `state`: what it knows when it begins, else nothing."""

    def __init__(self, role: Role[S], log: MemoryLog, *, cluster: str, state: S | None = None) -> None:
        self.role = role
        self.state: S = role.initial() if state is None else state
        self.wake_at: Millis | None = 0
        self._log, self._cluster = log, cluster
        self.inbox = log.inbox(role.reads)
        """What it has not folded yet. With something in it, or at a wake-up, it acts, as the live loop does."""
        self._guards = frozenset(kind for kind in role.reads if role.guard is not None and role.guard.covers(kind.lane))
        self._guarded: Position = LOG_START

    def fold(self) -> None:
        """Fold what is new in the log."""
        inbox, guards, evolve, state = self.inbox, self._guards, self.role.evolve, self.state
        for entry in inbox:
            evolve(state, entry)
            if type(entry.fact) in guards:
                self._guarded = entry.position
        inbox.clear()

    def act(self, now: Millis) -> int:
        """Step until the role has nothing more to say now. Returns how many facts it said."""
        said, step = 0, self.step
        for _ in range(DECISIONS_MAX):
            facts = step(now)
            if not facts:
                return said
            said += len(facts)
        raise RuntimeError(f"{self.role.name} does not come to rest: {[type(fact).__name__ for fact in facts]}")

    def step(self, now: Millis, *, between: Callable[[], None] | None = None) -> Sequence[Fact]:
        """Fold what is new, decide once, append. Returns what was appended.

        `between` happens after the decision and before the append, as other processes may do; nothing is appended when
        it wrote in the guarded lane.
        """
        if self.inbox:
            self.fold()
        role = self.role
        decision = role.decide(self.state, now)
        self.wake_at = decision.wake_at
        if not decision.facts:
            return ()
        if between is not None:
            between()
        facts = stamped(decision, role=role.name, cluster=self._cluster)
        expect = None if role.guard is None else Expect(lane=role.guard, last=self._guarded)
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
            self.state, self._guarded = self.role.initial(), LOG_START
            self.inbox[:] = self._log.of(self.role.reads)
            self.fold()
