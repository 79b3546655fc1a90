"""A simulated log told by hand, in hours: each call says all the facts that go with what happened."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from simulator.agents import Work
from simulator.report import Report, build_report
from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import BudgetPath, FactId, HostId, JobId, Position, RunId, UserName, job_of
from tenure.domain.job import JobSpec, Launch, Placement, ReplicaPlace
from tenure.domain.reasons import EndCause, JobState, Number, Reason, Why
from tenure.domain.tree import PPM, BudgetNode, BudgetTree
from tenure.domain.units import DAY, HOUR, Millis
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted, RunCharged
from tenure.events.fact import Fact, Recorded
from tenure.events.hosts import CapacityChanged, HostStateChanged
from tenure.events.placing import (
    JobFinished,
    JobRequeued,
    RunAssigned,
    RunEnded,
    RunPreemptionRequested,
    RunStarted,
)
from tenure.events.reports import CheckpointReported, HostRegistered
from tenure.export.jsonl import lines
from tests.checks.export import findings

WHY = Why(rule="P4", reason=Reason.START_IN_ORDER, numbers={"rank": 1})
LOWER: Mapping[str, Number] = {"ratio": 0.5, "victim_ratio": 1.5, "margin": 0.02}
WORK = Work()
"""Two minutes to start again."""


class Tale:
    """Facts with their positions. Instants are hours since the beginning of the trace."""

    def __init__(self, *, gpus: int = 8, **percent: int) -> None:
        """One host `h0`, and the tree."""
        self.recorded: list[Recorded] = []
        self.specs: dict[str, JobSpec] = {}
        self.began: dict[str, Millis] = {}
        self.placed: dict[str, Placement] = {}
        self.asked: dict[str, Why] = {}
        self.tree(0, **(percent or {"a": 50, "b": 50}))
        self.host("h0", gpus)

    def say(self, fact: Fact) -> None:
        """The next fact."""
        position = Position(len(self.recorded) + 1)
        self.recorded.append(Recorded(position, msgspec.structs.replace(fact, id=FactId(f"f{position}"))))

    def tree(self, at: float, **percent: int) -> None:
        """The tree: `a__x=40` is 40 % of `a`."""
        nodes = [
            BudgetNode(path=BudgetPath(name.replace("__", "/")), share_ppm=share * PPM // 100)
            for name, share in sorted(percent.items())
        ]
        self.say(BudgetTreeChanged(at=ms(at), tree=BudgetTree(nodes=tuple(nodes)), by=UserName("boss")))

    def host(self, host: str, gpus: int = 8, at: float = 0, *, gpu_type: str = "H100") -> None:
        """A host comes, healthy."""
        spec = HostSpec(host=HostId(host), gpus=gpus, gpu_type=gpu_type, block="b0", cluster="sim")
        self.say(HostRegistered(at=ms(at), agent="v", hosts=(spec,)))
        self.offer(host, gpus, at, gpu_type=gpu_type)

    def offer(self, host: str, gpus: int, at: float, *, gpu_type: str = "H100") -> None:
        """It offers so many GPUs; none: it drains."""
        state = HostState.HEALTHY if gpus else HostState.DRAINING
        self.say(HostStateChanged(at=ms(at), host=HostId(host), state=state, previous=None, last_seen=ms(at), why=WHY))
        self.say(CapacityChanged(at=ms(at), host=HostId(host), gpus=gpus, gpu_type=gpu_type))

    def job(
        self,
        job: str,
        at: float,
        *,
        budget: str = "a",
        gpus: int = 8,
        contract: float = 1,
        resumable: bool = False,
        priority: int = 0,
        gpu_type: str | None = None,
    ) -> None:
        """A job of one replica comes in; `contract` is its minimum runtime in hours."""
        self.specs[job] = JobSpec(
            budget=BudgetPath(budget),
            user=UserName("ana"),
            gpus_per_replica=gpus,
            launch=Launch(command=("true",)),
            min_runtime_ms=ms(contract),
            resumable=resumable,
            priority=priority,
            gpu_type=gpu_type,
        )
        self.say(JobAdmitted(at=ms(at), job=JobId(job), spec=self.specs[job], submitted_at=ms(at)))

    def start(self, run: str, at: float, *, host: str = "h0", first: int = 0) -> None:
        """A run gets the GPUs from `first` on, and starts at once."""
        job = job_of(RunId(run))
        spec, gpus = self.specs[job], tuple(range(first, first + self.specs[job].gpus))
        placement = (ReplicaPlace(replica=0, host=HostId(host), gpus=gpus),)
        self.began[run], self.placed[run] = ms(at), placement
        self.say(
            RunAssigned(
                at=ms(at),
                run=RunId(run),
                job=job,
                number=int(run.rpartition(".")[2]),
                budget=spec.budget,
                user=spec.user,
                placement=placement,
                launch=spec.launch,
                min_runtime_ms=spec.min_runtime_ms,
                resumable=spec.resumable,
                grace_ms=0,
                resume_count=0,
                master_address=host,
                master_port=1,
                why=WHY,
            )
        )
        self.say(
            RunStarted(
                at=ms(at),
                run=RunId(run),
                job=job,
                protected_until=ms(at) + spec.min_runtime_ms,
                charged=spec.allocated,
                hosts={HostId(host): gpus},
            )
        )

    def saved(self, run: str, at: float) -> None:
        """The run's work until then is safe."""
        self.say(CheckpointReported(at=ms(at), run=RunId(run), job=job_of(RunId(run)), host=HostId("h0")))

    def ask(self, run: str, at: float, *, by: str, numbers: Mapping[str, Number] = LOWER) -> None:
        """Somebody wants the run to end: a job (the numbers say why), or a host that drains."""
        job = by in self.specs
        reason = Reason.DISRUPT_LOWER_RATIO if job else Reason.DISRUPT_HOST_DRAINS
        if job and not self.specs[job_of(RunId(run))].allocated:
            reason = Reason.DISRUPT_UNALLOCATED
        self.asked[run] = Why(rule="P5", reason=reason, numbers=numbers)
        escrow = self.placed[run] if job else ()
        self.say(
            RunPreemptionRequested(
                at=ms(at), run=RunId(run), job=job_of(RunId(run)), by=by, why=self.asked[run], escrow=escrow
            )
        )

    def end(
        self,
        run: str,
        at: float,
        cause: str = "completed",
        *,
        by: str | None = None,
        refunded_from: float | None = None,
    ) -> None:
        """The run is over, its books are closed, its job goes where it must."""
        job, spec = job_of(RunId(run)), self.specs[job_of(RunId(run))]
        why = self.asked.get(run, WHY)
        self.say(RunEnded(at=ms(at), run=RunId(run), job=job, cause_of_end=EndCause(cause), by=by, why=why))
        early = cause in ("preempted", "drained")
        if cause == "host_lost" or (early and spec.resumable):
            self.say(JobRequeued(at=ms(at), job=job, run=RunId(run), submitted_at=0, resume_count=1, why=WHY))
        else:
            self.say(JobFinished(at=ms(at), job=job, state=JobState("preempted" if early else cause), why=WHY))
        if spec.allocated:
            back = 0 if refunded_from is None else ms(at) - ms(refunded_from)
            self.say(
                RunCharged(
                    at=ms(at),
                    run=RunId(run),
                    job=job,
                    budget=spec.budget,
                    user=spec.user,
                    charged_gpu_ms=spec.gpus * (ms(at) - self.began[run] - back),
                    refunded_gpu_ms=spec.gpus * back,
                    refund_since=None if refunded_from is None else ms(refunded_from),
                    refund_until=None if refunded_from is None else ms(at),
                    why=WHY,
                )
            )

    def preempted(self, run: str, at: float, *, by: str) -> None:
        """Asked for, saved if it can be, and over."""
        self.ask(run, at, by=by)
        if self.specs[job_of(RunId(run))].resumable:
            self.saved(run, at)
        self.end(run, at, "preempted" if by in self.specs else "drained", by=by)

    def report(
        self,
        *,
        start: float = 0,
        end: float,
        kinds: Mapping[str, str] | None = None,
        rates_milli: Mapping[str, int] | None = None,
    ) -> Report:
        """The report of [start, end)."""
        return build_report(
            self.recorded,
            policy_name="fair",
            kinds={JobId(job): kind for job, kind in (kinds or {}).items()},
            start=ms(start),
            end=ms(end),
            lookback_ms=7 * DAY,
            wall_seconds=1.5,
            work=WORK,
            rates_milli=rates_milli or {},
        )

    def lines(self) -> list[dict[str, Any]]:
        """The log as `events.jsonl`."""
        return [json.loads(line) for line in lines(self.recorded, origin_ms=0)]

    def checked(self, *, start: float = 0, end: float, kinds: Mapping[str, str] | None = None) -> Report:
        """The report, with which the checker agrees, of a log that breaks nothing."""
        report = self.report(start=start, end=end, kinds=kinds)
        found = findings(self.lines(), json.loads(msgspec.json.encode(report)), kinds=kinds)
        assert not found, found
        return report


def ms(hours: float) -> Millis:
    """Hours as milliseconds."""
    return round(hours * HOUR)
