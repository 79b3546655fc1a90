"""The port: what a role may ask of the log. Two adapters pass one contract suite (`tests/contract`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tenure.domain.ids import Position
from tenure.events.catalogue import Kind
from tenure.events.fact import Fact, Lane, Recorded

ATOMIC_MAX = 1_000
"""An append of up to this many facts is written whole or not at all; a longer one in several such parts, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """The assumption of a conditional append: the last fact in `lane` (and the lanes below it) is the one at `last`."""

    lane: Lane
    last: Position


class Conflict(Exception):
    """Somebody else wrote in the guarded lane first. Nothing was written: fold what came and decide again."""


class Unavailable(Exception):
    """The log cannot be reached now. Whether the append was written is unknown; sending the same ids again is safe."""


class LogFull(Exception):
    """The log's disk or its size limit is exhausted. Nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """Where an append ended up. `duplicate` facts were in the log already (same id) and were not written again.

    `last` is the position of the last fact of the append, or, if all were duplicates, of the earlier one where known.
    """

    last: Position
    duplicate: bool = False


class Feed(Protocol):
    """Facts in order of position, each exactly once, from where `follow` was asked to begin."""

    async def next(self, timeout_s: float | None) -> Sequence[Recorded]:
        """What has arrived (at least one fact), waiting up to `timeout_s` for the first; empty when time is up.

        `None` waits for ever. Raises `Unavailable` only when the feed cannot be continued.
        """

    async def close(self) -> None:
        """Stop following."""


class Log(Protocol):
    """An append-only sequence of facts with one total order."""

    async def append(self, facts: Sequence[Fact], *, expect: Expect | None = None) -> Appended:
        """Write facts durably, in order. Each needs an `id`; an id that is in the log already is not written again.

        When it returns, the facts survive a kill of every process, the log's server included. Raises `Conflict`,
        `Unavailable` or `LogFull`; a duplicate id inside a longer append makes the adapter write the others alone.
        """

    async def follow(self, kinds: Sequence[Kind], *, after: Position) -> Feed:
        """All facts of these kinds after a position: first those recorded, then those to come."""

    async def head(self, kinds: Sequence[Kind] | None = None) -> Position:
        """The position of the last fact (of these kinds), 0 if there is none."""

    async def close(self) -> None:
        """Let go of the log."""
