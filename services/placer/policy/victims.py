"""P6 victims: which runs must end so that the asker fits whole. Minimal, cheapest first, checked before any is told."""

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby, islice

from services.placer.blocks import Block, replicas_in
from services.placer.core import Job, Run
from services.placer.loose import Bunch, Holding, Key
from services.placer.policy.may_disrupt import AskingJob, Verdict, may_disrupt
from services.placer.policy.one_host import HOSTS_MAX, Way, best_way
from services.placer.policy.openings import Openings
from services.placer.policy.pack import pack_into
from services.placer.room import Pool
from services.placer.standings import Standings
from services.placer.state import State
from tenure.domain.ids import BudgetPath, HostId, RunId
from tenure.domain.job import JobSpec, Placement, Topology
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
    together: bool = False
    """It was looked for in one block."""
    looked: Mapping[str, int] = field(default_factory=dict)
    """How much was looked at and how much there was, if that was not all."""


SITES_MAX = 8
"""Of the blocks in which a gang could lie, the plans of so many are compared."""
RUNS_MAX = 2_000
"""Among so many runs the cheapest are looked for; of more, among those of the hosts where the most could be had."""


NOBODY = Holding(BudgetPath(""), 0)
"""The bunch of runs that are in none."""


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
    runs_max: int = RUNS_MAX,
    hosts_max: int = HOSTS_MAX,
) -> VictimPlan | None:
    """Look for runs that may and must end so that `job` fits whole; None if there are none. Never a stopping run.

    `blocked`: by host GPUs that it may not use, whoever holds them (P8).
    `runs_max`, `hosts_max`: as `RUNS_MAX`, `HOSTS_MAX`. A search that stops early finds a plan whenever there is one,
    but maybe not the cheapest; the plan says so.

    Of the pools' plans the cheapest: compared victim by victim, the dearest first; ties by name of the pool. The same
    of the blocks that a gang has to lie in one of; one that prefers it takes a block if no more work is lost for good.
    """
    spec = job.spec
    bunches = openings.of(spec.budget, spec.priority) if spec.allocated else {}
    if not bunches:
        return None
    found: list[VictimPlan] = []
    for _, pool in state.room.pools_for(spec):
        way = None
        if spec.replicas == 1 and pool.largest_hole < spec.gpus:
            way = best_way(state, pool, spec.gpus, now, blocked=blocked or {}, policy=policy, hosts_max=hosts_max)
        search = _Search(state, job, now, standings=openings.standings, policy=policy)
        if way is not None:
            found.append(search.plan_on(pool, way, blocked or {}))
        else:
            found += search.plans(pool, bunches, blocked or {}, runs_max=runs_max)
    return min(found, key=partial(_plan_order, preferring=spec.topology is Topology.PREFER_BLOCK), default=None)


def _plan_order(plan: VictimPlan, *, preferring: bool) -> tuple[GpuMillis, bool, list[tuple[bool | float | str, ...]]]:
    """The cheapest is the smallest."""
    victims = sorted(map(_victim_order, plan.victims), reverse=True)
    return (sum(map(lost_for_good, plan.victims)), not plan.together, victims) if preferring else (0, False, victims)


def lost_for_good(candidate: Candidate) -> GpuMillis:
    """GPU-time whose work nobody can get back: a run that cannot resume loses all it did."""
    return 0 if candidate.job.spec.resumable else candidate.gpu_ms_at_risk


def _victim_order(candidate: Candidate) -> tuple[bool | float | str, ...]:
    return tuple(key(candidate) for key in VICTIM_ORDER)


def all_ended(pool: Pool, bunches: Iterable[Bunch], blocked: Mapping[HostId, int]) -> dict[HostId, int]:
    """By host what could be had of the pool if all of them ended, where that is something.

    Only hosts with something free or loose are looked at: those are few.
    """
    free = pool.masks
    loose: dict[HostId, int] = {}
    for bunch in bunches:
        for host, mask in bunch.masks.items():
            loose[host] = loose.get(host, 0) | mask
    return {
        host: had
        for host in pool.not_full | dict.fromkeys(loose)
        if host in free and (had := (free[host] | loose.get(host, 0)) & ~blocked.get(host, 0))
    }


def fits_in(masks: Mapping[HostId, int], gpus: int) -> int:
    """How many replicas of so many GPUs fit these hosts."""
    return sum([mask.bit_count() // gpus for mask in masks.values()])


def _sites(pool: Pool, masks: dict[HostId, int], spec: JobSpec) -> list[Block]:
    """The blocks, or the whole pool, in which the gang would fit if these were free: what is freest now first."""
    replicas, gpus = spec.replicas, spec.gpus_per_replica
    sites = pool.sites(spec.topology, replicas, gpus)
    if spec.topology is Topology.PREFER_BLOCK:
        sites = [*sites, *pool.one_block(replicas, gpus)]
    if sites == [pool.layout.root]:
        return sites
    all_loose = Pool.of(masks, pool.layout)
    possible = [site for site in sites if replicas_in(all_loose.tally(site).counts, gpus) >= replicas]
    return sorted(possible, key=lambda site: (site.number != 0, -replicas_in(pool.tally(site).counts, gpus), site.path))


class _Search:
    """One asker's look at its candidates."""

    def __init__(self, state: State, job: Job, now: Millis, *, standings: Standings, policy: Policy) -> None:
        self._state, self._job, self._now, self._standings, self._policy = state, job, now, standings, policy
        self._by = asking(job.spec)
        self._largest = state.layouts.largest_host(job.spec.wanted)

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

    def plans(
        self, pool: Pool, bunches: dict[Key, Bunch], blocked: Mapping[HostId, int], *, runs_max: int
    ) -> Iterator[VictimPlan]:
        """A plan for each block in which the gang may lie, up to `SITES_MAX`; or the one for the pool."""
        masks = dict(sorted(all_ended(pool, bunches.values(), blocked).items()))
        if fits_in(masks, self._job.spec.gpus_per_replica) < self._job.spec.replicas:
            return
        worth = Pool.of({host: pool.masks[host] for host in masks}, pool.layout)
        sites = _sites(pool, masks, self._job.spec)
        there_are = sum([len(bunch.runs) for bunch in bunches.values()])
        hurried = there_are > runs_max
        every: Iterable[Candidate] = () if hurried else self.candidates(bunches)
        if len(sites) > 1:
            every = list(every)

        def plan_in(site: Block) -> VictimPlan | None:
            here, together = worth.within(site), site is not pool.layout.root
            if not hurried:
                return self.choose(here, every, blocked, together=together, looked={})
            if self._job.spec.gpus <= self._largest:  # a few of the cheapest often do
                cheapest = islice(self.candidates(bunches), runs_max)
                plan = self.choose(here, cheapest, blocked, together=together, looked={})
                if plan is not None:
                    return plan
            near = self._near(pool, site, masks, bunches, runs_max)
            looked = {"runs_looked_at": len(near), "runs_to_look_at": there_are} if len(near) < there_are else {}
            return self.choose(here, near, blocked, together=together, looked=looked)

        yield from islice(filter(None, map(plan_in, sites)), SITES_MAX)

    def _near(
        self, pool: Pool, site: Block, masks: dict[HostId, int], bunches: dict[Key, Bunch], runs_max: int
    ) -> list[Candidate]:
        """The runs of these bunches on the hosts of a block where the most could be had: on as many as the gang needs,
        then up to `runs_max`. `masks`: what could be had. The gang fits if all of them end."""
        gpus, left = self._job.spec.gpus_per_replica, self._job.spec.replicas
        able = [host for host in site.every_host() if host in masks and masks[host].bit_count() >= gpus]
        able.sort(key=lambda host: (-(masks[host].bit_count() // gpus), -pool.masks[host].bit_count(), host))
        runs: dict[RunId, None] = {}
        key_of = self._state.loose.key_of
        for host in able:
            if left <= 0 and len(runs) >= runs_max:
                break
            runs.update((run, None) for run in self._state.runs_on.get(host, ()) if key_of.get(run, NOBODY) in bunches)
            left -= masks[host].bit_count() // gpus
        found = (self._candidate(run, self._at_risk(bunches[key_of[run]], run)) for run in runs)
        return sorted(filter(None, found), key=_victim_order)

    def _at_risk(self, bunch: Bunch, run: RunId) -> GpuMillis:
        """As `Bunch.lines` has it."""
        (gpus, resumable), safe_until = bunch.runs[run]
        most = self._policy.resume_cost_ms if resumable else self._now
        return gpus * min(max(0, self._now - safe_until), most)

    def plan_on(self, pool: Pool, way: Way, blocked: Mapping[HostId, int]) -> VictimPlan:
        """The plan of a way on one host."""
        here = Pool.of({way.host: pool.masks[way.host]}, pool.layout)
        room = _Widening(here, gpus=self._job.spec.gpus_per_replica, blocked=blocked)
        victims = []
        for at_risk, run in way.runs:
            room.add(self._state.masks[run.run])
            candidate = self._candidate(run.run, at_risk)
            assert candidate is not None, "unallocated runs always give way"
            victims.append(candidate)
        placement = pack_into(room.pool(), self._job.spec)
        assert placement is not None, "the room was counted to hold it"
        return VictimPlan(placement=placement, victims=tuple(victims), looked=way.looked)

    def choose(
        self,
        pool: Pool,
        candidates: Iterable[Candidate],
        blocked: Mapping[HostId, int],
        *,
        together: bool,
        looked: Mapping[str, int],
    ) -> VictimPlan | None:
        """The plan for a block, or for all of a pool.

        Add the cheapest until the gang fits, then drop, dearest first, whoever is not needed. For a gang that needs
        several hosts all are added: then what is dropped first is the most work that would be lost for good, wherever
        it is.
        """
        spec = self._job.spec
        masks = self._state.masks
        everybody = spec.gpus > self._largest
        room = _Widening(pool, gpus=spec.gpus_per_replica, blocked=blocked)
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
        return VictimPlan(placement=placement, victims=tuple(taken), together=together, looked=looked)

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

    def __init__(self, pool: Pool, *, gpus: int, blocked: Mapping[HostId, int]) -> None:
        masks, self._layout = pool.masks, pool.layout
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
        return Pool.of(self._masks, self._layout)
