"""P3, ratio: (charged in the window + commitment) / entitlement, of every budget at one instant."""

from collections.abc import Mapping
from dataclasses import dataclass

from services.ranker.state import State
from tenure.domain.ids import BudgetPath, UserName
from tenure.domain.units import GpuMillis, Millis
from tenure.events.ranking import Standing, UserStanding

STANDINGS_MAX = 1_000
"""In a larger tree the budgets without use and without queue are left out of a ranking: nothing is decided by them."""


@dataclass(slots=True)
class Weights:
    """The two sides of every ratio. Holds the budgets with use or a queue, and all above them."""

    now: Millis
    used: dict[BudgetPath, GpuMillis]
    entitled: dict[BudgetPath, GpuMillis]

    def ratio(self, path: BudgetPath) -> float:
        """As `Standing.ratio`; infinite without entitlement."""
        entitled = self.entitled[path]
        return self.used[path] / entitled if entitled else float("inf")


def weigh(state: State, now: Millis) -> Weights:
    """The ratios at `now`. Costs O(budgets in use), however many runs and jobs there are."""
    used: dict[BudgetPath, GpuMillis] = {}
    ledger, lookback = state.ledger, state.policy.lookback_ms
    for budget, account in ledger.budgets.items():
        amount = account.used(now=now, lookback_ms=lookback)
        for path in ledger.lineage(budget):
            used[path] = used.get(path, 0) + amount
    for queued in (state.queue.allocated, state.queue.unallocated):
        for budget in queued:
            for path in ledger.lineage(budget):
                used.setdefault(path, 0)
    return Weights(now, used, {path: entitlement(state, path, now) for path in used})


def entitlement(state: State, path: BudgetPath, now: Millis) -> GpuMillis:
    """P1 at `now`."""
    since = now - state.policy.lookback_ms
    return state.shares.entitlement(path, capacity=state.capacity, since=since, now=now)


def user_used(state: State, budget: BudgetPath, user: UserName, now: Millis) -> GpuMillis:
    """The use of one user of a budget."""
    account = state.ledger.users.get((budget, user))
    return 0 if account is None else account.used(now=now, lookback_ms=state.policy.lookback_ms)


def standings(state: State, weights: Weights) -> tuple[Standing, ...]:
    """The numbers as a ranking says them, in order of path: every budget of the tree, and those that still have use."""
    charged: dict[BudgetPath, GpuMillis] = {}
    since = weights.now - state.policy.lookback_ms
    for budget, account in state.ledger.budgets.items():
        amount = account.charged_in(since=since, until=weights.now)
        for path in state.ledger.lineage(budget):
            charged[path] = charged.get(path, 0) + amount
    return tuple(
        Standing(
            path=path,
            charged_gpu_ms=charged.get(path, 0),
            commitment_gpu_ms=weights.used.get(path, 0) - charged.get(path, 0),
            entitlement_gpu_ms=_entitled(state, weights, path),
        )
        for path in _listed(state, weights.used)
    )


def user_standings(state: State, now: Millis) -> tuple[UserStanding, ...]:
    """The numbers of the users with queued jobs where users are equal, in order of budget and name."""
    since = now - state.policy.lookback_ms
    said = []
    for budget in sorted(state.queue.allocated):
        for user in sorted(user for user in state.queue.allocated[budget] if user is not None):
            account = state.ledger.users.get((budget, user))
            charged = 0 if account is None else account.charged_in(since=since, until=now)
            commitment = 0 if account is None else account.commitment.at(now)
            said.append(UserStanding(path=budget, user=user, charged_gpu_ms=charged, commitment_gpu_ms=commitment))
    return tuple(said)


def _listed(state: State, used: Mapping[BudgetPath, GpuMillis]) -> list[BudgetPath]:
    nodes = state.tree.by_path
    return sorted(used.keys() | nodes.keys() if len(nodes) <= STANDINGS_MAX else used)


def _entitled(state: State, weights: Weights, path: BudgetPath) -> GpuMillis:
    known = weights.entitled.get(path)
    return entitlement(state, path, weights.now) if known is None else known
