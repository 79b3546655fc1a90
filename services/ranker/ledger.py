"""The ledger: what every budget and every user of it was charged, holds unallocated, and is promised.

Budgets are kept by the path that runs were charged to, whatever the tree says today; sums up the tree are made when
they are asked for. Use between two changes is a straight line, which is what makes asking cheap.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from services.ranker.policy.commitment import Commitment
from tenure.domain.curve import Curve
from tenure.domain.ids import BudgetPath, UserName
from tenure.domain.tree import lineage
from tenure.domain.units import GpuMillis, Millis

Lines = tuple[int, GpuMillis, int, GpuMillis, int, GpuMillis]
"""Charged, committed, held unallocated around an instant, each as a rate and a constant: rate x t + constant."""
NO_LINES: Lines = (0, 0, 0, 0, 0, 0)


class Account:
    """The books of one budget, or of one user of it."""

    __slots__ = ("_lines", "_since", "_until", "commitment", "held", "refunded", "spare", "summed")

    def __init__(self, held: Curve | None = None, refunded: Curve | None = None, spare: Curve | None = None) -> None:
        self.held = held or Curve()
        """Occupancy of allocated runs. Less what was refunded it is what is charged (P2)."""
        self.refunded = refunded or Curve()
        self.spare = spare or Curve()
        """Occupancy of unallocated runs, never charged."""
        self.commitment = Commitment()
        # Scratch: inside [since, until) what is asked for is these lines.
        self._lines = NO_LINES
        self._since = self._until = 0
        self.summed = NO_LINES
        """Scratch of the ledger: the lines that are in its sums."""

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

    def lines(self, now: Millis, lookback_ms: Millis) -> Lines:
        """What was charged (P2) and held unallocated in the window that ends now, and what is promised (P3)."""
        if not self._since <= now < self._until:
            self._draw(now, lookback_ms)
        return self._lines

    def charged_at(self, now: Millis, lookback_ms: Millis) -> GpuMillis:
        """P2: charged in the window that ends now."""
        rate, constant, *_ = self.lines(now, lookback_ms)
        return rate * now + constant

    def committed_at(self, now: Millis, lookback_ms: Millis) -> GpuMillis:
        """P3: promised and still ahead."""
        _, _, rate, constant, *_ = self.lines(now, lookback_ms)
        return rate * now + constant

    def spare_at(self, now: Millis, lookback_ms: Millis) -> GpuMillis:
        """Held by unallocated runs in the window that ends now."""
        *_, rate, constant = self.lines(now, lookback_ms)
        return rate * now + constant

    def _draw(self, now: Millis, lookback_ms: Millis) -> None:
        """Find the lines around `now`, and how long they hold."""
        held_rate, held, held_until = window_line(self.held, now, lookback_ms)
        back_rate, back, back_until = window_line(self.refunded, now, lookback_ms)
        spare_rate, spare, spare_until = window_line(self.spare, now, lookback_ms)
        ahead_rate, ahead, ahead_until = self.commitment.line(now)
        self._lines = (held_rate - back_rate, held - back, ahead_rate, ahead, spare_rate, spare)
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

    __slots__ = ("_lineages", "_sums", "budgets", "users")

    def __init__(self) -> None:
        self.budgets: dict[BudgetPath, Account] = {}
        self.users: dict[tuple[BudgetPath, UserName], Account] = {}
        self._lineages: dict[BudgetPath, tuple[BudgetPath, ...]] = {}
        self._sums: dict[BudgetPath, list[int]] = {}

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

    def sums(self, now: Millis, lookback_ms: Millis) -> Mapping[BudgetPath, Sequence[int]]:
        """The lines of charged and committed of every budget in use and of all above, each with all that is below it.

        Equals adding the lines of the budgets up the tree. Only lines that are new since the last time are added here.
        """
        for budget, account in self.budgets.items():
            lines = account.lines(now, lookback_ms)
            if lines is not account.summed:
                change = [new - old for new, old in zip(lines, account.summed, strict=True)]
                account.summed = lines
                for path in self.lineage(budget):
                    total = self._sums.get(path, NO_LINES)
                    self._sums[path] = [one + more for one, more in zip(total, change, strict=True)]
        return self._sums

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
        self._sums.clear()
        for account in self.budgets.values():
            account.summed = NO_LINES

    def _all(self) -> Iterator[Account]:
        yield from self.budgets.values()
        yield from self.users.values()
