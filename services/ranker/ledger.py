"""The ledger: what every budget and every user of it was charged, holds unallocated, and is promised.

Budgets are kept by the path that runs were charged to, whatever the tree says today; sums up the tree are made when
they are asked for. Use between two changes is a straight line, which is what makes asking cheap. Amounts are kept in
thousandths of the unit of account (`weighed.py`), and told in whole GPU-milliseconds of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import sub

from services.ranker.policy.commitment import Commitment
from services.ranker.weighed import Weighed
from tenure.domain.ids import BudgetPath, UserName
from tenure.domain.rates import MilliGpuMillis, Rates, to_account
from tenure.domain.tree import lineage
from tenure.domain.units import GpuMillis, Millis

Line = tuple[int, MilliGpuMillis]
"""An amount around an instant as a rate and a constant: rate x t + constant."""
Lines = tuple[int, MilliGpuMillis, int, MilliGpuMillis]
"""The line of what is charged, and of what is committed."""
FLAT: Lines = (0, 0, 0, 0)

HELD, REFUNDED, SPARE, AHEAD = range(4)
"""The parts of an account."""


class Account:
    """The books of one budget, or of one user of it."""

    __slots__ = (
        "_ends",
        "_parts",
        "_rates",
        "commitment",
        "drawn_since",
        "drawn_until",
        "held",
        "lines",
        "refunded",
        "spare",
        "summed",
    )

    def __init__(
        self,
        rates: Rates,
        held: Weighed | None = None,
        refunded: Weighed | None = None,
        spare: Weighed | None = None,
    ) -> None:
        self._rates = rates
        self.held = held or Weighed(rates)
        """Occupancy of allocated runs. Less what was refunded it is what is charged (P2)."""
        self.refunded = refunded or Weighed(rates)
        self.spare = spare or Weighed(rates)
        """Occupancy of unallocated runs, never charged."""
        self.commitment = Commitment()
        # Scratch: inside [since, until) what is asked for is these lines; each part's own line may hold for longer.
        self.drawn_since: Millis = 0
        self.drawn_until: Millis = 0
        self.lines = FLAT
        self._parts: list[Line] = [(0, 0)] * 4
        self._ends: list[Millis] = [0] * 4
        self.summed = FLAT
        """Scratch of the ledger: the lines that are in its sums."""

    @property
    def empty(self) -> bool:
        """Whether nothing was held in what is remembered, and nothing is promised."""
        return self.held.flat and self.refunded.flat and self.spare.flat and self.commitment.nothing

    def curves(self) -> tuple[Weighed, Weighed, Weighed]:
        """All that is kept of the past."""
        return self.held, self.refunded, self.spare

    def changed(self, part: int) -> None:
        """To be called after every change of a part."""
        self._ends[part] = self.drawn_until = self.drawn_since

    def hold(self, part: int, gpu_type: str, gpus: int, *, since: Millis) -> None:
        """So many GPUs more are held since then (`HELD`, or `SPARE`); fewer, if negative."""
        (self.held if part == HELD else self.spare).step(gpu_type, since, gpus)
        if not self.drawn_since <= since < self._ends[part]:
            self.changed(part)
            return
        # The line bends here. Equals drawing it again, without a search: inside a line the rates are the same.
        weight = gpus * self._rates.milli_at(gpu_type, since)
        rate, constant = self._parts[part]
        self._parts[part] = (rate + weight, constant - weight * since)
        if part == HELD:
            rate, constant, ahead_rate, ahead = self.lines
            self.lines = (rate + weight, constant - weight * since, ahead_rate, ahead)
        self.drawn_since = since
        if self.drawn_until < since:
            self.drawn_until = since

    def charged_at(self, now: Millis, lookback_ms: Millis) -> GpuMillis:
        """P2: charged in the window that ends now."""
        self.draw(now, lookback_ms)
        return to_account(self.lines[0] * now + self.lines[1])

    def committed_at(self, now: Millis, lookback_ms: Millis) -> GpuMillis:
        """P3: promised and still ahead."""
        self.draw(now, lookback_ms)
        return to_account(self.lines[2] * now + self.lines[3])

    def spare_at(self, now: Millis, lookback_ms: Millis) -> GpuMillis:
        """Held by unallocated runs in the window that ends now."""
        if not self.drawn_since <= now < self.drawn_until:
            self.draw(now, lookback_ms)
        rate, constant = self._parts[SPARE]
        return to_account(rate * now + constant)

    def draw(self, now: Millis, lookback_ms: Millis) -> None:
        """Find the lines around `now`, and how long they hold. Only those of parts that need it."""
        if self.drawn_since <= now < self.drawn_until:
            return
        ends, parts = self._ends, self._parts
        if now < self.drawn_since:
            ends[:] = [now] * 4
        moved = False
        for part, curve in ((HELD, self.held), (REFUNDED, self.refunded)):
            if ends[part] <= now:
                parts[part], ends[part] = window_line(curve, now, lookback_ms)
                moved = True
        if ends[AHEAD] <= now:
            parts[AHEAD], until = self.commitment.line(now)
            ends[AHEAD] = now + lookback_ms if until is None else until
            moved = True
        if moved:
            (held_rate, held), (back_rate, back), _, (ahead_rate, ahead) = parts
            self.lines = (held_rate - back_rate, held - back, ahead_rate, ahead)
        if ends[SPARE] <= now:
            parts[SPARE], ends[SPARE] = window_line(self.spare, now, lookback_ms)
        self.drawn_since, self.drawn_until = now, min(ends)


def window_line(curve: Weighed, now: Millis, lookback_ms: Millis) -> tuple[Line, Millis]:
    """What is gained in (t - W, t] for t around `now`, and until when that holds."""
    rate, constant, until = curve.line(now)
    tail_rate, tail, tail_until = curve.line(now - lookback_ms)
    ends = now if tail_until is None else tail_until
    ends += lookback_ms
    line = (rate - tail_rate, constant - tail + tail_rate * lookback_ms)
    return line, ends if until is None or until > ends else until


class Ledger:
    """All accounts. An account that is referred to by a run stays: see `forget`."""

    __slots__ = ("_lineages", "_rates", "_sums", "budgets", "users")

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self.budgets: dict[BudgetPath, Account] = {}
        self.users: dict[tuple[BudgetPath, UserName], Account] = {}
        self._lineages: dict[BudgetPath, tuple[BudgetPath, ...]] = {}
        self._sums: dict[BudgetPath, list[int]] = {}

    def accounts(self, budget: BudgetPath, user: UserName) -> tuple[Account, Account]:
        """The accounts of a budget and of its user, opened if need be."""
        account = self.budgets.get(budget)
        if account is None:
            account = self.budgets[budget] = Account(self._rates)
        own = self.users.get((budget, user))
        if own is None:
            own = self.users[budget, user] = Account(self._rates)
        return account, own

    def lineage(self, budget: BudgetPath) -> tuple[BudgetPath, ...]:
        """The budget and everything above it, from the top level down."""
        known = self._lineages.get(budget)
        if known is None:
            known = self._lineages[budget] = tuple(lineage(budget))
        return known

    def sums(self, now: Millis, lookback_ms: Millis) -> Mapping[BudgetPath, Sequence[MilliGpuMillis]]:
        """The lines of charged and committed of every budget in use and of all above, each with all that is below it.

        Equals adding the lines of the budgets up the tree. Only lines that are new since the last time are added here.
        All accounts of budgets are drawn at `now` afterwards.
        """
        sums = self._sums
        for budget, account in self.budgets.items():
            if not account.drawn_since <= now < account.drawn_until:
                account.draw(now, lookback_ms)
            if account.lines is not account.summed:
                rate, charged, ahead_rate, ahead = map(sub, account.lines, account.summed)
                account.summed = account.lines
                for path in self.lineage(budget):
                    total = sums.setdefault(path, [0, 0, 0, 0])
                    total[0] += rate
                    total[1] += charged
                    total[2] += ahead_rate
                    total[3] += ahead
        return self._sums

    def break_promises(self) -> None:
        """Nothing is promised: to be followed by counting every promise again, by other rates."""
        for account in self._all():
            account.commitment = Commitment()
            account.changed(AHEAD)

    def redraw(self) -> None:
        """The window has another length, or other rates are to come: no line that was drawn holds."""
        for account in self._all():
            for part in (HELD, REFUNDED, AHEAD, SPARE):
                account.changed(part)

    def forget(self, before: Millis, *, referred: Iterable[tuple[BudgetPath, UserName]]) -> None:
        """Drop what no window that begins at or after `before` can see. `referred`: accounts that runs go on using."""
        for account in self._all():
            for curve in account.curves():
                curve.forget(before)
            account.commitment.forget(before)
        kept_users = dict.fromkeys(referred)
        kept_budgets = dict.fromkeys(budget for budget, _ in kept_users)
        self.users = {key: own for key, own in self.users.items() if key in kept_users or not own.empty}
        self.budgets = {path: one for path, one in self.budgets.items() if path in kept_budgets or not one.empty}
        self._lineages.clear()
        self._sums.clear()
        for account in self.budgets.values():
            account.summed = FLAT

    def _all(self) -> Iterator[Account]:
        yield from self.budgets.values()
        yield from self.users.values()
