"""Facts to `events.jsonl`: one JSON object a line, in time order, `t` in seconds from one origin (design, section 6).

    facts, in order of the log -> lines held until what they lack has come -> sorted by time

The lines a reader may count on: `capacity`, `job_submitted`, `run_started`, `run_ended`, `job_finished`. Further types
tell more of the same log: `origin` (first; the epoch milliseconds of t = 0), `job_rejected`, `run_assigned`,
`run_not_started` (it ended before every replica ran), `preemption_requested`, `job_requeued`, `cancel_requested`,
`host_state`, `budget_tree`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from tenure.domain.ids import HostId, JobId, RunId
from tenure.domain.job import JobSpec, gpus_by_host
from tenure.domain.reasons import EndCause, Why
from tenure.domain.tree import PPM
from tenure.domain.units import SECOND, Millis
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted, JobRejected, RunCharged
from tenure.events.catalogue import Kind
from tenure.events.fact import Recorded
from tenure.events.hosts import CapacityChanged, HostStateChanged
from tenure.events.intake import JobCancelRequested, JobSubmitted
from tenure.events.placing import (
    JobFinished,
    JobRequeued,
    RunAssigned,
    RunEnded,
    RunPreemptionRequested,
    RunStarted,
)

_encoder = msgspec.json.Encoder()
Line = dict[str, Any]


def lines(facts: Iterable[Recorded], *, origin_ms: Millis | None = None) -> Iterator[bytes]:
    """The lines of a log, each without its line end. `origin_ms` is t = 0; None: the earliest instant in the log.

    Facts may come with instants in the past (an agent was cut off), so all of them are read before the first line is
    given; kinds that are not in `EXPORTED` need not be given at all. Lines of one instant keep the log's order.
    """
    export = _Export()
    for recorded in facts:
        fold = _FOLD.get(type(recorded.fact))
        if fold is not None:
            fold(export, recorded.fact)
    for submitted in export.submitted.values():  # accepted, and not looked at yet
        _tell_submitted(export, submitted.job, submitted.spec, at=submitted.at)
    told = sorted(export.told, key=lambda entry: entry[0])  # stable: the log's order decides ties
    origin = origin_ms if origin_ms is not None else (told[0][0] if told else 0)
    yield _encoder.encode({"t": 0, "type": "origin", "epoch_ms": origin})
    for at, line in told:
        if "protected_until" in line:
            line["protected_until"] = _seconds(line["protected_until"] - origin)
        yield _encoder.encode({"t": _seconds(at - origin), **line})


class _Export:
    """The lines so far, with what later facts may still add to them."""

    def __init__(self) -> None:
        self.told: list[tuple[Millis, Line]] = []
        self.submitted: dict[JobId, JobSubmitted] = {}
        """Jobs that were neither admitted nor rejected yet."""
        self.started: set[RunId] = set()
        self.ended: dict[RunId, Line] = {}
        """Ends whose books are not closed yet."""

    def tell(self, at: Millis, kind: str, **line: Any) -> Line:
        """Add a line."""
        told = {"type": kind, **line}
        self.told.append((at, told))
        return told


def _capacity(export: _Export, fact: CapacityChanged) -> None:
    export.tell(fact.at, "capacity", host=fact.host, gpus=fact.gpus, gpu_type=fact.gpu_type)


def _submitted(export: _Export, fact: JobSubmitted) -> None:
    export.submitted[fact.job] = fact


def _admitted(export: _Export, fact: JobAdmitted) -> None:
    """A job is told when it is admitted, at the instant it was submitted: a rejected one never was in the system."""
    export.submitted.pop(fact.job, None)
    _tell_submitted(export, fact.job, fact.spec, at=fact.submitted_at)


def _tell_submitted(export: _Export, job: JobId, spec: JobSpec, *, at: Millis) -> None:
    export.tell(
        at,
        "job_submitted",
        job=job,
        budget=spec.budget,
        user=spec.user,
        replicas=spec.replicas,
        gpus_per_replica=spec.gpus_per_replica,
        min_runtime_s=_seconds(spec.min_runtime_ms),
        resumable=spec.resumable,
        priority=spec.priority,
        gpu_type=spec.gpu_type,
    )


def _rejected(export: _Export, fact: JobRejected) -> None:
    submitted = export.submitted.pop(fact.job, None)
    at = fact.at if submitted is None else submitted.at
    export.tell(at, "job_rejected", job=fact.job, reason=_reason(fact.why))


def _assigned(export: _Export, fact: RunAssigned) -> None:
    export.tell(
        fact.at,
        "run_assigned",
        job=fact.job,
        run=fact.run,
        hosts=_hosts(gpus_by_host(fact.placement)),
        charged=fact.allocated,
        reason=_reason(fact.why),
    )


def _started(export: _Export, fact: RunStarted) -> None:
    export.started.add(fact.run)
    export.tell(
        fact.at,
        "run_started",
        job=fact.job,
        run=fact.run,
        hosts=_hosts(fact.hosts),
        charged=fact.charged,
        protected_until=fact.protected_until,
    )


def _ended(export: _Export, fact: RunEnded) -> None:
    """What a host fault refunds is known when the run's books are closed; the line is completed then."""
    kind = "run_ended" if fact.run in export.started else "run_not_started"
    line = export.tell(
        fact.at,
        kind,
        job=fact.job,
        run=fact.run,
        cause=fact.cause_of_end,
        by=fact.by,
        reason=_reason(fact.why),
        refunded_gpu_s=0,
    )
    export.started.discard(fact.run)
    if fact.cause_of_end is EndCause.HOST_LOST:
        export.ended[fact.run] = line


def _charged(export: _Export, fact: RunCharged) -> None:
    line = export.ended.pop(fact.run, None)
    if line is not None:
        line["refunded_gpu_s"] = _seconds(fact.refunded_gpu_ms)


def _finished(export: _Export, fact: JobFinished) -> None:
    export.tell(fact.at, "job_finished", job=fact.job, state=fact.state, reason=_reason(fact.why))


def _requeued(export: _Export, fact: JobRequeued) -> None:
    export.tell(
        fact.at, "job_requeued", job=fact.job, run=fact.run, resume_count=fact.resume_count, reason=_reason(fact.why)
    )


def _preemption(export: _Export, fact: RunPreemptionRequested) -> None:
    export.tell(
        fact.at,
        "preemption_requested",
        job=fact.job,
        run=fact.run,
        by=fact.by,
        reason=_reason(fact.why),
        escrow=_hosts(gpus_by_host(fact.escrow)),
    )


def _cancel(export: _Export, fact: JobCancelRequested) -> None:
    export.tell(fact.at, "cancel_requested", job=fact.job, by=fact.by)


def _host_state(export: _Export, fact: HostStateChanged) -> None:
    export.tell(
        fact.at,
        "host_state",
        host=fact.host,
        state=fact.state,
        previous=fact.previous,
        fatal=fact.fatal,
        reason=_reason(fact.why),
    )


def _tree(export: _Export, fact: BudgetTreeChanged) -> None:
    shares = {node.path: node.share_ppm / PPM for node in fact.tree.nodes}
    export.tell(fact.at, "budget_tree", shares=shares, users_equal=[n.path for n in fact.tree.nodes if n.users_equal])


def _hosts(held: Mapping[HostId, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(host): list(gpus) for host, gpus in held.items()}


def _reason(why: Why) -> Line:
    return {"rule": why.rule, "reason": why.reason, "numbers": dict(why.numbers)}


def _seconds(length_ms: int) -> int | float:
    """Milliseconds as seconds, whole ones as an integer."""
    return length_ms // SECOND if length_ms % SECOND == 0 else length_ms / SECOND


_FOLD: dict[Kind, Callable[[_Export, Any], None]] = {
    CapacityChanged: _capacity,
    JobSubmitted: _submitted,
    JobAdmitted: _admitted,
    JobRejected: _rejected,
    RunAssigned: _assigned,
    RunStarted: _started,
    RunEnded: _ended,
    RunCharged: _charged,
    JobFinished: _finished,
    JobRequeued: _requeued,
    RunPreemptionRequested: _preemption,
    JobCancelRequested: _cancel,
    HostStateChanged: _host_state,
    BudgetTreeChanged: _tree,
}
EXPORTED: tuple[Kind, ...] = tuple(_FOLD)
"""The kinds that become lines."""
