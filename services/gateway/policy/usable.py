"""Where a job could run if nothing were there: its hosts, the runs on them, and the GPUs of them that are kept."""

from dataclasses import dataclass

from services.gateway.entries import HostEntry, JobEntry, ReservedEntry, RunEntry
from services.gateway.policy.totals import RUNNING
from services.gateway.state import State
from tenure.domain.ids import HostId
from tenure.domain.job import JobSpec
from tenure.domain.reasons import JobState


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
