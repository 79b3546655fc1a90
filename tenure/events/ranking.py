"""Facts of the ranker."""

from typing import ClassVar

import msgspec

from tenure.domain.ids import BudgetPath, JobId, Position
from tenure.domain.units import GpuMillis
from tenure.events.fact import Fact, Lane


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one budget's ratio (P3) at the ranking's instant."""

    path: BudgetPath
    charged_gpu_ms: GpuMillis
    commitment_gpu_ms: GpuMillis
    entitlement_gpu_ms: GpuMillis


class RankingPublished(Fact, frozen=True, kw_only=True, tag=True):
    """The fair-share order (P4), first to start first; allocated jobs, then unallocated ones.

    `basis` is the position of the last fact it takes into account. Of jobs that are alike (same budget, user, shape,
    contract and priority) only as many are listed as could run at once on the empty cluster: where one of them cannot
    start, the next cannot either.
    """

    lane: ClassVar[Lane] = Lane.RANK

    order: tuple[JobId, ...]
    standings: tuple[Standing, ...]
    basis: Position
