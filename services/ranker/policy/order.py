"""P4, the order of queued allocated jobs.

In words: start at the root; at each budget go to the child with the lowest ratio (ties: by path) until a budget that
funds jobs is reached; take its first job; add the job's commitment to every budget on the way; again.

A budget's ratio before its k-th pick depends only on the picks made inside it. So at each budget its children's turns
are merged by (ratio before the turn, path), and only as many turns are worked out as there are jobs to list. The walk
itself stands in `tests/property/test_ranking.py`, and the two are compared.
"""

import math
from collections.abc import Iterator
from heapq import merge

from services.ranker.policy.standing import Weights, user_used
from services.ranker.queue import LISTED_MAX, Entry, Group, Users
from services.ranker.state import State
from tenure.domain.ids import BudgetPath, JobId
from tenure.domain.tree import ROOT
from tenure.domain.units import GpuMillis


class Leaf:
    """The jobs of a group, as the walk comes by: those that are to be listed, and at last the first of each line."""

    __slots__ = ("_group", "_rest", "added", "at")

    def __init__(self, group: Group) -> None:
        self._group = group
        self._rest = group.entries
        self.at = 0
        self.added = 0.0
        """What the last pick has added to every budget on the way."""

    def turns(self) -> Iterator["Leaf"]:
        """Itself, once for each job that is left. What is picked is decided when the walk is here."""
        while self.at < len(self._rest):
            yield self

    def pick(self) -> Entry | None:
        """The next job. None if there is none since `only_heads`."""
        if self.at == len(self._rest):
            self.added = 0.0
            return None
        entry = self._rest[self.at]
        self.at += 1
        self.added = entry.commitment
        return entry

    def only_heads(self) -> None:
        """From now on, pick only the first of each line that is not listed yet."""
        self._rest, self.at = list(self._group.heads(listed=self.at)), 0


Turns = Iterator[Leaf]
Part = tuple[GpuMillis, GpuMillis, Turns]
"""A child in a merge: what it has used, what it is entitled to, its own turns."""


def fair_order(state: State, weights: Weights) -> list[JobId]:
    """The listed allocated jobs, first to start first: `LISTED_MAX`, then of each line not among them the first."""
    leaves: list[Leaf] = []
    order: list[JobId] = []
    if not state.queue.allocated:
        return order
    for leaf in _below(state, weights, ROOT, _branches(state), leaves):
        entry = leaf.pick()
        if entry is not None:
            order.append(entry.job)
            if len(order) == LISTED_MAX:
                for one in leaves:
                    one.only_heads()
    return order


def in_turn(parts: list[Part]) -> Turns:
    """The turns of a budget from those of its children, which are given in order of path (P4)."""
    if len(parts) == 1:
        return parts[0][2]
    ranked = [_ranked(rank, *part) for rank, part in enumerate(parts)]
    return (leaf for _, _, leaf in merge(*ranked))


def _ranked(rank: int, used: GpuMillis, entitled: GpuMillis, turns: Turns) -> Iterator[tuple[float, int, Leaf]]:
    """Each turn with the ratio before it: the lowest of all children is next, ties go by path."""
    amount, scale = float(used), float(entitled)
    for leaf in turns:
        yield amount / scale if scale else math.inf, rank, leaf
        amount += leaf.added


def _below(
    state: State,
    weights: Weights,
    path: BudgetPath,
    branches: dict[BudgetPath, list[BudgetPath]],
    leaves: list[Leaf],
) -> Turns:
    children, users = branches.get(path, ()), state.queue.allocated.get(path)
    if users is None and len(children) == 1:
        return _below(state, weights, children[0], branches, leaves)
    parts: list[Part] = [
        (weights.used(child), weights.entitled[child], _below(state, weights, child, branches, leaves))
        for child in children
    ]
    if users is not None:
        # A budget that got children after jobs were queued in it: its own come last.
        parts.append((0, 0, _by_user(state, weights, path, users, leaves)))
    return in_turn(parts) if parts else iter(())


def _by_user(state: State, weights: Weights, budget: BudgetPath, users: Users, leaves: list[Leaf]) -> Turns:
    """The turns inside a budget that funds jobs. Equal users are children of equal share: lowest use first."""
    if None in users:
        leaves.append(Leaf(users[None]))
        return leaves[-1].turns()
    parts: list[Part] = []
    for user in sorted(user for user in users if user is not None):
        leaves.append(Leaf(users[user]))
        parts.append((user_used(state, budget, user, weights.now), 1, leaves[-1].turns()))
    return in_turn(parts)


def _branches(state: State) -> dict[BudgetPath, list[BudgetPath]]:
    """The budgets with queued jobs below them: the children of each, in order of path."""
    budgets = tuple(state.queue.allocated)
    if budgets == state.branches[0]:
        return state.branches[1]
    branches: dict[BudgetPath, list[BudgetPath]] = {}
    known: set[BudgetPath] = set()
    for budget in budgets:
        parent = ROOT
        for path in state.ledger.lineage(budget):
            if path not in known:
                known.add(path)
                branches.setdefault(parent, []).append(path)
            parent = path
    for children in branches.values():
        children.sort()
    state.branches = (budgets, branches)
    return branches
