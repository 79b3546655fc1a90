"""The ledger: what every budget and every user of it was charged, holds unallocated, and is promised.

Budgets are kept by the path that runs were charged to, whatever the tree says today; sums up the tree are made when
they are asked for. Use between two changes is a straight line, which is what makes asking cheap.
"""

from collections.abc import Iterable, Iterator

from services.ranker.policy.commitment import Commitment
from tenure.domain.curve import Curve
from tenure.domain.ids import BudgetPath, UserName
from tenure.domain.tree import lineage
from tenure.domain.units import GpuMillis, Millis


class Account:
    """The books of one budget, or of one user of it."""

    __slots__ = (
        "_ahead_line",
        "_charged_line",
        "_since",
        "_spare_line",
        "_until",
        "commitment",
        "held",
        "refunded",
        "spare",
    )

    def __init__(self, held: Curve | None = None, refunded: Curve | None = None, spare: Curve | None = None) -> None:
        self.held = held or Curve()
        """Occupancy of allocated runs. Less what was refunded it is what is charged (P2)."""
        self.refunded = refunded or Curve()
        self.spare = spare or Curve()
        """Occupancy of unallocated runs, never charged."""
        self.commitment = Commitment()
        # Scratch: inside [since, until) what is asked for is these lines, (rate, constant): rate x t + constant.
        self._charged_line = self._ahead_line = self._spare_line = (0, 0)
        self._since = self._until = 0

    @property
    def empty(self) -> bool:
        """Whether nothing was held in what is remembered, and nothing is promised."""
        return self.held.flat and self.refunded.flat and self.spare.flat and self.commitment.nothing

    def curves(self) -> tuple[Curve, Curve, Curve]:
        """All that is kept of the past."""
        return self.held, self.refunded, self.spare

    def changed(self) -> None:
        """To be called after every change of a part."""
        self._until = self._since

    def charged_at(self, now: Millis, lookback_ms: Millis) -> GpuMillis:
        """P2: charged in the window that ends now."""
        if not self._since <= now < self._until:
            self._draw(now, lookback_ms)
        rate, constant = self._charged_line
        return rate * now + constant

    def committed_at(self, now: Millis, lookback_ms: Millis) -> GpuMillis:
        """P3: promised and still ahead."""
        if not self._since <= now < self._until:
            self._draw(now, lookback_ms)
        rate, constant = self._ahead_line
        return rate * now + constant

    def spare_at(self, now: Millis, lookback_ms: Millis) -> GpuMillis:
        """Held by unallocated runs in the window that ends now."""
        if not self._since <= now < self._until:
            self._draw(now, lookback_ms)
        rate, constant = self._spare_line
        return rate * now + constant

    def _draw(self, now: Millis, lookback_ms: Millis) -> None:
        """Find the lines around `now`, and how long they hold."""
        held_rate, held, held_until = window_line(self.held, now, lookback_ms)
        back_rate, back, back_until = window_line(self.refunded, now, lookback_ms)
        spare_rate, spare, spare_until = window_line(self.spare, now, lookback_ms)
        ahead_rate, ahead, ahead_until = self.commitment.line(now)
        self._charged_line = (held_rate - back_rate, held - back)
        self._ahead_line = (ahead_rate, ahead)
        self._spare_line = (spare_rate, spare)
        ends = min(held_until, back_until, spare_until)
        self._since, self._until = now, ends if ahead_until is None else min(ends, ahead_until)


def window_line(curve: Curve, now: Millis, lookback_ms: Millis) -> tuple[int, GpuMillis, Millis]:
    """What a curve gains in (t - W, t] for t around `now`, as rate x t + constant, and until when that holds."""
    rate, constant, until = curve.line(now)
    tail_rate, tail, tail_until = curve.line(now - lookback_ms)
    ends = now + lookback_ms if tail_until is None else tail_until + lookback_ms
    return rate - tail_rate, constant - tail + tail_rate * lookback_ms, ends if until is None else min(ends, until)


class Ledger:
    """All accounts. An account that is referred to by a run stays: see `forget`."""

    __slots__ = ("_lineages", "budgets", "users")

    def __init__(self) -> None:
        self.budgets: dict[BudgetPath, Account] = {}
        self.users: dict[tuple[BudgetPath, UserName], Account] = {}
        self._lineages: dict[BudgetPath, tuple[BudgetPath, ...]] = {}

    def accounts(self, budget: BudgetPath, user: UserName) -> tuple[Account, Account]:
        """The accounts of a budget and of its user, opened if need be."""
        account = self.budgets.get(budget)
        if account is None:
            account = self.budgets[budget] = Account()
        own = self.users.get((budget, user))
        if own is None:
            own = self.users[budget, user] = Account()
        return account, own

    def lineage(self, budget: BudgetPath) -> tuple[BudgetPath, ...]:
        """The budget and everything above it, from the top level down."""
        known = self._lineages.get(budget)
        if known is None:
            known = self._lineages[budget] = tuple(lineage(budget))
        return known

    def forget(self, before: Millis, *, referred: Iterable[tuple[BudgetPath, UserName]]) -> None:
        """Drop what no window that begins at or after `before` can see. `referred`: accounts that runs go on using."""
        for account in self._all():
            for curve in account.curves():
                curve.forget(before)
            account.commitment.forget(before)
            account.changed()
        kept_users = dict.fromkeys(referred)
        kept_budgets = dict.fromkeys(budget for budget, _ in kept_users)
        self.users = {key: own for key, own in self.users.items() if key in kept_users or not own.empty}
        self.budgets = {path: one for path, one in self.budgets.items() if path in kept_budgets or not one.empty}
        self._lineages.clear()

    def _all(self) -> Iterator[Account]:
        yield from self.budgets.values()
        yield from self.users.values()
