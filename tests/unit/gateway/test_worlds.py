"""The read model and the stories on what the other roles really write: the scenarios, and random worlds."""

import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from services.gateway.evolve import READS, evolve
from services.gateway.policy.fragmentation import Fragmentation, fragmentation
from services.gateway.policy.listing import count_jobs
from services.gateway.policy.totals import cluster_total
from services.gateway.state import State, dump, initial, load
from services.gateway.story import tell
from services.placer import evolve as placer_evolve
from services.placer import state as placer_state
from tenure.domain.reasons import Why
from tenure.domain.reasons_in_words import WORDINGS, say_why
from tenure.events.fact import Recorded
from tests.property.test_world import QUICK, scripts
from tests.scenario.script import load as load_script
from tests.scenario.script import script_to_world

SCENARIOS = sorted((Path(__file__).parents[2] / "scenario").glob("*.yaml"))


def fold(recorded: list[Recorded]) -> State:
    state = initial()
    for each in recorded:
        if type(each.fact) in READS:
            evolve(state, each)
    return state


def reasons(recorded: list[Recorded]) -> list[Why]:
    return [each.fact.why for each in recorded if hasattr(each.fact, "why")]


@pytest.mark.parametrize("path", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_each_scenario_is_folded_and_told_with_its_numbers(path: Path) -> None:
    recorded = script_to_world(load_script(path)).recorded
    state = fold(recorded)
    assert dump(load(dump(state))) == dump(state)
    for each in recorded:
        assert tell(each.fact).endswith(".")
    for why in reasons(recorded):
        if _names(WORDINGS[why.reason][0]):
            assert say_why(why).split(";")[0] != WORDINGS[why.reason][-1], f"no wording has the numbers of {why}"


@settings(max_examples=15, deadline=None, phases=QUICK, suppress_health_check=[HealthCheck.too_slow])
@given(scripts())
def test_totals_agree_with_the_log_in_any_world(script: dict[str, Any]) -> None:
    recorded = script_to_world(script).recorded
    state = fold(recorded)
    kinds = [type(each.fact).__name__ for each in recorded]
    assert sum(count_jobs(state, budget="", user="").values()) == kinds.count("JobSubmitted")
    open_runs = [run for entry in state.jobs.values() for run in entry.runs if run.cause_of_end is None]
    assert len(open_runs) == kinds.count("RunAssigned") - kinds.count("RunEnded")
    total = cluster_total(state)
    assert total.allocated + total.unallocated == sum(run.gpus for run in open_runs)
    assert all(run.books_closed for entry in state.jobs.values() for run in entry.runs if run.cause_of_end) or (
        kinds.count("RunCharged") < kinds.count("RunEnded")
    )


@settings(max_examples=15, deadline=None, phases=QUICK, suppress_health_check=[HealthCheck.too_slow])
@given(scripts())
def test_gangs_are_shown_as_the_placer_knows_them_in_any_world(script: dict[str, Any]) -> None:
    check_gangs(script_to_world(script).recorded)


@pytest.mark.parametrize("path", SCENARIOS, ids=[path.stem for path in SCENARIOS])
def test_gangs_are_shown_as_the_placer_knows_them_in_each_scenario(path: Path) -> None:
    check_gangs(script_to_world(load_script(path)).recorded)


def check_gangs(recorded: list[Recorded]) -> None:
    """After each fact: escrows and reservations are the placer's, and so is what is free; each GPU is counted once."""
    state, placer = initial(), placer_state.initial()
    for each in recorded:
        if type(each.fact) in READS:
            evolve(state, each)
        if type(each.fact) in placer_evolve.READS:
            placer_evolve.evolve(placer, each)
        shown = {job: entry.escrow for job, entry in state.jobs.items() if entry.escrow}
        assert shown == {job: kept.placement for job, kept in placer.core.escrows.items()}
        latest = {job: entry.reservation.latest_start for job, entry in state.jobs.items() if entry.reservation}
        assert latest == {job: kept.latest_start for job, kept in placer.core.reservations.items()}
        pools = fragmentation(state, now=each.fact.at)
        assert {(pool.cluster, pool.gpu_type): (pool.free, pool.largest_hole) for pool in pools} == {
            name: (pool.free, pool.largest_hole) for name, pool in placer.room.pools.items()
        }
        for pool in pools:
            check_sums(pool)


def check_sums(pool: Fragmentation) -> None:
    """Each GPU is counted once, and in the end all can be had but what is in escrow."""
    first, last = pool.prospects[0], pool.prospects[-1]
    assert first.placeable.gpus == pool.free + pool.giving_way
    assert first.if_p5_gives.gpus == first.placeable.gpus + pool.past_protection
    assert last.if_p5_gives.gpus + pool.in_escrow == pool.gpus
    assert pool.largest_hole <= pool.free <= pool.hosts_with_free * pool.largest_hole
    assert [prospect.at for prospect in pool.prospects] == sorted({prospect.at for prospect in pool.prospects})


def _names(wording: str) -> list[str]:
    return [name for _, name, _, _ in string.Formatter().parse(wording) if name]
