"""P4, the order of queued allocated jobs.

In words: start at the root; at each budget go to the child with the lowest ratio (ties: by path) until a budget that
funds jobs is reached; take its first job; add the job's commitment to every budget on the way; again.

A budget's ratio before its k-th pick depends only on the picks made inside it. So the walk equals, bottom up, merging
the children's own orders by (ratio before the pick, path), which is what is done here. The walk itself stands in
`tests/property/test_ranking.py`, and the two are compared.
"""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import itemgetter

from services.ranker.policy.standing import Weights, user_used
from services.ranker.queue import Entry, Users, shortened
from services.ranker.state import State
from tenure.domain.ids import BudgetPath
from tenure.domain.tree import ROOT
from tenure.domain.units import GpuMillis, Millis

COMMITMENT: Callable[[Entry], float] = itemgetter(1)

Part = tuple[GpuMillis, GpuMillis, list[Entry]]
"""A child in a merge: what it has used, what it is entitled to, its own order."""


def fair_order(state: State, weights: Weights) -> list[Entry]:
    """The listed allocated jobs, first to start first."""
    return _below(state, weights, ROOT, _branches(state))


def merge(parts: Sequence[Part]) -> list[Entry]:
    """The picks of a budget from its children, which are given in order of path (P4)."""
    if len(parts) == 1:
        return parts[0][2]
    ratios: list[float] = []
    entries: list[Entry] = []
    for used, entitled, own in parts:
        if entitled:
            before = accumulate(map(COMMITMENT, own), initial=float(used))
            scale = float(entitled)
            ratios += [amount / scale for amount in before]
            ratios.pop()
        else:
            ratios += [math.inf] * len(own)
        entries += own
    # The sort is stable and a child's ratios never fall: a child's order is kept, ties go by path.
    ranks = sorted(range(len(ratios)), key=ratios.__getitem__)
    return shortened([entries[rank] for rank in ranks])


def by_user(state: State, budget: BudgetPath, users: Users, now: Millis) -> list[Entry]:
    """The picks inside a budget that funds jobs. Equal users are children of equal share: lowest use first."""
    if None in users:
        return users[None].listing()
    names = sorted(user for user in users if user is not None)
    return merge([(user_used(state, budget, user, now), 1, users[user].listing()) for user in names])


def _below(
    state: State, weights: Weights, path: BudgetPath, branches: dict[BudgetPath, list[BudgetPath]]
) -> list[Entry]:
    parts: list[Part] = []
    for child in branches.get(path, ()):
        parts.append((weights.used(child), weights.entitled[child], _below(state, weights, child, branches)))
    users = state.queue.allocated.get(path)
    if users is not None:
        # A budget that got children after jobs were queued in it: its own come last.
        parts.append((0, 0, by_user(state, path, users, weights.now)))
    return merge(parts) if parts else []


def _branches(state: State) -> dict[BudgetPath, list[BudgetPath]]:
    """The budgets with queued jobs below them: the children of each, in order of path."""
    branches: dict[BudgetPath, list[BudgetPath]] = {}
    known: set[BudgetPath] = set()
    for budget in sorted(state.queue.allocated):
        parent = ROOT
        for path in state.ledger.lineage(budget):
            if path not in known:
                known.add(path)
                branches.setdefault(parent, []).append(path)
            parent = path
    for children in branches.values():
        children.sort()
    return branches
