"""Which classes of waiting jobs are worth a look now. Cheap, and never too strict: who is left out cannot start.

A class may fit into what is free; or it may get in the place of loose runs, where it fits into the free GPUs and all
loose runs together, and P5 gives it as many GPUs as it needs. Everybody else stands still until something is freed, a
protection ends or the ratios move.
"""

from dataclasses import dataclass, field

from services.placer.alike import Alike, Line
from services.placer.policy.may_disrupt import AskingJob, is_lower, may_have
from services.placer.policy.standings import Standings
from services.placer.state import State
from tenure.domain.ids import BudgetPath
from tenure.domain.policy import Policy
from tenure.domain.tree import lineage


@dataclass(slots=True)
class Hope:
    """The classes that may get GPUs in this decision: free ones, or those of victims."""

    free: dict[Line, None] = field(default_factory=dict)
    victims: dict[Line, None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.free or self.victims)


def hopeful(state: State, *, standings: Standings, policy: Policy) -> Hope:
    """Who may get something in this decision."""
    hope = Hope()
    room, reach = state.room, state.reach
    loose = _Loose(state, standings, policy) if state.loose.bunches else None
    free = max([pool.free for pool in room.pools.values()], default=0)
    for shape, lines in state.waiting.of_shape.items():
        if shape[1] * shape[2] <= free and room.fits(*shape):
            hope.free.update(lines)
        elif loose is not None and reach.fits(*shape):
            for line in lines:
                if line.alike.min_runtime_ms and loose.may_give(line.alike):
                    hope.victims[line] = None
    return hope


class _Loose:
    """What P5 would say of loose runs, level by level of the tree: enough to tell that an asker gets too few."""

    def __init__(self, state: State, standings: Standings, policy: Policy) -> None:
        self._bunches = state.loose.bunches
        self._standings, self._policy = standings, policy
        unallocated = self._bunches.get(None)
        self._for_all = state.room.free + (0 if unallocated is None else unallocated.gpus)
        """GPUs that are free or held by unallocated runs."""
        self._by_ratio: dict[BudgetPath, bool] = {}
        self._worst: dict[BudgetPath | None, float] | None = None

    def may_give(self, alike: Alike) -> bool:
        """Whether the class may have as many GPUs as it needs, some of them of a loose run."""
        if alike.gpus <= self._for_all and None in self._bunches:
            return True
        by_ratio = self._by_ratio.get(alike.budget)
        if by_ratio is None:
            by_ratio = self._by_ratio[alike.budget] = self._sibling_is_higher(alike.budget)
        if not by_ratio and not self._lower_priority(alike):
            return False
        by = AskingJob(budget=alike.budget, priority=alike.priority, allocated=True)
        given = [
            bunch.gpus
            for key, bunch in self._bunches.items()
            if key is not None and may_have(by, key[0], key[1], standings=self._standings, policy=self._policy)
        ]
        return bool(given) and alike.gpus <= self._for_all + sum(given)

    def _lower_priority(self, alike: Alike) -> bool:
        return any(key is not None and key[0] == alike.budget and key[1] < alike.priority for key in self._bunches)

    def _sibling_is_higher(self, budget: BudgetPath) -> bool:
        """Whether at some level of its path a sibling with loose runs has a higher ratio."""
        if self._worst is None:
            self._worst = self._worst_of_siblings()
        parent: BudgetPath | None = None
        for path in lineage(budget):
            worst = self._worst.get(parent)
            if worst is None:
                return False
            if is_lower(self._standings.ratio(path), worst, policy=self._policy):
                return True
            parent = path
        return False

    def _worst_of_siblings(self) -> dict[BudgetPath | None, float]:
        """By parent: the highest ratio of a child with loose runs at or below it."""
        worst: dict[BudgetPath | None, float] = {}
        for key in self._bunches:
            parent: BudgetPath | None = None
            for path in lineage(key[0]) if key is not None else ():
                worst[parent] = max(worst.get(parent, 0.0), self._standings.ratio(path))
                parent = path
        return worst
