"""A log of a few facts, written down by hours: one host of 8 GPUs, one budget."""

from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import BudgetPath, HostId, JobId, RunId, UserName
from tenure.domain.job import JobSpec, Launch, ReplicaPlace
from tenure.domain.reasons import EndCause, JobState, Reason, Why
from tenure.domain.tree import PPM, BudgetNode, BudgetTree
from tenure.domain.units import HOUR, MINUTE, Millis
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted
from tenure.events.fact import Fact
from tenure.events.hosts import CapacityChanged, HostStateChanged
from tenure.events.placing import JobFinished, JobRequeued, RunAssigned, RunEnded, RunPreemptionRequested, RunStarted
from tenure.events.reports import CheckpointReported, HostRegistered

HOST, BUDGET = HostId("h0"), BudgetPath("a")
LAUNCH = Launch(command=("true",))
WHY = Why(rule="P4", reason=Reason.START_IN_ORDER, numbers={"rank": 1})


class Diary:
    """Facts in the order in which they are written down."""

    def __init__(self) -> None:
        spec = HostSpec(host=HOST, gpus=8, gpu_type="H100", block="b0", cluster="main")
        tree = BudgetTree(nodes=(BudgetNode(path=BUDGET, share_ppm=PPM),))
        self.facts: list[Fact] = [
            BudgetTreeChanged(at=0, tree=tree, by=UserName("mia")),
            HostRegistered(at=0, agent="agent", hosts=(spec,)),
            CapacityChanged(at=0, host=HOST, gpus=8, gpu_type="H100"),
        ]
        self._runs: dict[str, int] = {}

    def submit(self, job: str, at: float, *, user: str = "ana", resumable: bool = False, gpus: int = 1) -> None:
        """A job is submitted and admitted at once; one that is there already stays as it is."""
        if job not in self._runs:
            spec = JobSpec(
                budget=BUDGET,
                user=UserName(user),
                gpus_per_replica=gpus,
                launch=LAUNCH,
                min_runtime_ms=10 * MINUTE,
                resumable=resumable,
            )
            self._runs[job] = 0
            self.facts.append(JobAdmitted(at=ms(at), job=JobId(job), spec=spec, submitted_at=ms(at)))

    def ran(
        self,
        job: str,
        start: float,
        end: float | None,
        *,
        cause: EndCause = EndCause.COMPLETED,
        state: JobState | None = None,
        saved: float | None = None,
        told: float | None = None,
        starts_after: Millis = 0,
        exit_code: int | None = None,
        resumable: bool = False,
        user: str = "ana",
    ) -> None:
        """A run of a job from its start to its end (None: it has not ended); the job ends with it, or is requeued."""
        self.submit(job, start, user=user, resumable=resumable)
        self._runs[job] += 1
        number = self._runs[job]
        run, name = RunId(f"{job}.{number}"), JobId(job)
        self.facts += [
            RunAssigned(
                at=ms(start) - starts_after,
                run=run,
                job=name,
                number=number,
                budget=BUDGET,
                user=UserName(user),
                placement=(ReplicaPlace(replica=0, host=HOST, gpus=(0,)),),
                launch=LAUNCH,
                min_runtime_ms=10 * MINUTE,
                resumable=resumable,
                grace_ms=30_000,
                resume_count=number - 1,
                master_address="",
                master_port=0,
                why=WHY,
            ),
            RunStarted(at=ms(start), run=run, job=name, protected_until=ms(start), charged=True, hosts={HOST: (0,)}),
        ]
        if saved is not None:
            self.facts.append(CheckpointReported(at=ms(saved), run=run, job=name, host=HOST))
        if told is not None:
            self.facts.append(RunPreemptionRequested(at=ms(told), run=run, job=name, by="other", why=WHY))
        if end is None:
            return
        self.facts.append(RunEnded(at=ms(end), run=run, job=name, cause_of_end=cause, why=WHY))
        over = state or (JobState.COMPLETED if cause is EndCause.COMPLETED else None)
        if over is not None:
            self.facts.append(JobFinished(at=ms(end), job=name, state=over, exit_code=exit_code, why=WHY))
        else:
            requeued = JobRequeued(at=ms(end), job=name, run=run, submitted_at=0, resume_count=number, why=WHY)
            self.facts.append(requeued)

    def host(
        self,
        state: HostState,
        at: float,
        *,
        fatal: bool = False,
        window: float | None = None,
        reason: Reason = Reason.HOST_DRAIN_REQUESTED,
    ) -> None:
        """The host is in another state."""
        change = HostStateChanged(
            at=ms(at),
            host=HOST,
            state=state,
            previous=None,
            last_seen=ms(at),
            why=Why(rule="P9", reason=reason, numbers={}),
            fatal=fatal,
            deadline=None if window is None else ms(window),
            accepts=window is not None,
        )
        self.facts.append(change)


def ms(hours: float) -> Millis:
    """Hours as an instant."""
    return round(hours * HOUR)
