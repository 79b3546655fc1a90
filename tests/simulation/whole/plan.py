"""What happens in the run of one seed: hosts, jobs, people's wishes, and faults; all of it drawn before it begins."""

import random
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from tenure.domain.ids import BudgetPath, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.domain.units import MINUTE, SECOND
from tests.simulation.whole.machine import Work

POLICY = {"lookback": "2h", "heartbeat": "30s", "suspect_after": "75s", "lost_after": "5m"}
HOSTS = "4x8"
AGENTS = ((0, 1), (2,), (3,))
"""Which hosts each agent speaks for."""
BUDGETS = {
    "a": {"share": 50, "children": {"x": {"share": 70}, "y": {"share": 30}}},
    "b": {"share": 40},
    "c": {"share": 10},
}
OTHER_BUDGETS = {**BUDGETS, "b": {"share": 5}}
LEAVES = ("a/x", "a/y", "b", "c")
SHAPES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 4), (2, 8), (3, 8), (4, 8))
TROUBLE_S = 40 * 60.0
"""So long jobs come and faults happen; then everything is mended, and the rest must come to its end."""
DECIDERS = ("budget", "ranker", "placer", "health")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A submission, and the instant (s) at which its owner cancels it."""

    at_s: float
    key: str
    spec: JobSpec
    work: Work
    cancelled_at_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something goes wrong with `target` at `at_s`, for `for_s` seconds."""

    at_s: float
    kind: str
    target: str
    for_s: float
    detail: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        more = "".join(f", {name} {value}" for name, value in self.detail.items())
        lasts = f" for {self.for_s:.0f} s" if self.for_s else ""
        return f"{self.kind} {self.target}{lasts}{more}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The run of one seed. `calm`: no fault takes time or hosts from anybody, so every promise must be met."""

    seed: int
    calm: bool
    jobs: tuple[Job, ...]
    faults: tuple[Fault, ...]


def make_plan(seed: int) -> Plan:
    """The same seed, the same plan."""
    chance = random.Random(f"plan-{seed}")
    calm = seed % 4 == 0
    jobs = tuple(_job(chance, number) for number in range(chance.randint(6, 14)))
    kinds = CALM if calm else (*CALM, *ROUGH)
    drawn = [chance.choice(kinds)(chance, calm=calm) for _ in range(chance.randint(4, 16))]
    faults = tuple(sorted(drawn, key=lambda fault: (fault.at_s, fault.kind, fault.target)))
    return Plan(seed=seed, calm=calm, jobs=jobs, faults=faults)


def _job(chance: random.Random, number: int) -> Job:
    replicas, gpus = chance.choice(SHAPES)
    code = chance.choice((0, 0, 0, 3))
    work = Work(
        runs_for_ms=round(chance.choice((1, 4, 9, 18)) * MINUTE * chance.uniform(0.5, 1.2)),
        starts_after_ms=chance.choice((0, 300, 2 * SECOND, 5 * SECOND)),
        stops_after_ms=chance.choice((0, 2 * SECOND, 20 * SECOND, 45 * SECOND)),
        exit_code=code,
        breaks_replica=replicas - 1 if code and replicas > 1 else -1,
    )
    at_s = chance.uniform(20, TROUBLE_S)
    spec = _spec(chance, work, replicas=replicas, gpus=gpus)
    if spec.resumable:  # it saves within its grace: two that never do take turns for ever
        work = msgspec.structs.replace(work, stops_after_ms=min(work.stops_after_ms, 20 * SECOND))
        spec = replace(spec, launch=Launch(command=work.command))
    cancelled = at_s + chance.uniform(0, 900) if chance.random() < 0.15 else None
    return Job(at_s=at_s, key=f"k{number:02}", spec=spec, work=work, cancelled_at_s=cancelled)


def _spec(chance: random.Random, work: Work, *, replicas: int, gpus: int) -> JobSpec:
    return JobSpec(
        budget=BudgetPath(chance.choice(LEAVES)),
        user=UserName(chance.choice(("ana", "bo"))),
        replicas=replicas,
        gpus_per_replica=gpus,
        min_runtime_ms=chance.choice((0, 0, 2, 5, 12)) * MINUTE,
        resumable=chance.random() < 0.6,
        priority=chance.choice((0, 0, 1)),
        launch=Launch(command=work.command),
    )


def _when(chance: random.Random) -> float:
    return chance.uniform(5, TROUBLE_S)


def _anybody(chance: random.Random) -> str:
    return chance.choice((*DECIDERS, "placer", "gateway", "agent-0", "agent-1", "agent-2"))


def _crash(chance: random.Random, *, calm: bool) -> Fault:
    detail = {
        "at": chance.choice(("before", "after", "now")),
        "snapshot": chance.choice(("kept", "torn", "bits", "gone")),
    }
    for_s = 0.5 if calm else chance.choice((0.5, 5.0, 60.0, 200.0))
    target = chance.choice((*DECIDERS, "placer", "gateway")) if calm else _anybody(chance)
    return Fault(at_s=_when(chance), kind="crash", target=target, for_s=for_s, detail=detail)


def _unheard(chance: random.Random, *, calm: bool) -> Fault:
    detail = {"acks": chance.randint(1, 1 if calm else 4)}
    return Fault(at_s=_when(chance), kind="lost-ack", target=_anybody(chance), for_s=0.0, detail=detail)


def _stale(chance: random.Random, *, calm: bool) -> Fault:
    target = chance.choice(("placer", "placer", "placer", "health", "budget", "ranker"))
    for_s = chance.choice((1.0, 3.0) if calm else (1.0, 10.0, 60.0, 300.0))
    return Fault(at_s=_when(chance), kind="stale", target=target, for_s=for_s)


def _slow(chance: random.Random, *, calm: bool) -> Fault:
    longest = 1.0 if calm else chance.choice((1.0, 5.0, 20.0))
    detail = {chance.choice(("hears_after_s", "writes_after_s")): longest}
    return Fault(at_s=_when(chance), kind="slow", target=_anybody(chance), for_s=chance.uniform(20, 300), detail=detail)


def _cut(chance: random.Random, *, calm: bool) -> Fault:
    for_s = chance.choice((3.0, 30.0, 150.0, 500.0, 800.0))
    return Fault(at_s=_when(chance), kind="cut", target=_anybody(chance), for_s=for_s)


def _full(chance: random.Random, *, calm: bool) -> Fault:
    return Fault(at_s=_when(chance), kind="log-full", target="log", for_s=chance.choice((2.0, 20.0, 90.0)))


def _spool(chance: random.Random, *, calm: bool) -> Fault:
    target = chance.choice(("agent-0", "agent-1", "agent-2"))
    return Fault(at_s=_when(chance), kind="spool-full", target=target, for_s=chance.choice((40.0, 100.0, 200.0)))


def _clock(chance: random.Random, *, calm: bool) -> Fault:
    """A decider's clock jumps there and back. A host's only forwards: see docs/simulated-faults.md."""
    if chance.random() < 0.5:
        target, jump = chance.choice((*DECIDERS, "placer", "gateway")), chance.choice((-90, -5, 5, 30, 90))
    else:
        target, jump = chance.choice(("agent-0", "agent-1", "agent-2")), chance.choice((1, 2, 4))
    for_s = 0.0 if target.startswith("agent") else chance.choice((60.0, 400.0))
    return Fault(at_s=_when(chance), kind="clock", target=target, for_s=for_s, detail={"jump_s": jump})


def _power(chance: random.Random, *, calm: bool) -> Fault:
    target = chance.choice(("agent-0", "agent-1", "agent-2"))
    return Fault(at_s=_when(chance), kind="power-loss", target=target, for_s=chance.choice((20.0, 200.0, 600.0)))


def _drain(chance: random.Random, *, calm: bool) -> Fault:
    target = f"h00{chance.randrange(4)}"
    detail = {"fatal": chance.random() < 0.3}
    return Fault(at_s=_when(chance), kind="drain", target=target, for_s=chance.uniform(30, 900), detail=detail)


def _tree(chance: random.Random, *, calm: bool) -> Fault:
    return Fault(at_s=_when(chance), kind="tree-edit", target="tree", for_s=chance.uniform(60, 600))


CALM = (_crash, _unheard, _stale, _slow)
ROUGH = (_cut, _full, _spool, _clock, _power, _drain, _tree, _crash, _stale)


def longest_s(plan: Plan) -> float:
    """How long after the trouble everything must be over: as if all jobs ran one behind the other, thrice."""
    each = [3 * (job.spec.min_runtime_ms + job.work.runs_for_ms + job.spec.grace_ms) for job in plan.jobs]
    return 15 * 60 + sum(each) / SECOND
