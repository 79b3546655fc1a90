"""A whole system in one process: budget, ranker, placer, health, virtual agents; the log in memory, a virtual clock."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from services.budget import decider as budget
from services.health import decider as health
from services.health.policy.mending import Plug
from services.placer import decider as placer
from services.ranker import decider as ranker
from simulator.actor import Actor
from simulator.agents import FREE, Behaviour, Running, VirtualAgents, Work
from simulator.clockwork import Clockwork
from tenure.domain.host import HostSpec
from tenure.domain.ids import FactId, HostId, JobId, UserName
from tenure.domain.job import JobSpec
from tenure.domain.policy import Policy, changes, value_of
from tenure.domain.severity import Severity
from tenure.domain.tree import BudgetTree
from tenure.domain.units import Millis
from tenure.events.budgets import BudgetTreeChanged
from tenure.events.fact import Fact
from tenure.events.hosts import RepairRequested
from tenure.events.intake import DrainRequested, JobCancelRequested, JobSubmitted, RepairCompleted, ResumeRequested
from tenure.events.policy import KnobChange, PolicyChanged
from tenure.events.reports import HealthSignal, Heartbeat, HostBeat, HostSignal
from tenure.log.memory import MemoryLog
from tenure.runtime.role import Role

CLUSTER = "sim"
OPERATOR = UserName("operator")
GPU_KINDS = ("xid", "gpu", "ecc", "nvlink", "dbe", "otb")
"""Kinds of faults that a host's own devices tell of begin so (`faults.csv`)."""
WARNED = "drain-"
"""Kinds of faults that begin so are told before they are felt: the host works on and asks for care (P9)."""
Roles = Callable[[Policy], list[Role[Any]]]
"""Makes the deciders of a world, in the order in which they take their turns."""


def fair(policy: Policy, *, plug: Plug = health.NO_PLUG) -> list[Role[Any]]:
    """P1-P11: the services' own."""
    return [health.role(policy, plug=plug), budget.role(policy), ranker.role(policy), placer.role(policy)]


FAIR: Roles = fair


@dataclass(frozen=True, kw_only=True)
class Before:
    """What had happened at `at`, when a world takes over: the facts that its roles fold, and what its agents hold."""

    at: Millis
    facts: Sequence[Fact]
    running: Sequence[Running]
    behaviours: Mapping[JobId, Behaviour]
    """What the processes of those jobs do that were submitted before."""
    done_ms: Mapping[JobId, Millis]
    """Work that resumable jobs have behind them."""


class World(Clockwork):
    """Hosts, a budget tree and the deciders. Instants are milliseconds since the world began."""

    def __init__(
        self,
        *,
        hosts: Sequence[HostSpec],
        tree: BudgetTree | None,
        policy: Policy,
        roles: Roles = FAIR,
        work: Work = FREE,
        before: Before | None = None,
    ) -> None:
        """`tree` None: the one that the facts of `before` have."""
        log, now = MemoryLog(), 0 if before is None else before.at
        self.policy = policy
        if before is not None:
            was = msgspec.structs.replace
            numbered = enumerate(before.facts, start=1)
            log.append_now([was(fact, id=FactId(f"before-{n}"), cluster=CLUSTER) for n, fact in numbered])
        heartbeat_ms = policy.heartbeat_ms
        agents = VirtualAgents(tuple(hosts), log, cluster=CLUSTER, heartbeat_ms=heartbeat_ms, work=work, began=now)
        if before is not None:
            agents.behaviours.update(before.behaviours)
            agents.inherit(before.running, done_ms=before.done_ms, now=now)
        super().__init__(log, agents, [Actor(role, log, cluster=CLUSTER) for role in roles(policy)], now=now)
        self._said = 0
        if tree is not None:
            self.change_tree(tree)

    def actor(self, name: str) -> Actor[Any]:
        """The actor of one role."""
        return next(actor for actor in self.actors if actor.role.name == name)

    def submit(self, job: JobId, spec: JobSpec, behaviour: Behaviour) -> None:
        """A job comes in now."""
        self.agents.behaviours[job] = behaviour
        self._say(JobSubmitted(at=self.now, job=job, spec=spec))

    def cancel(self, job: JobId) -> None:
        """Its owner cancels a job now."""
        self._say(JobCancelRequested(at=self.now, job=job, by=OPERATOR))

    def drain(self, host: HostId, *, fatal: bool = False, empty_at: Millis | None = None) -> None:
        """An operator drains a host now, or has it be empty at an instant and work until then."""
        order = DrainRequested(at=self.now, host=host, by=OPERATOR, comment="scenario", fatal=fatal)
        self._say(msgspec.structs.replace(order, deadline=empty_at, accepts=empty_at is not None))

    def resume(self, host: HostId) -> None:
        """An operator resumes a host now."""
        self._say(ResumeRequested(at=self.now, host=host, by=OPERATOR))

    def signal(self, host: HostId, signal: HealthSignal) -> None:
        """The agent of a host says this of a device now."""
        self._say(HostSignal(at=self.now, host=host, signals=(signal,)))

    def join(self, specs: Sequence[HostSpec]) -> None:
        """Further hosts come now, or are now as these say."""
        self.agents.join(specs, self.now)

    def speak_for(self, host: HostId, *, machine: str) -> None:
        """Another machine has been given the host's name, so its agent has the same, and beats now."""
        self._say(Heartbeat(at=self.now, agent="virtual", machine=machine, hosts=(HostBeat(host=host, gpus=8),)))

    def lose(self, host: HostId, *, kind: str = "fault") -> None:
        """A host fails now with all it runs, or says that it will (`WARNED`).

        A fault of a GPU is said by its agent; of others an operator hears.
        """
        if kind.startswith(WARNED):
            self.signal(host, self._fault(kind))
            return
        self.agents.lose(host, self.now)
        if kind.startswith(GPU_KINDS):
            self.agents.broken[host] = None
            self.signal(host, self._fault(kind))
        else:
            self._say(DrainRequested(at=self.now, host=host, by=OPERATOR, comment=kind, fatal=True))

    def repair(self, host: HostId, *, kind: str = "fault") -> None:
        """Somebody repaired a host. One that only warned comes back by its own signals."""
        if kind.startswith(WARNED):
            self.signal(host, self._fault(kind, over=True))
            return
        if host in self.agents.broken:
            del self.agents.broken[host]
            self.signal(host, self._fault(kind, over=True))
        self._say(RepairCompleted(at=self.now, host=host, by=OPERATOR))

    def _fault(self, kind: str, *, over: bool = False) -> HealthSignal:
        severity = Severity.DRAIN if kind.startswith(WARNED) else Severity.FATAL
        return HealthSignal(
            source="kernel",
            device="gpu0",
            code=kind,
            severity=severity,
            text="",
            first_at=self.now,
            last_at=self.now,
            over=over,
        )

    def answer(self, host: HostId, *, ok: bool) -> None:
        """The repair plug answers what it was asked last of this host."""
        facts = [entry.fact for entry in reversed(self.recorded)]
        asked = next(fact for fact in facts if isinstance(fact, RepairRequested) and fact.host == host)
        self._say(RepairCompleted(at=self.now, host=host, by=OPERATOR, incident=asked.incident, step=asked.step, ok=ok))

    def change_tree(self, tree: BudgetTree) -> None:
        """The tree changes now."""
        self._say(BudgetTreeChanged(at=self.now, tree=tree, by=OPERATOR))

    def change_policy(self, policy: Policy) -> None:
        """The operator changes the policy: everybody decides by it from now on."""
        before = self.policy
        told = [
            KnobChange(knob=name, before=value_of(before, name), after=value_of(policy, name))
            for name in changes(before, policy)
        ]
        self.policy = policy
        self._say(PolicyChanged(at=self.now, policy=policy, changes=tuple(told), by=OPERATOR))

    def _say(self, fact: Fact) -> None:
        self._said += 1
        self.log.append_now([msgspec.structs.replace(fact, id=FactId(f"world-{self._said}"), cluster=CLUSTER)])
