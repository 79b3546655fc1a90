"""Which decision wrote a fact: it stands in the fact's id, so that whoever has the log can make it again.

`<role>-<position>-<n>`: the role decided when it had folded the log up to that position, and this is the n-th of what
it had to say. See decision 0029.
"""

from typing import NamedTuple

import msgspec

from tenure.domain.ids import FactId, Position
from tenure.events.fact import Fact
from tenure.runtime.role import Decision


class Stamp(NamedTuple):
    """The decision of `role` at the position it assumed, and the place of the fact in it, from 0."""

    role: str
    assumes: Position
    number: int


def stamped(decision: Decision, *, role: str, cluster: str) -> list[Fact]:
    """The decision's facts with their ids and cluster; an id that the role gave itself is kept."""
    made, stamp = f"{role}-{decision.assumes}-", msgspec.structs.replace
    return [
        stamp(fact, id=fact.id or FactId(f"{made}{number}"), cluster=cluster)
        for number, fact in enumerate(decision.facts)
    ]


def stamp_of(fact: Fact) -> Stamp | None:
    """The inverse of `stamped`; None for a fact that was no role's decision, or got its id from the role itself."""
    parts = fact.id.split("-")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts[1:]):
        return None
    return Stamp(parts[0], Position(int(parts[1])), int(parts[2]))
