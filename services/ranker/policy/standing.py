"""P3, ratio: (charged in the window + commitment) / entitlement, of every budget at one instant."""

from collections.abc import Iterable
from dataclasses import dataclass

from services.ranker.state import State
from tenure.domain.ids import BudgetPath, UserName
from tenure.domain.rates import MILLI
from tenure.domain.units import GpuMillis, Millis
from tenure.events.ranking import Standing, UserStanding

STANDINGS_MAX = 1_000
"""In a larger tree the budgets without use and without queue are left out of a ranking: nothing is decided by them."""
HALF = MILLI // 2
"""Rounds like `tenure.domain.rates.to_account`, without the call."""


@dataclass(slots=True)
class Weights:
    """The numbers of every ratio at `now`, of the budgets with use or a queue and of all above them."""

    now: Millis
    charged: dict[BudgetPath, GpuMillis]
    committed: dict[BudgetPath, GpuMillis]
    entitled: dict[BudgetPath, GpuMillis]

    def used(self, path: BudgetPath) -> GpuMillis:
        """What counts against the entitlement."""
        return self.charged[path] + self.committed[path]


def weigh(state: State, now: Millis) -> Weights:
    """The ratios at `now`. Costs O(budgets in use), however many runs and jobs there are."""
    ledger = state.ledger
    sums = ledger.sums(now, state.window_ms)
    charged = {path: (rate * now + constant + HALF) // MILLI for path, (rate, constant, _, _) in sums.items()}
    committed = {path: (rate * now + constant + HALF) // MILLI for path, (_, _, rate, constant) in sums.items()}
    for queued in (state.queue.allocated, state.queue.unallocated):
        for budget in queued:
            if budget not in charged:
                for path in ledger.lineage(budget):
                    charged.setdefault(path, 0)
                    committed.setdefault(path, 0)
    return Weights(now, charged, committed, entitlements(state, charged, now))


def entitlements(state: State, paths: Iterable[BudgetPath], now: Millis) -> dict[BudgetPath, GpuMillis]:
    """P1 at `now`."""
    since = now - state.window_ms
    return state.shares.entitlements(paths, capacity=state.capacity, since=since, now=now)


def user_used(state: State, budget: BudgetPath, user: UserName, now: Millis) -> GpuMillis:
    """The use of one user of a budget."""
    account, lookback = state.ledger.users.get((budget, user)), state.window_ms
    return 0 if account is None else account.charged_at(now, lookback) + account.committed_at(now, lookback)


def standings(state: State, weights: Weights) -> tuple[Standing, ...]:
    """The numbers as a ranking says them, in order of path: every budget of the tree, and those that still have use."""
    charged, committed, entitled = weights.charged, weights.committed, weights.entitled
    if len(state.tree.nodes) <= STANDINGS_MAX:
        idle = [node.path for node in state.tree.nodes if node.path not in charged]
        if idle:
            entitled = entitled | entitlements(state, idle, weights.now)
    return tuple(
        [
            Standing(
                path=path,
                charged_gpu_ms=charged.get(path, 0),
                commitment_gpu_ms=committed.get(path, 0),
                entitlement_gpu_ms=entitled[path],
            )
            for path in sorted(entitled)
        ]
    )


def user_standings(state: State, now: Millis) -> tuple[UserStanding, ...]:
    """The numbers of the users with queued jobs where users are equal, in order of budget and name."""
    said, lookback = [], state.window_ms
    for budget in sorted(state.queue.allocated):
        for user in sorted(user for user in state.queue.allocated[budget] if user is not None):
            account = state.ledger.users.get((budget, user))
            charged = 0 if account is None else account.charged_at(now, lookback)
            committed = 0 if account is None else account.committed_at(now, lookback)
            said.append(UserStanding(path=budget, user=user, charged_gpu_ms=charged, commitment_gpu_ms=committed))
    return tuple(said)
