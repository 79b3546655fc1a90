"""What P5 gives to whom, bunch by bunch instead of run by run; kept for as long as the ratios stand."""

from services.placer.loose import Bunch, Key, Loose
from services.placer.policy.may_disrupt import AskingJob, is_lower, may_have
from services.placer.standings import Standings
from tenure.domain.ids import BudgetPath
from tenure.domain.policy import Policy
from tenure.domain.tree import ROOT, lineage


class Openings:
    """The bunches that are open to each asker, in one decision."""

    def __init__(self, loose: Loose, standings: Standings, policy: Policy) -> None:
        self.standings = standings
        self._loose, self._policy = loose, policy
        self._known: dict[tuple[BudgetPath, int], dict[Key, Bunch]] = {}
        self._worst: dict[BudgetPath, float] = {}
        self._version = standings.version

    def of(self, budget: BudgetPath, priority: int) -> dict[Key, Bunch]:
        """The bunches that P5 lets allocated jobs of this budget and priority disrupt."""
        if self._version != self.standings.version:
            self._known, self._worst, self._version = {}, {}, self.standings.version
        known = self._known.get((budget, priority))
        if known is None:
            known = self._known[budget, priority] = self._look(budget, priority)
        return known

    def _look(self, budget: BudgetPath, priority: int) -> dict[Key, Bunch]:
        bunches, policy = self._loose.bunches, self._policy
        unallocated = bunches.get(None)
        known: dict[Key, Bunch] = {} if unallocated is None else {None: unallocated}
        if self._sibling_is_higher(budget):
            by = AskingJob(budget=budget, priority=priority, allocated=True)
            for key, bunch in bunches.items():
                if key is not None and may_have(by, key[0], key[1], standings=self.standings, policy=policy):
                    known[key] = bunch
        else:
            for key, bunch in bunches.items():
                if key is not None and key[0] == budget and key[1] < priority:
                    known[key] = bunch
        return known

    def _sibling_is_higher(self, budget: BudgetPath) -> bool:
        """Whether at some level of its path a sibling with loose runs has a higher ratio. Seldom so in good times."""
        parent = ROOT
        for path in lineage(budget):
            worst = self._worst_below(parent)
            if is_lower(self.standings.ratio(path), worst, policy=self._policy):
                return True
            parent = path
        return parent in self._loose.below

    def _worst_below(self, parent: BudgetPath) -> float:
        """The highest ratio of its children with loose runs at or below them."""
        worst = self._worst.get(parent)
        if worst is None:
            ratio = self.standings.ratio
            worst = max([ratio(path) for path in self._loose.below.get(parent, ())], default=0.0)
            self._worst[parent] = worst
        return worst
