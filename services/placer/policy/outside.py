"""P8 for those without a reservation: what there is outside the reservations that a job would be in the way of.

Worked out once a decision for all jobs whose contracts would end alike. Of room and reach only a bound is kept, which
stays one as they only shrink in a decision: it spares the search for those who cannot have anything.
"""

from collections.abc import Mapping

from services.placer.blocks import change_count, replicas_in
from services.placer.core import Job
from services.placer.loose import Bunch, Key
from services.placer.policy.reserve import forbidden
from services.placer.policy.victims import all_ended, fits_in
from services.placer.room import Pool, Room
from services.placer.state import State
from tenure.domain.ids import HostId, JobId
from tenure.domain.job import HostChoice, JobSpec, Wanted
from tenure.domain.units import Millis


class Outside:
    """What is left to each job in one decision."""

    def __init__(self, state: State, now: Millis) -> None:
        self._state, self._now = state, now
        self._known: dict[tuple[Millis, JobId | None], _Left] = {}

    def blocked(self, job: Job) -> Mapping[HostId, int]:
        """By host a bit for each GPU that the job may not use, whoever holds it."""
        return self._of(job).blocked

    def may_fit(self, job: Job) -> bool:
        """False: it does not fit into what is free and not blocked."""
        return self._of(job).most(self._state.room, job.spec) >= job.spec.replicas

    def may_be_had(self, job: Job, bunches: Mapping[Key, Bunch]) -> bool:
        """False: it does not fit either if every loose run, or every run of these bunches, ended."""
        left, state = self._of(job), self._state
        return (
            left.most(state.reach, job.spec) >= job.spec.replicas
            and left.most_of(bunches, state.room, job.spec) >= job.spec.replicas
        )

    def _of(self, job: Job) -> "_Left":
        spec = job.spec
        key = (spec.min_runtime_ms + spec.grace_ms, job.job if job.job in self._state.reserved else None)
        left = self._known.get(key)
        if left is None:
            left = self._known[key] = _Left(forbidden(self._state, job=job.job, spec=spec, now=self._now))
        return left


class _Left:
    """What is not blocked."""

    __slots__ = ("_counts", "_most", "_most_of", "blocked")

    def __init__(self, blocked: dict[HostId, int]) -> None:
        self.blocked = blocked
        self._counts: dict[Pool, list[int]] = {}
        """By pool of room or reach, and a number of GPUs: how many hosts had just so many that are not blocked."""
        self._most: dict[tuple[Room, Wanted, HostChoice | None, int], int] = {}
        self._most_of: dict[tuple[tuple[Key, ...], Wanted, HostChoice | None, int], int] = {}

    def most(self, room: Room, spec: JobSpec) -> int:
        """How many replicas fit one of the pools at most, for all that is known; nothing is said of blocks."""
        key = (room, spec.wanted, spec.choice, spec.gpus_per_replica)
        known = self._most.get(key)
        if known is None:
            counts = (self._of(pool) for _, pool in room.pools_for(spec))
            known = self._most[key] = max((replicas_in(had, spec.gpus_per_replica) for had in counts), default=0)
        return known

    def most_of(self, bunches: Mapping[Key, Bunch], room: Room, spec: JobSpec) -> int:
        """The same of what is free now if all runs of these bunches ended."""
        key = (tuple(bunches), spec.wanted, spec.choice, spec.gpus_per_replica)
        known = self._most_of.get(key)
        if known is None:
            had = (all_ended(pool, bunches.values(), self.blocked) for _, pool in room.pools_for(spec))
            known = self._most_of[key] = max((fits_in(masks, spec.gpus_per_replica) for masks in had), default=0)
        return known

    def _of(self, pool: Pool) -> list[int]:
        counts = self._counts.get(pool)
        if counts is None:
            counts = self._counts[pool] = list(pool.counts)
            for host, mask in self.blocked.items():
                before = pool.masks.get(host, 0)
                if before & mask:
                    change_count(counts, before.bit_count(), -1)
                    change_count(counts, (before & ~mask).bit_count(), +1)
        return counts
