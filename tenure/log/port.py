"""The port: what a role may ask of the log. Two adapters pass one contract suite (`tests/contract`)."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tenure.domain.ids import Position
from tenure.events.catalogue import Kind
from tenure.events.fact import Fact, Lane, Recorded

ATOMIC_MAX = 1_000
"""An append of up to this many facts is written whole or not at all; a longer one in several such parts, in order."""
ID_MAX = 256
IDS_REMEMBERED_S = 120
"""How long the log surely knows an id again. A fact sent again later may stand twice: its readers must bear that."""


class Expect(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The assumption of a conditional append: the last fact in `lane` (and the lanes below it) is the one at `last`."""

    lane: Lane
    last: Position


class Conflict(Exception):
    """Somebody else wrote in the guarded lane first: fold what came and decide again.

    Nothing was written; of an append longer than `ATOMIC_MAX`, nothing of the part that met the conflict nor after it.
    """


class Unavailable(Exception):
    """The log cannot be reached now. Whether the append was written is unknown; sending the same ids again is safe."""


class BeyondEnd(Unavailable):
    """A feed was asked to begin after the end of the log: this is another log, or it has lost its tail."""


class Condemned(Unavailable):
    """A fact that this feed has given was condemned since: fold the log again from its start, without that fact."""


class LogFull(Exception):
    """The log's disk or its size limit is exhausted. Nothing was written."""


class FactTooLarge(ValueError):
    """A fact is larger than the log can hold. Nothing was written; sending it again will not help."""


class Appended(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where an append ended up. `duplicate`: every fact of it was in the log already (same id), nothing was written.

    `last` is the position of the last fact that was written, or, of a duplicate, where its last fact stood before.
    `partial`: some facts were in the log already and others were not, so that the one at `last` may be any of these.
    """

    last: Position
    duplicate: bool = False
    partial: bool = False


class Feed(Protocol):
    """Facts in order of position, each exactly once, from where `follow` was asked to begin."""

    @property
    def passed(self) -> Position:
        """Every fact of the feed's kinds up to here has been given by `next`, or was passed over by all readers."""

    @property
    def quarantined(self) -> int:
        """How many have been passed over: they are no facts, or condemned."""

    @property
    def newer(self) -> int:
        """How many of those seem to be facts of a newer version."""

    async def next(self, timeout_s: float | None) -> Sequence[Recorded]:
        """What has arrived, waiting up to `timeout_s` for the first; empty when time is up.

        `None` waits for ever. Empty too when all that arrived was passed over: `passed` has moved then. Raises
        `Unavailable` only when the feed cannot be continued, `Condemned` when what it gave must be folded anew.
        """

    def hasten(self, position: Position) -> None:
        """Do not rest before the fact at `position` has come: somebody waits for it."""

    async def close(self) -> None:
        """Stop following."""


class Log(Protocol):
    """An append-only sequence of facts with one total order."""

    async def identity(self) -> str:
        """Tells this log from every other: a position means something only together with it."""

    async def append(self, facts: Sequence[Fact], *, expect: Expect | None = None) -> Appended:
        """Write facts durably, in order. Each needs an `id`; an id that is in the log already is not written again.

        When it returns, the facts survive a kill of every process, the log's server included. An append whose facts
        are all in the log is a duplicate whatever it expects, so that it can be sent again after `Unavailable`.
        Raises `Conflict`, `Unavailable`, `LogFull`, `FactTooLarge`, and ValueError for an unusable id.
        """

    async def follow(self, kinds: Sequence[Kind], *, after: Position, rest_s: float = 0.0) -> Feed:
        """All facts of these kinds after a position: first those recorded, then those to come.

        Those to come are given as they come, or, with `rest_s`, gathered for up to so long: a reader that need not know
        at once saves most of what reading costs. Log adapters on one machine's memory may give them sooner.
        Raises `BeyondEnd` if the log does not reach `after`, `Unavailable` if it cannot be asked.
        """

    async def head(self, kinds: Sequence[Kind] | None = None) -> Position:
        """The position of the last fact (of these kinds), 0 if there is none."""

    async def condemned(self) -> frozenset[Position]:
        """The facts that all readers pass over because a role could not fold them. Raises `Unavailable`.

        Feeds that are opened later begin on this knowledge: what is condemned after it and before their beginning is
        `Condemned`.
        """

    async def condemn(self, position: Position, *, reason: str, by: str) -> bool:
        """Have all readers pass over a fact from now on; False if that was known.

        Raises `Unavailable`, also when nothing stands there, or too many are condemned for a role to go on by itself.
        """

    async def close(self) -> None:
        """Let go of the log."""


async def knows_newer(log: Log, kinds: Sequence[Kind], *, after: Position, upto: Position) -> bool:
    """Whether facts of a newer version stand among these kinds: who cannot read them must not decide after them.

    Raises `Unavailable`.
    """
    feed = await log.follow(kinds, after=after)
    try:
        while feed.passed < upto:
            await feed.next(None)
        return feed.newer > 0
    finally:
        await feed.close()


def check_ids(facts: Sequence[Fact]) -> None:
    """Raise ValueError unless every fact has a usable id: printable ASCII without spaces (it travels in a header)."""
    for fact in facts:
        fact_id = fact.id
        if not (0 < len(fact_id) <= ID_MAX and fact_id.isascii() and fact_id.isprintable() and " " not in fact_id):
            raise ValueError(
                f"{type(fact).__name__} has the id {fact_id[:80]!r}: "
                f"use 1 to {ID_MAX} printable ASCII characters, no spaces"
            )
