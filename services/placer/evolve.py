"""How each fact changes what the placer knows. One small function a kind; facts about what is over are ignored."""

from collections.abc import Callable
from typing import Any

import msgspec

from services.placer.core import (
    CANCELLED_EARLY_MAX,
    LOOK_AGAIN_AFTER,
    Commitment,
    Ending,
    Escrow,
    Host,
    Job,
    Reservation,
    Run,
    Said,
    Stop,
)
from services.placer.state import Looks, State
from tenure.domain.host import HostState
from tenure.domain.ids import JobId
from tenure.domain.job import Placement
from tenure.domain.reasons import EndCause, Reason
from tenure.events.budgets import JobAdmitted
from tenure.events.catalogue import Kind
from tenure.events.fact import Fact, Recorded
from tenure.events.hosts import CapacityChanged, DrainCompleted, HostStateChanged, RepairRequested
from tenure.events.intake import JobCancelRequested
from tenure.events.leading import HealthLeadTaken, PlacerLeadTaken
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
from tenure.events.reports import CheckpointReported, HostRegistered, ReplicasExited, ReplicasStarted


def _host_registered(state: State, fact: HostRegistered) -> None:
    for spec in fact.hosts:
        known = state.core.hosts.get(spec.host)
        host = Host(spec=spec, last_seen=fact.at) if known is None else msgspec.structs.replace(known, spec=spec)
        state.core.hosts[spec.host] = host
        if known is None or known.spec != spec:
            state.layouts.register(spec)
        state.refresh(spec.host)


def _host_state_changed(state: State, fact: HostStateChanged) -> None:
    host = state.core.hosts[fact.host]
    state.core.hosts[fact.host] = Host(
        spec=host.spec,
        state=fact.state,
        last_seen=fact.last_seen,
        fatal=fact.fatal,
        deadline=fact.deadline,
        accepts=fact.accepts,
    )
    state.refresh(fact.host)
    if fact.why.reason is Reason.HOST_OVERDUE:
        state.write_off(fact.host)
    if fact.state is HostState.DRAINING:
        state.draining[fact.host] = None
    else:
        state.draining.pop(fact.host, None)
    for run in state.runs_on.get(fact.host, ()):
        state.attention[run] = None


def _policy_changed(state: State, fact: PolicyChanged) -> None:
    """Decide by it from here on. What was promised under another one stands: see `grace_most_ms`."""
    core = state.core
    before = [round(change.before) for change in fact.changes if change.knob.endswith("grace_max_ms")]
    core.grace_most_ms = max(core.grace_most_ms, fact.policy.longest_grace_ms, *before)
    core.policy = fact.policy
    state.looks = Looks()
    state.ratios += 1


def _job_admitted(state: State, fact: JobAdmitted) -> None:
    if fact.job in state.core.jobs:
        return
    state.core.jobs[fact.job] = Job(
        job=fact.job,
        spec=fact.spec,
        submitted_at=fact.submitted_at,
        admitted_by=fact.id,
        cancelled_by=state.core.cancelled_early.pop(fact.job, None),
    )
    state.index_job(state.core.jobs[fact.job])
    if state.core.jobs[fact.job].cancelled_by is not None:
        state.cancelled[fact.job] = None


def _job_cancel_requested(state: State, fact: JobCancelRequested) -> None:
    job = state.core.jobs.get(fact.job)
    if job is None:
        early = state.core.cancelled_early
        early[fact.job] = fact.by
        if len(early) > CANCELLED_EARLY_MAX:
            del early[next(iter(early))]
    elif job.cancelled_by is None:
        job.cancelled_by = fact.by
        state.unindex_job(fact.job)
        if job.run is not None:
            state.attention[job.run] = None
        elif job.ending is None:
            state.cancelled[fact.job] = None


def _ranking_published(state: State, fact: RankingPublished) -> None:
    core = state.core
    core.order, core.standings = fact.order, fact.standings
    core.new_round = fact.at // LOOK_AGAIN_AFTER > core.ranked_at // LOOK_AGAIN_AFTER
    core.ranked_at = fact.at
    core.commitments = [made for made in core.commitments if made.position > fact.basis]
    state.ratios += 1


def _run_assigned(state: State, fact: RunAssigned) -> None:
    core = state.core
    run = Run(
        run=fact.run,
        job=fact.job,
        number=fact.number,
        placement=fact.placement,
        master_port=fact.master_port,
        assigned_at=fact.at,
    )
    core.runs[fact.run] = run
    job = core.jobs[fact.job]
    assert job.run is None, f"{fact.job} has {job.run} and cannot have {fact.run} as well"
    job.run, job.runs = fact.run, fact.number
    state.hold(run)
    was_kept = state.give_up(fact.job)
    for host in state.masks[fact.run]:
        state.refresh(host)
    state.unindex_job(fact.job)
    state.cancelled.pop(fact.job, None)  # a cancel that came between the decision and this fact: the run is stopped
    counted = state.unreserve(fact.job)
    core.said.pop(fact.job, None)
    if fact.allocated and not counted:
        core.commitments.append(_commitment(state, job, fact.placement))
        if not was_kept:  # else the same was counted while GPUs were kept for it
            state.ratios += 1
    state.attention[fact.run] = None


def _commitment(state: State, job: Job, placement: Placement) -> Commitment:
    return Commitment(
        position=state.core.position,
        budget=job.spec.budget,
        gpu_ms=job.spec.commitment_gpu_ms,
        gpu_type=state.core.type_of(placement),
    )


def _replicas_started(state: State, fact: ReplicasStarted) -> None:
    run = state.core.runs.get(fact.run)
    if run is not None:
        for start in fact.replicas:
            if start.replica not in run.started and run.is_at(start.replica, start.host):
                run.started[start.replica] = start.at
        state.attention[fact.run] = None


def _replicas_exited(state: State, fact: ReplicasExited) -> None:
    run = state.core.runs.get(fact.run)
    if run is None:
        return
    for gone in fact.replicas:
        if gone.replica not in run.exited and run.is_at(gone.replica, gone.host):
            run.exited[gone.replica] = gone
            if gone.started_at is not None:
                run.started.setdefault(gone.replica, gone.started_at)
    state.attention[fact.run] = None


def _checkpoint_reported(state: State, fact: CheckpointReported) -> None:
    run = state.core.runs.get(fact.run)
    if run is not None and any(place.host == fact.host for place in run.placement):
        run.checkpoint_at = max(run.checkpoint_at or 0, fact.at)
        if run.started_at is not None:
            state.loose.saved(fact.run, safe_until=run.safe_until)


def _run_started(state: State, fact: RunStarted) -> None:
    run = state.core.runs[fact.run]
    run.started_at, run.protected_until = fact.at, fact.protected_until
    state.start(run, fact.protected_until)
    if state.idle_until is not None and fact.protected_until < state.idle_until:
        state.idle_until = fact.protected_until


def _run_preemption_requested(state: State, fact: RunPreemptionRequested) -> None:
    run = state.core.runs[fact.run]
    cause = EndCause.PREEMPTED if fact.escrow else EndCause.DRAINED
    if fact.why.reason is Reason.DISRUPT_HOST_FATAL:  # the host failed it: refunded, and requeued in any case (P2)
        cause = EndCause.HOST_LOST
    state.stop(run, Stop(cause_of_end=cause, by=fact.by, why=fact.why, at=fact.at))
    state.attention[fact.run] = None
    if fact.escrow and fact.deadline is not None:
        asker = JobId(fact.by)
        known = state.core.escrows.get(asker)
        victims = (*known.victims, fact.run) if known else (fact.run,)
        state.keep(Escrow(job=asker, placement=fact.escrow, victims=victims, deadline=fact.deadline))


def _run_stop_requested(state: State, fact: RunStopRequested) -> None:
    run = state.core.runs[fact.run]
    state.stop(run, Stop(cause_of_end=fact.cause_of_end, by=fact.by, why=fact.why, at=fact.at))
    state.attention[fact.run] = None


def _run_ended(state: State, fact: RunEnded) -> None:
    run = state.core.runs.pop(fact.run)
    state.release(run)
    state.attention.pop(fact.run, None)
    job = state.core.jobs[fact.job]
    job.run = None
    job.ending = Ending(
        run=fact.run,
        number=run.number,
        cause_of_end=fact.cause_of_end,
        exit_code=fact.exit_code,
        checkpoint_at=run.checkpoint_at,
        why=fact.why,
        launched=fact.why.numbers.get("started") is not False,
    )
    state.ending[fact.job] = None


def _job_requeued(state: State, fact: JobRequeued) -> None:
    job = state.core.jobs[fact.job]
    job.resume_count, job.ending = fact.resume_count, None
    job.held_until = fact.held_until
    job.launches_given_up = job.launches_given_up + 1 if fact.held_until is not None else 0
    state.ending.pop(fact.job, None)
    state.index_job(job)
    if job.cancelled_by is not None:  # the cancel was written between the decision and this fact
        state.cancelled[fact.job] = None


def _job_finished(state: State, fact: JobFinished) -> None:
    core = state.core
    del core.jobs[fact.job]
    state.unindex_job(fact.job)
    state.cancelled.pop(fact.job, None)
    state.ending.pop(fact.job, None)
    if fact.job in core.escrows:
        state.give_up(fact.job)
        state.ratios += 1
        state.idle_until = None
    state.unreserve(fact.job)
    core.said.pop(fact.job, None)


def _placement_deferred(state: State, fact: PlacementDeferred) -> None:
    if fact.job in state.core.jobs:
        state.tell(fact.job, Said(reason=fact.why.reason, at=fact.at))
    for host, runs in fact.overdue.items():
        for run in runs:
            if run in state.core.runs:
                state.be_overdue(state.core.runs[run], host)
    if fact.why.reason is Reason.DEFER_ESCROW_EXPIRED and fact.job in state.core.escrows:
        state.give_up(fact.job)
        state.ratios += 1
        state.index_job(state.core.jobs[fact.job])
        state.idle_until = None


def _reservation_made(state: State, fact: ReservationMade) -> None:
    is_better = fact.job in state.core.reservations
    if is_better:
        state.grown += 1  # whom the one before kept out may look again
    state.reserve(Reservation(job=fact.job, placement=fact.placement, latest_start=fact.latest_start))
    job = state.core.jobs.get(fact.job)
    if job is not None and not is_better:
        state.core.commitments.append(_commitment(state, job, fact.placement))


def _reservation_dropped(state: State, fact: ReservationDropped) -> None:
    state.unreserve(fact.job)


def _ignore(state: State, fact: Fact) -> None:
    """In a guarded lane, so it must be read, but it tells the placer nothing."""


_EVOLVE: dict[Kind, Callable[[State, Any], None]] = {
    HostRegistered: _host_registered,
    HostStateChanged: _host_state_changed,
    CapacityChanged: _ignore,
    DrainCompleted: _ignore,
    RepairRequested: _ignore,
    PlacerLeadTaken: _ignore,
    HealthLeadTaken: _ignore,
    JobAdmitted: _job_admitted,
    JobCancelRequested: _job_cancel_requested,
    RankingPublished: _ranking_published,
    RunAssigned: _run_assigned,
    ReplicasStarted: _replicas_started,
    ReplicasExited: _replicas_exited,
    CheckpointReported: _checkpoint_reported,
    RunStarted: _run_started,
    RunPreemptionRequested: _run_preemption_requested,
    RunStopRequested: _run_stop_requested,
    RunEnded: _run_ended,
    JobRequeued: _job_requeued,
    JobFinished: _job_finished,
    PlacementDeferred: _placement_deferred,
    ReservationMade: _reservation_made,
    ReservationDropped: _reservation_dropped,
    PolicyChanged: _policy_changed,
}

READS: tuple[Kind, ...] = tuple(_EVOLVE)
_OPENS: tuple[Kind, ...] = (
    HostRegistered,
    HostStateChanged,
    PolicyChanged,
    RankingPublished,
    RunAssigned,
    RunPreemptionRequested,
    RunEnded,
    ReservationMade,
    ReservationDropped,
)
"""After these something else may start. What is due after the others is in `attention`, `cancelled` and `ending`, or
their own function above says so."""


def evolve(state: State, recorded: Recorded) -> None:
    """Fold one fact."""
    fact = recorded.fact
    kind = type(fact)
    state.core.position = recorded.position
    _EVOLVE[kind](state, fact)
    if kind in _OPENS:
        state.idle_until = None
