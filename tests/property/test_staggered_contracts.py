"""How long a gang waits behind staggered contracts: its part of one contract's length, whatever comes meanwhile."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.domain.units import HOUR, MINUTE, SECOND, Millis
from tenure.events.placing import RunAssigned
from tests.checks.invariants import check_log, check_reservations
from tests.property.test_world import QUICK
from tests.scenario.script import script_to_world

CONTRACT: Millis = 8 * HOUR
GRACE: Millis = 30 * SECOND


@st.composite
def clusters(draw: st.DrawFn) -> tuple[int, int, Millis, str]:
    """Hosts, hosts of the gang, when it comes, and how long the others run."""
    hosts = draw(st.integers(2, 10))
    gang = draw(st.integers(2, hosts))
    comes_at = draw(st.integers(8 * 60, 20 * 60)) * MINUTE
    return hosts, gang, comes_at, draw(st.sampled_from(("8h", "8h", "9h", "20h")))


@settings(max_examples=40, deadline=None, phases=QUICK)
@given(clusters())
def test_a_gang_waits_for_its_part_of_one_contract(cluster: tuple[int, int, Millis, str]) -> None:
    """A gang of g of m hosts waits no more than 8 h x g/m: each m-th of 8 h one more contract ends."""
    hosts, gang, comes_at, length = cluster
    apart = CONTRACT // hosts
    others = {"budget": "b", "gpus": 8, "min_runtime": "8h", "runs_for": length, "resumable": True}
    when: list[dict[str, Any]] = [
        {"at": "0s", "every": f"{apart}ms", "times": 6 * hosts, "submit": "n", **others},
        {"at": f"{comes_at}ms", "submit": "gang", "budget": "a", "gpus": 8, "replicas": gang}
        | {"min_runtime": "1h", "runs_for": "1h"},
    ]
    budgets = {"a": {"share": 50}, "b": {"share": 50}}
    policy = {"heartbeat": "1h", "suspect_after": "3h", "lost_after": "4h"}
    script = {"given": {"hosts": f"{hosts}x8", "budgets": budgets, "policy": policy}, "when": when, "until": "32h"}
    recorded = script_to_world(script).recorded
    check_log(recorded)
    facts = [entry.fact for entry in recorded]
    check_reservations(facts)
    [start] = [fact.at for fact in facts if isinstance(fact, RunAssigned) and fact.job == "gang"]
    assert start - comes_at <= CONTRACT * gang // hosts + GRACE, f"{(start - comes_at) / HOUR:.2f} h"
