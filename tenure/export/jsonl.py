"""Facts to `events.jsonl`: one JSON object a line, in time order, `t` in seconds from one origin (design, section 6).

    facts, in order of the log -> lines held until what they lack has come -> sorted by time

The lines a reader may count on: `capacity`, `job_submitted`, `run_started`, `run_ended`, `job_finished`. Further types
tell more of the same log: `origin` (first; the epoch milliseconds of t = 0), `host`, `job_rejected`, `run_assigned`,
`run_not_started` (it ended before every replica ran), `preemption_requested`, `job_requeued`, `cancel_requested`,
`reservation_made`, `host_state`, `budget_tree`, `policy_changed`. The lines themselves are in `tenure.export.lines`.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import attrgetter
from typing import Any

import msgspec

from tenure.domain.host import HostState
from tenure.domain.ids import JobId, RunId
from tenure.domain.job import DEFAULT_GRACE, JobSpec, Topology, gpus_by_host
from tenure.domain.policy import RATES, UNIT, spoken
from tenure.domain.rates import MILLI
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
    ReservationMade,
    RunAssigned,
    RunEnded,
    RunPreemptionRequested,
    RunStarted,
)
from tenure.events.policy import PolicyChanged
from tenure.events.reports import CheckpointReported, HostRegistered
from tenure.export import lines as line

_encoder = msgspec.json.Encoder()
_TIME = attrgetter("t")
_LINES_AT_ONCE = 1_000


def lines(facts: Iterable[Recorded], *, origin_ms: Millis | None = None) -> Iterator[bytes]:
    """The lines of a log, each without its line end. `origin_ms` is t = 0; None: the earliest instant in the log.

    Facts may come with instants in the past (an agent was cut off), so all of them are read before the first line is
    given; kinds that are not in `EXPORTED` need not be given at all. Lines of one instant keep the log's order.
    """
    return map(_encoder.encode, _told(facts, origin_ms))


def blocks(facts: Iterable[Recorded], *, origin_ms: Millis | None = None) -> Iterator[bytes]:
    """The same lines, many at a time, each with its line end."""
    told = iter(_told(facts, origin_ms))
    while block := list(islice(told, _LINES_AT_ONCE)):
        yield _encoder.encode_lines(block)


def _told(facts: Iterable[Recorded], origin_ms: Millis | None) -> list[line.Line]:
    """The lines in order of time, their instants as seconds from the origin."""
    export = _Export()
    find = _FOLD.get
    for recorded in facts:
        fact = recorded.fact
        fold = find(type(fact))
        if fold is not None:
            fold(export, fact)
    for submitted in export.submitted.values():  # accepted, and not looked at yet
        export.told.append(_submission(submitted.job, submitted.spec, at=submitted.at))
    if len({host.cluster for host in export.hosts}) <= 1:
        for host in export.hosts:
            host.cluster = msgspec.UNSET
    told = export.told
    told.sort(key=_TIME)  # stable: the log's order decides ties; quick, for it nearly is in order
    origin = origin_ms if origin_ms is not None else (told[0].t if told else 0)
    further = _FURTHER.get
    for each in told:
        t = each.t - origin
        each.t = t / SECOND if t % SECOND else t // SECOND
        place = further(type(each))
        if place is not None:
            place(each, origin)
    told.insert(0, line.Origin(0, "origin", origin))
    return told


def _place_start(told: line.RunStart, origin: float) -> None:
    told.protected_until = seconds(told.protected_until - origin)


def _place_reservation(told: line.Reserved, origin: float) -> None:
    told.latest_start = seconds(told.latest_start - origin)


def _place_end(told: line.RunEnd, origin: float) -> None:
    if told.checkpoint is not msgspec.UNSET:
        told.checkpoint = seconds(told.checkpoint - origin)


def _place_window(told: line.HostStateChange, origin: float) -> None:
    if told.window is not msgspec.UNSET:
        told.window = seconds(told.window - origin)


_FURTHER: dict[type[line.Line], Callable[[Any, float], None]] = {
    line.RunStart: _place_start,
    line.Reserved: _place_reservation,
    line.RunEnd: _place_end,
    line.HostStateChange: _place_window,
}
"""Lines that hold more instants than `t`."""


class _Export:
    """The lines so far, with what later facts may still add to them. Their instants are still those of the facts."""

    def __init__(self) -> None:
        self.told: list[line.Line] = []
        self.hosts: list[line.Host] = []
        self.submitted: dict[JobId, JobSubmitted] = {}
        """Jobs that were neither admitted nor rejected yet."""
        self.started: set[RunId] = set()
        self.checkpoints: dict[RunId, Millis] = {}
        """The latest of each run that is there."""
        self.ended: dict[RunId, line.RunEnd] = {}
        """Ends whose books are not closed yet."""


def _host(export: _Export, fact: HostRegistered) -> None:
    for spec in fact.hosts:
        told = line.Host(fact.at, "host", spec.host, spec.gpus, spec.gpu_type, spec.block, spec.cluster)
        export.told.append(told)
        export.hosts.append(told)


def _capacity(export: _Export, fact: CapacityChanged) -> None:
    export.told.append(line.Capacity(fact.at, "capacity", fact.host, fact.gpus, fact.gpu_type))


def _submitted(export: _Export, fact: JobSubmitted) -> None:
    export.submitted[fact.job] = fact


def _admitted(export: _Export, fact: JobAdmitted) -> None:
    """A job is told when it is admitted, at the instant it was submitted: a rejected one never was in the system."""
    export.submitted.pop(fact.job, None)
    export.told.append(_submission(fact.job, fact.spec, at=fact.submitted_at))


def _submission(job: JobId, spec: JobSpec, *, at: Millis) -> line.JobSubmission:
    return line.JobSubmission(
        at,
        "job_submitted",
        job,
        spec.budget,
        spec.user,
        spec.replicas,
        spec.gpus_per_replica,
        seconds(spec.min_runtime_ms),
        spec.resumable,
        spec.priority,
        spec.gpu_type,
        msgspec.UNSET if spec.cluster is None else spec.cluster,
        msgspec.UNSET if spec.topology is Topology.ANY else spec.topology,
        msgspec.UNSET if spec.grace_ms == DEFAULT_GRACE else seconds(spec.grace_ms),
        spec.hosts or msgspec.UNSET,
        spec.hosts_excluded or msgspec.UNSET,
    )


def _rejected(export: _Export, fact: JobRejected) -> None:
    submitted = export.submitted.pop(fact.job, None)
    at = fact.at if submitted is None else submitted.at
    export.told.append(line.JobRejection(at, "job_rejected", fact.job, fact.why))


def _assigned(export: _Export, fact: RunAssigned) -> None:
    held = gpus_by_host(fact.placement)
    export.told.append(
        line.RunAssignment(fact.at, "run_assigned", fact.job, fact.run, held, fact.min_runtime_ms > 0, fact.why)
    )


def _started(export: _Export, fact: RunStarted) -> None:
    export.started.add(fact.run)
    export.told.append(
        line.RunStart(fact.at, "run_started", fact.job, fact.run, fact.hosts, fact.charged, fact.protected_until)
    )


def _checkpoint(export: _Export, fact: CheckpointReported) -> None:
    export.checkpoints[fact.run] = max(fact.at, export.checkpoints.get(fact.run, fact.at))


def _ended(export: _Export, fact: RunEnded) -> None:
    """What a run cost, and a host fault refunds, is known when its books are closed; the line is completed then."""
    kind = "run_ended" if fact.run in export.started else "run_not_started"
    cause = fact.cause_of_end
    saved = export.checkpoints.pop(fact.run, msgspec.UNSET)
    told = line.RunEnd(fact.at, kind, fact.job, fact.run, cause, fact.by, fact.why, 0, checkpoint=saved)
    export.told.append(told)
    export.started.discard(fact.run)
    export.ended[fact.run] = told


def _charged(export: _Export, fact: RunCharged) -> None:
    told = export.ended.pop(fact.run, None)
    if told is not None:
        told.charged_gpu_s = seconds(fact.charged_gpu_ms)
        told.refunded_gpu_s = seconds(fact.refunded_gpu_ms)


def _finished(export: _Export, fact: JobFinished) -> None:
    export.told.append(line.JobEnd(fact.at, "job_finished", fact.job, fact.state, fact.why))


def _requeued(export: _Export, fact: JobRequeued) -> None:
    export.told.append(line.Requeue(fact.at, "job_requeued", fact.job, fact.run, fact.resume_count, fact.why))


def _preemption(export: _Export, fact: RunPreemptionRequested) -> None:
    escrow = gpus_by_host(fact.escrow)
    export.told.append(
        line.PreemptionRequest(fact.at, "preemption_requested", fact.job, fact.run, fact.by, fact.why, escrow)
    )


def _reserved(export: _Export, fact: ReservationMade) -> None:
    held = gpus_by_host(fact.placement)
    export.told.append(
        line.Reserved(fact.at, "reservation_made", fact.job, held, fact.latest_start, fact.waits_for, fact.why)
    )


def _cancel(export: _Export, fact: JobCancelRequested) -> None:
    export.told.append(line.CancelRequest(fact.at, "cancel_requested", fact.job, fact.by))


def _host_state(export: _Export, fact: HostStateChanged) -> None:
    told = line.HostStateChange(fact.at, "host_state", fact.host, fact.state, fact.previous, fact.fatal, fact.why)
    if fact.accepts and fact.deadline is not None and fact.state is HostState.DRAINING:
        told.window = fact.deadline
    export.told.append(told)


def _tree(export: _Export, fact: BudgetTreeChanged) -> None:
    shares = {node.path: node.share_ppm / PPM for node in fact.tree.nodes}
    equal = [node.path for node in fact.tree.nodes if node.users_equal]
    export.told.append(line.Tree(fact.at, "budget_tree", shares, equal))


def _policy(export: _Export, fact: PolicyChanged) -> None:
    knobs = {
        spoken(each.knob): (_plain(each.knob, each.before), _plain(each.knob, each.after)) for each in fact.changes
    }
    export.told.append(line.PolicyChange(fact.at, "policy_changed", fact.by, fact.comment, knobs))


def _plain(knob: str, value: float) -> int | float:
    if knob.startswith(f"{RATES}."):
        return value / MILLI
    return seconds(value) if knob.endswith(UNIT) else value


def seconds(length_ms: float) -> int | float:
    """Milliseconds as seconds, whole ones as an integer."""
    return length_ms / SECOND if length_ms % SECOND else length_ms // SECOND


_FOLD: dict[Kind, Callable[[_Export, Any], None]] = {
    HostRegistered: _host,
    CapacityChanged: _capacity,
    JobSubmitted: _submitted,
    JobAdmitted: _admitted,
    JobRejected: _rejected,
    RunAssigned: _assigned,
    RunStarted: _started,
    CheckpointReported: _checkpoint,
    RunEnded: _ended,
    RunCharged: _charged,
    JobFinished: _finished,
    JobRequeued: _requeued,
    RunPreemptionRequested: _preemption,
    ReservationMade: _reserved,
    JobCancelRequested: _cancel,
    HostStateChanged: _host_state,
    BudgetTreeChanged: _tree,
    PolicyChanged: _policy,
}
EXPORTED: tuple[Kind, ...] = tuple(_FOLD)
"""The kinds that become lines, or add to one."""
