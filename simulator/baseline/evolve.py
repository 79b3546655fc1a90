"""How each fact changes what the baseline's placer knows: the service's own fold, then the indexes beside it."""

from collections.abc import Callable
from typing import Any

from services.placer.evolve import READS as PLACER_READS
from services.placer.evolve import evolve as fold
from simulator.baseline.state import State
from tenure.domain.ids import JobId
from tenure.domain.reasons import Reason
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted
from tenure.events.catalogue import Kind
from tenure.events.fact import Recorded
from tenure.events.hosts import HostStateChanged
from tenure.events.placing import (
    JobFinished,
    JobRequeued,
    PlacementDeferred,
    RunAssigned,
    RunEnded,
    RunPreemptionRequested,
    RunStarted,
    RunStopRequested,
)
from tenure.events.reports import CheckpointReported, HostRegistered

READS: tuple[Kind, ...] = tuple(dict.fromkeys([*PLACER_READS, BudgetTreeChanged]))


def _waits(state: State, fact: JobAdmitted | JobRequeued) -> None:
    state.wait(fact.job)


def _run_assigned(state: State, fact: RunAssigned) -> None:
    if fact.why.reason is Reason.START_AT_RISK:
        state.at_risk[fact.run] = None
    state.queue.drop(fact.job)
    core = state.placed.core
    core.commitments.clear()  # no ranking will ever take them into account
    state.began(core.runs[fact.run], core.jobs[fact.job])


def _run_told_to_stop(state: State, fact: RunPreemptionRequested | RunStopRequested) -> None:
    core = state.placed.core
    state.told_to_stop(core.runs[fact.run], core.jobs[fact.job])
    if isinstance(fact, RunPreemptionRequested) and fact.escrow:
        state.queue.drop(JobId(fact.by))


def _job_finished(state: State, fact: JobFinished) -> None:
    state.queue.drop(fact.job)


def _placement_deferred(state: State, fact: PlacementDeferred) -> None:
    state.queue.tell(fact.job)
    state.wait(fact.job)  # if it was being made room for in vain


_EVOLVE: dict[Kind, Callable[[State, Any], None]] = {
    JobAdmitted: _waits,
    JobRequeued: _waits,
    RunAssigned: _run_assigned,
    RunPreemptionRequested: _run_told_to_stop,
    RunStopRequested: _run_told_to_stop,
    JobFinished: _job_finished,
    PlacementDeferred: _placement_deferred,
}
_ROOMIER: frozenset[Kind] = frozenset({BudgetTreeChanged, HostRegistered, HostStateChanged, RunEnded})
"""Facts that may give room to somebody who waits."""
_SILENT: frozenset[Kind] = frozenset(
    {CheckpointReported, RunAssigned, RunStarted, RunPreemptionRequested, PlacementDeferred, JobFinished}
)
"""Nothing is due after these: what leads to more says so itself (`roomier`, a cancel that came before)."""


def evolve(state: State, recorded: Recorded) -> None:
    """Fold one fact."""
    fact, placed = recorded.fact, state.placed
    kind = type(fact)
    if state.planned is not None and fact.id == state.planned.last:
        state.planned = None
    state.changed = state.changed or kind not in _SILENT
    state.roomier = state.roomier or kind in _ROOMIER
    if isinstance(fact, BudgetTreeChanged):
        state.position, state.tree = recorded.position, fact.tree
        state.set_limits()
    elif isinstance(fact, RunEnded):
        run, job, masks = placed.core.runs[fact.run], placed.core.jobs[fact.job], placed.masks[fact.run]
        fold(placed, recorded)
        state.over(run, job, masks=masks)
    else:
        if isinstance(fact, JobFinished | PlacementDeferred) and fact.job in placed.core.escrows:
            state.changed = state.roomier = True  # what is kept for it may be given up
        fold(placed, recorded)
        change = _EVOLVE.get(kind)
        if change is not None:
            change(state, fact)
        elif kind is HostRegistered:
            state.set_limits()
