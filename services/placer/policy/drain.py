"""P9 in the placer: runs on a draining host end, each as soon as the one gate lets them.

Before a maintenance window a host goes on with what ends in time: its runs are told their grace period before the
window, and it takes contracts that end by then.
"""

from collections.abc import Iterator, Mapping

from services.placer.core import Host, Run
from services.placer.policy.may_disrupt import DrainingHost, may_disrupt
from services.placer.policy.pack import pack
from services.placer.policy.settle import FACTS_MAX
from services.placer.room import Room
from services.placer.standings import Standings
from services.placer.state import State
from tenure.domain.ids import HostId, RunId
from tenure.domain.job import JobSpec, Placement, only_host
from tenure.domain.policy import Policy
from tenure.domain.units import Millis
from tenure.events.placing import RunPreemptionRequested


def drain(state: State, now: Millis, *, standings: Standings, policy: Policy) -> Iterator[RunPreemptionRequested]:
    """Preemptions for draining hosts: unallocated runs at once, allocated ones when their minimum is reached."""
    told: dict[RunId, None] = {}
    for name in sorted(state.draining):
        host = state.core.hosts[name]
        by = DrainingHost(host=name, fatal=host.fatal)
        for run_id in state.runs_on.get(name, ()):
            run = state.core.runs[run_id]
            if run.stop is not None or run_id in told or now < _told_at(state, host, run):
                continue
            verdict = may_disrupt(run, state.core.jobs[run.job], by, now, standings=standings, policy=policy)
            if verdict.allowed:
                told[run_id] = None
                where = only_host(run.placement)
                yield RunPreemptionRequested(at=now, run=run_id, job=run.job, only_on=where, by=name, why=verdict.why)
                if len(told) >= FACTS_MAX:
                    return


def next_told(state: State) -> Iterator[Millis]:
    """When runs are to be told for a maintenance window (P11)."""
    for name in state.draining:
        host = state.core.hosts[name]
        if host.open_until is not None:
            yield from (_told_at(state, host, state.core.runs[run]) for run in state.runs_on.get(name, ()))


def _told_at(state: State, host: Host, run: Run) -> Millis:
    """The earliest instant at which a drain tells the run: so that it is gone when the window begins, else at once."""
    return 0 if host.open_until is None else host.open_until - state.core.jobs[run.job].spec.grace_ms


def with_windows(state: State) -> Room:
    """What is free on hosts that take runs, and beside it on those that do so until their maintenance windows."""
    room = Room(state.layouts)
    room.rates_milli = state.room.rates_milli
    masks = {(name, host): mask for rooms in (state.room, state.windows) for name, host, mask in rooms.every_host()}
    for (name, host), mask in sorted(masks.items()):
        room.set(name, host, mask)
    return room


def fit_before_window(
    room: Room, state: State, spec: JobSpec, now: Millis, *, kept: Mapping[HostId, int]
) -> Placement | None:
    """Where in `room` (`with_windows`) the job fits whole, outside what is kept from it: on hosts that are healthy, or
    whose maintenance windows begin after its contract and grace have ended."""
    ends = now + max(spec.min_runtime_ms, 1) + spec.grace_ms
    late: dict[HostId, int] = {}
    for name in state.draining:
        host = state.core.hosts[name]
        if host.open_until is not None and host.open_until < ends:
            late[name] = -1
    with room.trial():
        room.block(kept)
        room.block(late)
        if not room.fits(spec.wanted, spec.replicas, spec.gpus_per_replica, spec.topology, spec.choice):
            return None
        return pack(room, spec)
