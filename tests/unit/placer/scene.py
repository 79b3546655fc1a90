"""A placer on a memory log, told by hand what the other roles would say. Instants are milliseconds from 0."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from services.placer.decider import role
from simulator.actor import Actor
from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import BudgetPath, FactId, HostId, JobId, Position, RunId, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason, Why
from tenure.domain.units import HOUR, Millis
from tenure.events.budgets import JobAdmitted
from tenure.events.fact import Fact
from tenure.events.hosts import HostStateChanged
from tenure.events.intake import JobCancelRequested
from tenure.events.ranking import RankingPublished, Standing
from tenure.events.reports import (
    CheckpointReported,
    HostRegistered,
    ReplicaExit,
    ReplicasExited,
    ReplicasStarted,
    ReplicaStart,
)
from tenure.log.memory import MemoryLog

F = TypeVar("F", bound=Fact)
WEEK_GPU_MS = 1_000_000_000


class Scene:
    """Hosts `h0`, `h1`, ...; jobs are admitted and ranked in the order they are given."""

    def __init__(
        self, *, hosts: int = 2, gpus: int = 8, blocks: Sequence[str] = ("b0",), policy: Policy | None = None
    ) -> None:
        self.log = MemoryLog()
        self.policy = policy or Policy()
        self.actor = Actor(role(self.policy), self.log, cluster="test")
        self.now: Millis = 0
        self.order: list[JobId] = []
        self.ratios: dict[str, float] = {}
        self._count = 0
        specs = [spec(f"h{index}", gpus=gpus, block=blocks[index % len(blocks)]) for index in range(hosts)]
        self.say(HostRegistered(at=0, agent="a", hosts=tuple(specs)))
        for one in specs:
            self.host(one.host, HostState.HEALTHY)

    def say(self, fact: Fact) -> None:
        """Append a fact of another role."""
        self._count += 1
        self.log.append_now([msgspec.structs.replace(fact, id=FactId(f"t{self._count}"))])

    def host(self, host: str, state: HostState, *, fatal: bool = False, last_seen: Millis | None = None) -> None:
        """Health says so."""
        seen = self.now if last_seen is None else last_seen
        why = Why(rule="P9", reason=Reason.HOST_REGISTERED)
        self.say(
            HostStateChanged(
                at=self.now, host=HostId(host), state=state, previous=None, last_seen=seen, why=why, fatal=fatal
            )
        )

    def move(self, host: str, block: str) -> None:
        """The host registers from another block."""
        known = self.actor.state.core.hosts[HostId(host)].spec
        self.say(HostRegistered(at=self.now, agent="a", hosts=(dataclasses.replace(known, block=block),)))

    def job(
        self,
        name: str,
        budget: str = "a",
        *,
        gpus: int = 8,
        replicas: int = 1,
        min_runtime_ms: Millis = HOUR,
        **more: object,
    ) -> JobId:
        """A job enters the queue, last in order."""
        wanted = JobSpec(
            budget=BudgetPath(budget),
            user=UserName("u"),
            replicas=replicas,
            gpus_per_replica=gpus,
            min_runtime_ms=min_runtime_ms,
            launch=Launch(command=("true",)),
            **more,  # type: ignore[arg-type]
        )
        job = JobId(name)
        self.say(JobAdmitted(at=self.now, job=job, spec=wanted, submitted_at=self.now))
        self.order.append(job)
        self.rank()
        return job

    def rank(self, order: Iterable[str] | None = None, **ratios: float) -> None:
        """The ranker publishes: this order, these ratios of top-level budgets (default 0.5)."""
        if order is not None:
            self.order = [JobId(name) for name in order]
        self.ratios.update(ratios)
        paths = {"a", "b", "c", *self.ratios}
        standings = tuple(
            Standing(
                path=BudgetPath(path),
                charged_gpu_ms=int(self.ratios.get(path, 0.5) * WEEK_GPU_MS),
                commitment_gpu_ms=0,
                entitlement_gpu_ms=WEEK_GPU_MS,
            )
            for path in sorted(paths)
        )
        basis = Position(len(self.log.recorded))
        self.say(RankingPublished(at=self.now, order=tuple(self.order), standings=standings, basis=basis))

    def start(self, run: str) -> None:
        """Every replica of the run is launched now."""
        held = self.actor.state.core.runs[RunId(run)]
        starts = tuple(ReplicaStart(replica=p.replica, host=p.host, at=self.now) for p in held.placement)
        self.say(ReplicasStarted(at=self.now, run=held.run, job=held.job, replicas=starts))

    def exit(self, run: str, *, code: int | None = 0, signal: int | None = None, only: int | None = None) -> None:
        """Replicas of the run are gone now: all, or only one."""
        held = self.actor.state.core.runs[RunId(run)]
        exits = tuple(
            ReplicaExit(
                replica=p.replica,
                host=p.host,
                at=self.now,
                started_at=held.started.get(p.replica),
                code=code,
                signal=signal,
            )
            for p in held.placement
            if only is None or p.replica == only
        )
        self.say(ReplicasExited(at=self.now, run=held.run, job=held.job, replicas=exits))

    def checkpoint(self, run: str) -> None:
        """The run saved its progress now."""
        held = self.actor.state.core.runs[RunId(run)]
        self.say(CheckpointReported(at=self.now, run=held.run, job=held.job, host=held.placement[0].host))

    def cancel(self, job: str) -> None:
        """The owner cancels."""
        self.say(JobCancelRequested(at=self.now, job=JobId(job), by=UserName("u")))

    def act(self, now: Millis | None = None) -> list[Fact]:
        """Let the placer decide until it rests; returns what it said."""
        if now is not None:
            self.now = now
        before = len(self.log.recorded)
        self.actor.act(self.now)
        return [recorded.fact for recorded in self.log.since(Position(before))]

    def act_for(self, kind: type[F], now: Millis | None = None) -> list[F]:
        """What it said of one kind."""
        return [fact for fact in self.act(now) if isinstance(fact, kind)]

    def running(self, name: str, budget: str = "a", **more: object) -> RunId:
        """A job that is placed and has started now."""
        self.job(name, budget, **more)  # type: ignore[arg-type]
        self.act()
        run = RunId(f"{name}.1")
        self.start(run)
        self.act()
        self.order.remove(JobId(name))
        return run


def spec(host: str, *, gpus: int = 8, gpu_type: str = "H100", cluster: str = "c", block: str = "b0") -> HostSpec:
    """A host as it registers."""
    return HostSpec(host=HostId(host), gpus=gpus, gpu_type=gpu_type, block=block, cluster=cluster)
