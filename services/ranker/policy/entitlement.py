"""P1, entitlement: a budget's share of the whole, down its path, of the GPUs that were available, over the window.

integral over (now - W, now] of (product of shares x available GPUs, each weighed by the rate of its type). A share
holds from the edit that set it to the next one, a capacity from its fact on: nothing takes effect backwards.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from services.ranker.weighed import Weighed
from tenure.domain.ids import BudgetPath
from tenure.domain.rates import MILLI, MilliGpuMillis
from tenure.domain.tree import PPM, BudgetTree
from tenure.domain.units import SECOND, GpuMillis, Millis

AT_LEAST_MS: Millis = SECOND
"""A budget is never entitled to less than its present share for this long: shares order from the first instant on."""

Era = tuple[Millis, int]
"""An instant and the product of the shares down a path from then on, in units of PPM ** depth (exact)."""


class Shares:
    """The history of every budget's share of the whole, as far as the window needs it."""

    __slots__ = ("_eras", "_lowest_terms", "_steady", "_steady_since", "_steady_window", "latest")

    def __init__(self, eras: Mapping[BudgetPath, Sequence[Era]] | None = None, *, latest: Millis = 0) -> None:
        self._eras: dict[BudgetPath, list[Era]] = {path: list(known) for path, known in (eras or {}).items()}
        self.latest: Millis = latest
        """When the last edit took effect."""
        # The same, latest era first, with the products and their unit divided by what they have in common.
        self._lowest_terms = {path: lowest_terms(path, known) for path, known in self._eras.items()}
        # Scratch: what budgets whose share held for all of a window are entitled to in such a window, and in any later
        # one in which as much was available. After a week without an edit and without a loss nothing is worked out.
        self._steady: dict[BudgetPath, GpuMillis] = {}
        self._steady_since: Millis = 0
        self._steady_window = (0, 0)

    @property
    def eras(self) -> Mapping[BudgetPath, Sequence[Era]]:
        """Each budget's shares, oldest first."""
        return self._eras

    def change(self, tree: BudgetTree, *, at: Millis) -> None:
        """The shares are those of `tree` from `at` on (but never from before the edit that was recorded last)."""
        at = self.latest = max(at, self.latest)
        products = share_products(tree)
        for path in sorted(products.keys() | self._eras.keys()):
            product = products.get(path, 0)
            known = self._eras.get(path, [])
            if known and known[-1][0] == at:
                known.pop()
            if product != (known[-1][1] if known else 0):
                known.append((at, product))
            self._keep(path, known)

    def forget(self, before: Millis) -> None:
        """Drop the shares that ended at or before an instant."""
        for path, known in list(self._eras.items()):
            while len(known) > 1 and known[1][0] <= before:
                del known[0]
            if known[-1] == known[0] and known[0][1] == 0:
                known.clear()
            self._keep(path, known)

    def entitlements(
        self, paths: Iterable[BudgetPath], *, capacity: Weighed, since: Millis, now: Millis
    ) -> dict[BudgetPath, GpuMillis]:
        """What each budget is entitled to in (since, now]: GPU-milliseconds of account, rounded; 0 without a share."""
        end = capacity.at(now)
        window = end - capacity.at(since)
        least = AT_LEAST_MS * (capacity.rate or MILLI)
        if (window, least) != self._steady_window or since < self._steady_since:
            self._steady, self._steady_window = {}, (window, least)
        self._steady_since = since
        steady = self._steady
        if all(map(steady.__contains__, paths)):
            return {path: steady[path] for path in paths}
        available: dict[
            Millis, MilliGpuMillis
        ] = {}  # gained from an instant to now; many eras begin with the same edit
        entitled: dict[BudgetPath, GpuMillis] = {}
        for path in paths:
            terms = self._lowest_terms.get(path)
            if terms is None:
                entitled[path] = 0
                continue
            fraction, eras = terms
            unit = fraction * MILLI
            total, later = 0, 0
            for began, product in eras:
                if began <= since:
                    total += product * (window - later)
                    break
                gained = available.get(began)
                if gained is None:
                    gained = available[began] = end - capacity.at(min(began, now))
                total += product * (gained - later)
                later = gained
            floor = eras[0][1] * least
            total = total if total > floor else floor
            entitled[path] = ((2 * total + unit) // (2 * unit) or 1) if total else 0
            if eras[0][0] <= since:
                steady[path] = entitled[path]
        return entitled

    def _keep(self, path: BudgetPath, known: list[Era]) -> None:
        self._steady.pop(path, None)
        if known:
            self._eras[path] = known
            self._lowest_terms[path] = lowest_terms(path, known)
        elif path in self._eras:
            del self._eras[path], self._lowest_terms[path]


def lowest_terms(path: BudgetPath, eras: Sequence[Era]) -> tuple[int, tuple[Era, ...]]:
    """The unit and the eras, latest first, in the smallest whole numbers that say the same: they multiply faster."""
    unit: int = PPM ** (path.count("/") + 1)
    common = math.gcd(unit, *(product for _, product in eras))
    return unit // common, tuple((since, product // common) for since, product in reversed(eras))


def share_products(tree: BudgetTree) -> dict[BudgetPath, int]:
    """Each budget's share of the whole, exactly: in units of PPM ** depth."""
    products: dict[BudgetPath, int] = {}
    for node in tree.nodes:  # sorted by path, so a parent comes before its children
        products[node.path] = products.get(node.parent, 1) * node.share_ppm
    return products
