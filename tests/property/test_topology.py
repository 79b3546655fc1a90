"""Blocks: a placement that satisfies a topology is found whenever there is one, at once, by victims, in a timetable."""

from collections.abc import Iterator, Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from services.placer.blocks import Layouts
from services.placer.policy.openings import Openings
from services.placer.policy.outlook import Outlook
from services.placer.policy.pack import pack
from services.placer.policy.timetable import find_timetable, reserved_masks
from services.placer.policy.victims import find_victims
from services.placer.room import Room
from services.placer.standings import Standings
from services.placer.state import State
from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import BudgetPath, HostId, JobId, RunId, UserName
from tenure.domain.job import JobSpec, Launch, Placement, Topology, Wanted
from tenure.domain.units import MINUTE
from tenure.events.placing import ReservationMade, RunAssigned, RunPreemptionRequested
from tests.property.test_placer import permitted, standings_of, without
from tests.unit.placer.scene import Scene

BLOCKS = ("r1/a", "r1/b", "r2/c", "r2/d/x", "r2/d/y", "r3")
topologies = st.sampled_from(Topology)
hosts = st.lists(
    st.tuples(st.sampled_from(BLOCKS), st.sampled_from((4, 8)), st.integers(0, 255)), min_size=1, max_size=9
)

ANYWHERE = Wanted(cluster=None, gpu_type=None)


def asked(replicas: int, gpus: int, topology: Topology) -> JobSpec:
    launch = Launch(command=("true",))
    return JobSpec(
        budget=BudgetPath("a"),
        user=UserName("u"),
        replicas=replicas,
        gpus_per_replica=gpus,
        launch=launch,
        topology=topology,
    )


def room_of(given: list[tuple[str, int, int]]) -> tuple[Room, dict[HostId, HostSpec], dict[HostId, int]]:
    """A room of one pool, told host by host and changed after it was counted by block, as decisions do."""
    specs = {
        HostId(f"h{n}"): HostSpec(host=HostId(f"h{n}"), gpus=gpus, gpu_type="H100", block=block, cluster="c")
        for n, (block, gpus, _) in enumerate(given)
    }
    masks = {HostId(f"h{n}"): mask & (1 << gpus) - 1 for n, (_, gpus, mask) in enumerate(given)}
    layouts = Layouts()
    room = Room(layouts)
    for host, spec in specs.items():
        layouts.register(spec)
        room.set(("c", "H100"), host, (1 << spec.gpus) - 1)
        room.fits(ANYWHERE, 2, 1, Topology.ONE_BLOCK)  # counts by block from here on
    for host, mask in masks.items():
        room.set(("c", "H100"), host, mask)
    return room, specs, masks


def prefixes(block: str) -> list[str]:
    parts = block.split("/")
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]


def allowed_blocks(specs: dict[HostId, HostSpec], replicas: int, gpus: int) -> list[str]:
    """The simple form: blocks that hold the gang when empty, and in which no smaller one does."""
    every = sorted({path for spec in specs.values() for path in prefixes(spec.block)})

    def able(path: str) -> bool:
        inside = [spec for spec in specs.values() if path in prefixes(spec.block)]
        return sum(spec.gpus // gpus for spec in inside) >= replicas

    return [p for p in every if able(p) and not any(q.startswith(f"{p}/") and able(q) for q in every)]


def fits(masks: Mapping[str, int], specs: dict[HostId, HostSpec], spec: JobSpec) -> bool:
    """Whether there is a placement, by trying every block."""
    gpus = spec.gpus_per_replica
    if spec.topology is not Topology.ONE_BLOCK or spec.replicas == 1:
        return sum(mask.bit_count() // gpus for mask in masks.values()) >= spec.replicas
    return any(
        sum(m.bit_count() // gpus for h, m in masks.items() if path in prefixes(specs[HostId(h)].block))
        >= spec.replicas
        for path in allowed_blocks(specs, spec.replicas, gpus)
    )


def check(placement: Placement, masks: Mapping[str, int], specs: dict[HostId, HostSpec], spec: JobSpec) -> None:
    """Complete, on GPUs that may be used, and in one block if it has to be."""
    assert [place.replica for place in placement] == list(range(spec.replicas))
    taken: set[tuple[HostId, int]] = set()
    for place in placement:
        assert len(place.gpus) == spec.gpus_per_replica
        for gpu in place.gpus:
            assert masks[place.host] >> gpu & 1
            assert (place.host, gpu) not in taken
            taken.add((place.host, gpu))
    if spec.topology is Topology.ONE_BLOCK and spec.replicas > 1:
        in_all = set.intersection(*(set(prefixes(specs[place.host].block)) for place in placement))
        assert in_all & set(allowed_blocks(specs, spec.replicas, spec.gpus_per_replica))


@settings(max_examples=400, deadline=None)
@given(hosts, st.integers(1, 12), st.integers(1, 8), topologies)
def test_a_placement_is_found_whenever_there_is_one(
    given: list[tuple[str, int, int]], replicas: int, gpus: int, topology: Topology
) -> None:
    room, specs, masks = room_of(given)
    spec = asked(replicas, gpus, topology)
    placement = pack(room, spec)
    assert (placement is not None) == fits(masks, specs, spec)
    assert room.fits(ANYWHERE, replicas, gpus, topology) == (placement is not None)
    if placement is not None:
        check(placement, masks, specs, spec)


@settings(max_examples=200, deadline=None)
@given(hosts, st.integers(2, 12), st.integers(1, 8))
def test_what_prefers_a_block_lies_in_one_when_it_can(
    given: list[tuple[str, int, int]], replicas: int, gpus: int
) -> None:
    room, specs, _ = room_of(given)
    together = pack(room, asked(replicas, gpus, Topology.ONE_BLOCK))
    preferring = pack(room, asked(replicas, gpus, Topology.PREFER_BLOCK))
    if together is not None:
        assert preferring is not None
        found = set.intersection(*(set(prefixes(specs[place.host].block)) for place in preferring))
        assert found, "there was a block that holds it"


@st.composite
def crowded(draw: st.DrawFn) -> Scene:
    """Blocks of hosts with loose and protected runs, and gangs that ask for topologies."""
    scene = Scene(hosts=draw(st.integers(2, 8)), blocks=draw(st.permutations(BLOCKS)))
    for number in range(draw(st.integers(1, 10))):
        scene.job(
            f"r{number}",
            "b",
            gpus=draw(st.integers(1, 8)),
            replicas=draw(st.integers(1, 3)),
            min_runtime_ms=draw(st.sampled_from((0, 0, MINUTE, 90 * MINUTE))),
        )
        scene.act()
        if RunId(f"r{number}.1") in scene.actor.state.core.runs:
            scene.start(f"r{number}.1")
    scene.rank(order=[], a=0.1, b=2.0)
    for number in range(draw(st.integers(1, 4))):
        scene.job(
            f"q{number}",
            "a",
            gpus=draw(st.integers(1, 8)),
            replicas=draw(st.integers(2, 6)),
            topology=draw(topologies),
        )
    scene.now += draw(st.sampled_from((1, 30 * MINUTE)))
    return scene


def specs_of(state: State) -> dict[HostId, HostSpec]:
    return {name: host.spec for name, host in state.core.hosts.items()}


def free_now(state: State) -> dict[HostId, int]:
    return {host: mask for pool in state.room.pools.values() for host, mask in pool.masks.items()}


@settings(max_examples=200, deadline=None)
@given(crowded())
def test_victims_make_room_that_satisfies_the_topology(scene: Scene) -> None:
    scene.actor.fold()
    state: State = scene.actor.state
    state.expire(scene.now)
    specs, free, policy = specs_of(state), free_now(state), scene.policy
    openings = Openings(state.loose, standings_of(state), policy)
    for job in (job for job in state.core.jobs.values() if job.job in state.waiting.line_of):
        open_runs = [run for run in state.core.runs.values() if permitted(state, run, job, scene.now, policy)]
        plan = find_victims(state, job, scene.now, openings=openings, policy=policy)
        if plan is None:
            assert not open_runs or not fits(without(free, open_runs), specs, job.spec), "there was a way"
            continue
        check(plan.placement, without(free, [victim.run for victim in plan.victims]), specs, job.spec)
        assert all(victim.run in open_runs for victim in plan.victims)


@settings(max_examples=200, deadline=None)
@given(crowded())
def test_a_timetable_satisfies_the_topology(scene: Scene) -> None:
    scene.actor.fold()
    state: State = scene.actor.state
    state.expire(scene.now)
    specs, policy = specs_of(state), scene.policy
    outlook = Outlook(state, scene.now, standings=Standings(state.core.standings), policy=policy)
    gangs = [job for job in state.core.jobs.values() if job.job in state.waiting.line_of and job.spec.budget == "a"]
    for job in gangs:
        everything = {name: (1 << spec.gpus) - 1 for name, spec in specs.items()}
        table = find_timetable(state, job, scene.now, outlook=outlook)
        if table is not None:
            check(table.placement, everything, specs, job.spec)
        else:
            started = [r for r in state.core.runs.values() if r.protected_until is not None and r.stop is None]
            taken, ended = reserved_masks(state, but=job.job), without(free_now(state), started)
            at_last = {host: mask & ~taken.get(HostId(host), 0) for host, mask in ended.items()}
            assert not fits(at_last, specs, job.spec), "all of them give way in time"


@settings(max_examples=100, deadline=None)
@given(crowded())
def test_all_that_is_decided_satisfies_the_topology(scene: Scene) -> None:
    gone = scene.now + 100 * MINUTE
    specs = specs_of(scene.actor.state) or None
    for now in (scene.now, gone):
        for fact in placed(scene, now):
            specs = specs or specs_of(scene.actor.state)
            job = scene.actor.state.core.jobs.get(fact[0])
            if job is not None and job.spec.topology is Topology.ONE_BLOCK:
                everything = {name: (1 << spec.gpus) - 1 for name, spec in specs.items()}
                check(fact[1], everything, specs, job.spec)


def placed(scene: Scene, now: int) -> Iterator[tuple[JobId, Placement]]:
    """The jobs that got a placement, however."""
    for fact in scene.act(now):
        if isinstance(fact, RunAssigned | ReservationMade):
            yield fact.job, fact.placement
        elif isinstance(fact, RunPreemptionRequested) and fact.by is not None and fact.escrow:
            yield JobId(fact.by), fact.escrow


def blocks_now(state: State) -> dict[str, tuple[int, list[tuple[int, int]]]]:
    """What is free by block, as it is kept."""
    return {
        block.path: (pool.tally(block).free, [n for n in enumerate(pool.tally(block).counts) if n[1]])
        for pool in state.room.pools.values()
        for block in pool.layout.all
    }


@settings(max_examples=100, deadline=None)
@given(crowded(), st.sampled_from(BLOCKS))
def test_counts_by_block_kept_up_to_date_are_those_made_anew(scene: Scene, moved_to: str) -> None:
    state: State = scene.actor.state
    blocks_now(state)
    scene.act()
    scene.host("h0", HostState.SUSPECT)
    scene.act()
    scene.move("h1", moved_to)
    scene.host("h0", HostState.HEALTHY)
    scene.act()
    kept, anew = blocks_now(state), blocks_now(State(state.core))
    assert {path: found for path, found in kept.items() if found[0]} == {
        p: found for p, found in anew.items() if found[0]
    }
