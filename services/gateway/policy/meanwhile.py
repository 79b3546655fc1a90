"""What happened to everybody while a job was there, and belongs in its story: changes of the policy."""

from collections.abc import Sequence

from tenure.domain.ids import Position
from tenure.events.fact import Recorded
from tenure.events.policy import PolicyChanged

AT_START = "start"
"""How the first policy of a log comes there: that changes nothing for anybody."""


def with_policy_changes(
    story: Sequence[Recorded], changes: Sequence[tuple[Position, PolicyChanged]], *, is_over: bool
) -> list[Recorded]:
    """The story of a job with the changes after its first fact; if it `is_over`, up to its last one."""
    if not story:
        return []
    first, last = story[0].position, story[-1].position
    meanwhile = [
        Recorded(position, fact)
        for position, fact in changes
        if first < position and (not is_over or position < last) and not _is_first(fact)
    ]
    return sorted([*story, *meanwhile], key=lambda entry: entry.position)


def _is_first(fact: PolicyChanged) -> bool:
    return fact.origin is not None and fact.origin.how == AT_START
