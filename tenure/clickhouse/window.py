"""Occupancy of a window, exact to the millisecond: whole hours from the rollup, the two edges from the rows (P2)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from clickhouse_connect.driver import Client

from tenure.domain.ids import BudgetPath, Position, UserName
from tenure.domain.units import HOUR, GpuMillis, Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one user held for one budget in a window.

    `charged_gpu_ms` is delivered: allocated occupancy less `refunded_gpu_ms`, what host faults took back.
    """

    budget: BudgetPath
    user: UserName
    charged_gpu_ms: GpuMillis = 0
    unallocated_gpu_ms: GpuMillis = 0
    refunded_gpu_ms: GpuMillis = 0


def read_window(client: Client, since_ms: Millis, until_ms: Millis) -> list[Usage]:
    """Occupancy held during [since_ms, until_ms), by budget and user, in that order."""
    return _usages(client.query(_WINDOW, {"s": since_ms, "u": until_ms}).result_rows)


def read_account(client: Client, since_ms: Millis, until_ms: Millis) -> list[Usage]:
    """The same in the unit of account: every hour of a GPU type at the rate that it had then."""
    return _usages(client.query(_ACCOUNT, {"s": since_ms, "u": until_ms}).result_rows)


def read_window_at(client: Client, since_ms: Millis, until_ms: Millis, *, position: Position) -> list[Usage]:
    """The same by the facts up to `position` only, whatever is being written meanwhile.

    `position` must be complete (`tenure.clickhouse.story.complete_position`). Hours of the rollup that know of a later
    fact are read from the rows instead.
    """
    whole_since, whole_until = -(-since_ms // HOUR), until_ms // HOUR
    window = {"s": since_ms, "u": until_ms, "ws": whole_since, "wu": whole_until, "p": position}
    rows = client.query(_CLEAN_HOURS, window).result_rows
    dirty = {int(hour) for *_, hours in rows for hour in hours}
    edges = {hour for hour in (since_ms // HOUR, until_ms // HOUR) if not whole_since <= hour < whole_until}
    raw = client.query(_ROWS, {**window, "hours": sorted(dirty | edges)}).result_rows
    return _usages([*(row[:5] for row in rows), *raw])


_WINDOW = """
SELECT budget, user, charged, gpu_ms, refunded_gpu_ms
FROM window_usage(since_ms = {s:Int64}, until_ms = {u:Int64})
"""
_ACCOUNT = _WINDOW.replace("window_usage(", "window_usage_account(")
_CLEAN_HOURS = """
SELECT
    budget, user, charged,
    sumIf(gpu_ms, hour_last <= {p:UInt64}) AS clean_gpu_ms,
    -sumIf(gpu_ms, hour_last <= {p:UInt64} AND kind = 'refund') AS clean_refunded_gpu_ms,
    groupUniqArrayIf(intDiv(toUnixTimestamp(hour), 3600), hour_last > {p:UInt64}) AS dirty
FROM
(
    SELECT budget, user, charged, kind, gpu_ms, hour, max(last_position) OVER (PARTITION BY hour) AS hour_last
    FROM occupancy_hourly
    WHERE hour >= toDateTime({ws:Int64} * 3600, 'UTC') AND hour < toDateTime({wu:Int64} * 3600, 'UTC')
)
GROUP BY budget, user, charged
"""
_ROWS = """
SELECT budget, user, charged, sum(part_gpu_ms), -sumIf(part_gpu_ms, kind = 'refund')
FROM
(
    SELECT
        budget, user, charged, kind,
        intDiv(gpu_ms * (least(until_ms, {u:Int64}) - greatest(since_ms, {s:Int64})), until_ms - since_ms)
            AS part_gpu_ms
    FROM occupancy
    WHERE hour IN (SELECT toDateTime(arrayJoin({hours:Array(Int64)}) * 3600, 'UTC'))
      AND position <= {p:UInt64} AND since_ms < {u:Int64} AND until_ms > {s:Int64}
)
GROUP BY budget, user, charged
"""


def _usages(rows: Iterable[Sequence[Any]]) -> list[Usage]:
    """Rows of (budget, user, charged, GPU-ms, refunded GPU-ms) as one value a budget and user, empty ones left out."""
    sums: dict[tuple[str, str], list[int]] = {}
    for budget, user, charged, gpu_ms, refunded in rows:
        held = sums.setdefault((budget, user), [0, 0, 0])
        held[0 if charged else 1] += gpu_ms
        held[2] += refunded
    return [
        Usage(
            budget=BudgetPath(budget),
            user=UserName(user),
            charged_gpu_ms=charged,
            unallocated_gpu_ms=unallocated,
            refunded_gpu_ms=refunded,
        )
        for (budget, user), (charged, unallocated, refunded) in sorted(sums.items())
        if charged or unallocated or refunded
    ]
