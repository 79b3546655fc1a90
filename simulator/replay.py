"""The decisions about a job, made again from the log: the production deciders, folded to where each decision stood.

log -> what is sought (one reading) -> fold, decide, compare the bytes (another) -> the same, or both versions

A fact says which decision it was of (`tenure.runtime.stamp`), the decision's instant is in its facts, its policy in the
log before it. So nothing but the log is needed, and nothing is taken from what the roles have in memory or on disk.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from services.budget import decider as budget
from services.placer import decider as placer
from services.ranker import decider as ranker
from tenure.domain.ids import LOG_START, JobId, Position
from tenure.domain.policy import Policy
from tenure.domain.units import Millis
from tenure.events.budgets import JobAdmitted, JobRejected, RunCharged
from tenure.events.catalogue import Kind
from tenure.events.fact import Fact, Recorded
from tenure.events.placing import (
    JobFinished,
    JobRequeued,
    PlacementDeferred,
    ReservationDropped,
    ReservationMade,
    RunAssigned,
    RunEnded,
    RunPreemptionRequested,
    RunStarted,
    RunStopRequested,
)
from tenure.events.policy import PolicyChanged
from tenure.events.ranking import RankingPublished
from tenure.log.codec import encode
from tenure.runtime.role import Role
from tenure.runtime.stamp import Stamp, stamp_of, stamped

PLACED: tuple[Kind, ...] = (RunAssigned, RunPreemptionRequested, PlacementDeferred, ReservationMade)
"""What the placer decides by the order: the ranking that it had is made again, too."""
REPORTED: tuple[Kind, ...] = (RunStarted, RunEnded)
"""Their instants are those of the reports they follow from; every other fact here has that of its decision."""
SOUGHT: tuple[Kind, ...] = (
    *PLACED,
    *REPORTED,
    JobAdmitted,
    JobFinished,
    JobRejected,
    JobRequeued,
    ReservationDropped,
    RunCharged,
    RunStopRequested,
)
"""Every decision about a job. Host states are left out: they rest on heartbeats, which the log does not keep."""


def deciders(policy: Policy) -> dict[str, Role[Any]]:
    """The roles whose decisions can be made again, by name. `policy` counts while the log has none."""
    return {role.name: role for role in (budget.role(policy), ranker.role(policy), placer.role(policy))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A fact as it stands in the log and as it was decided again. `policy`: where the policy it followed was written,
    the log's start when it had none. `again` is None where nothing was decided in its place."""

    recorded: Recorded
    stamp: Stamp
    policy: Position
    again: Fact | None

    @property
    def same(self) -> bool:
        """To the byte. A signature is put on after the decision and is no part of it."""
        return self.again is not None and encode(_unsealed(self.recorded.fact)) == encode(self.again)


class Sought:
    """The decisions about a job, found in a first reading of the log (of the kinds `SOUGHT`)."""

    def __init__(self, job: JobId) -> None:
        self.job = job
        self._found: dict[Position, None] = {}
        self._ordered: list[Position] = []
        """What those that follow from an order assumed, ascending."""

    @property
    def found(self) -> int:
        """How many there are."""
        return len(self._found)

    def look(self, recorded: Recorded) -> None:
        """To be called with each fact in order of position."""
        if not self.about(recorded.fact):
            return
        self._found[recorded.position] = None
        stamp = stamp_of(recorded.fact)
        if isinstance(recorded.fact, PLACED) and stamp is not None:
            self._ordered.append(stamp.assumes)

    def left_out(self, replayed: Sequence[Replayed]) -> int:
        """How many of those that were found are not among the replayed: their ids do not say of which decision they
        were."""
        return len(self._found.keys() - {one.recorded.position for one in replayed})

    def about(self, fact: Fact) -> bool:
        """Whether it was decided about the job, or about another for its sake."""
        if isinstance(fact, RunPreemptionRequested) and fact.by == self.job:
            return True
        return isinstance(fact, SOUGHT) and getattr(fact, "job", None) == self.job

    def counted(self, since: Position, until: Position | None) -> bool:
        """Whether a decision about the job was made by the ranking at `since`, when the next one stands at `until`."""
        index = bisect_left(self._ordered, since)
        return index < len(self._ordered) and (until is None or self._ordered[index] < until)


class JobReplay:
    """Makes the decisions about a job again, in a second reading of the log (of the kinds `reads`).

    With `every` all other decisions are made again as well, as the roles did one after another: what a role remembers
    beside the log only saves it work, except when a reason to wait that has turned is said again.
    """

    def __init__(self, sought: Sought, *, policy: Policy, every: bool = False) -> None:
        self._replays = [_RoleReplay(role, sought, every=every) for role in deciders(policy).values()]
        self.reads: tuple[Kind, ...] = tuple(dict.fromkeys(kind for replay in self._replays for kind in replay.reads))

    def take(self, recorded: Recorded) -> Iterator[Replayed]:
        """The next fact. Yields the decisions that are complete by it."""
        for replay in self._replays:
            yield from replay.take(recorded)

    def finish(self) -> Iterator[Replayed]:
        """There are no more facts."""
        for replay in self._replays:
            yield from replay.decide_again(None)


class _RoleReplay:
    """One role: what it has said in its present decision, and what it had not folded when it said that."""

    def __init__(self, role: Role[Any], sought: Sought, *, every: bool) -> None:
        self.reads: tuple[Kind, ...] = role.reads if PolicyChanged in role.reads else (*role.reads, PolicyChanged)
        self._role, self._sought, self._every = role, sought, every
        self._state = role.initial()
        self._kinds = frozenset(role.reads)
        self._unfolded: list[Recorded] = []
        self._said: list[tuple[Recorded, Stamp]] = []
        self._rested: tuple[Position, Millis] | None = None
        """The last fact of the decision before, after which the role was asked at once whether it had more to say."""
        self._policies: list[Position] = []

    def take(self, recorded: Recorded) -> Iterator[Replayed]:
        fact = recorded.fact
        stamp = stamp_of(fact)
        if stamp is not None and stamp.role == self._role.name and self._guards(fact):
            if self._said and self._said[0][1].assumes != stamp.assumes:
                yield from self.decide_again(recorded.position)
            self._said.append((recorded, stamp))
        if type(fact) in self._kinds:
            self._unfolded.append(recorded)
        if isinstance(fact, PolicyChanged):
            self._policies.append(recorded.position)

    def decide_again(self, until: Position | None) -> Iterator[Replayed]:
        """What was said is complete: the next decision of the role stands at `until`, or there is none."""
        said, self._said = self._said, []
        if not said:
            return
        assumes = said[0][1].assumes
        wanted = [(recorded, stamp) for recorded, stamp in said if self._is_wanted(recorded, until)]
        if self._rested is not None and self._rested[0] < assumes:
            self._fold(self._rested[0])
            self._role.decide(self._state, self._rested[1])
        self._fold(assumes)
        if not wanted and not self._every:
            return
        now = instant([recorded.fact for recorded, _ in said])
        decision = msgspec.structs.replace(self._role.decide(self._state, now), assumes=assumes)
        again = stamped(decision, role=self._role.name, cluster=said[0][0].fact.cluster)
        self._rested = (said[-1][0].position, now) if self._every else None
        policy = (
            self._policies[bisect_left(self._policies, assumes + 1) - 1] if self._had_policy(assumes) else LOG_START
        )
        for recorded, stamp in wanted:
            made = again[stamp.number] if stamp.number < len(again) else None
            yield Replayed(recorded=recorded, stamp=stamp, policy=policy, again=made)

    def _guards(self, fact: Fact) -> bool:
        return self._role.guard is not None and self._role.guard.covers(fact.lane)

    def _is_wanted(self, recorded: Recorded, until: Position | None) -> bool:
        if isinstance(recorded.fact, RankingPublished):
            return self._sought.counted(recorded.position, until)
        return self._sought.about(recorded.fact)

    def _had_policy(self, assumes: Position) -> bool:
        return bool(self._policies) and self._policies[0] <= assumes

    def _fold(self, position: Position) -> None:
        """Fold all up to a position; what the role had not read by then stays for later."""
        upto = bisect_left(self._unfolded, position + 1, key=_position)
        for recorded in self._unfolded[:upto]:
            self._role.evolve(self._state, recorded)
        del self._unfolded[:upto]
        self._state.position = position


def instant(facts: Sequence[Fact]) -> Millis:
    """When a decision was made: what its facts say, of those that speak of their decision. Never empty."""
    spoken = [fact.at for fact in facts if not isinstance(fact, REPORTED)]
    return max(spoken or [fact.at for fact in facts])


def _unsealed(fact: Fact) -> Fact:
    """As it was decided: without the signature that the placer's shell puts on a start."""
    return msgspec.structs.replace(fact, signature="") if isinstance(fact, RunAssigned) and fact.signature else fact


_position: Callable[[Recorded], Position] = lambda recorded: recorded.position  # noqa: E731 - a key, asked very often
