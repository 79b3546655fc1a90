"""P4, the order of queued unallocated jobs: they come after all allocated ones, and fill what those leave.

The budget with the least unallocated occupancy in the window for its share comes first with all it has, ties by path;
inside a budget priority, then submit time, then id.
"""

from collections.abc import Iterable

from services.ranker.policy.standing import Weights
from services.ranker.queue import JOB, LISTED_MAX
from services.ranker.state import State
from tenure.domain.ids import BudgetPath, JobId
from tenure.events.ranking import SpareStanding


def spare_standing(state: State, weights: Weights, budget: BudgetPath) -> SpareStanding:
    """What a budget with unallocated jobs in the queue held unallocated, and its entitlement."""
    account = state.ledger.budgets.get(budget)
    held = 0 if account is None else account.spare_at(weights.now, state.policy.lookback_ms)
    return SpareStanding(path=budget, held_gpu_ms=held, entitlement_gpu_ms=weights.entitled[budget])


def spare_standings(state: State, weights: Weights) -> tuple[SpareStanding, ...]:
    """The budgets with unallocated jobs in the queue, first to start first."""
    found = [spare_standing(state, weights, budget) for budget in state.queue.unallocated]
    return tuple(sorted(found, key=lambda standing: (standing.ratio, standing.path)))


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
