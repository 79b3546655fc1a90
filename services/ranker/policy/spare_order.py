"""P4, the order of queued unallocated jobs: they come after all allocated ones, and fill what those leave.

The budget with the least unallocated occupancy in the window for its share comes first with all it has, ties by path;
inside a budget priority, then submit time, then id.
"""

from services.ranker.policy.standing import Weights
from services.ranker.queue import Entry
from services.ranker.state import State
from tenure.domain.ids import BudgetPath


def spare_ratio(state: State, weights: Weights, budget: BudgetPath) -> float:
    """Unallocated occupancy in the window / entitlement; infinite without entitlement."""
    entitled = weights.entitled[budget]
    account = state.ledger.budgets.get(budget)
    if entitled == 0:
        return float("inf")
    if account is None:
        return 0.0
    held = account.spare_in(since=weights.now - state.policy.lookback_ms, until=weights.now)
    return held / entitled


def spare_order(state: State, weights: Weights) -> list[Entry]:
    """The listed unallocated jobs, first to start first."""
    entries: list[Entry] = []
    for _, budget in sorted((spare_ratio(state, weights, budget), budget) for budget in state.queue.unallocated):
        entries += state.queue.unallocated[budget][None].listing()
    return entries
