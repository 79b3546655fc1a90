"""What other schedulers got wrong (docs/checklists/field-cases.md), where it has to hold for all inputs."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tenure.domain.ids import JobId
from tenure.domain.reasons import Reason
from tenure.domain.units import MINUTE, SECOND, Millis
from tenure.events.fact import Fact
from tenure.events.placing import (
    JobFinished,
    PlacementDeferred,
    ReservationMade,
    RunAssigned,
    RunPreemptionRequested,
)
from tests.property.test_world import QUICK, scripts
from tests.scenario.script import script_to_world
from tests.unit.placer.scene import Scene

contracts = st.lists(
    st.tuples(st.integers(1, 480), st.sampled_from((10, 30, 600))),  # minimum runtime in minutes, grace in seconds
    min_size=3,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(contracts, st.data())
@example([(10 * number, 30) for number in range(1, 52)], None)
def test_the_latest_start_follows_from_each_hosts_own_contract(held: list[tuple[int, int]], data: Any) -> None:
    """S11: every host is held; a gang of m hosts starts when the m-th of them can be had, not in a flat 24 hours."""
    scene = Scene(hosts=len(held))
    ends: list[Millis] = []
    for number, (minutes, grace) in enumerate(held):
        more = {"min_runtime_ms": minutes * MINUTE, "grace_ms": grace * SECOND}
        scene.running(f"r{number:02}", "b", gpus=8, **more)
        ends.append((minutes * 60 + grace) * SECOND)
    wanted = 40 if data is None else data.draw(st.integers(2, len(held)), label="hosts of the gang")
    scene.rank(order=[], a=0.1, b=1.0)
    scene.job("gang", "a", gpus=8, replicas=wanted)
    [made] = scene.act_for(ReservationMade)
    assert made.latest_start == sorted(ends)[wanted - 1]


@settings(max_examples=40, deadline=None, phases=QUICK)
@given(scripts())
def test_an_asker_has_one_set_of_victims_until_it_starts_or_gives_up(script: dict[str, Any]) -> None:
    """S16: one victim per job and cycle, without a memory, killed eleven runs for two jobs."""
    outstanding: dict[JobId, Fact] = {}
    for entry in script_to_world(script).recorded:
        fact = entry.fact
        if isinstance(fact, RunPreemptionRequested) and fact.escrow:
            asker = JobId(fact.by)
            known = outstanding.setdefault(asker, fact)
            assert isinstance(known, RunPreemptionRequested)
            assert fact.escrow == known.escrow, f"{asker} asks for {known.run}, then {fact.run}"
        elif isinstance(fact, RunAssigned | JobFinished) or (
            isinstance(fact, PlacementDeferred) and fact.why.reason is Reason.DEFER_ESCROW_EXPIRED
        ):
            outstanding.pop(fact.job, None)
