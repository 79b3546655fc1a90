"""Facts of who leads where a role runs more than once. One kind a guarded lane, so that each lane has its own boundary.

A new leader writes its fact on the same condition as any decision. From then on nothing that an earlier leader decided
can be appended any more, however long that process was suspended: its condition names a fact before this one.
"""

from typing import ClassVar

from tenure.events.fact import Fact, Lane


class LeadTaken(Fact, frozen=True, kw_only=True):
    """The process `holder` decides for its role from here on. The position of the fact is the epoch of its commands."""

    holder: str


class BudgetLeadTaken(LeadTaken, frozen=True, kw_only=True, tag=True):
    """Who admits and charges."""

    lane: ClassVar[Lane] = Lane.BUDGET


class RankerLeadTaken(LeadTaken, frozen=True, kw_only=True, tag=True):
    """Who publishes the order."""

    lane: ClassVar[Lane] = Lane.RANK


class PlacerLeadTaken(LeadTaken, frozen=True, kw_only=True, tag=True):
    """Who places jobs."""

    lane: ClassVar[Lane] = Lane.RUNS


class HealthLeadTaken(LeadTaken, frozen=True, kw_only=True, tag=True):
    """Who judges hosts."""

    lane: ClassVar[Lane] = Lane.HOSTS
