"""Facts that a role cannot bear: who has them passed over, and what a condition on a lane is to begin with after them.

Decision 0018 says why what comes from outside is condemned by the role that fails on it, and a decision never is.
"""

import logging

from tenure.domain.ids import Position
from tenure.events.catalogue import KINDS
from tenure.events.fact import Lane, Recorded
from tenure.log.port import Log, Unavailable, knows_newer

logger = logging.getLogger(__name__)

OUTSIDE = (Lane.INTAKE, Lane.REPORT)
"""Where agents and people are quoted. The other lanes are decisions, which others act on."""


class Unfoldable(Exception):
    """A role's `evolve` failed on a fact: its state is half changed, and the process has to end."""

    def __init__(self, recorded: Recorded, error: Exception) -> None:
        super().__init__(f"{type(recorded.fact).__name__} at {recorded.position}: {error!r}")
        self.recorded = recorded


async def condemn(log: Log, poison: Unfoldable, *, by: str) -> None:
    """Have every role pass over what one of them cannot fold, if it was said from outside."""
    at, kind = poison.recorded.position, type(poison.recorded.fact).__name__
    if poison.recorded.fact.lane not in OUTSIDE:
        logger.error("the decision %s at %d cannot be folded: see `tenure log quarantine --help`", kind, at)
        return
    try:
        await log.condemn(at, reason=str(poison.__cause__), by=by)
        logger.error("quarantined: the %s at %d cannot be folded: every role passes over it from now on", kind, at)
    except Unavailable as trouble:
        logger.error("the %s at %d cannot be folded, and not be condemned either: %s", kind, at, trouble)


async def end_of_lane(log: Log, lane: Lane, *, after: Position) -> Position | None:
    """Where a lane ends, for whoever has folded all facts in it up to `after` and since: what comes then is none.

    None if it is one of a newer version: who cannot read it must not decide after it. Raises `Unavailable`.
    """
    kinds = tuple(kind for kind in KINDS.values() if lane.covers(kind.lane))
    end = await log.head(kinds)
    return None if await knows_newer(log, kinds, after=after, upto=end) else end
