"""P4, the order of queued unallocated jobs: they come after all allocated ones, and fill what those leave.

The budget with the least unallocated occupancy in the window for its share comes first with all it has, ties by path;
inside a budget priority, then submit time, then id.
"""

import math
from collections.abc import Iterable

from services.ranker.policy.standing import Weights
from services.ranker.queue import JOB, LISTED_MAX
from services.ranker.state import State
from tenure.domain.ids import BudgetPath, JobId
from tenure.domain.units import GpuMillis, Millis
from tenure.events.ranking import SpareStanding


def spare_held(state: State, budget: BudgetPath, now: Millis) -> GpuMillis:
    """What a budget held unallocated in the window that ends now."""
    account = state.ledger.budgets.get(budget)
    return 0 if account is None else account.spare_at(now, state.policy.lookback_ms)


def spare_ratio(held_gpu_ms: GpuMillis, entitlement_gpu_ms: GpuMillis) -> float:
    """What orders the budgets: the lowest first; infinite without a share (last). As `SpareStanding.ratio`."""
    return held_gpu_ms / entitlement_gpu_ms if entitlement_gpu_ms else math.inf


def spare_standings(state: State, weights: Weights) -> tuple[SpareStanding, ...]:
    """The budgets with unallocated jobs in the queue, first to start first."""
    found = []
    for path in state.queue.unallocated:
        held, entitled = spare_held(state, path, weights.now), weights.entitled[path]
        found.append((spare_ratio(held, entitled), path, held, entitled))
    found.sort()
    return tuple(
        [SpareStanding(path=path, held_gpu_ms=held, entitlement_gpu_ms=entitled) for _, path, held, entitled in found]
    )


def spare_order(state: State, budgets: Iterable[SpareStanding]) -> list[JobId]:
    """The listed unallocated jobs of these budgets, in this order: `LISTED_MAX`, then the first of each other line."""
    order: list[JobId] = []
    for standing in budgets:
        group = state.queue.unallocated[standing.path][None]
        room = LISTED_MAX - len(order)
        if len(group.jobs) <= room:
            order += group.jobs
        else:
            listed = max(0, room)
            order += group.jobs[:listed]
            order += map(JOB, group.heads(listed=listed))
    return order
