"""B5, who gives way: nobody protected; fill to every HIGH job, runs at risk to a job within its team's limit.

The runs of one tier stand in the order in which they would be taken: those that can resume first, then the smallest
gangs (what a stop wastes is the restart of their GPUs), then the youngest, then by id.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping
from enum import IntEnum

from services.placer.core import Run
from tenure.domain.ids import HostId, RunId
from tenure.domain.job import JobSpec

TakingOrder = tuple[bool, int, int, RunId]


class Tier(IntEnum):
    """How safe a run is. A job may displace runs of lower tiers than the one it starts in."""

    FILL = 0
    """No contract: free and never protected."""
    AT_RISK = 1
    """A HIGH job beyond its team's limit."""
    PROTECTED = 2
    """Opted out of preemption, within its team's limit: it is never preempted, however long it runs."""


class Yielding:
    """The runs of one tier that may still be told to go, and the GPUs they hold on each host."""

    def __init__(self) -> None:
        self.order: list[TakingOrder] = []
        self.held: dict[HostId, int] = {}
        self.gpus = 0
        self._keys: dict[RunId, TakingOrder] = {}

    def add(self, run: Run, spec: JobSpec, masks: Mapping[HostId, int]) -> None:
        """The run may be told to go from now on."""
        key = (not spec.resumable, spec.gpus, -run.assigned_at, run.run)
        self._keys[run.run] = key
        insort(self.order, key)
        self.gpus += spec.gpus
        for host, mask in masks.items():
            self.held[host] = self.held.get(host, 0) | mask

    def drop(self, run: RunId, masks: Mapping[HostId, int]) -> None:
        """The run is over or on its way out, if it was here."""
        key = self._keys.pop(run, None)
        if key is None:
            return
        del self.order[bisect_left(self.order, key)]
        self.gpus -= key[1]
        for host, mask in masks.items():
            self.held[host] &= ~mask
