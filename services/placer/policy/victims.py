"""P6 victims: which runs must end so that the asker fits whole. Minimal, cheapest first, checked before any is told."""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from services.placer.core import Job, Run
from services.placer.loose import Bunch, Key
from services.placer.policy.may_disrupt import AskingJob, Verdict, may_disrupt
from services.placer.policy.one_host import Way, best_way
from services.placer.policy.openings import Openings
from services.placer.policy.pack import pack_into
from services.placer.room import Pool
from services.placer.standings import Standings
from services.placer.state import State
from tenure.domain.ids import BudgetPath, HostId, RunId
from tenure.domain.job import JobSpec, Placement
from tenure.domain.policy import Policy
from tenure.domain.units import GpuMillis, Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A run that P5 lets the asker disrupt, with what it costs."""

    run: Run
    job: Job
    verdict: Verdict
    victim_ratio: float
    gpu_ms_at_risk: GpuMillis


VICTIM_ORDER: tuple[Callable[[Candidate], bool | float | str], ...] = (  # the first difference decides
    lambda candidate: candidate.job.spec.allocated,  # unallocated first
    lambda candidate: not candidate.job.spec.resumable,  # then those who can go on later
    lambda candidate: -candidate.victim_ratio,  # then the budget furthest over its share
    lambda candidate: candidate.gpu_ms_at_risk,  # then the least work lost
    lambda candidate: candidate.run.run,  # only to make the order total
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimPlan:
    """A complete placement for the asker and the minimal set of runs that must end for it."""

    placement: Placement
    victims: tuple[Candidate, ...]


def asking(spec: JobSpec) -> AskingJob:
    """The asker as P5 sees it."""
    return AskingJob(budget=spec.budget, priority=spec.priority, allocated=spec.allocated)


def find_victims(
    state: State,
    job: Job,
    now: Millis,
    *,
    openings: Openings,
    policy: Policy,
    blocked: Mapping[HostId, int] | None = None,
) -> VictimPlan | None:
    """Look for runs that may and must end so that `job` fits whole; None if there are none. Never a stopping run.

    `blocked`: by host GPUs that it may not use, whoever holds them (P8).

    Of the pools' plans the cheapest: compared victim by victim, the dearest first; ties by name of the pool.
    """
    spec = job.spec
    bunches = openings.of(spec.budget, spec.priority) if spec.allocated else {}
    if not bunches:
        return None
    found = []
    for _, pool in state.room.pools_for(spec):
        way = None
        if spec.replicas == 1 and pool.largest_hole < spec.gpus:
            way = best_way(state, pool, spec.gpus, now, blocked=blocked or {}, policy=policy)
        search = _Search(state, job, now, standings=openings.standings, policy=policy)
        if way is not None:
            found.append(search.plan_on(pool, way, blocked or {}))
        elif _could_fit(pool, bunches.values(), spec, blocked or {}):
            plan = search.choose(pool, search.candidates(bunches), blocked or {})
            if plan is not None:
                found.append(plan)
    return min(found, key=lambda plan: sorted(map(_victim_order, plan.victims), reverse=True), default=None)


def lost_for_good(candidate: Candidate) -> GpuMillis:
    """GPU-time whose work nobody can get back: a run that cannot resume loses all it did."""
    return 0 if candidate.job.spec.resumable else candidate.gpu_ms_at_risk


def _victim_order(candidate: Candidate) -> tuple[bool | float | str, ...]:
    return tuple(key(candidate) for key in VICTIM_ORDER)


def _could_fit(pool: Pool, bunches: Iterable[Bunch], spec: JobSpec, blocked: Mapping[HostId, int]) -> bool:
    """Whether the gang would fit if all of them ended."""
    masks = dict(pool.masks)
    for bunch in bunches:
        for host, mask in bunch.masks.items():
            if host in masks:
                masks[host] |= mask
    for host in blocked.keys() & masks.keys():
        masks[host] &= ~blocked[host]
    gpus = spec.gpus_per_replica
    return sum([mask.bit_count() // gpus for mask in masks.values()]) >= spec.replicas


class _Search:
    """One asker's look at its candidates."""

    def __init__(self, state: State, job: Job, now: Millis, *, standings: Standings, policy: Policy) -> None:
        self._state, self._job, self._now, self._standings, self._policy = state, job, now, standings, policy
        self._by = asking(job.spec)

    def candidates(self, bunches: dict[Key, Bunch]) -> Iterator[Candidate]:
        """The runs of these bunches in the order of `VICTIM_ORDER`, made as they are asked for."""
        ranked = sorted(
            (*self._rank(key, resumable), number, resumable)
            for number, key in enumerate(bunches)
            for resumable in (True, False)
        )
        in_order, cost = list(bunches.values()), self._policy.resume_cost_ms
        for _, alike in groupby(ranked, key=lambda entry: entry[:3]):
            lines = [line for *_, n, can in alike for line in in_order[n].lines(self._now, can, resume_cost_ms=cost)]
            for at_risk, run in heapq.merge(*lines):
                candidate = self._candidate(run, at_risk)
                if candidate is not None:
                    yield candidate

    def plan_on(self, pool: Pool, way: Way, blocked: Mapping[HostId, int]) -> VictimPlan:
        """The plan of a way on one host."""
        room = _Widening({way.host: pool.masks[way.host]}, gpus=self._job.spec.gpus_per_replica, blocked=blocked)
        victims = []
        for at_risk, run in way.runs:
            room.add(self._state.masks[run.run])
            candidate = self._candidate(run.run, at_risk)
            assert candidate is not None, "unallocated runs always give way"
            victims.append(candidate)
        placement = pack_into(room.pool(), self._job.spec)
        assert placement is not None, "the room was counted to hold it"
        return VictimPlan(placement=placement, victims=tuple(victims))

    def choose(self, pool: Pool, candidates: Iterable[Candidate], blocked: Mapping[HostId, int]) -> VictimPlan | None:
        """Add the cheapest until the gang fits, then drop, dearest first, whoever is not needed.

        For a gang that needs several hosts all are added: then what is dropped first is the most work that would be
        lost for good, wherever it is.
        """
        spec = self._job.spec
        masks = self._state.masks
        everybody = spec.gpus > self._state.largest_host
        room = _Widening(pool.masks, gpus=spec.gpus_per_replica, blocked=blocked)
        taken: list[Candidate] = []
        for candidate in candidates:
            if room.add(masks[candidate.run.run]):
                taken.append(candidate)
                if room.fits >= spec.replicas and not everybody:
                    break
        if room.fits < spec.replicas:
            return None
        taken.reverse()
        for candidate in sorted(taken, key=lost_for_good, reverse=True):
            held = masks[candidate.run.run]
            if room.fits - room.gain_of(held) >= spec.replicas:
                room.remove(held)
                taken.remove(candidate)
        taken.reverse()
        placement = pack_into(room.pool(), spec)
        assert placement is not None, "the room was counted to hold the gang"
        return VictimPlan(placement=placement, victims=tuple(taken))

    def _rank(self, key: Key, resumable: bool) -> tuple[bool, bool, float]:
        return (False, not resumable, 0.0) if key is None else (True, not resumable, -self._step(key.budget))

    def _step(self, budget: BudgetPath) -> float:
        """The budget's ratio, in whole steps: nearly equal ones say little about who has had too much."""
        ratio, step = self._standings.ratio(budget), self._policy.victim_ratio_step
        return ratio if math.isinf(ratio) or step <= 0 else math.floor(ratio / step) * step

    def _candidate(self, run_id: RunId, at_risk: GpuMillis) -> Candidate | None:
        """The run with the verdict of the gate; None if the gate keeps it after all (a clock went back)."""
        run = self._state.core.runs[run_id]
        job = self._state.core.jobs[run.job]
        verdict = may_disrupt(run, job, self._by, self._now, standings=self._standings, policy=self._policy)
        if not verdict.allowed:
            return None
        ratio = self._step(job.spec.budget) if job.spec.allocated else 0.0
        return Candidate(run=run, job=job, verdict=verdict, victim_ratio=ratio, gpu_ms_at_risk=at_risk)


class _Widening:
    """How many replicas fit a pool while runs are being taken out of it, kept up to date run by run."""

    def __init__(self, masks: dict[HostId, int], *, gpus: int, blocked: Mapping[HostId, int]) -> None:
        self._masks = {**masks, **{host: masks[host] & ~blocked[host] for host in blocked.keys() & masks.keys()}}
        self._gpus, self._blocked = gpus, blocked
        self.fits = sum([mask.bit_count() // gpus for mask in self._masks.values()])

    def add(self, held: dict[HostId, int]) -> bool:
        """Take a run out. False if it holds nothing here."""
        masks, gpus, here = self._masks, self._gpus, False
        for host, everything in held.items():
            before = masks.get(host)
            mask = everything & ~self._blocked.get(host, 0)
            if before is not None and mask:
                here = True
                masks[host] = before | mask
                self.fits += (before | mask).bit_count() // gpus - before.bit_count() // gpus
        return here

    def remove(self, held: dict[HostId, int]) -> None:
        """Put it back."""
        self.fits -= self.gain_of(held)
        for host, mask in held.items():
            if host in self._masks:
                self._masks[host] &= ~mask

    def gain_of(self, held: dict[HostId, int]) -> int:
        """How many replicas fewer would fit with the run back in."""
        lost = 0
        for host, mask in held.items():
            now = self._masks.get(host)
            if now is not None:
                lost += now.bit_count() // self._gpus - (now & ~mask).bit_count() // self._gpus
        return lost

    def pool(self) -> Pool:
        """What there is without the runs that were taken out."""
        return Pool.of(self._masks)
