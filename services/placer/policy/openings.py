"""What P5 gives to whom, bunch by bunch instead of run by run; kept for as long as the ratios stand."""

from collections.abc import Mapping

from services.placer.loose import Bunch, Key
from services.placer.policy.may_disrupt import AskingJob, is_lower, may_have
from services.placer.standings import Standings
from tenure.domain.ids import BudgetPath
from tenure.domain.policy import Policy
from tenure.domain.tree import lineage


class Openings:
    """The bunches that are open to each asker, in one decision."""

    def __init__(self, bunches: Mapping[Key, Bunch], standings: Standings, policy: Policy) -> None:
        self._bunches = bunches
        self._standings, self._policy = standings, policy
        self._known: dict[tuple[BudgetPath, int], dict[Key, Bunch]] = {}
        self._version = standings.version
        self._worst: dict[BudgetPath | None, float] | None = None

    def of(self, budget: BudgetPath, priority: int) -> dict[Key, Bunch]:
        """The bunches that P5 lets allocated jobs of this budget and priority disrupt."""
        if self._version != self._standings.version:
            self._known, self._worst, self._version = {}, None, self._standings.version
        known = self._known.get((budget, priority))
        if known is None:
            known = self._known[budget, priority] = self._look(budget, priority)
        return known

    def _look(self, budget: BudgetPath, priority: int) -> dict[Key, Bunch]:
        unallocated = self._bunches.get(None)
        known: dict[Key, Bunch] = {} if unallocated is None else {None: unallocated}
        if not self._sibling_is_higher(budget):
            for key, bunch in self._bunches.items():
                if key is not None and key[0] == budget and key[1] < priority:
                    known[key] = bunch
            return known
        by = AskingJob(budget=budget, priority=priority, allocated=True)
        for key, bunch in self._bunches.items():
            if key is not None and may_have(by, key[0], key[1], standings=self._standings, policy=self._policy):
                known[key] = bunch
        return known

    def _sibling_is_higher(self, budget: BudgetPath) -> bool:
        """Whether at some level of its path a sibling with loose runs has a higher ratio. Seldom so in good times."""
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
        return parent in self._worst

    def _worst_of_siblings(self) -> dict[BudgetPath | None, float]:
        """By parent: the highest ratio of a child with loose runs at or below it."""
        worst: dict[BudgetPath | None, float] = {}
        ratio = self._standings.ratio
        for key in self._bunches:
            parent: BudgetPath | None = None
            for path in lineage(key[0]) if key is not None else ():
                worst[parent] = max(worst.get(parent, 0.0), ratio(path))
                parent = path
        return worst
