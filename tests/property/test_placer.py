"""Properties of the placer's plan on random clusters, runs and queues: P5-P7, I1-I3, I6-I9."""

from collections.abc import Mapping
from itertools import dropwhile
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from services.placer.core import Job, Run, gpu_mask
from services.placer.policy.hope import hopeful
from services.placer.policy.may_disrupt import AskingJob, may_disrupt
from services.placer.policy.openings import Openings
from services.placer.policy.outside import Outside
from services.placer.policy.reserve import forbidden
from services.placer.policy.victims import VictimPlan, find_victims
from services.placer.standings import Standings
from services.placer.state import State
from tenure.domain.host import HostState
from tenure.domain.ids import HostId, RunId
from tenure.domain.job import JobSpec, gpus_by_host
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason
from tenure.domain.units import MINUTE
from tenure.events.fact import Fact
from tenure.events.placing import RunAssigned, RunPreemptionRequested
from tests.unit.placer.scene import Scene

BUDGETS = ("a", "b", "c")
STATES = (*[HostState.HEALTHY] * 8, HostState.SUSPECT, HostState.DRAINING)

shapes = st.tuples(
    st.sampled_from(BUDGETS),
    st.integers(1, 8),  # GPUs per replica
    st.integers(1, 5),  # replicas
    st.sampled_from((0, MINUTE, MINUTE, 5 * MINUTE)),  # minimum runtime
    st.integers(0, 1),  # priority
)


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """A cluster with some runs of various ages, unequal ratios, a queue, and hosts that are not all healthy."""
    hosts = draw(st.integers(1, 6))
    scene = Scene(hosts=hosts)
    for number, (budget, gpus, replicas, minimum, priority) in enumerate(
        draw(st.lists(shapes, min_size=2, max_size=12))
    ):
        scene.job(f"r{number:02}", budget, gpus=gpus, replicas=replicas, min_runtime_ms=minimum, priority=priority)
        scene.act(scene.now + draw(st.sampled_from((0, 1, MINUTE))))
        run = RunId(f"r{number:02}.1")
        if run in scene.actor.state.core.runs and draw(st.sampled_from((True, True, True, False))):
            scene.start(run)
    scene.act()
    for index in range(hosts):
        state = draw(st.sampled_from(STATES))
        if state is not HostState.HEALTHY:
            scene.host(f"h{index}", state)
    scene.rank(order=[], **{budget: draw(st.sampled_from((0.1, 0.5, 1.0, 2.0))) for budget in BUDGETS})
    for number, (budget, gpus, replicas, minimum, priority) in enumerate(
        draw(st.lists(shapes, min_size=1, max_size=8))
    ):
        scene.job(f"q{number:02}", budget, gpus=gpus, replicas=replicas, min_runtime_ms=minimum, priority=priority)
    scene.now += draw(st.sampled_from((1, 3 * MINUTE, 30 * MINUTE, 60 * MINUTE)))
    return scene


def standings_of(state: State) -> Standings:
    return Standings(state.core.standings)


def check_starts(state: State, facts: list[Fact]) -> None:
    """I1, I2, I7: whole gangs on free GPUs of healthy hosts, nothing held twice, nothing out of an escrow."""
    taken: dict[str, set[int]] = {}
    for fact in facts:
        if not isinstance(fact, RunAssigned):
            continue
        spec = state.core.jobs[fact.job].spec
        assert [place.replica for place in fact.placement] == list(range(spec.replicas))
        assert all(len(set(place.gpus)) == spec.gpus_per_replica for place in fact.placement)
        for host, gpus in gpus_by_host(fact.placement).items():
            assert len(set(gpus)) == len(gpus)
            assert gpu_mask(gpus) & ~state.free(host) == 0, "I1"
            assert not taken.setdefault(host, set()) & set(gpus)
            taken[host] |= set(gpus)


@settings(max_examples=150, deadline=None)
@given(scenes())
def test_one_decision_after_another_breaks_nothing(scene: Scene) -> None:
    state: State = scene.actor.state
    for _ in range(50):
        scene.actor.fold()
        decision = scene.actor.role.decide(state, scene.now)
        again = scene.actor.role.decide(scene.actor.role.load(scene.actor.role.dump(state)), scene.now)
        assert list(decision.facts) == list(again.facts), "I6: a restart decides the same"
        check_starts(state, list(decision.facts))
        healthy = {host.spec.host for host in state.core.hosts.values() if host.state is HostState.HEALTHY}
        for fact in decision.facts:
            if isinstance(fact, RunAssigned):
                assert {place.host for place in fact.placement} <= healthy, "I7"
            if isinstance(fact, RunPreemptionRequested):
                check_preemption(state, fact, scene.now)
        if not decision.facts:
            return
        scene.actor.step(scene.now)
    raise AssertionError("the placer does not come to rest")


def check_preemption(state: State, fact: RunPreemptionRequested, now: int) -> None:
    """I3, I8, I9: nothing protected is ended, unallocated work ends nobody, ratios are strictly lower."""
    run = state.core.runs[fact.run]
    victim = state.core.jobs[run.job].spec
    assert run.stop is None, "a run is told once"
    if victim.allocated:
        assert run.protected_until is not None and now >= run.protected_until, "I3"
    if fact.escrow:
        asker = state.core.jobs[fact.by].spec  # type: ignore[index]
        assert asker.allocated, "I8"
        ratios = standings_of(state)
        promised = fact.why.reason is Reason.DISRUPT_PROMISED  # by what right was decided when it was promised
        if not promised and victim.allocated and victim.budget != asker.budget:
            assert ratios.ratio(asker.budget) < ratios.ratio(victim.budget), "I9"


@settings(max_examples=150, deadline=None)
@given(scenes())
def test_victims_are_complete_permitted_and_none_is_needless(scene: Scene) -> None:
    scene.actor.fold()
    state: State = scene.actor.state
    state.expire(scene.now)
    ratios = standings_of(state)
    openings = Openings(state.loose, ratios, scene.policy)
    hope = hopeful(state, openings)
    for job in (job for job in state.core.jobs.values() if job.job in state.waiting.line_of):
        room, spec = free_masks(state), job.spec
        open_runs = [run for run in state.core.runs.values() if permitted(state, run, job, scene.now, scene.policy)]
        kept = forbidden(state, job=job.job, spec=spec, now=scene.now)
        plan = find_victims(state, job, scene.now, openings=openings, policy=scene.policy, blocked=kept)
        line = state.waiting.line_of[job.job]
        hurried = find_victims(
            state, job, scene.now, openings=openings, policy=scene.policy, blocked=kept, runs_max=1, hosts_max=1
        )
        assert (hurried is None) == (plan is None), "a search that stops early finds one too"
        check_victims(hurried, job, open_runs, room, kept)
        outside = Outside(state, scene.now)
        assert outside.blocked(job) == kept
        assert outside.may_fit(job) == fits(besides(room, kept), spec), "nothing has been taken in this decision yet"
        given = openings.of(spec.budget, spec.priority)
        assert plan is None or outside.may_be_had(job, given), "who may have victims is not kept from looking for them"
        assert (line in hope.free) == fits(room, spec), "a class has hope of free GPUs if it fits, and only then"
        if plan is None:
            assert not open_runs or not fits(besides(without(room, open_runs), kept), spec), "there was a way"
            continue
        assert line in hope.free or line in hope.victims, "a class with a way has hope"
        assert not plan.looked, "it looked at all there is"
        check_victims(plan, job, open_runs, room, kept)


def check_victims(
    plan: VictimPlan | None, job: Job, open_runs: list[Run], room: dict[str, int], kept: Mapping[HostId, int]
) -> None:
    """P6: complete, permitted, and none is needless."""
    if plan is None:
        return
    assert len(plan.placement) == job.spec.replicas
    assert all(victim.run in open_runs for victim in plan.victims)
    wanted = gpus_by_host(plan.placement)
    freed = besides(without(room, [victim.run for victim in plan.victims]), kept)
    assert all(gpu_mask(gpus) & ~freed[host] == 0 for host, gpus in wanted.items()), "all of it can be had"
    for needless in plan.victims:
        others = [victim.run for victim in plan.victims if victim is not needless]
        assert not fits(besides(without(room, others), kept), job.spec), "a proper subset would do"


def besides(room: dict[str, int], kept: Mapping[HostId, int]) -> dict[str, int]:
    """The room without what reservations keep (P8)."""
    return {host: mask & ~kept.get(HostId(host), 0) for host, mask in room.items()}


@settings(max_examples=150, deadline=None)
@given(scenes())
def test_indexes_kept_up_to_date_are_those_made_anew(scene: Scene) -> None:
    scene.act()
    kept: State = scene.actor.state
    anew = State(kept.core)
    anew.expire(scene.now)
    for index in (
        free_masks,
        lambda state: [(name, pool.counts, pool.free) for name, pool in state.room.pools.items()],
        lambda state: {name: pool.masks for name, pool in state.reach.pools.items()},
        lambda state: {name: set(pool.not_full) for name, pool in state.room.pools.items()},
        lambda state: {key: (bunch.runs, bunch.masks, bunch.gpus) for key, bunch in state.loose.bunches.items()},
        lambda state: {alike: (set(line.jobs), line.told) for alike, line in state.waiting.lines.items()},
        lambda state: (set(state.firm), set(state.unstarted), set(state.unsaid), set(state.draining)),
        lambda state: (set(state.stopping), state.overdue),
        below,
        lambda state: (state.waited_for, state.ports, state.masks),
    ):
        assert trimmed(index(kept)) == trimmed(index(anew))


def below(state: State) -> dict[str, dict[str, dict[object, set[str]]]]:
    """By budget and child the bunches at or below the child, each as its runs."""
    return {
        parent: {path: {key: set(bunch.runs) for key, bunch in found.items()} for path, found in children.items()}
        for parent, children in state.loose.below.items()
    }


def trimmed(index: Any) -> Any:
    """Counts of hosts with more GPUs than any host has are zeros: how many does not matter."""
    if isinstance(index, list):
        return [(name, list(dropwhile(lambda n: not n, reversed(counts))), free) for name, counts, free in index]
    return index


def permitted(state: State, run: Run, job: Job, now: int, policy: Policy) -> bool:
    """P5, asked of one run."""
    asking = AskingJob(budget=job.spec.budget, priority=job.spec.priority, allocated=job.spec.allocated)
    victim = state.core.jobs[run.job]
    ratios = standings_of(state)
    return run.stop is None and may_disrupt(run, victim, asking, now, standings=ratios, policy=policy).allowed


def free_masks(state: State) -> dict[str, int]:
    """The room of the only pool."""
    return {host: mask for pool in state.room.pools.values() for host, mask in pool.masks.items()}


def without(room: Mapping[str, int], runs: list[Run]) -> dict[str, int]:
    """The room as if these had ended."""
    masks = dict(room)
    for run in runs:
        for host, gpus in run.hosts.items():
            if host in masks:
                masks[host] |= gpu_mask(gpus)
    return masks


def fits(room: dict[str, int], spec: JobSpec) -> bool:
    """The simple form of packing's feasibility."""
    return sum(mask.bit_count() // spec.gpus_per_replica for mask in room.values()) >= spec.replicas
