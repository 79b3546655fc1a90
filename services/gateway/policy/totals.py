"""Sums over the read model: the whole cluster's GPUs, and each budget's jobs and GPUs with all below it."""

from dataclasses import dataclass

from services.gateway.state import State
from tenure.domain.host import CPU
from tenure.domain.ids import BudgetPath
from tenure.domain.reasons import JobState
from tenure.domain.tree import lineage

QUEUED = (JobState.SUBMITTED, JobState.QUEUED)
RUNNING = (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)


@dataclass(slots=True, kw_only=True)
class BudgetTotal:
    """What a budget and everything below it has in the queue and on GPUs."""

    jobs_queued: int = 0
    jobs_running: int = 0
    gpus_allocated: int = 0
    gpus_unallocated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTotal:
    """GPUs of all registered hosts, CPUs not counted; `available` may be used, `free` of those hold no run."""

    gpus: int
    available: int
    allocated: int
    unallocated: int
    free: int


def budget_totals(state: State) -> dict[BudgetPath, BudgetTotal]:
    """The totals of every budget that has, or had, jobs."""
    totals: dict[BudgetPath, BudgetTotal] = {}
    for counts in state.counts.values():
        queued = sum(counts.by_state.get(phase, 0) for phase in QUEUED)
        running = sum(counts.by_state.get(phase, 0) for phase in RUNNING)
        for path in lineage(counts.budget) if queued or running else ():
            total = totals.setdefault(path, BudgetTotal())
            total.jobs_queued += queued
            total.jobs_running += running
    for budget, held in state.held.items():
        for path in lineage(budget) if held.allocated or held.unallocated else ():
            total = totals.setdefault(path, BudgetTotal())
            total.gpus_allocated += held.allocated
            total.gpus_unallocated += held.unallocated
    return totals


def budgets_in_use(state: State) -> list[BudgetPath]:
    """The budgets with queued or running jobs, in order: they must stay, and stay leaves."""
    live = (*QUEUED, *RUNNING)
    return sorted({c.budget for c in state.counts.values() if any(c.by_state.get(phase) for phase in live)})


def cluster_total(state: State) -> ClusterTotal:
    """The sums over all hosts with GPUs."""
    hosts = [host for host in state.hosts.values() if host.spec.gpu_type != CPU]
    return ClusterTotal(
        gpus=sum(host.spec.gpus for host in hosts),
        available=sum(host.available for host in hosts),
        allocated=sum(held.allocated for held in state.held.values()),
        unallocated=sum(held.unallocated for held in state.held.values()),
        free=sum(max(0, host.available - host.held) for host in hosts),
    )
