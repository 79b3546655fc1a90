"""A fact as one sentence for people. A pure table from kind to words; the reason comes from `reasons_in_words`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tenure.domain.host import CPU, RepairStep
from tenure.domain.ids import JobId, RunId
from tenure.domain.job import JobSpec, Placement, Topology, gpus_by_host
from tenure.domain.nearest import listed
from tenure.domain.policy import change_in_words, spoken
from tenure.domain.reasons import EndCause
from tenure.domain.reasons_in_words import GPU, say_instant, say_why
from tenure.domain.units import format_duration, gpu_hours
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted, JobRejected, RunCharged
from tenure.events.catalogue import Kind
from tenure.events.fact import Fact, Origin
from tenure.events.hosts import CapacityChanged, DrainCompleted, HostStateChanged, RepairRequested
from tenure.events.intake import DrainRequested, JobCancelRequested, JobSubmitted, RepairCompleted, ResumeRequested
from tenure.events.leading import BudgetLeadTaken, HealthLeadTaken, LeadTaken, PlacerLeadTaken, RankerLeadTaken
from tenure.events.placing import (
    JobFinished,
    JobRequeued,
    PlacementDeferred,
    ReservationDropped,
    ReservationMade,
    RunAssigned,
    RunEnded,
    RunPreemptionRequested,
    RunStarted,
    RunStopRequested,
)
from tenure.events.policy import PolicyChanged
from tenure.events.ranking import RankingPublished
from tenure.events.reports import (
    CheckpointReported,
    Heartbeat,
    HostRegistered,
    HostSignal,
    ReplicaExit,
    ReplicasExited,
    ReplicasStarted,
)

_SHOWN_MAX = 4
"""Hosts or replicas named in one sentence; more are counted."""

_ENDS: dict[EndCause, str] = {
    EndCause.COMPLETED: "completed",
    EndCause.FAILED: "failed",
    EndCause.PREEMPTED: "was preempted",
    EndCause.DRAINED: "was stopped by a drain",
    EndCause.HOST_LOST: "was lost with a host",
    EndCause.CANCELLED: "was cancelled",
}


def tell(fact: Fact, *, to: JobId | None = None, unit: str = GPU) -> str:
    """The fact as one sentence in the story of job `to`; a fact about another job names that one.

    `unit`: GPU, or CPU in the story of a job that asks for those. Others in it lie in the same pools.
    """
    of_a_gang = _OF_A_GANG.get(type(fact))
    said = _SENTENCES[type(fact)](fact) if of_a_gang is None else of_a_gang(fact, unit)
    text = " ".join(said.split()) + _really(fact)
    job: JobId | None = getattr(fact, "job", None)
    return text if to is None or job in (None, to) else f"Job {job}: {text[0].lower()}{text[1:]}"


def unit_of(spec: JobSpec | None) -> str:
    """What the hosts that a job asks for are counted in; of one that is not known GPUs."""
    return CPU if spec is not None and spec.gpu_type == CPU else GPU


def _really(fact: Fact) -> str:
    """Who really asked, where somebody acted for another."""
    origin: Origin | None = getattr(fact, "origin", None)
    if origin is None:
        return ""
    named = fact.spec.user if isinstance(fact, JobSubmitted) else getattr(fact, "by", origin.user)
    return "" if named == origin.user else f" {origin.user} did that for {named}."


def _submitted(fact: JobSubmitted) -> str:
    spec = fact.spec
    contract = f"protected for {format_duration(spec.min_runtime_ms)}" if spec.allocated else "unallocated"
    resumable = ", resumable" if spec.resumable else ""
    of_cpus = spec.gpu_type == CPU
    gang = _gang(spec.replicas, spec.gpus_per_replica, unit=unit_of(spec))
    gang += f" {spec.gpu_type}" if spec.gpu_type and not of_cpus else ""
    near = "" if spec.topology is Topology.ANY else f", {spec.topology}"
    near += f", in cluster {spec.cluster}" if spec.cluster else ""
    where = f", on {listed(spec.hosts)} only" if spec.hosts else ""
    where += f", not on {listed(spec.hosts_excluded)}" if spec.hosts_excluded else ""
    return f"{spec.user} asked {spec.budget} for {gang}{near}{where}: {contract}{resumable}."


def _gang(replicas: int, gpus: int, *, unit: str) -> str:
    each = _count(gpus, unit)
    return each if replicas == 1 else f"{replicas} replicas of {each}"


def _admitted(fact: JobAdmitted) -> str:
    return f"It entered the queue of {fact.spec.budget}."


def _rejected(fact: JobRejected, unit: str) -> str:
    return f"It was rejected: {say_why(fact.why, unit=unit)}."


def _cancel_requested(fact: JobCancelRequested) -> str:
    return f"{fact.by} asked for it to be cancelled."


def _assigned(fact: RunAssigned, unit: str) -> str:
    again = f", resuming for the {_ordinal(fact.resume_count)} time" if fact.resume_count else ""
    return f"Run {fact.number} was given {_places(fact.placement, unit)}{again}: {say_why(fact.why, unit=unit)}."


def _replicas_started(fact: ReplicasStarted) -> str:
    where = [f"{start.replica} on {start.host}" for start in fact.replicas]
    return f"{_count(len(where), 'process', 'processes')} of {_run(fact.run)} started: replica {_some(where)}."


def _run_started(fact: RunStarted) -> str:
    if not fact.charged:
        return f"{_run(fact.run, capital=True)} is running on all its hosts, unallocated and unprotected."
    length = format_duration(fact.protected_until - fact.at)
    until = say_instant(fact.protected_until)
    return f"{_run(fact.run, capital=True)} is running on all its hosts, protected for {length} until {until}."


def _checkpoint(fact: CheckpointReported) -> str:
    return f"{_run(fact.run, capital=True)} saved its progress."


def _preemption(fact: RunPreemptionRequested, unit: str) -> str:
    whom = f"for {fact.by}" if fact.escrow else f"because {fact.by} drains"
    return f"{_run(fact.run, capital=True)} is to stop {whom}: {say_why(fact.why, unit=unit)}."


def _stop(fact: RunStopRequested, unit: str) -> str:
    return f"{_run(fact.run, capital=True)} is to stop: {say_why(fact.why, unit=unit)}."


def _replicas_exited(fact: ReplicasExited) -> str:
    return f"{_count(len(fact.replicas), 'process', 'processes')} of {_run(fact.run)} ended: {_exits(fact.replicas)}."


def _exits(gone: Sequence[ReplicaExit]) -> str:
    return _some([f"replica {each.replica} on {each.host} {_exit(each)}" for each in gone])


def _exit(gone: ReplicaExit) -> str:
    if gone.error is not None:
        return f"could not be started ({gone.error})"
    return f"by signal {gone.signal}" if gone.signal is not None else f"with status {gone.code}"


def _run_ended(fact: RunEnded, unit: str) -> str:
    by = f" for {fact.by}" if fact.by and fact.cause_of_end is EndCause.PREEMPTED else ""
    return f"{_run(fact.run, capital=True)} {_ENDS[fact.cause_of_end]}{by}: {say_why(fact.why, unit=unit)}."


def _requeued(fact: JobRequeued, unit: str) -> str:
    return f"It waits again: {say_why(fact.why, unit=unit)}."


def _finished(fact: JobFinished, unit: str) -> str:
    code = f" with status {fact.exit_code}" if fact.exit_code is not None else ""
    return f"It is over, {fact.state}{code}: {say_why(fact.why, unit=unit)}."


def _deferred(fact: PlacementDeferred, unit: str) -> str:
    return f"It waits: {say_why(fact.why, unit=unit)}."


def _reservation(fact: ReservationMade, unit: str) -> str:
    waits = f", when what is in its way will have ended: {_some(fact.waits_for)}" if fact.waits_for else ""
    latest = say_instant(fact.latest_start)
    return f"{_places(fact.placement, unit)} are kept for it; it starts at {latest} at the latest{waits}."


def _reservation_dropped(fact: ReservationDropped, unit: str) -> str:
    return f"Its reservation is over: {say_why(fact.why, unit=unit)}."


def _charged(fact: RunCharged, unit: str) -> str:
    refund = f", {gpu_hours(fact.refunded_gpu_ms):.4g} were refunded" if fact.refunded_gpu_ms else ""
    charged = f"{gpu_hours(fact.charged_gpu_ms):.4g} {unit}-hours of {_run(fact.run)} were charged to {fact.budget}"
    return f"{charged}{refund}: {say_why(fact.why, unit=unit)}."


def _tree_changed(fact: BudgetTreeChanged) -> str:
    comment = f": {fact.comment}" if fact.comment else ""
    return f"{fact.by} changed the budgets{comment}."


def _policy_changed(fact: PolicyChanged) -> str:
    told = []
    for each in fact.changes:
        before, after = change_in_words(fact.policy, each.knob, before=each.before, after=each.after)
        told.append(f"{spoken(each.knob)} from {before} to {after}")
    return f"{fact.by} changed the policy: {_some(told)}{_comment(fact.comment)}."


def _drain_requested(fact: DrainRequested) -> str:
    fatal = ", ending its runs at once" if fact.fatal else ""
    deadline = f", by {say_instant(fact.deadline)}" if fact.deadline else ""
    return f"{fact.by} asked for {fact.host} to be drained{fatal}{deadline}: {fact.comment}."


def _resume_requested(fact: ResumeRequested) -> str:
    return f"{fact.by} asked for {fact.host} to take runs again{_comment(fact.comment)}."


def _repaired(fact: RepairCompleted) -> str:
    if not fact.ok:
        return f"{fact.by} could not {fact.step} {fact.host}{_comment(fact.comment)}."
    done = "tested" if fact.step is RepairStep.TEST else "repaired"
    return f"{fact.by} {done} {fact.host}{_comment(fact.comment)}."


def _repair_requested(fact: RepairRequested) -> str:
    evidence = f" ({_some(fact.evidence)})" if fact.evidence else ""
    return f"The repair plug is to {fact.step} {fact.host} for incident {fact.incident}{evidence}."


def _capacity(fact: CapacityChanged) -> str:
    return f"{fact.host} offers {_count(fact.gpus, 'GPU')}."


def _drained(fact: DrainCompleted) -> str:
    return f"{fact.host} is empty, {format_duration(fact.at - fact.started_at)} after its drain began."


def _host_state(fact: HostStateChanged) -> str:
    return f"{fact.host} is {fact.state}: {say_why(fact.why)}."


def _ranking(fact: RankingPublished) -> str:
    return f"The fair-share order was published: {_count(len(fact.order), 'job')}."


def _heartbeat(fact: Heartbeat) -> str:
    return f"The agent {fact.agent} spoke for {_count(len(fact.hosts), 'host')}."


def _registered(fact: HostRegistered) -> str:
    return f"The agent {fact.agent} registered {_some([spec.host for spec in fact.hosts])}."


def _signal(fact: HostSignal) -> str:
    told = [f"{each.device} {each.code} ({'over' if each.over else each.severity})" for each in fact.signals]
    return f"{fact.host} signalled {_some(told)}."


def _run(run: RunId, *, capital: bool = False) -> str:
    return f"{'Run' if capital else 'run'} {run.rpartition('.')[2]}"


def _places(placement: Placement, unit: str) -> str:
    by_host = gpus_by_host(placement)
    total = _count(sum(len(gpus) for gpus in by_host.values()), unit)
    return f"{total} on {_some(list(by_host))}"


def _some(words: Sequence[str]) -> str:
    """`a, b, c and 5 more`."""
    more = f" and {len(words) - _SHOWN_MAX} more" if len(words) > _SHOWN_MAX else ""
    return ", ".join(words[:_SHOWN_MAX]) + more


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _ordinal(number: int) -> str:
    return f"{number}{'th' if 10 <= number % 100 <= 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _comment(text: str) -> str:
    return f": {text}" if text else ""


def _led(role: str) -> Callable[[LeadTaken], str]:
    return lambda fact: f"{fact.holder} leads the {role} from here on."


_OF_A_GANG: Mapping[Kind, Callable[[Any, str], str]] = {
    JobFinished: _finished,
    JobRejected: _rejected,
    JobRequeued: _requeued,
    PlacementDeferred: _deferred,
    ReservationDropped: _reservation_dropped,
    ReservationMade: _reservation,
    RunAssigned: _assigned,
    RunCharged: _charged,
    RunEnded: _run_ended,
    RunPreemptionRequested: _preemption,
    RunStopRequested: _stop,
}
"""Those that speak of what a job holds or asks for, and so of the unit that its hosts are counted in."""
_SENTENCES: Mapping[Kind, Callable[[Any], str]] = {
    BudgetLeadTaken: _led("budget role"),
    BudgetTreeChanged: _tree_changed,
    CapacityChanged: _capacity,
    CheckpointReported: _checkpoint,
    DrainCompleted: _drained,
    DrainRequested: _drain_requested,
    Heartbeat: _heartbeat,
    HealthLeadTaken: _led("health role"),
    HostRegistered: _registered,
    HostSignal: _signal,
    HostStateChanged: _host_state,
    JobAdmitted: _admitted,
    JobCancelRequested: _cancel_requested,
    JobSubmitted: _submitted,
    PolicyChanged: _policy_changed,
    PlacerLeadTaken: _led("placer"),
    RankerLeadTaken: _led("ranker"),
    RankingPublished: _ranking,
    RepairCompleted: _repaired,
    RepairRequested: _repair_requested,
    ReplicasExited: _replicas_exited,
    ReplicasStarted: _replicas_started,
    ResumeRequested: _resume_requested,
    RunStarted: _run_started,
}
