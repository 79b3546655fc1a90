"""What P5 gives to whom, bunch by bunch instead of run by run; kept for as long as ratios and bunches stand."""

from services.placer.loose import Bunch, Key, Loose
from services.placer.policy.may_disrupt import AskingJob, is_lower, may_have
from services.placer.standings import Standings
from tenure.domain.ids import BudgetPath
from tenure.domain.policy import Policy
from tenure.domain.tree import ROOT, lineage


class Openings:
    """The bunches that are open to each asker under these ratios."""

    def __init__(self, loose: Loose, standings: Standings, policy: Policy) -> None:
        self.standings, self.policy = standings, policy
        self._loose = loose
        self._known: dict[tuple[BudgetPath, int], dict[Key, Bunch]] = {}
        self._version = (standings.version, loose.version)

    def of(self, budget: BudgetPath, priority: int) -> dict[Key, Bunch]:
        """The bunches that P5 lets allocated jobs of this budget and priority disrupt."""
        version = (self.standings.version, self._loose.version)
        if self._version != version:
            self._known, self._version = {}, version
        known = self._known.get((budget, priority))
        if known is None:
            known = self._known[budget, priority] = self._look(budget, priority)
        return known

    def _look(self, budget: BudgetPath, priority: int) -> dict[Key, Bunch]:
        known: dict[Key, Bunch] = {}
        unallocated = self._loose.bunches.get(None)
        if unallocated is not None:
            known[None] = unallocated
        ratio, below, parent = self.standings.ratio, self._loose.below, ROOT
        for path in lineage(budget):
            mine = ratio(path)
            for other, bunches in below.get(parent, _NOTHING).items():
                if other != path:  # the paths part here
                    if is_lower(mine, ratio(other), policy=self.policy):
                        known.update(bunches)
                elif parent == ROOT:
                    known.update(self._in_line(bunches, budget, priority))
            parent = path
        return known

    def _in_line(self, bunches: dict[Key, Bunch], budget: BudgetPath, priority: int) -> dict[Key, Bunch]:
        """Those of the asker's own budget, of those above it, and of those below it."""
        by = AskingJob(budget=budget, priority=priority, allocated=True)
        return {
            key: bunch
            for key, bunch in bunches.items()
            if key is not None
            and (budget.startswith(key.budget) or key.budget.startswith(budget))
            and may_have(by, key, standings=self.standings, policy=self.policy)
        }


_NOTHING: dict[BudgetPath, dict[Key, Bunch]] = {}
