"""In how many pieces the free GPUs are, and how large a gang could be placed: now, and when protections end (P5, P8).

A gang lives in one pool (cluster and GPU type) and no replica spans two hosts. What is unallocated, or told to end,
gives way at once and counts as placeable; what is past its protection is given by P5 to some budgets only and counts
apart. GPUs in escrow (P7) are nobody else's; reserved ones (P8) may be used until then and count.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.gateway.entries import RunEntry
from services.gateway.policy.totals import RUNNING
from services.gateway.state import State
from tenure.domain.host import HostSpec
from tenure.domain.ids import HostId
from tenure.domain.job import gpus_by_host
from tenure.domain.reasons import JobState
from tenure.domain.units import Millis

SIZES = (1, 2, 4, 8)
"""GPUs a replica for which the largest gang is told, as far as hosts have so many."""
PoolName = tuple[str, str]
"""Cluster and GPU type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placeable:
    """The largest gangs: of whole hosts, and in replicas of each size (GPUs a replica: replicas)."""

    gpus: int
    whole_hosts: int
    replicas: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What is placeable at an instant; `if_p5_gives` with all that is past its protection already."""

    at: Millis
    placeable: Placeable
    if_p5_gives: Placeable


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragmentation:
    """Of the hosts of one pool that take runs: GPUs by what they do, and the prospects from now on, in order."""

    cluster: str
    gpu_type: str
    hosts: int
    gpus: int
    free: int
    hosts_with_free: int
    largest_hole: int
    hosts_wholly_free: int
    giving_way: int
    in_escrow: int
    reserved: int
    past_protection: int
    prospects: tuple[Prospect, ...]


def fragmentation(state: State, *, now: Millis, instants: Sequence[Millis] | None = None) -> list[Fragmentation]:
    """Every pool that has hosts which take runs, in order of cluster and type.

    With the prospects of now and of `instants`, which are in order and to come; default: whenever protections end.
    """
    pools: dict[PoolName, _Pool] = {}
    pool_of: dict[HostId, _Pool] = {}
    escrow, reserved = _kept(state)
    for entry in state.hosts.values():
        spec = entry.spec
        if entry.takes_runs:
            pool = pool_of[spec.host] = pools.setdefault((spec.cluster, spec.gpu_type), _Pool())
            pool.add(spec, escrow=len(escrow.get(spec.host, ())), reserved=len(reserved.get(spec.host, ())))
    for run in _live_runs(state):
        ends = _protected_until(run, now)
        for host, gpus in gpus_by_host(run.placement).items():
            if host in pool_of:
                others = len(set(gpus) - escrow[host]) if host in escrow else len(gpus)
                pool_of[host].hold(host, others, ends, now)
    return [pools[name].tell(name, now, instants) for name in sorted(pools)]


def _live_runs(state: State) -> Iterator[RunEntry]:
    for phase in RUNNING:
        for job in state.live[phase]:
            run = state.jobs[job].runs[-1]
            if run.ended_at is None:
                yield run


def _protected_until(run: RunEntry, now: Millis) -> Millis | None:
    """When the run may have to go; None: it gives way at once. One that has not started is not past its protection."""
    if run.stopping or not run.allocated:
        return None
    return run.contract_ends_at if run.started_at is not None else max(run.contract_ends_at, now + run.min_runtime_ms)


def _kept(state: State) -> tuple[dict[HostId, set[int]], dict[HostId, set[int]]]:
    """The GPUs in escrow, and those that are reserved, by host. Only jobs in the queue have any."""
    escrow: dict[HostId, set[int]] = defaultdict(set)
    reserved: dict[HostId, set[int]] = defaultdict(set)
    for job in state.live[JobState.QUEUED]:
        entry = state.jobs[job]
        for place in entry.escrow:
            escrow[place.host].update(place.gpus)
        for place in entry.reservation.placement if entry.reservation is not None else ():
            reserved[place.host].update(place.gpus)
    return escrow, reserved


class _Pool:
    """The GPUs of each host of a pool: all, free, and when the others may be had."""

    def __init__(self) -> None:
        self._gpus: dict[HostId, int] = {}
        self._free: dict[HostId, int] = {}
        self._giving_way: dict[HostId, int] = {}
        self._past: dict[HostId, int] = {}
        self._ending: dict[Millis, dict[HostId, int]] = {}
        self._escrow = self._reserved = 0

    def add(self, spec: HostSpec, *, escrow: int, reserved: int) -> None:
        """A host that takes runs."""
        self._gpus[spec.host], self._free[spec.host] = spec.gpus, spec.gpus - escrow
        self._escrow += escrow
        self._reserved += reserved

    def hold(self, host: HostId, gpus: int, ends: Millis | None, now: Millis) -> None:
        """A run holds so many GPUs (none of them in escrow) of the host until its protection ends."""
        self._free[host] -= gpus
        if ends is None:
            held = self._giving_way
        else:
            held = self._past if ends <= now else self._ending.setdefault(ends, {})
        held[host] = held.get(host, 0) + gpus

    def tell(self, name: PoolName, now: Millis, instants: Sequence[Millis] | None) -> Fragmentation:
        """The figures, with the prospects of now and of these instants."""
        free = self._free
        return Fragmentation(
            cluster=name[0],
            gpu_type=name[1],
            hosts=len(self._gpus),
            gpus=sum(self._gpus.values()),
            free=sum(free.values()),
            hosts_with_free=sum(1 for gpus in free.values() if gpus),
            largest_hole=max(free.values()),
            hosts_wholly_free=sum(1 for host, gpus in free.items() if gpus == self._gpus[host]),
            giving_way=sum(self._giving_way.values()),
            in_escrow=self._escrow,
            reserved=self._reserved,
            past_protection=sum(self._past.values()),
            prospects=tuple(self._prospects(now, instants)),
        )

    def _prospects(self, now: Millis, instants: Sequence[Millis] | None) -> Iterator[Prospect]:
        """Hosts offer what is free and what gives way; then what is past, or ends, comes on top."""
        sizes = tuple(size for size in SIZES if size <= max(self._gpus.values()))
        offers = [_Offer(self._gpus, sizes) for _ in range(2 if self._past else 1)]
        for offer in offers:
            offer.add(self._free)
            offer.add(self._giving_way)
        if self._past:
            offers[1].add(self._past)
        ends = sorted(self._ending, reverse=True)
        for at in (now, *(reversed(ends) if instants is None else instants)):
            while ends and ends[-1] <= at:
                more = self._ending[ends.pop()]
                for offer in offers:
                    offer.add(more)
            yield Prospect(at=at, placeable=offers[0].tell(), if_p5_gives=offers[-1].tell())


class _Offer:
    """What a gang could have of each host, with the largest gangs kept up to date as more comes."""

    def __init__(self, gpus: dict[HostId, int], sizes: tuple[int, ...]) -> None:
        self._gpus_of, self._offered = gpus, dict.fromkeys(gpus, 0)
        self._gpus = self._whole = 0
        self._replicas = dict.fromkeys(sizes, 0)

    def add(self, more: dict[HostId, int]) -> None:
        """So many more GPUs of these hosts."""
        for host, gpus in more.items():
            before = self._offered[host]
            after = self._offered[host] = before + gpus
            self._gpus += gpus
            self._whole += before < after == self._gpus_of[host]
            for size in self._replicas:
                self._replicas[size] += after // size - before // size

    def tell(self) -> Placeable:
        """As it is now."""
        return Placeable(gpus=self._gpus, whole_hosts=self._whole, replicas=dict(self._replicas))
