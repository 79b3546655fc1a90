"""P1, entitlement: a budget's share of the whole, down its path, of the GPUs that were available, over the window.

integral over (now - W, now] of (product of shares x available GPUs). A share holds from the edit that set it to the
next one, a capacity from its fact on: nothing takes effect backwards.
"""

from collections.abc import Mapping, Sequence

from tenure.domain.curve import Curve
from tenure.domain.ids import BudgetPath
from tenure.domain.tree import PPM, BudgetTree
from tenure.domain.units import SECOND, GpuMillis, Millis

AT_LEAST_MS: Millis = SECOND
"""A budget is never entitled to less than its present share for this long: shares order from the first instant on."""

Era = tuple[Millis, int]
"""An instant and the product of the shares down a path from then on, in units of PPM ** depth (exact)."""


class Shares:
    """The history of every budget's share of the whole, as far as the window needs it."""

    __slots__ = ("_eras", "_latest")

    def __init__(self, eras: Mapping[BudgetPath, Sequence[Era]] | None = None) -> None:
        self._eras: dict[BudgetPath, list[Era]] = {path: list(known) for path, known in (eras or {}).items()}
        self._latest: Millis = max((since for known in self._eras.values() for since, _ in known), default=0)

    @property
    def eras(self) -> Mapping[BudgetPath, Sequence[Era]]:
        """Each budget's shares, oldest first."""
        return self._eras

    def change(self, tree: BudgetTree, *, at: Millis) -> None:
        """The shares are those of `tree` from `at` on (but never from before the edit that was recorded last)."""
        at = self._latest = max(at, self._latest)
        products = share_products(tree)
        for path in sorted(products.keys() | self._eras.keys()):
            product = products.get(path, 0)
            known = self._eras.setdefault(path, [])
            if known and known[-1][0] == at:
                known.pop()
            if product != (known[-1][1] if known else 0):
                known.append((at, product))
            if not known:
                del self._eras[path]

    def entitlement(self, path: BudgetPath, *, capacity: Curve, since: Millis, now: Millis) -> GpuMillis:
        """GPU-time that `path` is entitled to in (since, now], to the nearest GPU-millisecond; 0 without a share."""
        eras = self._eras.get(path)
        if not eras:
            return 0
        total, until = 0, capacity.at(now)
        for began, product in reversed(eras):
            begin = capacity.at(min(max(began, since), now))
            total += product * (until - begin)
            until = begin
            if began <= since:
                break
        least = eras[-1][1] * AT_LEAST_MS * max(1, capacity.rate)
        total = max(total, least)
        if total == 0:
            return 0
        unit: int = PPM ** (path.count("/") + 1)
        return max(1, (2 * total + unit) // (2 * unit))

    def forget(self, before: Millis) -> None:
        """Drop the shares that ended at or before an instant."""
        for path in list(self._eras):
            known = self._eras[path]
            while len(known) > 1 and known[1][0] <= before:
                del known[0]
            if len(known) == 1 and known[0][1] == 0:
                del self._eras[path]


def share_products(tree: BudgetTree) -> dict[BudgetPath, int]:
    """Each budget's share of the whole, exactly: in units of PPM ** depth."""
    products: dict[BudgetPath, int] = {}
    for node in tree.nodes:  # sorted by path, so a parent comes before its children
        products[node.path] = products.get(node.parent, 1) * node.share_ppm
    return products
