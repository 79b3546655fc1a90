"""Properties of the placer's plan on random clusters, runs and queues: P5-P7, I1-I3, I6-I9."""

from hypothesis import given, settings
from hypothesis import strategies as st

from services.placer.policy.may_disrupt import AskingJob, may_disrupt
from services.placer.policy.standings import Standings
from services.placer.policy.victims import find_victims
from services.placer.policy.view import View
from services.placer.state import State, gpu_mask
from tenure.domain.host import HostState
from tenure.domain.ids import RunId
from tenure.domain.job import gpus_by_host
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
        if victim.allocated and victim.budget != asker.budget:
            assert ratios.ratio(asker.budget) < ratios.ratio(victim.budget), "I9"


@settings(max_examples=150, deadline=None)
@given(scenes())
def test_victims_are_complete_permitted_and_none_is_needless(scene: Scene) -> None:
    scene.actor.fold()
    state: State = scene.actor.state
    ratios = standings_of(state)
    view = View.of(state)
    for job in (job for job in state.core.jobs.values() if job.run is None):
        plan = find_victims(state, view, job, scene.now, standings=ratios, policy=scene.policy).plan
        if plan is None:
            continue
        asking = AskingJob(budget=job.spec.budget, priority=job.spec.priority, allocated=job.spec.allocated)
        assert len(plan.placement) == job.spec.replicas
        for victim in plan.victims:
            verdict = may_disrupt(victim.run, victim.job, asking, scene.now, standings=ratios, policy=scene.policy)
            assert verdict.allowed
        for needless in plan.victims:
            without = view.copy()
            for victim in plan.victims:
                if victim is not needless:
                    without.free_run(victim.run)
            assert not fits(without, job.spec.replicas, job.spec.gpus_per_replica), "a proper subset would do"


def fits(view: View, replicas: int, gpus: int) -> bool:
    """The simple form of packing's feasibility: some pool holds all replicas."""
    return any(sum(mask.bit_count() // gpus for mask in pool.values()) >= replicas for pool in view.pools.values())
