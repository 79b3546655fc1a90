"""Facts of the ranker."""

import math
from typing import ClassVar

import msgspec

from tenure.domain.ids import BudgetPath, JobId, Position, UserName
from tenure.domain.units import GpuMillis
from tenure.events.fact import Fact, Lane


class Standing(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The numbers of one budget's ratio (P3) at the ranking's instant. The order follows from exactly these."""

    path: BudgetPath
    charged_gpu_ms: GpuMillis
    commitment_gpu_ms: GpuMillis
    entitlement_gpu_ms: GpuMillis

    @property
    def used_gpu_ms(self) -> GpuMillis:
        """What counts against the entitlement: charged in the window, and promised to runs and reservations."""
        return self.charged_gpu_ms + self.commitment_gpu_ms

    @property
    def ratio(self) -> float:
        """P3: below 1 the budget has had less than its share, above 1 more; infinite without a share (last)."""
        return self.used_gpu_ms / self.entitlement_gpu_ms if self.entitlement_gpu_ms else math.inf

    @property
    def ahead_gpu_ms(self) -> GpuMillis:
        """What people are shown instead of a ratio: GPU-time ahead of the share (positive) or behind it (negative)."""
        return self.used_gpu_ms - self.entitlement_gpu_ms


class UserStanding(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The same of one user with queued jobs in a budget whose users are equal; the one who used least comes first."""

    path: BudgetPath
    user: UserName
    charged_gpu_ms: GpuMillis
    commitment_gpu_ms: GpuMillis

    @property
    def used_gpu_ms(self) -> GpuMillis:
        """What orders the users of the budget."""
        return self.charged_gpu_ms + self.commitment_gpu_ms


class SpareStanding(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Of a budget with unallocated jobs queued: what it held unallocated in the window, for its entitlement."""

    path: BudgetPath
    held_gpu_ms: GpuMillis
    entitlement_gpu_ms: GpuMillis

    @property
    def ratio(self) -> float:
        """What orders the unallocated jobs: the lowest first; infinite without a share (last)."""
        return self.held_gpu_ms / self.entitlement_gpu_ms if self.entitlement_gpu_ms else math.inf


class RankingPublished(Fact, frozen=True, kw_only=True, tag=True):
    """The fair-share order (P4), first to start first; allocated jobs, then unallocated ones.

    `basis` is the position of the last fact it takes into account. Jobs that have left the queue since are to be
    skipped: their leaving is not said again. `standings` are in order of path and cover every budget of the tree (of a
    tree of more than a thousand, those with use or queued jobs), `users` those of budgets whose users are equal,
    `spare` is in the order of the unallocated part: all that was compared. Of jobs that are alike (same budget, user,
    shape, contract and priority) only as many are listed as could run at once on the empty cluster: where one of them
    cannot start, the next cannot either.
    """

    lane: ClassVar[Lane] = Lane.RANK

    order: tuple[JobId, ...]
    standings: tuple[Standing, ...]
    basis: Position
    users: tuple[UserStanding, ...] = ()
    spare: tuple[SpareStanding, ...] = ()
