"""A health role on a memory log, told by hand what agents, people and the placer would say. Instants are ms from 0."""

import msgspec

from services.health.decider import NO_PLUG, role
from services.health.policy.mending import Plug
from simulator.actor import Actor
from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import BudgetPath, FactId, HostId, JobId, RunId, UserName
from tenure.domain.job import Launch, ReplicaPlace
from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause, Reason, Why
from tenure.domain.units import SECOND, Millis
from tenure.events.fact import Fact
from tenure.events.hosts import CapacityChanged, DrainCompleted, HostStateChanged
from tenure.events.placing import RunAssigned, RunEnded
from tenure.events.reports import Heartbeat, HostBeat, HostRegistered
from tenure.log.memory import MemoryLog

BEAT = 5 * SECOND
START = 1_000 * SECOND


class Ward:
    """Hosts `h0`, `h1`, ... of 8 GPUs, registered and heard at `START`. Time passes in beats."""

    def __init__(
        self, *, hosts: int = 4, started_at: Millis = 0, policy: Policy | None = None, plug: Plug = NO_PLUG
    ) -> None:
        self.log = MemoryLog()
        self.policy = policy or Policy()
        self.started_at = started_at
        self.actor = Actor(role(self.policy, started_at=started_at, plug=plug), self.log, cluster="test")
        self.now: Millis = START
        self.names = [HostId(f"h{index}") for index in range(hosts)]
        self._count = 0
        self.register(*self.names)
        self.beat(*self.names)
        self.decide()

    def say(self, fact: Fact) -> FactId:
        """Append a fact of somebody else."""
        self._count += 1
        fact_id = FactId(f"t{self._count}")
        self.log.append_now([msgspec.structs.replace(fact, id=fact_id)])
        return fact_id

    def register(
        self, *hosts: str, gpu_type: str = "H100", block: str = "b", cluster: str = "c", gpus: int = 8
    ) -> None:
        """An agent starts and speaks for these hosts."""
        specs = tuple(
            HostSpec(host=HostId(host), gpus=gpus, gpu_type=gpu_type, block=block, cluster=cluster) for host in hosts
        )
        self.say(HostRegistered(at=self.now, agent="a", hosts=specs))

    def beat(self, *hosts: str, at: Millis | None = None, gpus: int = 8, runs: tuple[str, ...] = ()) -> None:
        """One heartbeat for these hosts."""
        held = tuple(RunId(run) for run in runs)
        beats = tuple(HostBeat(host=HostId(host), gpus=gpus, runs=held) for host in hosts)
        self.say(Heartbeat(at=self.now if at is None else at, agent="a", hosts=beats))

    def decide(self) -> None:
        """Let the role decide until it has nothing to say."""
        self.actor.act(self.now)

    def live(self, length_ms: Millis, *hosts: str, gpus: int = 8) -> None:
        """So much time passes while these hosts (and nobody else) beat, and the role decides after each beat."""
        until = self.now + length_ms
        while self.now + BEAT <= until:
            self.now += BEAT
            if hosts:
                self.beat(*hosts, gpus=gpus)
            self.decide()
        self.now = until
        self.decide()

    def assign(self, run: str, *hosts: str) -> None:
        """The placer gives a run all GPUs of these hosts."""
        places = tuple(
            ReplicaPlace(replica=index, host=HostId(host), gpus=tuple(range(8))) for index, host in enumerate(hosts)
        )
        self.say(
            RunAssigned(
                at=self.now,
                run=RunId(run),
                job=JobId(run.partition(".")[0]),
                number=1,
                budget=BudgetPath("a"),
                user=UserName("u"),
                placement=places,
                launch=Launch(command=("true",)),
                min_runtime_ms=1,
                resumable=False,
                grace_ms=0,
                resume_count=0,
                master_address="h",
                master_port=1,
                why=Why(rule="P4", reason=Reason.START_IN_ORDER),
            )
        )

    def end(self, run: str) -> None:
        """The placer says that a run is over."""
        why = Why(rule="P10", reason=Reason.END_COMPLETED)
        job = JobId(run.partition(".")[0])
        self.say(RunEnded(at=self.now, run=RunId(run), job=job, cause_of_end=EndCause.COMPLETED, why=why))

    def changes(self, host: str) -> list[HostStateChanged]:
        """All state changes of one host."""
        facts = [r.fact for r in self.log.recorded]
        return [fact for fact in facts if isinstance(fact, HostStateChanged) and fact.host == host]

    def states(self, host: str) -> list[HostState]:
        """The states one host went through."""
        return [change.state for change in self.changes(host)]

    def state(self, host: str) -> HostState:
        """The state of one host."""
        return self.states(host)[-1]

    def capacity(self, host: str) -> int:
        """The GPUs one host offers by what was last said."""
        facts = [r.fact for r in self.log.recorded]
        said = [fact.gpus for fact in facts if isinstance(fact, CapacityChanged) and fact.host == host]
        return said[-1] if said else 0

    def drains_completed(self) -> list[str]:
        """Hosts whose drain was completed, in order."""
        return [r.fact.host for r in self.log.recorded if isinstance(r.fact, DrainCompleted)]
