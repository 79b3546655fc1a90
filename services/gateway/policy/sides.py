"""P3, both sides of a ratio: who has had how much of their share, where the paths of two budgets part.

People read ratios the wrong way round, so the GPU-time ahead of the share, or behind it, goes with each.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from services.gateway.entries import JobEntry
from services.gateway.state import State
from tenure.domain.ids import BudgetPath
from tenure.domain.reasons import Number, Why
from tenure.domain.tree import lineage, parting
from tenure.domain.units import GpuMillis

COMPARED = {"ratio": "level", "victim_ratio": "victim_level"}
"""The ratios among the numbers of a reason, and where those name the budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A budget in the latest order. `ratio` is None without an entitlement: it is last."""

    budget: BudgetPath
    ratio: float | None = None
    ahead_gpu_ms: GpuMillis = 0
    """It had so much more than its share (positive), or less (negative)."""
    used_gpu_ms: GpuMillis = 0
    entitlement_gpu_ms: GpuMillis = 0

    @property
    def weight(self) -> float:
        """The ratio as it sorts."""
        return math.inf if self.ratio is None else self.ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The budget of a job and another's, where their paths part. `same_budget`: they do not."""

    own: Side
    other: Side
    same_budget: bool = False


def side_of(state: State, path: BudgetPath) -> Side:
    """The budget in the latest order; without numbers where that does not tell of it."""
    standing = None if state.ranking is None else state.ranking.standings.get(path)
    if standing is None:
        return Side(budget=path)
    return Side(
        budget=path,
        ratio=standing.ratio if standing.entitlement_gpu_ms else None,
        ahead_gpu_ms=standing.ahead_gpu_ms,
        used_gpu_ms=standing.used_gpu_ms,
        entitlement_gpu_ms=standing.entitlement_gpu_ms,
    )


def sides_of(state: State, own: BudgetPath, other: BudgetPath) -> Sides:
    """Both where their paths part."""
    parted = parting(own, other)
    mine, theirs = (own, other) if parted is None else parted
    return Sides(own=side_of(state, mine), other=side_of(state, theirs), same_budget=parted is None)


def standing_of(state: State, budget: BudgetPath) -> tuple[Side, ...]:
    """The budget and those above it, from the root down."""
    return tuple(side_of(state, path) for path in lineage(budget))


def ahead_of(state: State, numbers: Mapping[str, Number], *, budget: BudgetPath) -> dict[str, GpuMillis]:
    """By name of a ratio that was compared, how far its budget was ahead: the ratio as it was, of the share as the
    latest order has it. `budget`: of a ratio whose level is not told."""
    found: dict[str, GpuMillis] = {}
    for name, level in COMPARED.items():
        ratio, path = numbers.get(name), numbers.get(level)
        if isinstance(ratio, float | int) and math.isfinite(ratio) and (path is not None or name == "ratio"):
            entitled = side_of(state, BudgetPath(str(path)) if path is not None else budget).entitlement_gpu_ms
            if entitled:
                found[name] = round((ratio - 1) * entitled)
    return found


def compared(numbers: Mapping[str, Number], ahead: Mapping[str, GpuMillis]) -> Sides | None:
    """Both sides as a decision compared them, the asker's as the other; None if it compared no ratios, or if it is not
    known how far they were ahead: that is not kept of jobs that were over long ago."""
    other, own = (
        Side(
            budget=BudgetPath(str(numbers[level])),
            ratio=ratio if isinstance(ratio := numbers[name], float) and math.isfinite(ratio) else None,
            ahead_gpu_ms=ahead.get(name, 0),
        )
        if level in numbers and name in numbers
        else None
        for name, level in COMPARED.items()
    )
    if other is None or own is None:
        return None
    sides = {"ratio": other, "victim_ratio": own}
    known = all(side.ratio is None or name in ahead for name, side in sides.items())
    return Sides(own=own, other=other) if known else None


def with_hours(why: Why, ahead: Mapping[str, GpuMillis]) -> Why:
    """The reason with how far each budget was ahead among its numbers, beside its ratio."""
    hours = {name.replace("ratio", "ahead_gpu_ms"): gpu_ms for name, gpu_ms in ahead.items() if name in why.numbers}
    return replace(why, numbers={**why.numbers, **hours}) if hours else why


def reason_of(entry: JobEntry) -> Why | None:
    """Why the job is where it is, with those numbers."""
    if entry.why is None or not entry.runs:
        return entry.why
    run = entry.runs[-1]
    return with_hours(entry.why, run.ahead_at_stop if run.stopping else run.ahead_at_start)
