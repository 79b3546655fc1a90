"""Jobs that name hosts: only those are used, freed or reserved, and the job starts whenever it fits on them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from services.placer.state import State
from tenure.domain.ids import HostId
from tenure.domain.job import HostChoice, Topology
from tenure.domain.units import MINUTE
from tenure.events.placing import ReservationMade, RunAssigned, RunPreemptionRequested
from tests.unit.placer.scene import Scene

names = st.lists(st.sampled_from([HostId(f"h{number}") for number in range(6)]), max_size=5, unique=True).map(
    lambda chosen: tuple(sorted(chosen))
)
runs = st.tuples(
    st.integers(1, 8),  # GPUs per replica
    st.integers(1, 3),  # replicas
    st.sampled_from((0, MINUTE, 60 * MINUTE)),  # minimum runtime
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(runs, max_size=8),
    st.lists(st.tuples(runs, names, names, st.sampled_from(Topology)), min_size=1, max_size=5),
)
def test_only_hosts_that_a_job_may_use_are_used(
    there: list[tuple[int, int, int]],
    asked: list[tuple[tuple[int, int, int], tuple[HostId, ...], tuple[HostId, ...], Topology]],
) -> None:
    scene = Scene(hosts=6, blocks=("r/a", "r/b", "s"))
    for number, (gpus, replicas, minimum) in enumerate(there):
        scene.job(f"r{number}", "b", gpus=gpus, replicas=replicas, min_runtime_ms=minimum)
        scene.act()
        if f"r{number}.1" in scene.actor.state.core.runs:
            scene.start(f"r{number}.1")
    scene.act(5 * MINUTE)
    scene.rank(order=[], a=0.1, b=1.0)
    choices: dict[str, HostChoice] = {}
    for number, ((gpus, replicas, minimum), only, excluded, topology) in enumerate(asked):
        choices[f"q{number}"] = HostChoice(only, excluded)
        more = {"hosts": only, "hosts_excluded": excluded, "topology": topology}
        scene.job(f"q{number}", "a", gpus=gpus, replicas=replicas, min_runtime_ms=minimum, **more)
    for fact in scene.act():
        if isinstance(fact, RunAssigned | ReservationMade) and fact.job in choices:
            assert all(allows(choices[fact.job], place.host) for place in fact.placement)
        elif isinstance(fact, RunPreemptionRequested) and fact.escrow:
            assert all(allows(choices[fact.by], place.host) for place in fact.escrow)
    check_nobody_waits_who_fits(scene.actor.state)


def check_nobody_waits_who_fits(state: State) -> None:
    """The simple form: replicas that fit, host by host, for jobs that may lie anywhere."""
    masks = {host: mask for pool in state.room.pools.values() for host, mask in pool.masks.items()}
    for job_id in state.waiting.line_of:
        spec = state.core.jobs[job_id].spec
        if spec.topology is Topology.ONE_BLOCK or state.core.reservations:
            continue
        allowed = [host for host in masks if spec.choice is None or allows(spec.choice, host)]
        assert sum(masks[host].bit_count() // spec.gpus_per_replica for host in allowed) < spec.replicas, job_id


def allows(choice: HostChoice, host: HostId) -> bool:
    """The simple form."""
    return host not in choice.excluded and (not choice.only or host in choice.only)
