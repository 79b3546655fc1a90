"""A ranker on a memory log, told by hand what the other roles would say. Instants are milliseconds from 0."""

from collections.abc import Iterable, Mapping

import msgspec

from services.ranker.decider import role
from services.ranker.policy.standing import standings, weigh
from services.ranker.state import State
from simulator.actor import Actor
from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import BudgetPath, FactId, HostId, JobId, Position, RunId, UserName
from tenure.domain.job import JobSpec, Launch, ReplicaPlace, Topology
from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause, JobState, Reason, Why
from tenure.domain.tree import PPM, BudgetNode, BudgetTree
from tenure.domain.units import HOUR, GpuMillis, Millis
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted, RunCharged
from tenure.events.fact import Fact
from tenure.events.hosts import CapacityChanged, HostStateChanged
from tenure.events.placing import (
    JobFinished,
    JobRequeued,
    ReservationDropped,
    ReservationMade,
    RunAssigned,
    RunEnded,
    RunStarted,
)
from tenure.events.policy import PolicyChanged
from tenure.events.ranking import RankingPublished, Standing
from tenure.events.reports import HostRegistered, ReplicaExit, ReplicasExited, ReplicasStarted, ReplicaStart
from tenure.log.memory import MemoryLog

WHY = Why(rule="P4", reason=Reason.START_IN_ORDER)


def tree(shares: Mapping[str, int], *, users_equal: Iterable[str] = ()) -> BudgetTree:
    """A tree from paths and shares in percent of the parent."""
    equal = frozenset(users_equal)
    nodes = [
        BudgetNode(path=BudgetPath(path), share_ppm=share * PPM // 100, users_equal=path in equal)
        for path, share in sorted(shares.items())
    ]
    return BudgetTree(nodes=tuple(nodes))


class Scene:
    """One host `h0` with `gpus` GPUs available from instant 0 on, and a tree."""

    def __init__(
        self,
        shares: Mapping[str, int],
        *,
        gpus: int = 100,
        users_equal: Iterable[str] = (),
        policy: Policy | None = None,
    ) -> None:
        self.log = MemoryLog()
        self.policy = policy or Policy()
        self.actor: Actor[State] = Actor(role(self.policy), self.log, cluster="test")
        self.now: Millis = 0
        self.jobs: dict[JobId, JobSpec] = {}
        self._submitted: dict[JobId, Millis] = {}
        self._numbers: dict[JobId, int] = {}
        self._runs: dict[RunId, RunAssigned] = {}
        self._count = 0
        self.edit(shares, users_equal=users_equal)
        self.capacity(gpus)

    def say(self, fact: Fact) -> None:
        """Append a fact of another role."""
        self._count += 1
        self.log.append_now([msgspec.structs.replace(fact, id=FactId(f"t{self._count}"))])

    def edit(self, shares: Mapping[str, int], *, users_equal: Iterable[str] = ()) -> None:
        """The tree changes now."""
        changed = tree(shares, users_equal=users_equal)
        self.say(BudgetTreeChanged(at=self.now, tree=changed, by=UserName("ana")))

    def change_policy(self, policy: Policy) -> None:
        """The policy changes now."""
        self.policy = policy
        self.say(PolicyChanged(at=self.now, policy=policy, by=UserName("ana")))

    def capacity(self, gpus: int, *, host: str = "h0", gpu_type: str = "H100") -> None:
        """A host offers so many GPUs from now on."""
        self.say(CapacityChanged(at=self.now, host=HostId(host), gpus=gpus, gpu_type=gpu_type))

    def register(self, host: str, *, cluster: str) -> None:
        """An agent says in which cluster of hosts a host is."""
        spec = HostSpec(host=HostId(host), gpus=8, gpu_type="H100", block="r1", cluster=cluster)
        self.say(HostRegistered(at=self.now, agent="a", hosts=(spec,)))

    def host(self, host: str, state: HostState, *, last_seen: Millis) -> None:
        """Health says what became of a host."""
        why = Why(rule="P2", reason=Reason.HOST_SILENT)
        self.say(
            HostStateChanged(at=self.now, host=HostId(host), state=state, previous=None, last_seen=last_seen, why=why)
        )

    def job(
        self,
        name: str,
        budget: str,
        *,
        gpus: int = 10,
        replicas: int = 1,
        min_runtime_ms: Millis = HOUR,
        user: str = "u",
        submitted_at: Millis | None = None,
        priority: int = 0,
        gpu_type: str | None = None,
        topology: Topology = Topology.ANY,
        cluster: str | None = None,
    ) -> JobId:
        """A job enters the queue now."""
        spec = JobSpec(
            budget=BudgetPath(budget),
            user=UserName(user),
            replicas=replicas,
            gpus_per_replica=gpus,
            min_runtime_ms=min_runtime_ms,
            priority=priority,
            gpu_type=gpu_type,
            topology=topology,
            cluster=cluster,
            launch=Launch(command=("true",)),
        )
        job = JobId(name)
        self.jobs[job] = spec
        self._submitted[job] = self.now if submitted_at is None else submitted_at
        self.say(JobAdmitted(at=self.now, job=job, spec=spec, submitted_at=self._submitted[job]))
        return job

    def assign(self, name: str, *, hosts: Iterable[str] = ("h0",)) -> RunId:
        """The job is given GPUs on these hosts, its replicas in turn. (Which GPUs does not matter here.)"""
        job = JobId(name)
        spec = self.jobs[job]
        names = list(hosts)
        self._numbers[job] = self._numbers.get(job, 0) + 1
        run = RunId(f"{name}.{self._numbers[job]}")
        places = tuple(
            ReplicaPlace(
                replica=number, host=HostId(names[number % len(names)]), gpus=tuple(range(spec.gpus_per_replica))
            )
            for number in range(spec.replicas)
        )
        fact = RunAssigned(
            at=self.now,
            run=run,
            job=job,
            number=self._numbers[job],
            budget=spec.budget,
            user=spec.user,
            placement=places,
            launch=spec.launch,
            min_runtime_ms=spec.min_runtime_ms,
            resumable=spec.resumable,
            grace_ms=spec.grace_ms,
            resume_count=0,
            master_address="127.0.0.1",
            master_port=29500,
            why=WHY,
        )
        self._runs[run] = fact
        self.say(fact)
        return run

    def start(self, run: RunId) -> None:
        """Every replica is launched now, and the placer says that the run has started."""
        fact = self._runs[run]
        starts = tuple(ReplicaStart(replica=p.replica, host=p.host, at=self.now) for p in fact.placement)
        self.say(ReplicasStarted(at=self.now, run=run, job=fact.job, replicas=starts))
        until = self.now + fact.min_runtime_ms
        self.say(
            RunStarted(at=self.now, run=run, job=fact.job, protected_until=until, charged=fact.allocated, hosts={})
        )

    def run(self, name: str, *, hosts: Iterable[str] = ("h0",)) -> RunId:
        """A queued job is assigned and starts now."""
        run = self.assign(name, hosts=hosts)
        self.start(run)
        return run

    def exit(self, run: RunId, *, only: int | None = None, at: Millis | None = None) -> None:
        """Replicas are gone now: all, or only one."""
        fact = self._runs[run]
        exits = tuple(
            ReplicaExit(replica=p.replica, host=p.host, at=self.now if at is None else at, code=0)
            for p in fact.placement
            if only is None or p.replica == only
        )
        self.say(ReplicasExited(at=self.now, run=run, job=fact.job, replicas=exits))

    def end(self, run: RunId, cause: EndCause = EndCause.COMPLETED) -> None:
        """The placer says that the run is over."""
        self.say(RunEnded(at=self.now, run=run, job=self._runs[run].job, cause_of_end=cause, why=WHY))

    def finish(self, name: str, state: JobState = JobState.COMPLETED) -> None:
        """The job is over."""
        self.say(JobFinished(at=self.now, job=JobId(name), state=state, why=WHY))

    def complete(self, run: RunId) -> None:
        """The run and its job are over now, as they are after an exit with status 0."""
        self.exit(run)
        self.end(run)
        self.charge(run, charged=0)
        self.finish(self._runs[run].job)

    def requeue(self, run: RunId) -> None:
        """The run is preempted now and its job goes back to the queue."""
        self.exit(run)
        self.end(run, EndCause.PREEMPTED)
        job = self._runs[run].job
        self.say(JobRequeued(at=self.now, job=job, run=run, submitted_at=self._submitted[job], resume_count=1, why=WHY))

    def charge(
        self,
        run: RunId,
        *,
        charged: GpuMillis,
        refunded: GpuMillis = 0,
        since: Millis | None = None,
        until: Millis | None = None,
    ) -> None:
        """The budget role closes the books of a run."""
        fact = self._runs[run]
        self.say(
            RunCharged(
                at=self.now,
                run=run,
                job=fact.job,
                budget=fact.budget,
                user=fact.user,
                charged_gpu_ms=charged,
                refunded_gpu_ms=refunded,
                refund_since=since,
                refund_until=until,
                why=WHY,
            )
        )

    def reserve(self, name: str, *, hosts: Iterable[str] = ()) -> None:
        """The placer makes a reservation for a blocked gang on these hosts."""
        kept = tuple(ReplicaPlace(replica=n, host=HostId(host), gpus=(0,)) for n, host in enumerate(hosts))
        self.say(ReservationMade(at=self.now, job=JobId(name), placement=kept, latest_start=0, waits_for=(), why=WHY))

    def drop(self, name: str) -> None:
        """The reservation is over."""
        self.say(ReservationDropped(at=self.now, job=JobId(name), why=WHY))

    def act(self, now: Millis | None = None) -> RankingPublished | None:
        """Let the ranker decide until it rests; the ranking it said last, if any."""
        if now is not None:
            self.now = now
        before = len(self.log.recorded)
        self.actor.act(self.now)
        said = [recorded.fact for recorded in self.log.since(Position(before))]
        rankings = [fact for fact in said if isinstance(fact, RankingPublished)]
        return rankings[-1] if rankings else None

    def order(self, now: Millis | None = None) -> list[str]:
        """The jobs in the order said last, without those that have left the queue."""
        self.act(now)
        said = self.actor.state.said
        return [] if said is None else [job for job in said.order if job in self.actor.state.queue]

    def standing(self, path: str, now: Millis | None = None) -> Standing:
        """The numbers of a budget now, as a new ranking would say them."""
        if now is not None:
            self.now = now
        self.actor.fold()
        found = standings(self.actor.state, weigh(self.actor.state, self.now))
        return next(standing for standing in found if standing.path == path)
