"""Facts as the other roles write them, for the tests of the budget role, and a log of one role."""

from collections.abc import Sequence

from msgspec.structs import replace

from services.budget.decider import role
from services.budget.state import State
from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import BudgetPath, FactId, HostId, JobId, RunId, UserName, job_of
from tenure.domain.job import JobSpec, Launch, ReplicaPlace
from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause, Reason, Why
from tenure.domain.tree_check import check_tree
from tenure.domain.units import HOUR, MINUTE, Millis
from tenure.events.budgets import BudgetTreeChanged
from tenure.events.fact import Fact, Recorded
from tenure.events.hosts import HostStateChanged
from tenure.events.intake import JobSubmitted
from tenure.events.placing import RunAssigned, RunEnded
from tenure.events.reports import (
    CheckpointReported,
    HostRegistered,
    ReplicaExit,
    ReplicasExited,
    ReplicasStarted,
    ReplicaStart,
)
from tenure.log.memory import MemoryLog
from tenure.runtime.stamp import stamped

T0: Millis = 1_700_000_000_000
CHEM = BudgetPath("science/chem")
LAUNCH = Launch(command=("true",))
WHY = Why(rule="test", reason=Reason.START_IN_ORDER)
POLICY = Policy()


class Story:
    """A log and the budget role on it. `tell` appends what others say, `ask` lets the role decide and appends that."""

    def __init__(self, policy: Policy = POLICY) -> None:
        self.role = role(policy)
        self.state: State = self.role.initial()
        self.log = MemoryLog()
        self._told = 0
        self._places: dict[RunId, dict[int, HostId]] = {}

    def tell(self, *facts: Fact) -> None:
        for fact in facts:
            self._told += 1
            told = self._as_its_hosts_say(fact)
            self._append(replace(told, id=told.id or FactId(f"others-{self._told}"), cluster="test"))

    def _as_its_hosts_say(self, fact: Fact) -> Fact:
        """A report of replicas, each by the host that it was given to."""
        if isinstance(fact, RunAssigned):
            self._places[fact.run] = {place.replica: place.host for place in fact.placement}
        elif isinstance(fact, ReplicasStarted | ReplicasExited):
            at = self._places.get(fact.run, {})
            replicas = tuple(replace(each, host=at.get(each.replica, each.host)) for each in fact.replicas)
            return replace(fact, replicas=replicas)
        elif isinstance(fact, CheckpointReported):
            return replace(fact, host=self._places.get(fact.run, {}).get(0, fact.host))
        return fact

    def ask(self, now: Millis = T0) -> Sequence[Fact]:
        decision = self.role.decide(self.state, now)
        assert decision.assumes == self.state.position
        assert decision.wake_at is None
        said = stamped(decision, role="budget", cluster="test")
        for fact in said:
            self._append(fact)
        return said

    def restart(self) -> None:
        """Drop the state and take it from a dump."""
        self.state = self.role.load(self.role.dump(self.state))

    def _append(self, fact: Fact) -> None:
        appended = self.log.append_now([fact])
        if type(fact) in self.role.reads:
            self.role.evolve(self.state, Recorded(appended.last, fact))


def tree(at: Millis = T0, **shares: float) -> BudgetTreeChanged:
    children = {name: {"share": share} for name, share in (shares or {"chem": 50.0, "bio": 50.0}).items()}
    changed = check_tree({"budgets": {"science": {"share": 100, "children": children}}})
    return BudgetTreeChanged(at=at, tree=changed, by=UserName("ana"))


def registered(*hosts: str, gpus: int = 8) -> HostRegistered:
    specs = tuple(HostSpec(host=HostId(name), gpus=gpus, gpu_type="H100", block="b0", cluster="main") for name in hosts)
    return HostRegistered(at=T0, agent="agent", hosts=specs)


def submitted(
    job: str, *, at: Millis = T0, budget: str = CHEM, replicas: int = 1, min_runtime_ms: Millis = 15 * MINUTE
) -> JobSubmitted:
    spec = JobSpec(
        budget=BudgetPath(budget),
        user=UserName("ana"),
        gpus_per_replica=8,
        replicas=replicas,
        min_runtime_ms=min_runtime_ms,
        launch=LAUNCH,
    )
    return JobSubmitted(at=at, id=FactId(f"gateway-{job}"), job=JobId(job), spec=spec)


def assigned(run: str, *hosts: str, gpus: int = 8, at: Millis = T0, min_runtime_ms: Millis = HOUR) -> RunAssigned:
    places = tuple(
        ReplicaPlace(replica=number, host=HostId(host), gpus=tuple(range(gpus))) for number, host in enumerate(hosts)
    )
    return RunAssigned(
        at=at,
        run=RunId(run),
        job=job_of(RunId(run)),
        number=1,
        budget=CHEM,
        user=UserName("ana"),
        placement=places,
        launch=LAUNCH,
        min_runtime_ms=min_runtime_ms,
        resumable=True,
        grace_ms=30_000,
        resume_count=0,
        master_address="127.0.0.1",
        master_port=29_500,
        why=WHY,
    )


def started(run: str, starts: dict[int, Millis]) -> ReplicasStarted:
    replicas = tuple(ReplicaStart(replica=number, host=HostId("any"), at=at) for number, at in starts.items())
    return ReplicasStarted(at=max(starts.values()), run=RunId(run), job=job_of(RunId(run)), replicas=replicas)


def exited(run: str, ends: dict[int, Millis], *, started_at: Millis | None = None) -> ReplicasExited:
    replicas = tuple(
        ReplicaExit(replica=number, host=HostId("any"), at=at, started_at=started_at, code=0)
        for number, at in ends.items()
    )
    return ReplicasExited(at=max(ends.values()), run=RunId(run), job=job_of(RunId(run)), replicas=replicas)


def checkpointed(run: str, at: Millis) -> CheckpointReported:
    return CheckpointReported(at=at, run=RunId(run), job=job_of(RunId(run)), host=HostId("any"))


def host_state(host: str, state: HostState, *, last_seen: Millis) -> HostStateChanged:
    return HostStateChanged(
        at=last_seen + 5 * MINUTE,
        host=HostId(host),
        state=state,
        previous=HostState.SUSPECT,
        last_seen=last_seen,
        why=WHY,
    )


def lost(host: str, *, last_seen: Millis) -> HostStateChanged:
    return host_state(host, HostState.LOST, last_seen=last_seen)


def ended(run: str, at: Millis, cause_of_end: EndCause = EndCause.COMPLETED) -> RunEnded:
    return RunEnded(
        at=at,
        id=FactId(f"placer-end-{run}"),
        run=RunId(run),
        job=job_of(RunId(run)),
        cause_of_end=cause_of_end,
        why=WHY,
    )
