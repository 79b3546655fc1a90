"""What watchers are told of the queue, the drains and the hosts: sums over the read model, by few and fixed labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from services.gateway.entries import JobEntry
from services.gateway.policy.totals import RUNNING
from services.gateway.state import WAITING, State
from tenure.domain.host import CPU, EMPTIED, HostState
from tenure.domain.ids import HostId, RunId
from tenure.domain.job import JobSpec
from tenure.domain.policy import Policy
from tenure.domain.reasons import JobState
from tenure.domain.units import MINUTE, Millis

DEBUG_GPUS, DEBUG_RUNTIME_MS = 8, 15 * MINUTE
LARGE_PART = 4
"""A job is large from this part of all GPUs on: a quarter."""


class JobClass(StrEnum):
    """The kinds of jobs whose waits are told apart. The first that fits counts."""

    UNALLOCATED = "unallocated"
    LARGEST = "largest"
    DEBUG = "debug"
    OTHER = "other"


@dataclass(slots=True, kw_only=True)
class Waiting:
    """Jobs of one class that wait to start. `gpus`: CPUs are none. `longest_ms`: of those that have never started."""

    jobs: int = 0
    gpus: int = 0
    longest_ms: Millis = 0


@dataclass(slots=True, kw_only=True)
class Started:
    """How long jobs that were started for the first time had waited."""

    until: Millis
    waits_ms: list[tuple[JobClass, Millis]] = field(default_factory=list)


def class_of(spec: JobSpec, *, gpus_of_cluster: int) -> JobClass:
    """As the report of a simulation has them; a job of CPUs is never one of the largest, nor one that debugs GPUs."""
    if spec.gpu_type == CPU:
        return JobClass.OTHER if spec.min_runtime_ms else JobClass.UNALLOCATED
    gpus = spec.gpus_per_replica * spec.replicas
    if spec.min_runtime_ms == 0:
        return JobClass.UNALLOCATED
    if gpus * LARGE_PART >= gpus_of_cluster:
        return JobClass.LARGEST
    if gpus <= DEBUG_GPUS and spec.min_runtime_ms <= DEBUG_RUNTIME_MS:
        return JobClass.DEBUG
    return JobClass.OTHER


def waiting(state: State, *, now: Millis) -> dict[JobClass, Waiting]:
    """The queue by class."""
    found = {each: Waiting() for each in JobClass}
    total = gpus_of(state)
    for phase in WAITING:
        for job in state.live[phase]:
            entry = state.jobs[job]
            of_class = found[class_of(entry.spec, gpus_of_cluster=total)]
            of_class.jobs += 1
            of_class.gpus += 0 if entry.spec.gpu_type == CPU else entry.spec.gpus
            if entry.first_started_at is None:
                of_class.longest_ms = max(of_class.longest_ms, now - entry.submitted_at)
    return found


def started(state: State, *, after: Millis) -> Started:
    """The waits of the jobs whose first start was after an instant, as far as the read model keeps them."""
    total, found = gpus_of(state), Started(until=after)

    def take(entry: JobEntry) -> None:
        at = entry.first_started_at
        if at is not None and at > after:
            of_class = class_of(entry.spec, gpus_of_cluster=total)
            found.waits_ms.append((of_class, at - entry.submitted_at))
            found.until = max(found.until, at)

    for phase in (JobState.RUNNING, JobState.STOPPING, JobState.QUEUED):
        for job in state.live[phase]:
            take(state.jobs[job])
    for job in reversed(state.over):
        entry = state.jobs[job]
        if (entry.finished_at or 0) <= after:
            break
        take(entry)
    return found


def gpus_of(state: State) -> int:
    """GPUs of all registered hosts; CPUs are none."""
    return sum(host.spec.only_gpus for host in state.hosts.values())


def silent_hosts(state: State, *, seen: Mapping[HostId, Millis], now: Millis, policy: Policy) -> Sequence[HostId]:
    """Hosts in service whose agent has not been heard for longer than makes a host suspect; `seen`: last heartbeats."""
    return [
        name
        for name, host in sorted(state.hosts.items())
        if host.state not in EMPTIED and now - max(host.last_seen, seen.get(name, 0)) > policy.suspect_after_ms
    ]


def drains_overdue(state: State, *, now: Millis, policy: Policy) -> Sequence[HostId]:
    """Draining hosts that should be empty (P9): their contracts are over, and so is the longest grace after that.

    A host that goes on with contracts until its deadline should be empty then.
    """
    draining = [(name, host) for name, host in sorted(state.hosts.items()) if host.state is HostState.DRAINING]
    if not draining:
        return []
    ends: dict[RunId, Millis] = {}
    for phase in RUNNING:
        for job in state.live[phase]:
            run = state.jobs[job].runs[-1]
            ends[run.run] = run.contract_ends_at
    slack_ms = policy.longest_grace_ms + policy.escrow_slack_ms
    found = []
    for name, host in draining:
        due = max((ends.get(run, 0) for run in host.runs), default=0)
        if host.drain_deadline is not None:
            due = host.drain_deadline if host.drain_accepts else min(due, host.drain_deadline)
        if host.runs and now > max(host.state_since, due) + slack_ms:
            found.append(name)
    return found
