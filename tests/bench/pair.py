"""A cluster for benches of deciding: a ranker and a placer side by side; agents do as they are told at once.

Sixteen leaves, a full cluster with a run for about every eight GPUs (a twentieth unallocated, a twentieth past their
protection, the others of every age), and a queue in `SHAPES` shapes, each asked for by every leaf.
"""

import random
import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from services.placer.decider import role as placer_role
from services.placer.state import State as PlacerState
from services.ranker.decider import role as ranker_role
from services.ranker.state import State as RankerState
from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import BudgetPath, FactId, HostId, JobId, Position, RunId, UserName, run_id
from tenure.domain.job import JobSpec, Launch, Placement, ReplicaPlace
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason, Why
from tenure.domain.units import HOUR, MINUTE, Millis
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted
from tenure.events.fact import Fact, Recorded
from tenure.events.hosts import CapacityChanged, HostStateChanged
from tenure.events.placing import RunAssigned, RunPreemptionRequested, RunStarted, RunStopRequested
from tenure.events.reports import HostRegistered, ReplicaExit, ReplicasExited, ReplicasStarted, ReplicaStart
from tests.unit.ranker.scene import tree

GPUS = 8
SHAPES = 200
LEAVES = 16
HOSTS_PER_BLOCK = 32
BEGAN: Millis = 24 * HOUR
SIZES = (2, 4, 4, 8, 8, 8, 8, 8, 8, 16, 16, 32)
"""GPUs of the runs that are there at first."""
RUNTIMES = (HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR)
WHY = Why(rule="P4", reason=Reason.START_IN_ORDER)


def leaves() -> list[BudgetPath]:
    """The budgets that fund jobs."""
    return [BudgetPath(f"p{leaf % 4}/l{leaf}") for leaf in range(LEAVES)]


class Pair:
    """Both roles on one sequence of facts. `now` is the instant at which they decide."""

    def __init__(self, *, hosts: int, seed: int = 1) -> None:
        self.chance = random.Random(seed)
        self.policy = Policy()
        self.ranker_role, self.placer_role = ranker_role(self.policy), placer_role(self.policy)
        self.ranker: RankerState = self.ranker_role.initial()
        self.placer: PlacerState = self.placer_role.initial()
        self.position, self.now, self.count = 0, 0, 0
        self.answers: list[Fact] = []
        """What the agents have to say, not said yet."""
        self.hosts = [HostId(f"h{number:05}") for number in range(hosts)]
        shares = {f"p{program}": 25 for program in range(4)} | dict.fromkeys(leaves(), 25)
        self.say(BudgetTreeChanged(at=0, tree=tree(shares), by=UserName("ana")))
        specs = tuple(
            HostSpec(host=host, gpus=GPUS, gpu_type="H100", block=f"b{number // HOSTS_PER_BLOCK:03}", cluster="c")
            for number, host in enumerate(self.hosts)
        )
        self.say(HostRegistered(at=0, agent="a", hosts=specs))
        why = Why(rule="P1", reason=Reason.HOST_REGISTERED)
        for host in self.hosts:
            healthy = HostStateChanged(at=0, host=host, state=HostState.HEALTHY, previous=None, last_seen=0, why=why)
            self.say(healthy, CapacityChanged(at=0, host=host, gpus=GPUS, gpu_type="H100"))

    def say(self, *facts: Fact) -> None:
        """Append facts of somebody, each with its place in the log; both roles fold them."""
        for fact in facts:
            self.position += 1
            named = msgspec.structs.replace(fact, id=FactId(f"f{self.position}"))
            recorded = Recorded(Position(self.position), named)
            if type(fact) in self.ranker_role.reads:
                self.ranker_role.evolve(self.ranker, recorded)
            if type(fact) in self.placer_role.reads:
                self.placer_role.evolve(self.placer, recorded)

    def rank(self) -> int:
        """The ranker decides once. Returns how many facts it said."""
        facts = self.ranker_role.decide(self.ranker, self.now).facts
        self.say(*facts)
        return len(facts)

    def place(self) -> list[Fact]:
        """The placer decides once. What agents will answer is kept in `answers`."""
        facts = list(self.placer_role.decide(self.placer, self.now).facts)
        self.say(*facts)
        for fact in facts:
            self.answers += self._answer(fact)
        return facts

    def answer(self) -> bool:
        """The agents say what they have to say, if anything."""
        answers, self.answers = self.answers, []
        self.say(*answers)
        return bool(answers)

    def rest(self) -> None:
        """Decide, and let the agents answer, until nobody has anything to say."""
        while self.rank() or self.place() or self.answer():
            pass

    def _answer(self, fact: Fact) -> Iterator[Fact]:
        if isinstance(fact, RunAssigned):
            starts = tuple(ReplicaStart(replica=p.replica, host=p.host, at=self.now) for p in fact.placement)
            yield ReplicasStarted(at=self.now, run=fact.run, job=fact.job, replicas=starts)
        elif isinstance(fact, RunPreemptionRequested | RunStopRequested):
            yield self.exit(fact.run, code=None)

    def exit(self, run: RunId, *, code: int | None) -> ReplicasExited:
        """All replicas of the run are gone: with a status, or by a signal."""
        held = self.placer.core.runs[run]
        gone = tuple(
            ReplicaExit(
                replica=place.replica,
                host=place.host,
                at=self.now,
                started_at=held.started_at,
                code=code,
                signal=None if code is not None else 15,
            )
            for place in held.placement
        )
        return ReplicasExited(at=self.now, run=run, job=held.job, replicas=gone)

    def admit(self, spec: JobSpec) -> JobId:
        """A job enters the queue."""
        self.count += 1
        job = JobId(f"j{self.count:07}")
        self.say(JobAdmitted(at=self.now, job=job, spec=spec, submitted_at=self.now))
        return job

    def occupy(self) -> None:
        """Fill every GPU with runs, the oldest first."""
        total = len(self.hosts) * GPUS
        sizes: list[int] = []
        used = 0
        while used < total:
            gpus = min(self.chance.choice(SIZES), total - used)
            if used % GPUS or gpus < GPUS:
                gpus = min(gpus, GPUS - used % GPUS)
            sizes.append(gpus - gpus % GPUS if gpus > GPUS else gpus)
            used += sizes[-1]
        used = 0
        for gpus, (age, runtime) in zip(sizes, sorted(map(self._age, sizes), reverse=True), strict=True):
            self.now = BEGAN - age
            self._run(used, gpus, runtime)
            used += gpus
        self.now = BEGAN

    def _age(self, _: int) -> tuple[Millis, Millis]:
        """How long ago a run began, and its minimum runtime."""
        runtime = self.chance.choice(RUNTIMES)
        lot = self.chance.randrange(20)
        if lot == 0:
            return self.chance.randrange(9 * HOUR), 0
        return self.chance.randrange(runtime) + (runtime if lot == 1 else 0), runtime

    def _run(self, first: int, gpus: int, runtime: Millis) -> None:
        """A run on these GPUs of the cluster, counted through."""
        replicas, each = (gpus // GPUS, GPUS) if gpus >= GPUS else (1, gpus)
        spec = self.spec(replicas, each, runtime, leaf=self.chance.randrange(LEAVES), priority=0)
        job = self.admit(spec)
        placement: Placement = tuple(
            ReplicaPlace(
                replica=number,
                host=self.hosts[first // GPUS + number],
                gpus=tuple(range(first % GPUS, first % GPUS + each)),
            )
            for number in range(replicas)
        )
        run = run_id(job=job, number=1)
        self.say(
            RunAssigned(
                at=self.now,
                run=run,
                job=job,
                number=1,
                budget=spec.budget,
                user=spec.user,
                placement=placement,
                launch=spec.launch,
                min_runtime_ms=runtime,
                resumable=True,
                grace_ms=spec.grace_ms,
                resume_count=0,
                master_address="h",
                master_port=1,
                why=WHY,
            )
        )
        starts = tuple(ReplicaStart(replica=p.replica, host=p.host, at=self.now) for p in placement)
        hosts = {place.host: place.gpus for place in placement}
        self.say(
            ReplicasStarted(at=self.now, run=run, job=job, replicas=starts),
            RunStarted(
                at=self.now, run=run, job=job, protected_until=self.now + runtime, charged=runtime > 0, hosts=hosts
            ),
        )

    def queue(self, jobs: int) -> None:
        """So many jobs wait, in `SHAPES` shapes, each of a leaf by lot."""
        for number in range(jobs):
            self.admit(self.shape(number % SHAPES, leaf=self.chance.randrange(LEAVES)))

    def shape(self, kind: int, *, leaf: int) -> JobSpec:
        """A job of one of the shapes: a seventh are gangs of up to 64 hosts."""
        replicas = (1, 1, 1, 1, 1, 1, 2 << kind % 6)[kind % 7]
        gpus = GPUS if replicas > 1 else (1, 2, 4, 8, 8)[kind % 5]
        runtime = (0, *[(1 + kind % 31) * 15 * MINUTE] * 4)[kind % 5] if replicas == 1 else (1 + kind % 8) * HOUR
        return self.spec(replicas, gpus, runtime, leaf=leaf, priority=kind // 70)

    def spec(self, replicas: int, gpus: int, runtime: Millis, *, leaf: int, priority: int) -> JobSpec:
        """A job's specification."""
        return JobSpec(
            budget=leaves()[leaf],
            user=UserName("u"),
            replicas=replicas,
            gpus_per_replica=gpus,
            min_runtime_ms=runtime,
            resumable=True,
            priority=priority,
            launch=Launch(command=("true",)),
        )


def milliseconds(began: float) -> float:
    """Since an instant of `time.process_time`."""
    return (time.process_time() - began) * 1000


def percentiles(samples: Iterable[float]) -> dict[str, Any]:
    """p50, p99 and the largest, in the unit of the samples."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    return {
        "p50_ms": round(ordered[last // 2], 2),
        "p99_ms": round(ordered[round(0.99 * last)], 2),
        "max_ms": round(ordered[-1], 2),
        "rounds": len(ordered),
    }
