"""Decision 0029: whoever has the log can make every decision about every job again, and gets the same bytes."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from simulator.replay import SOUGHT, JobReplay, Replayed, Sought
from tenure.domain.ids import FactId, JobId, Position
from tenure.domain.policy import Policy
from tenure.domain.units import parse_duration
from tenure.events.fact import Fact, Recorded
from tenure.events.placing import PlacementDeferred, ReservationMade, RunAssigned, RunPreemptionRequested
from tenure.events.ranking import RankingPublished
from tenure.runtime.stamp import stamp_of
from tests.property.test_promises import worlds
from tests.property.test_world import QUICK, scripts
from tests.scenario.script import build, load, script_to_world

SCENARIOS = Path(__file__).parents[1] / "scenario"
GOLDEN = (
    "a_blocked_gang_has_a_latest_start",
    "a_changed_margin_counts_from_then_on",
    "a_gpu_hour_costs_its_rate",
    "a_host_that_does_not_release_is_suspect",
    "a_lost_host_is_refunded_and_its_jobs_come_back",
    "a_promise_is_kept_beside_an_older_twin",
    "cancel_at_any_time",
    "drain_waits_for_contracts",
    "escrow_holds_what_is_freed",
    "launches_given_up_hold_the_job",
    "preemption_comes_to_rest",
    "what_fits_in_total_and_on_no_host_is_refused",
)


class Everything(Sought):
    """Not of one job: of all."""

    def about(self, fact: Fact) -> bool:
        return isinstance(fact, SOUGHT)


def replay(
    recorded: Sequence[Recorded], policy: Policy, *, sought: Sought | None = None, every: bool = False
) -> list[Replayed]:
    sought = sought or Everything(JobId(""))
    for each in recorded:
        sought.look(each)
    again = JobReplay(sought, policy=policy, every=every)
    found = [one for each in recorded if type(each.fact) in again.reads for one in again.take(each)]
    return found + list(again.finish())


def as_the_command_does(recorded: Sequence[Recorded], policy: Policy) -> list[Replayed]:
    """Where a reason to wait that has turned is said again, what the placer remembers beside the log decides when."""
    found = replay(recorded, policy)
    differ = [one for one in found if not one.same]
    if not differ:
        return found
    assert {type(one.recorded.fact) for one in differ} == {PlacementDeferred}
    return replay(recorded, policy, every=True)


def decided(recorded: Sequence[Recorded]) -> list[Recorded]:
    return [each for each in recorded if isinstance(each.fact, SOUGHT) and stamp_of(each.fact) is not None]


def golden(name: str) -> tuple[list[Recorded], Policy]:
    script = load(SCENARIOS / f"{name}.yaml")
    return script_to_world(script).recorded, build(script).policy


@pytest.mark.parametrize("name", GOLDEN)
def test_a_golden_scenario_is_decided_again_to_the_same_bytes(name: str) -> None:
    recorded, policy = golden(name)
    found = replay(recorded, policy)
    assert [one for one in found if not one.same] == []
    again = {one.recorded.position for one in found}
    assert again >= {each.position for each in decided(recorded)}


def test_the_golden_scenarios_start_preempt_and_promise() -> None:
    kinds = Counter(type(each.fact) for name in GOLDEN for each in golden(name)[0])
    assert all(kinds[kind] for kind in (RunAssigned, RunPreemptionRequested, ReservationMade))


@settings(max_examples=40, deadline=None, phases=QUICK, derandomize=True)
@given(worlds() | scripts())
def test_any_world_is_decided_again_to_the_same_bytes(script: dict[str, Any]) -> None:
    found = as_the_command_does(script_to_world(script).recorded, build(script).policy)
    assert [one for one in found if not one.same] == []


def test_a_crowded_day_is_decided_again_to_the_same_bytes() -> None:
    """Demand of twice the hosts, of four budgets, with gangs that wait for promises, priorities and a drain."""
    chance = random.Random(7)
    jobs = sorted(
        (_some_job(chance, number) for number in range(220)), key=lambda job: parse_duration(job["at"], field="")
    )
    shares = {
        "a": {"share": 40},
        "b": {"share": 30},
        "c": {"share": 30, "children": {"x": {"share": 50}, "y": {"share": 50}}},
    }
    quiet = {"lookback": "6h", "heartbeat": "10m", "suspect_after": "1h", "lost_after": "2h"}
    drain = [{"at": "300m", "drain": "h003"}, {"at": "420m", "resume": "h003"}]
    given = {"hosts": "8x8", "budgets": shares, "policy": quiet}
    script = {"given": given, "when": [*jobs, *drain], "until": "14h"}
    found = as_the_command_does(script_to_world(script).recorded, build(script).policy)
    assert [one for one in found if not one.same] == []
    kinds = Counter(type(one.recorded.fact) for one in found)
    assert kinds[RunPreemptionRequested] > 50 and kinds[ReservationMade] > 5 and kinds[RunAssigned] > 200, kinds


def _some_job(chance: random.Random, number: int) -> dict[str, Any]:
    gpus = chance.choice([1, 1, 2, 4, 8, 8])
    return {
        "at": f"{chance.randrange(720)}m",
        "submit": f"j{number}",
        "budget": chance.choice(["a", "b", "c/x", "c/y"]),
        "gpus": gpus,
        "replicas": chance.choice([1, 1, 2, 3, 5]) if gpus == 8 else 1,
        "min_runtime": chance.choice(["0s", "15m", "30m", "1h", "2h", "4h"]),
        "runs_for": chance.choice(["10m", "40m", "90m", "200m", "400m"]),
        "resumable": chance.random() < 0.7,
        "priority": chance.choice([0, 0, 0, 1]),
        "grace": chance.choice(["10s", "30s", "1m"]),
    }


def test_of_one_job_only_its_own_and_the_order_it_was_served_by() -> None:
    recorded, policy = golden("contract_is_kept_then_the_poorer_budget_wins")
    found = replay(recorded, policy, sought=Sought(JobId("other")))
    placed = [one.recorded.fact for one in found if not isinstance(one.recorded.fact, RankingPublished)]
    assert {getattr(fact, "by", None) or getattr(fact, "job", "") for fact in placed} == {"other"}
    orders = [one.recorded for one in found if isinstance(one.recorded.fact, RankingPublished)]
    rankings = [each.position for each in recorded if isinstance(each.fact, RankingPublished)]
    started = next(one.stamp for one in found if isinstance(one.recorded.fact, RunAssigned))
    assert max(position for position in rankings if position <= started.assumes) in {each.position for each in orders}
    assert len(orders) < len(rankings) and all(one.same for one in found)


def test_another_policy_comes_out_differently() -> None:
    recorded, policy = golden("contract_is_kept_then_the_poorer_budget_wins")
    found = replay(recorded, replace(policy, ratio_margin=100.0))
    assert [type(one.recorded.fact).__name__ for one in found if not one.same]


def test_a_log_that_was_changed_afterwards_comes_out_differently() -> None:
    recorded, policy = golden("contract_is_kept_then_the_poorer_budget_wins")
    forged = [_with_port(each) for each in recorded]
    differ = [one for one in replay(forged, policy) if not one.same]
    assert differ and all(isinstance(one.recorded.fact, RunAssigned) for one in differ)


@pytest.mark.parametrize("lost", [1, 3])
def test_facts_that_do_not_say_their_decision_are_counted(lost: int) -> None:
    recorded, policy = golden("contract_is_kept_then_the_poorer_budget_wins")
    whole, partly, nothing = (Sought(JobId("other")) for _ in range(3))
    assert whole.left_out(replay(recorded, policy, sought=whole)) == 0 < whole.found
    about = [each.position for each in recorded if whole.about(each.fact)]
    some = _without_ids(recorded, about[-lost:])
    found = replay(some, policy, sought=partly)
    assert (partly.left_out(found), partly.found) == (lost, whole.found) and all(one.same for one in found)
    found = replay(_without_ids(recorded, about), policy, sought=nothing)
    assert nothing.left_out(found) == nothing.found == whole.found and not found


def _without_ids(recorded: Sequence[Recorded], positions: Sequence[Position]) -> list[Recorded]:
    return [
        Recorded(each.position, msgspec.structs.replace(each.fact, id=FactId(f"written-{each.position}")))
        if each.position in positions
        else each
        for each in recorded
    ]


def test_a_signature_is_no_part_of_the_decision() -> None:
    recorded, policy = golden("escrow_holds_what_is_freed")
    signed = [
        Recorded(each.position, msgspec.structs.replace(each.fact, signature="by the placer"))
        if isinstance(each.fact, RunAssigned)
        else each
        for each in recorded
    ]
    assert all(one.same for one in replay(signed, policy))


def _with_port(each: Recorded) -> Recorded:
    if not isinstance(each.fact, RunAssigned):
        return each
    return Recorded(each.position, msgspec.structs.replace(each.fact, master_port=1))
