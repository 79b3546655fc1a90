"""The ratios of budgets (P3) as the placer compares them: the ranking's numbers plus what was promised since."""

from collections.abc import Iterable

from tenure.domain.ids import BudgetPath
from tenure.domain.tree import lineage
from tenure.domain.units import GpuMillis
from tenure.events.ranking import Standing


class Standings:
    """Ratios by budget. Only grows inside one decision: every start adds its commitment to its path (P4)."""

    def __init__(self, published: Iterable[Standing]) -> None:
        self._published = {standing.path: standing for standing in published}
        self._added: dict[BudgetPath, GpuMillis] = {}
        self._ratios: dict[BudgetPath, float] = {}
        self.version = 0
        """Grows with every commitment."""

    def add(self, budget: BudgetPath, gpu_ms: GpuMillis) -> None:
        """Count a commitment on every budget of the path."""
        self.version += 1
        for path in lineage(budget):
            self._ratios.pop(path, None)
            self._added[path] = self._added.get(path, 0) + gpu_ms

    def ratio(self, path: BudgetPath, *, less: GpuMillis = 0, faded: float = 0.0) -> float:
        """(charged in window + commitment) / entitlement; infinite without entitlement or standing.

        `less`: of the commitment so much is not counted. `faded`: this part of what was charged has left the window.
        """
        if less or faded:
            return self._ratio(path, less=less, faded=faded)
        known = self._ratios.get(path)
        if known is None:
            known = self._ratios[path] = self._ratio(path, less=0, faded=0.0)
        return known

    def _ratio(self, path: BudgetPath, *, less: GpuMillis, faded: float) -> float:
        standing = self._published.get(path)
        if standing is None or standing.entitlement_gpu_ms <= 0:
            return float("inf")
        left = standing.charged_gpu_ms - round(standing.charged_gpu_ms * faded)
        used = left + standing.commitment_gpu_ms + self._added.get(path, 0) - less
        return used / standing.entitlement_gpu_ms
