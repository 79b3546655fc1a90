"""The report of a simulated log: every figure of the test window, and the breaches of the whole log."""

from collections.abc import Collection, Mapping, Sequence

from simulator.agents import Work
from simulator.report.breaches import find_breaches
from simulator.report.fields import (
    BudgetDelivered,
    Delivered,
    GpuHours,
    HostLosses,
    Preemptions,
    Report,
    Rolling,
    Window,
)
from simulator.report.history import NO_RATES, History
from simulator.report.owed import Books
from simulator.report.spent import Spent, spend
from simulator.report.waits import waits_by_class
from tenure.domain.ids import HostId, JobId
from tenure.domain.units import DAY, HOUR, SECOND, GpuMillis, Millis, gpu_hours
from tenure.events.fact import Recorded

ROLLING: Millis = 7 * DAY
SHOWN_MAX = 100
"""Breaches that are described; all of them are counted."""


def build_report(
    recorded: Sequence[Recorded],
    *,
    policy_name: str,
    kinds: Mapping[JobId, str],
    start: Millis,
    end: Millis,
    lookback_ms: Millis,
    wall_seconds: float,
    work: Work,
    rates_milli: Mapping[str, int] = NO_RATES,
    origin: Millis = 0,
    gone: Collection[HostId] = (),
) -> Report:
    """Every figure of [start, end), from the facts of a simulated log whose first instant is `origin`.

    `kinds` are the labels of the trace, by which waits are grouped; `rates_milli` the exchange rates of a log without a
    policy; `gone` hosts that are no part of the cluster any more. Raises ValueError on an empty window.
    """
    if not origin <= start < end:
        raise ValueError(f"a test window from {start} to {end} ms is empty")
    history = History(recorded, rates_milli=rates_milli)
    history.hosts.update(dict.fromkeys(gone, (end, 0)))
    windows = _windows(start, end)
    edges = [edge for window in (*windows, (start, end)) for edge in window]
    books = Books(history, until=end, edges=edges, since=origin)
    spent = spend(history, start=start, end=end, work=work)
    breaches = find_breaches(recorded)
    offered = books.available(start, end)
    gpus = sum(size for _, size in history.hosts.values())
    return Report(
        policy=policy_name,
        simulated_days=(end - origin) / DAY,
        wall_seconds=wall_seconds,
        jobs=sum(start <= job.submitted_at < end for job in history.jobs.values()),
        runs=spent.runs,
        occupancy=_part(spent.held, spent.usable),
        availability=_part(offered, spent.capacity),
        unallocated_fraction=spent.unallocated / spent.held if spent.held else 0.0,
        goodput=1 - (spent.lost_to_preemptions + spent.lost_to_hosts + spent.restarts) / (spent.held or 1),
        delivered=_delivered(books, start, end),
        rolling_7d=_rolling(books, windows),
        waits=waits_by_class(history, kinds=kinds, gpus=gpus, start=start, end=end),
        preemptions=_preemptions(spent),
        violations=len(breaches),
        violations_shown=breaches[:SHOWN_MAX],
        host_losses=HostLosses(
            runs=spent.hosts_lost,
            lost_gpu_hours=gpu_hours(spent.lost_to_hosts),
            refunded_gpu_hours=gpu_hours(spent.refunded),
        ),
        restart_gpu_hours=gpu_hours(spent.restarts),
        gpu_hours=_gpu_hours(spent),
        gpus=gpus,
        window=Window(start_s=(start - origin) / SECOND, end_s=(end - origin) / SECOND),
        lookback_s=lookback_ms / SECOND,
    )


def _windows(start: Millis, end: Millis) -> list[tuple[Millis, Millis]]:
    """The rolling windows: each week inside the test window that ends whole days after its start."""
    found = [(until - ROLLING, until) for until in range(start + ROLLING, end + 1, DAY)]
    return found or [(start, end)]


def _part(amount: GpuMillis, whole: GpuMillis) -> float:
    return amount / whole if whole else 1.0


def _delivered(books: Books, start: Millis, end: Millis) -> Delivered:
    budgets, met, owed_in_all = [], 0.0, 0.0
    for leaf in books.leaves:
        owed, delivered = books.owed(leaf, start, end), books.delivered(leaf, start, end)
        met += min(delivered, owed)
        owed_in_all += owed
        budgets.append(
            BudgetDelivered(
                path=leaf,
                owed_gpu_hours=owed / HOUR,
                delivered_gpu_hours=delivered / HOUR,
                ratio=delivered / owed if owed else 1.0,
            )
        )
    return Delivered(
        ratio=met / owed_in_all if owed_in_all else 1.0,
        worst=min([1.0, *(budget.ratio for budget in budgets)]),
        at_least_95=sum(budget.ratio >= 0.95 for budget in budgets),
        budgets=budgets,
    )


def _rolling(books: Books, windows: Sequence[tuple[Millis, Millis]]) -> Rolling:
    met, owed_in_all, worst = 0.0, 0.0, 1.0
    for since, until in windows:
        for leaf in books.leaves:
            owed, delivered = books.owed(leaf, since, until), books.delivered(leaf, since, until)
            if owed:
                met += min(delivered, owed)
                owed_in_all += owed
                worst = min(worst, delivered / owed)
    return Rolling(ratio=met / owed_in_all if owed_in_all else 1.0, worst=worst)


def _preemptions(spent: Spent) -> Preemptions:
    return Preemptions(
        total=spent.preempted_unallocated + spent.preempted_allocated + spent.drained,
        unallocated=spent.preempted_unallocated,
        allocated=spent.preempted_allocated,
        drain=spent.drained,
        lost_gpu_hours=gpu_hours(spent.lost_to_preemptions),
    )


def _gpu_hours(spent: Spent) -> GpuHours:
    return GpuHours(
        capacity=gpu_hours(spent.capacity),
        charged=gpu_hours(spent.charged),
        refunded=gpu_hours(spent.refunded),
        unallocated=gpu_hours(spent.unallocated),
        idle=gpu_hours(spent.idle),
        unavailable=gpu_hours(spent.capacity - spent.usable),
    )
