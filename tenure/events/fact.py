"""What every fact has, and where in the log's hierarchy of lanes each kind is written."""

from enum import StrEnum
from typing import ClassVar

import msgspec

from tenure.domain.ids import FactId, Position, UserName
from tenure.domain.units import Millis


class Lane(StrEnum):
    """A part of the log that a conditional append can guard. `PLACE` covers the two below it (a lane is a prefix)."""

    INTAKE = "intake"
    BUDGET = "budget"
    RANK = "rank"
    PLACE = "place"
    RUNS = "place.runs"
    HOSTS = "place.hosts"
    REPORT = "report"

    def covers(self, other: "Lane") -> bool:
        """Whether a guard on this lane is about facts of `other` too."""
        return other in self.covered

    @property
    def covered(self) -> "tuple[Lane, ...]":
        """This lane and those below it."""
        return _COVERED[self]


_COVERED: dict[Lane, tuple[Lane, ...]] = {
    lane: tuple(other for other in Lane if other is lane or other.startswith(lane + ".")) for lane in Lane
}


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Who really asked for what a fact says, and from where.

    `user` was identified by `how` (`uid 1000`, `token of https://...`, `certificate of CN=...`) and called from
    `address` (`127.0.0.1:41234`). The user a fact is about is another one where an admin acted for them.
    """

    user: UserName
    how: str
    address: str


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A thing that happened. Facts are never changed; fields may be added with a default, never renamed.

    `at` is the instant the fact speaks of (epoch ms), `id` stays the same however often it is sent, `cause` is the
    fact that led to it. The position is given by the log: see `Recorded`.
    """

    lane: ClassVar[Lane]

    at: Millis
    id: FactId = FactId("")
    cluster: str = ""
    cause: FactId | None = None


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """A fact with its place in the log."""

    position: Position
    fact: Fact
