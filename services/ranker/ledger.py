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

    __slots__ = ("_constant", "_rate", "_since", "_until", "charged", "commitment", "spare")

    def __init__(self, charged: Curve | None = None, spare: Curve | None = None) -> None:
        self.charged = charged or Curve()
        """Charged occupancy (P2)."""
        self.spare = spare or Curve()
        """Occupancy of unallocated runs, never charged."""
        self.commitment = Commitment()
        # Scratch: the use is rate x t + constant in [since, until).
        self._rate, self._constant = 0, 0
        self._since, self._until = 0, 0

    def changed(self) -> None:
        """To be called after every change of a part."""
        self._until = self._since

    def charged_in(self, *, since: Millis, until: Millis) -> GpuMillis:
        """Charged in (since, until]."""
        return self.charged.gained(since=since, until=until)

    def spare_in(self, *, since: Millis, until: Millis) -> GpuMillis:
        """Held unallocated in (since, until]."""
        return self.spare.gained(since=since, until=until)

    def used(self, *, now: Millis, lookback_ms: Millis) -> GpuMillis:
        """What counts in P3: charged in the window that ends now, and committed."""
        if not self._since <= now < self._until:
            self._draw(now, lookback_ms)
        return self._rate * now + self._constant

    def _draw(self, now: Millis, lookback_ms: Millis) -> None:
        """Find the straight line of the use around `now`."""
        head_rate, head, head_until = self.charged.line(now)
        tail_rate, tail, tail_until = self.charged.line(now - lookback_ms)
        ahead_rate, ahead, ahead_until = self.commitment.line(now)
        self._rate = head_rate - tail_rate + ahead_rate
        self._constant = head - tail + tail_rate * lookback_ms + ahead
        ends = [end for end in (head_until, ahead_until) if end is not None]
        if tail_until is not None:
            ends.append(tail_until + lookback_ms)
        self._since, self._until = now, min(ends, default=now + lookback_ms)

    @property
    def empty(self) -> bool:
        """Whether nothing was held in what is remembered, and nothing is promised."""
        return self.charged.flat and self.spare.flat and self.commitment.nothing


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
            account.charged.forget(before)
            account.spare.forget(before)
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
