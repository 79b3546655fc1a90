"""Where a job could run if nothing were there: its hosts, the runs on them, and the GPUs of them that are kept."""

from collections import Counter
from dataclasses import dataclass

from services.gateway.entries import HostEntry, JobEntry, ReservedEntry, RunEntry
from services.gateway.policy.totals import RUNNING
from services.gateway.state import State
from tenure.domain.ids import HostId
from tenure.domain.job import JobSpec, Topology
from tenure.domain.reasons import JobState

Place = tuple[str, str, str]
"""Cluster, GPU type, and block; an empty block: all of the pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usable:
    """What a job could use. `hosts` by name, those that take runs now apart in `open`."""

    hosts: dict[HostId, HostEntry]
    open: dict[HostId, HostEntry]
    runs: list[tuple[JobEntry, RunEntry]]
    """Other jobs' runs that hold something there."""
    escrow: dict[HostId, set[int]]
    """GPUs of open hosts that are being freed, or were, for other jobs (P7)."""
    reserved: dict[HostId, set[int]]
    """GPUs of open hosts that are kept for other gangs (P8)."""
    promised: list[tuple[JobEntry, ReservedEntry]]
    """Those gangs, in order of their latest start."""


def usable_by(state: State, asker: JobEntry) -> Usable:
    """Costs O(hosts + runs + queued jobs)."""
    hosts = _hosts(state, asker.spec)
    opened = {name: entry for name, entry in hosts.items() if entry.takes_runs}
    escrow: dict[HostId, set[int]] = {}
    reserved: dict[HostId, set[int]] = {}
    promised: list[tuple[JobEntry, ReservedEntry]] = []
    for job in state.live[JobState.QUEUED]:
        entry = state.jobs[job]
        if entry is asker:
            continue
        for place in entry.escrow:
            if place.host in opened:
                escrow.setdefault(place.host, set()).update(place.gpus)
        if entry.reservation is not None:
            there = [place for place in entry.reservation.placement if place.host in opened]
            for place in there:
                reserved.setdefault(place.host, set()).update(place.gpus)
            if there:
                promised.append((entry, entry.reservation))
    return Usable(
        hosts=hosts,
        open=opened,
        runs=[pair for pair in _live_runs(state) if pair[0] is not asker and _lies_on(pair[1], hosts)],
        escrow=escrow,
        reserved=reserved,
        promised=sorted(promised, key=lambda pair: (pair[1].latest_start, pair[0].job)),
    )


def free_on(usable: Usable) -> dict[HostId, int]:
    """GPUs of each open host that no run holds and that are in nobody else's escrow."""
    taken = {name: set(gpus) for name, gpus in usable.escrow.items()}
    for _, run in usable.runs if taken else ():
        for place in run.placement:
            if place.host in taken:
                taken[place.host].update(place.gpus)
    return {
        name: entry.spec.gpus - (len(taken[name]) if name in taken else entry.held)
        for name, entry in usable.open.items()
    }


def places_of(spec: JobSpec, usable: Usable) -> dict[HostId, Place]:
    """Of each open host the place that the whole gang would lie in: its pool, or a block; a host without is of no use.

    A gang for one block lies in one of the smallest blocks that could hold it if they were empty.
    """
    hosts = usable.open
    if not must_be_one_block(spec):
        return {name: (entry.spec.cluster, entry.spec.gpu_type, "") for name, entry in hosts.items()}
    chains: dict[HostId, list[Place]] = {}
    could: Counter[Place] = Counter()
    for name, entry in usable.hosts.items():
        host, parts = entry.spec, entry.spec.block.split("/")
        blocks = ("/".join(parts[: depth + 1]) for depth in range(len(parts)))
        chains[name] = [(host.cluster, host.gpu_type, block) for block in blocks]
        for place in chains[name]:
            could[place] += host.gpus // spec.gpus_per_replica
    able = {name: [place for place in chain if could[place] >= spec.replicas] for name, chain in chains.items()}
    hold_an_able_one = {place for chain in able.values() for place in chain[:-1]}
    return {name: able[name][-1] for name in hosts if able[name] and able[name][-1] not in hold_an_able_one}


def must_be_one_block(spec: JobSpec) -> bool:
    """Whether it is a gang that may not lie across two blocks."""
    return spec.topology is Topology.ONE_BLOCK and spec.replicas > 1


def _hosts(state: State, spec: JobSpec) -> dict[HostId, HostEntry]:
    choice = spec.choice
    names = state.hosts if choice is None else choice.among(state.hosts)
    found: dict[HostId, HostEntry] = {}
    for name in names:
        entry = state.hosts[name]
        host = entry.spec
        if host.gpus >= spec.gpus_per_replica and spec.wanted.accepts((host.cluster, host.gpu_type)):
            found[name] = entry
    return found


def _live_runs(state: State) -> list[tuple[JobEntry, RunEntry]]:
    entries = [state.jobs[job] for phase in RUNNING for job in state.live[phase]]
    return [(entry, entry.runs[-1]) for entry in entries if entry.runs[-1].ended_at is None]


def _lies_on(run: RunEntry, hosts: dict[HostId, HostEntry]) -> bool:
    return any(place.host in hosts for place in run.placement)
