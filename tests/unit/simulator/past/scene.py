"""A small system with a past: four hosts of 8 GPUs, four leaves, a week of jobs of every kind, people who interfere."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from simulator.agents import Behaviour, Work
from simulator.faults import Fault
from simulator.past.lines import facts_of
from simulator.past.replay import Changes, Replay
from simulator.past.story import Past, past_of
from simulator.simulation import Simulation, without_silence
from simulator.workload import TraceJob
from tenure.domain.host import HostSpec
from tenure.domain.ids import BudgetPath, HostId, JobId, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.domain.policy import Policy
from tenure.domain.tree import BudgetTree
from tenure.domain.tree_check import check_tree
from tenure.domain.units import DAY, HOUR, MINUTE, Millis
from tenure.events.fact import Recorded
from tenure.events.placing import RunAssigned, RunEnded
from tenure.export.jsonl import blocks

LEAVES = (BudgetPath("a/x"), BudgetPath("a/y"), BudgetPath("b"), BudgetPath("c"))
END = 8 * DAY


def tree(*, a: int = 50, b: int = 30, c: int = 20) -> BudgetTree:
    """The tree with these shares at the top."""
    children = {"x": {"share": 50}, "y": {"share": 50}}
    return check_tree(
        {"budgets": {"a": {"share": a, "children": children}, "b": {"share": b}, "c": {"share": c, "users": "equal"}}}
    )


def hosts(count: int = 4) -> list[HostSpec]:
    """Hosts of 8 GPUs, two in a block."""
    return [
        HostSpec(host=HostId(f"h{n:03}"), gpus=8, gpu_type="H100", block=f"b{n // 2}", cluster="h100")
        for n in range(count)
    ]


def jobs(seed: int, *, count: int = 250) -> list[TraceJob]:
    """Jobs over a week; some fail, some save nothing, some take their time to start and to stop."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        at = round(chance.random() * 7 * DAY)
        runs_for = round(chance.choice([0.2, 1, 4, 10]) * HOUR * chance.uniform(0.5, 1.5))
        spec = JobSpec(
            budget=chance.choice(LEAVES),
            user=UserName(chance.choice(["ana", "ben"])),
            gpus_per_replica=chance.choice([1, 2, 4, 8]),
            replicas=chance.choice([1, 1, 1, 2]),
            launch=Launch(command=("simulated",)),
            min_runtime_ms=chance.choice([0, 15 * MINUTE, 2 * HOUR, 4 * HOUR]),
            resumable=chance.random() < 0.5,
            priority=chance.choice([0, 0, 1]),
        )
        behaviour = Behaviour(runs_for_ms=runs_for, exit_code=chance.choice([0, 0, 0, 3]))
        job = JobId(f"j{number:03}")
        made.append(TraceJob(job=job, submitted_at=at, spec=spec, runs_for_ms=runs_for, kind="", behaviour=behaviour))
    return sorted(made, key=lambda job: (job.submitted_at, job.job))


def history(seed: int, *, interfere: bool = True) -> list[Recorded]:
    """What happened, with outages of two kinds, a drain, a new host, edits of tree and policy, owners who cancel."""
    simulation = Simulation(
        hosts=hosts(),
        tree=tree(),
        policy=Policy(),
        jobs=jobs(seed),
        faults=[
            Fault(host=HostId("h001"), down_at=2 * DAY + 5, up_at=3 * DAY, kind="psu"),
            Fault(host=HostId("h002"), down_at=5 * DAY + 77, up_at=5 * DAY + 9 * HOUR, kind="xid79"),
        ]
        if interfere
        else (),
        edits=[(4 * DAY + 3, tree(a=20, b=60))] if interfere else (),
    )
    world = simulation.world
    if interfere:
        world.at(DAY + 1, partial(world.join, hosts(5)[4:]))
        world.at(DAY + 2, partial(world.drain, HostId("h003")))
        world.at(DAY + 9 * HOUR, partial(world.resume, HostId("h003")))
        world.at(0, partial(world.change_policy, without_silence(Policy())))
        world.at(6 * DAY, partial(world.change_policy, without_silence(replace(Policy(), lookback_ms=3 * DAY))))
        for number in range(20, 250, 40):
            job = jobs(seed)[number]
            world.at(job.submitted_at + 40 * MINUTE, partial(world.cancel, job.job))
    return list(simulation.run(END))


class Exported(NamedTuple):
    """One log as it is and as its export tells it."""

    facts: Past
    lines: Past


def both(recorded: Sequence[Recorded], folder: Path) -> Exported:
    """The past in the facts, and in the lines that are made of them."""
    path = folder / "events.jsonl"
    path.write_bytes(b"".join(blocks(recorded, origin_ms=0)))
    return Exported(facts=past_of(recorded), lines=Past(facts_of(path)))


def replayed(
    past: Past, *, start: Millis = 0, end: Millis = END, changes: Changes | None = None, work: Work | None = None
) -> list[Recorded]:
    """The past from an instant on, in the deciders' hands."""
    return Replay(past, start=start, end=end, changes=changes or Changes(), work=work or Work()).run()


def decisions(recorded: Iterable[Recorded], *, since: Millis = 0) -> list[tuple[object, ...]]:
    """Every start with its GPUs and every end with its cause, in order of the log."""
    found: list[tuple[object, ...]] = []
    for fact in (entry.fact for entry in recorded):
        if isinstance(fact, RunAssigned) and fact.at >= since:
            found.append((fact.at, fact.run, tuple((place.host, place.gpus) for place in fact.placement)))
        elif isinstance(fact, RunEnded) and fact.at >= since:
            found.append((fact.at, fact.run, fact.cause_of_end))
    return found
