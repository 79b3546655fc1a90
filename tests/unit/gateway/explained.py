"""`Explain` on what the other roles really write: a scenario at an instant, folded and asked about a job."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from services.gateway.evolve import READS, evolve
from services.gateway.explaining import Explaining
from services.gateway.history import about
from services.gateway.state import State, initial
from services.gateway.story import unit_of
from simulator.world import World
from tenure.domain.ids import JobId
from tenure.v1 import jobs_pb2
from tests.scenario.script import build, instant, load, plan

SCENARIOS = Path(__file__).parents[2] / "scenario"


def played(name: str, until: str) -> tuple[World, State]:
    """The world of a scenario at an instant, and what the gateway knows of it."""
    return acted(load(SCENARIOS / f"{name}.yaml"), until)


def acted(script: Mapping[str, Any], until: str) -> tuple[World, State]:
    """The same of a script."""
    world = build(script)
    plan(script, world)
    world.run(instant(until))
    state = initial()
    for recorded in world.recorded:
        if type(recorded.fact) in READS:
            evolve(state, recorded)
    return world, state


def explain(world: World, state: State, job: str) -> jobs_pb2.ExplainJobResponse:
    """As the gateway answers, but for the database."""
    entry = state.jobs[JobId(job)]
    facts = [each for each in world.recorded if about(each.fact) == job or getattr(each.fact, "by", None) == job]
    explaining = Explaining(state, now=world.now, policy=world.policy)
    unit = unit_of(entry.spec)
    answer = jobs_pb2.ExplainJobResponse(
        steps=[explaining.step(each, to=JobId(job), unit=unit, sees_inside=True) for each in facts]
    )
    explaining.fill(answer, entry, facts)
    return answer


def explained(name: str, job: str, until: str) -> jobs_pb2.ExplainJobResponse:
    """Both."""
    return explain(*played(name, until), job)
