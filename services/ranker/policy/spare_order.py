"""P4, the order of queued unallocated jobs: they come after all allocated ones, and fill what those leave.

The budget with the least unallocated occupancy in the window for its share comes first with all it has, ties by path;
inside a budget priority, then submit time, then id.
"""

import math
from collections.abc import Iterable

from services.ranker.policy.standing import Weights
from services.ranker.queue import LISTED_MAX
from services.ranker.state import State
from tenure.domain.ids import BudgetPath, JobId
from tenure.domain.units import GpuMillis
from tenure.events.ranking import SpareStanding


def spare_standings(state: State, weights: Weights) -> tuple[SpareStanding, ...]:
    """The budgets with unallocated jobs in the queue, first to start first."""
    found = spare_ratios(state, weights, state.queue.unallocated)
    found.sort()
    return tuple(
        [SpareStanding(path=path, held_gpu_ms=held, entitlement_gpu_ms=entitled) for _, path, held, entitled in found]
    )


def spare_ratios(
    state: State, weights: Weights, paths: Iterable[BudgetPath]
) -> list[tuple[float, BudgetPath, GpuMillis, GpuMillis]]:
    """Of each budget its ratio (see `SpareStanding.ratio`), its path, what it held unallocated, its entitlement."""
    found, accounts, now, lookback = [], state.ledger.budgets, weights.now, state.window_ms
    for path in paths:
        account, entitled = accounts.get(path), weights.entitled[path]
        held = 0 if account is None else account.spare_at(now, lookback)
        found.append((held / entitled if entitled else math.inf, path, held, entitled))
    return found


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
            order += group.head_jobs(listed=listed)
    return order
