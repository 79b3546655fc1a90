"""P6 victims: which runs must end so that the asker fits whole. Minimal, cheapest first, checked before any is told."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from services.placer.policy.may_disrupt import AskingJob, Verdict, may_disrupt
from services.placer.policy.pack import pack
from services.placer.policy.standings import Standings
from services.placer.policy.view import Pool, View
from services.placer.state import Job, Run, State, gpu_mask
from tenure.domain.ids import HostId
from tenure.domain.job import Placement
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason
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
    lambda candidate: -candidate.victim_ratio,  # then the budget furthest over its share
    lambda candidate: candidate.gpu_ms_at_risk,  # then the least work lost since the last checkpoint
    lambda candidate: candidate.run.run,  # only to make the order total
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimPlan:
    """A complete placement for the asker and the minimal set of runs that must end for it."""

    placement: Placement
    victims: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What came of looking for victims: a plan, or None and how many runs P5 keeps for which reason."""

    plan: VictimPlan | None
    kept: Mapping[Reason, int]


def find_victims(state: State, view: View, job: Job, now: Millis, *, standings: Standings, policy: Policy) -> Search:
    """Look for runs that may and must end so that `job` fits whole. Never touches a stopping run."""
    asking = AskingJob(budget=job.spec.budget, priority=job.spec.priority, allocated=job.spec.allocated)
    candidates: list[Candidate] = []
    kept: Counter[Reason] = Counter()
    for run in state.core.runs.values():
        if run.stop is not None:
            continue
        victim = state.core.jobs[run.job]
        verdict = may_disrupt(run, victim, asking, now, standings=standings, policy=policy)
        if verdict.allowed:
            candidates.append(_candidate(run, victim, verdict, now, standings))
        else:
            kept[verdict.why.reason] += 1
    candidates.sort(key=_victim_order)
    return Search(plan=_choose(view, job, candidates), kept=kept)


def _victim_order(candidate: Candidate) -> tuple[bool | float | str, ...]:
    return tuple(key(candidate) for key in VICTIM_ORDER)


def _candidate(run: Run, job: Job, verdict: Verdict, now: Millis, standings: Standings) -> Candidate:
    safe_until = run.assigned_at if run.started_at is None else max(run.started_at, run.checkpoint_at or 0)
    at_risk = job.spec.gpus * max(0, now - safe_until)
    ratio = standings.ratio(job.spec.budget) if job.spec.allocated else 0.0
    return Candidate(run=run, job=job, verdict=verdict, victim_ratio=ratio, gpu_ms_at_risk=at_risk)


def _choose(view: View, job: Job, candidates: list[Candidate]) -> VictimPlan | None:
    """The cheapest of the pools' plans: compared victim by victim, the dearest first; ties by name of the pool."""
    plans = [plan for name, usable in view.pools_for(job.spec) if (plan := _choose_in(name, usable, job, candidates))]
    return min(plans, key=lambda plan: sorted(map(_victim_order, plan.victims), reverse=True), default=None)


def _choose_in(name: Pool, usable: dict[HostId, int], job: Job, candidates: list[Candidate]) -> VictimPlan | None:
    """In one pool: add the cheapest until the gang fits, then drop, dearest first, whoever is not needed."""
    room = _Room(usable, gpus=job.spec.gpus_per_replica)
    taken: list[Candidate] = []
    for candidate in candidates:
        if room.fits >= job.spec.replicas:
            break
        if room.free(candidate.run):
            taken.append(candidate)
    if room.fits < job.spec.replicas:
        return None
    for candidate in reversed(taken.copy()):
        if room.fits - room.gain_of(candidate.run) >= job.spec.replicas:
            room.unfree(candidate.run)
            taken.remove(candidate)
    placement = pack(View({name: room.masks}), job.spec)
    assert placement is not None, "the room was counted to hold the gang"
    return VictimPlan(placement=placement, victims=tuple(taken))


class _Room:
    """How many replicas fit a pool while runs are being taken out of it, kept up to date run by run."""

    def __init__(self, usable: dict[HostId, int], *, gpus: int) -> None:
        self.masks = dict(usable)
        self._gpus = gpus
        self.fits = sum(mask.bit_count() // gpus for mask in usable.values())

    def free(self, run: Run) -> bool:
        """Take `run` out. False if it holds nothing here."""
        return self._change(run, add=True)

    def unfree(self, run: Run) -> None:
        """Put `run` back."""
        self._change(run, add=False)

    def gain_of(self, run: Run) -> int:
        """How many replicas fewer would fit with `run` back in."""
        lost = 0
        for host, held in run.hosts.items():
            if host in self.masks:
                mask = self.masks[host]
                lost += mask.bit_count() // self._gpus - (mask & ~gpu_mask(held)).bit_count() // self._gpus
        return lost

    def _change(self, run: Run, *, add: bool) -> bool:
        here = False
        for host, held in run.hosts.items():
            if host in self.masks:
                here = True
                before = self.masks[host]
                after = before | gpu_mask(held) if add else before & ~gpu_mask(held)
                self.masks[host] = after
                self.fits += after.bit_count() // self._gpus - before.bit_count() // self._gpus
        return here
