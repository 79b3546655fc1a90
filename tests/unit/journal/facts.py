"""A log told by hand: each call is the next fact. Instants are milliseconds; `HOURS` is a full hour to start from."""

import msgspec

from tenure.domain.host import HostState
from tenure.domain.ids import BudgetPath, FactId, HostId, JobId, Position, RunId, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.domain.reasons import EndCause, JobState, Reason, Why
from tenure.domain.tree import PPM, BudgetNode, BudgetTree
from tenure.domain.units import HOUR, Millis
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted, RunCharged
from tenure.events.fact import Fact, Recorded
from tenure.events.hosts import CapacityChanged, HostStateChanged
from tenure.events.intake import JobSubmitted
from tenure.events.placing import JobFinished, RunEnded, RunPreemptionRequested, RunStarted
from tenure.events.reports import Heartbeat, HostBeat, Segment

T0: Millis = 495_600 * HOUR
"""A full hour: 2026-07-16 00:00 UTC."""
WHY = Why(rule="P4", reason=Reason.START_IN_ORDER, numbers={"rank": 1})


class Story:
    """Facts with their positions."""

    def __init__(self) -> None:
        self.recorded: list[Recorded] = []

    def say(self, fact: Fact) -> Recorded:
        """The next fact."""
        position = Position(len(self.recorded) + 1)
        known = msgspec.structs.replace(fact, id=FactId(f"f{position}"), cluster="lab")
        self.recorded.append(Recorded(position, known))
        return self.recorded[-1]

    def held(
        self,
        run: str,
        since: Millis,
        until: Millis,
        *,
        gpus: int = 8,
        budget: str = "science/chem",
        user: str = "ana",
        charged: bool = True,
        busy_milli: int | None = None,
        at: Millis | None = None,
    ) -> Recorded:
        """A heartbeat with one segment, said at its end or later."""
        segment = Segment(
            run=RunId(run),
            job=JobId(run.partition(".")[0]),
            budget=BudgetPath(budget),
            user=UserName(user),
            charged=charged,
            gpus=gpus,
            since=since,
            until=until,
            busy_milli=busy_milli,
        )
        beat = HostBeat(host=HostId("h0"), gpus=8, segments=(segment,))
        return self.say(Heartbeat(at=until if at is None else at, agent="a", hosts=(beat,)))

    def charged(
        self, run: str, at: Millis, *, refunded: int, since: Millis | None, until: Millis | None = None
    ) -> Recorded:
        """The books of a run of ana for science/chem are closed."""
        return self.say(
            RunCharged(
                at=at,
                run=RunId(run),
                job=JobId(run.partition(".")[0]),
                budget=BudgetPath("science/chem"),
                user=UserName("ana"),
                charged_gpu_ms=0,
                refunded_gpu_ms=refunded,
                refund_since=since,
                refund_until=until,
                why=WHY,
            )
        )

    def submitted(self, job: str, at: Millis) -> Recorded:
        """A job comes in."""
        return self.say(JobSubmitted(at=at, job=JobId(job), spec=spec()))

    def admitted(
        self, job: str, at: Millis, *, gpus: int = 8, budget: str = "science/chem", allocated: bool = True
    ) -> Recorded:
        """A job enters the queue."""
        wanted = spec(budget=budget, gpus=gpus, min_runtime_ms=HOUR if allocated else 0)
        return self.say(JobAdmitted(at=at, job=JobId(job), spec=wanted, submitted_at=at))

    def started(self, run: str, at: Millis) -> Recorded:
        """Every replica of a run is there."""
        job = JobId(run.partition(".")[0])
        hosts = {HostId("h0"): (0, 1)}
        return self.say(
            RunStarted(at=at, run=RunId(run), job=job, protected_until=at + HOUR, charged=True, hosts=hosts)
        )

    def preempted(self, run: str, at: Millis, *, by: str) -> Recorded:
        """A run is to end for another job."""
        job = JobId(run.partition(".")[0])
        return self.say(RunPreemptionRequested(at=at, run=RunId(run), job=job, by=by, why=WHY))

    def ended(self, run: str, at: Millis, cause: EndCause = EndCause.COMPLETED, by: str | None = None) -> Recorded:
        """A run is over."""
        job = JobId(run.partition(".")[0])
        return self.say(RunEnded(at=at, run=RunId(run), job=job, cause_of_end=cause, by=by, why=WHY))

    def finished(self, job: str, at: Millis, state: JobState = JobState.COMPLETED) -> Recorded:
        """A job is over."""
        return self.say(JobFinished(at=at, job=JobId(job), state=state, why=WHY))

    def capacity(self, host: str, at: Millis, gpus: int) -> Recorded:
        """A host offers another number of GPUs."""
        return self.say(CapacityChanged(at=at, host=HostId(host), gpus=gpus, gpu_type="H100"))

    def host(self, host: str, at: Millis, state: HostState) -> Recorded:
        """A host is in another state."""
        return self.say(HostStateChanged(at=at, host=HostId(host), state=state, previous=None, last_seen=at, why=WHY))

    def tree(self, at: Millis, **percent: int) -> Recorded:
        """Another tree: `science__chem=40` is 40 % of `science`."""
        nodes = [
            BudgetNode(path=BudgetPath(name.replace("__", "/")), share_ppm=share * PPM // 100)
            for name, share in percent.items()
        ]
        tree = BudgetTree(nodes=tuple(sorted(nodes, key=lambda node: node.path)))
        return self.say(BudgetTreeChanged(at=at, tree=tree, by=UserName("boss")))


def spec(*, budget: str = "science/chem", gpus: int = 8, min_runtime_ms: Millis = HOUR) -> JobSpec:
    """A job of one replica."""
    return JobSpec(
        budget=BudgetPath(budget),
        user=UserName("ana"),
        gpus_per_replica=gpus,
        launch=Launch(command=("true",)),
        min_runtime_ms=min_runtime_ms,
    )
