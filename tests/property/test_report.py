"""The report and the checker of its files agree on any world, though they share no code; and no invariant is broken."""

import json
from functools import partial
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.agents import Work
from simulator.report import build_report
from simulator.report.meter import Meter
from simulator.world import World
from tenure.domain.ids import HostId
from tenure.domain.tree_check import check_tree
from tenure.domain.units import MINUTE
from tenure.export.jsonl import lines
from tenure.runtime.cluster_file import parse_hosts
from tenure.runtime.options import build_policy
from tests.checks.export import findings
from tests.property.test_world import QUICK, scripts
from tests.scenario.script import instant, script_to_world

WORK = Work(restart_overhead_ms=2 * MINUTE, checkpoint_interval_ms=10 * MINUTE)


def as_simulated(script: dict[str, Any]) -> dict[str, Any]:
    """The world as the simulator has it: nobody is silent, processes start, stop and fail at once and whole."""
    when = [
        {key: value for key, value in entry.items() if key not in ("starts_after", "stops_after", "breaks_replica")}
        for entry in script["when"]
        if not {"silence", "speak"} & entry.keys()
    ]
    return script | {"when": when}


@settings(max_examples=25, deadline=None, phases=QUICK)
@given(scripts().map(as_simulated), st.integers(0, 100), st.integers(1, 80), st.booleans())
def test_report_and_lines_agree(script: dict[str, Any], start: int, length: int, loss: bool) -> None:
    given_ = script["given"]
    world = World(
        hosts=parse_hosts(given_["hosts"]),
        tree=check_tree({"budgets": given_["budgets"]}),
        policy=build_policy(given_["policy"]),
        work=WORK,
    )
    if loss:
        world.at(instant(f"{start}m"), partial(world.lose, HostId("h001")))
        world.at(instant(f"{start + 31}m"), partial(world.repair, HostId("h001")))
    end = min(start + length, 180)
    script_to_world(script | {"until": f"{end}m"}, world=world)
    report = build_report(
        world.recorded,
        policy_name="fair",
        kinds={},
        start=start * MINUTE,
        end=end * MINUTE,
        lookback_ms=given_["policy"].get("lookback_ms", 0),
        wall_seconds=0.0,
        work=WORK,
    )
    told = [json.loads(line) for line in lines(world.recorded, origin_ms=0)]
    found = findings(told, json.loads(msgspec.json.encode(report)), restart_overhead_s=120)
    assert not found and not report.violations, (found, report.violations_shown)


@given(
    st.lists(st.tuples(st.integers(-50, 100), st.integers(-8, 8)), max_size=30),
    st.lists(st.integers(0, 80), min_size=1, max_size=8, unique=True).map(sorted),
)
def test_a_meter_equals_the_sum_over_its_steps(steps: list[tuple[int, int]], cuts: list[int]) -> None:
    meter = Meter(cuts)
    for at, change in steps:
        meter.step(at, change)
    assert meter.read() == [sum(change * (cut - at) for at, change in steps if at < cut) for cut in cuts]
