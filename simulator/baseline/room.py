"""Whom a gang would have to displace, and how much can be had at all: one decision's look, thrown away afterwards.

What is free and how it is packed is the services' (best fit for what fits one host, whole hosts for gangs). Room only
shrinks in a decision, so what did not fit is not tried again.
"""

from collections.abc import Iterator

from services.placer.alike import Shape
from services.placer.blocks import PoolName
from services.placer.core import Run
from services.placer.policy.pack import pack, pack_into
from services.placer.room import Pool, must_be_one_block
from simulator.baseline.state import State
from simulator.baseline.yielding import TakingOrder, Tier, Yielding
from tenure.domain.ids import HostId, RunId
from tenure.domain.job import JobSpec, Placement

Victims = tuple[Placement, list[Run]]


class Reach:
    """What can be had in one decision. What it gives away is taken from the state's room, inside a trial."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._room = state.placed.room
        self._below = {tier: sum([runs.gpus for runs in self._lower(tier)]) for tier in Tier}
        self._unfit: set[Shape] = set()
        self._no_victims: set[tuple[Tier, Shape]] = set()
        self._leaving: dict[HostId, int] = {}
        """What runs hold that are told to go in this decision."""
        self._told: set[RunId] = set()
        self._obtainable: dict[Tier, dict[PoolName, dict[HostId, int]]] = {}
        self.gpus_free = self._count_free()

    def gpus(self, tier: Tier) -> int:
        """At most so many can be had for a job that starts in `tier`: free ones, and those of lower tiers."""
        return self.gpus_free + self._below[tier]

    def fit(self, spec: JobSpec) -> Placement | None:
        """A complete placement on GPUs that are free, or None."""
        shape = _shape(spec)
        if self.gpus_free < spec.gpus or shape in self._unfit:
            return None
        placement = pack(self._room, spec) if self._room.fits(*shape) else None
        if placement is None:
            self._unfit.add(shape)
        return placement

    def take(self, placement: Placement) -> None:
        """These GPUs are used or kept from here on."""
        self._room.take(placement)
        self._obtainable.clear()
        self.gpus_free = self._count_free()

    def displace(self, spec: JobSpec, tier: Tier) -> Victims | None:
        """A complete placement and the runs of lower tiers that must go for it, none of them without need.

        Nobody goes for a gang that has to lie in one block, or for a job that names hosts: they wait for room.
        """
        if (tier, _shape(spec)) in self._no_victims or must_be_one_block(spec.topology, spec.replicas):
            return None
        if spec.choice is not None:
            return None
        obtainable, gpus = self._all_obtainable(tier), spec.gpus_per_replica
        for name, pool in self._room.pools_for(spec):
            if sum([mask.bit_count() // gpus for mask in obtainable[name].values()]) >= spec.replicas:
                return self._choose(pool, spec, tier)
        self._no_victims.add((tier, _shape(spec)))
        return None

    def tell(self, found: Victims) -> None:
        """The victims leave, and what they free is kept for who asked."""
        placement, victims = found
        for run in victims:
            self._told.add(run.run)
            for host, mask in self._state.placed.masks[run.run].items():
                self._leaving[host] = self._leaving.get(host, 0) | mask
        self.take(placement)

    def _lower(self, tier: Tier) -> list[Yielding]:
        return [runs for lower, runs in self._state.yielding.items() if lower < tier]

    def _count_free(self) -> int:
        return sum([pool.free for pool in self._room.pools.values()])

    def _all_obtainable(self, tier: Tier) -> dict[PoolName, dict[HostId, int]]:
        """The GPUs that are free, or held by runs that would give way to a job of `tier`."""
        known = self._obtainable.get(tier)
        if known is None:
            known = {name: self._widened(pool, tier) for name, pool in self._room.pools.items()}
            self._obtainable[tier] = known
        return known

    def _widened(self, pool: Pool, tier: Tier) -> dict[HostId, int]:
        masks, leaving = dict(pool.masks), self._leaving
        for runs in self._lower(tier):
            for host, mask in runs.held.items():
                if host in masks:
                    masks[host] |= mask & ~leaving.get(host, 0)
        return masks

    def _choose(self, pool: Pool, spec: JobSpec, tier: Tier) -> Victims:
        """Add runs, the first to give way first, until the gang fits; then drop, last first, whoever is not needed."""
        held, gpus = self._state.placed.masks, spec.gpus_per_replica
        masks = dict(pool.masks)
        fits = pool.fits(gpus)
        taken: list[RunId] = []
        for key in self._in_order(tier):
            run = key[-1]
            here = [(host, mask) for host, mask in held[run].items() if host in masks]
            for host, mask in here:
                fits += (masks[host] | mask).bit_count() // gpus - masks[host].bit_count() // gpus
                masks[host] |= mask
            if here:
                taken.append(run)
            if fits >= spec.replicas:
                break
        victims: list[Run] = []
        for run in reversed(taken):
            without = {host: masks[host] & ~mask for host, mask in held[run].items() if host in masks}
            lost = sum([masks[host].bit_count() // gpus - mask.bit_count() // gpus for host, mask in without.items()])
            if fits - lost >= spec.replicas:
                masks.update(without)
                fits -= lost
            else:
                victims.append(self._state.placed.core.runs[run])
        widened = Pool(pool.layout)
        for host, mask in masks.items():
            if mask.bit_count() >= gpus:
                widened.set(host, mask)
        placement = pack_into(widened, spec)
        assert placement is not None, "the room was counted to hold the gang"
        return placement, victims[::-1]

    def _in_order(self, tier: Tier) -> Iterator[TakingOrder]:
        for runs in self._lower(tier):
            for key in runs.order:
                if key[-1] not in self._told:
                    yield key


def _shape(spec: JobSpec) -> Shape:
    return spec.wanted, spec.replicas, spec.gpus_per_replica, spec.topology, spec.choice
