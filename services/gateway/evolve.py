"""How each fact changes the read model. One small function a kind; facts about jobs no longer kept are passed over."""

from collections.abc import Callable
from typing import Any

from services.gateway.entries import (
    BudgetChange,
    Held,
    HostEntry,
    JobEntry,
    ReservedEntry,
    RunEntry,
    hosts_of,
)
from services.gateway.keys import KeyEntry
from services.gateway.policy.contracts import breaks_contract
from services.gateway.policy.resubmission import body_of
from services.gateway.policy.sides import ahead_of
from services.gateway.policy.transitions import finished_state, next_state
from services.gateway.state import POLICIES_KEPT, Ranking, State
from tenure.domain.host import CPU, HostState
from tenure.domain.ids import JobId, RunId
from tenure.domain.job import JobSpec
from tenure.domain.reasons import Reason
from tenure.domain.reasons_in_words import BY_AUTOMATION, say_why
from tenure.domain.tree_edit import diff_trees
from tenure.domain.units import Millis
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted, JobRejected, RunCharged
from tenure.events.catalogue import Kind
from tenure.events.fact import Fact, Lane, Recorded
from tenure.events.hosts import CapacityChanged, DrainCompleted, HostStateChanged, RepairRequested
from tenure.events.intake import DrainRequested, JobCancelRequested, JobSubmitted, RepairCompleted, ResumeRequested
from tenure.events.leading import BudgetLeadTaken, HealthLeadTaken, PlacerLeadTaken, RankerLeadTaken
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
    HostRegistered,
    HostSignal,
    ReplicasExited,
    ReplicasStarted,
    still_open,
)

_DRAINED = (HostState.DRAINING, HostState.DRAINED)


def evolve(state: State, recorded: Recorded) -> None:
    """Fold one fact."""
    fact = recorded.fact
    state.position = recorded.position
    if fact.lane is Lane.BUDGET:
        state.budget_lane = recorded.position
    _EVOLVE[type(fact)](state, fact)


def _touched(state: State, job: JobId) -> JobEntry | None:
    """The job's entry, marked as changed by the present fact; None if it is no longer kept."""
    entry = state.jobs.get(job)
    if entry is not None:
        entry.position = state.position
        state.changed[job] = None
    return entry


def _run_of(entry: JobEntry, run: RunId) -> RunEntry:
    """A run of the job: nearly always the latest."""
    return next(each for each in reversed(entry.runs) if each.run == run)


def _job_submitted(state: State, fact: JobSubmitted) -> None:
    _know(state, fact.job, fact.spec, fact.at)
    if fact.idempotency_key is None:
        return
    user, key, batch = fact.spec.user, fact.idempotency_key, fact.batch
    if state.keys.count(user, key):
        return
    if batch is None:
        entry = KeyEntry(first=fact.job, count=1, body=body_of([fact.spec]))
    else:
        entry = KeyEntry(first=batch.first, count=batch.count, body=batch.body)
    state.keys.remember(user, key, entry)


def _know(state: State, job: JobId, spec: JobSpec, submitted_at: Millis) -> JobEntry:
    entry = _touched(state, job)
    if entry is None:
        entry = JobEntry(job=job, spec=spec, submitted_at=submitted_at, position=state.position)
        state.add(entry)
        state.changed[job] = None
    return entry


def _job_admitted(state: State, fact: JobAdmitted) -> None:
    entry = _know(state, fact.job, fact.spec, fact.submitted_at)
    state.move(entry, next_state(entry.state, JobAdmitted, job=fact.job))


def _job_rejected(state: State, fact: JobRejected) -> None:
    entry = _touched(state, fact.job)
    if entry is not None:
        entry.why, entry.finished_at = fact.why, fact.at
        state.move(entry, next_state(entry.state, JobRejected, job=fact.job))


def _job_cancel_requested(state: State, fact: JobCancelRequested) -> None:
    entry = _touched(state, fact.job)
    if entry is not None:
        entry.cancel_asked = True


def _run_assigned(state: State, fact: RunAssigned) -> None:
    entry = _touched(state, fact.job)
    if entry is None:
        return
    run = RunEntry(
        run=fact.run,
        number=fact.number,
        allocated=fact.allocated,
        placement=fact.placement,
        assigned_at=fact.at,
        min_runtime_ms=fact.min_runtime_ms,
        ahead_at_start=ahead_of(state, fact.why.numbers, budget=fact.budget),
    )
    entry.runs = (*entry.runs, run)
    entry.why, entry.reservation, entry.escrow, entry.held_until = fact.why, None, (), None
    state.move(entry, next_state(entry.state, RunAssigned, job=fact.job))
    held = state.held.setdefault(fact.budget, Held())
    for host, gpus in hosts_of(fact.placement).items():
        if host in state.hosts:
            state.hosts[host].runs[fact.run] = gpus
            state.changed[host] = None
        if entry.spec.gpu_type == CPU:  # no GPUs: the sums of budgets and of the cluster are of those
            continue
        if run.allocated:
            held.allocated += gpus
        else:
            held.unallocated += gpus


def _run_started(state: State, fact: RunStarted) -> None:
    entry = _touched(state, fact.job)
    if entry is not None:
        run = _run_of(entry, fact.run)
        run.started_at, run.protected_until = fact.at, fact.protected_until
        if entry.first_started_at is None:
            entry.first_started_at = fact.at
        state.move(entry, next_state(entry.state, RunStarted, job=fact.job))


def _run_stopping(state: State, fact: RunPreemptionRequested | RunStopRequested) -> None:
    entry = _touched(state, fact.job)
    if entry is not None:
        run = _run_of(entry, fact.run)
        run.stopping, run.ended_by = True, fact.by
        run.ahead_at_stop = ahead_of(state, fact.why.numbers, budget=entry.spec.budget)
        entry.why = fact.why
        state.move(entry, next_state(entry.state, type(fact), job=fact.job))


def _run_preempted(state: State, fact: RunPreemptionRequested) -> None:
    entry = state.jobs.get(fact.job)
    if entry is not None and breaks_contract(fact, _run_of(entry, fact.run)):
        state.contracts_broken += 1
    _run_stopping(state, fact)
    asker = state.jobs.get(JobId(fact.by)) if fact.escrow else None
    if asker is not None and not asker.state.final:
        asker.escrow = fact.escrow


def _run_ended(state: State, fact: RunEnded) -> None:
    state.incidents.run_ended(fact)
    entry = _touched(state, fact.job)
    if entry is None:
        return
    run = _run_of(entry, fact.run)
    run.ended_at, run.cause_of_end = fact.at, fact.cause_of_end
    run.ended_by, run.exit_code = fact.by, fact.exit_code
    run.books_closed = not run.allocated
    entry.why = fact.why
    state.move(entry, next_state(entry.state, RunEnded, job=fact.job))
    held = state.held[entry.spec.budget]
    for host, gpus in hosts_of(run.placement).items():
        if host in state.hosts:
            state.hosts[host].runs.pop(fact.run, None)
            state.hosts[host].overdue.pop(fact.run, None)
            state.changed[host] = None
        if entry.spec.gpu_type == CPU:  # no GPUs: the sums of budgets and of the cluster are of those
            continue
        if run.allocated:
            held.allocated -= gpus
        else:
            held.unallocated -= gpus


def _job_requeued(state: State, fact: JobRequeued) -> None:
    entry = _touched(state, fact.job)
    if entry is not None:
        entry.resume_count, entry.why, entry.held_until = fact.resume_count, fact.why, fact.held_until
        state.move(entry, next_state(entry.state, JobRequeued, job=fact.job))


def _job_finished(state: State, fact: JobFinished) -> None:
    entry = _touched(state, fact.job)
    if entry is not None:
        entry.finished_at, entry.why, entry.reservation, entry.escrow = fact.at, fact.why, None, ()
        state.move(entry, finished_state(entry.state, fact.state, job=fact.job))


def _placement_deferred(state: State, fact: PlacementDeferred) -> None:
    entry = _touched(state, fact.job)
    if entry is not None:
        entry.why = fact.why
        if fact.why.reason is Reason.DEFER_ESCROW_EXPIRED:
            entry.escrow = ()
        for host, runs in fact.overdue.items():
            on_host = state.hosts[host]
            on_host.overdue.update((run, None) for run in runs if run in on_host.runs)
        state.move(entry, next_state(entry.state, PlacementDeferred, job=fact.job))


def _reservation_made(state: State, fact: ReservationMade) -> None:
    entry = _touched(state, fact.job)
    if entry is not None:
        entry.why = fact.why
        entry.reservation = ReservedEntry(
            placement=fact.placement, latest_start=fact.latest_start, waits_for=fact.waits_for
        )


def _reservation_dropped(state: State, fact: ReservationDropped) -> None:
    entry = _touched(state, fact.job)
    if entry is not None:
        entry.reservation, entry.why = None, fact.why


def _run_charged(state: State, fact: RunCharged) -> None:
    state.incidents.run_charged(fact)
    entry = _touched(state, fact.job)
    if entry is not None:
        entry.charged_gpu_ms += fact.charged_gpu_ms
        entry.refunded_gpu_ms += fact.refunded_gpu_ms
        _run_of(entry, fact.run).books_closed = True


def _report_of_run(state: State, fact: ReplicasStarted | ReplicasExited | CheckpointReported) -> None:
    """Part of the job's story; what it means is said by the placer."""
    entry = state.jobs.get(fact.job)
    if entry is not None:
        entry.position = state.position


def _budget_tree_changed(state: State, fact: BudgetTreeChanged) -> None:
    for difference in diff_trees(state.tree, fact.tree):
        state.changes.append(
            BudgetChange(
                position=state.position,
                at=fact.at,
                by=fact.by,
                comment=fact.comment,
                path=difference.path,
                share_ppm_before=difference.before_ppm,
                share_ppm_after=difference.after_ppm,
                origin=fact.origin,
            )
        )
    state.tree, state.tree_position = fact.tree, state.position


def _policy_changed(state: State, fact: PolicyChanged) -> None:
    state.policy_facts.append((state.position, fact))
    del state.policy_facts[:-POLICIES_KEPT]


def _ranking_published(state: State, fact: RankingPublished) -> None:
    state.ranking = Ranking(fact)


def _host_registered(state: State, fact: HostRegistered) -> None:
    state.reshape()
    for spec in fact.hosts:
        known = state.hosts.get(spec.host)
        if known is None:
            state.hosts[spec.host] = HostEntry(spec=spec, registered_at=fact.at, last_seen=fact.at, runs={})
        else:
            known.spec, known.last_seen = spec, max(known.last_seen, fact.at)
        state.changed[spec.host] = None


def _host_signal(state: State, fact: HostSignal) -> None:
    entry = state.hosts.get(fact.host)
    if entry is not None:
        entry.signals = still_open(entry.signals, fact.signals)
        state.changed[fact.host] = None


def _host_state_changed(state: State, fact: HostStateChanged) -> None:
    entry = state.hosts.get(fact.host)
    if entry is not None:
        if fact.state is not entry.state:
            entry.state_since = fact.at
        entry.state, entry.last_seen = fact.state, max(entry.last_seen, fact.last_seen)
        if fact.state in _DRAINED:
            entry.drain_fatal, entry.drain_deadline, entry.drain_accepts = fact.fatal, fact.deadline, fact.accepts
        if fact.why.reason in BY_AUTOMATION:
            entry.comment = say_why(fact.why)
        spoken_of = entry.drain_asked or fact.why.reason in BY_AUTOMATION
        comment = entry.comment if spoken_of else say_why(fact.why)
        state.incidents.host_changed(fact, gpus=entry.spec.only_gpus, comment=comment)
        state.changed[fact.host] = None


def _capacity_changed(state: State, fact: CapacityChanged) -> None:
    entry = state.hosts.get(fact.host)
    if entry is not None:
        entry.available = fact.gpus


def _drain_requested(state: State, fact: DrainRequested) -> None:
    entry = state.hosts.get(fact.host)
    if entry is not None:
        entry.drain_asked, entry.drain_fatal, entry.comment = True, fact.fatal, fact.comment
        entry.drain_deadline, entry.drain_accepts = fact.deadline, fact.accepts


def _back_requested(state: State, fact: ResumeRequested | RepairCompleted) -> None:
    state.incidents.back_asked(fact)
    entry = state.hosts.get(fact.host)
    if entry is not None and not (isinstance(fact, RepairCompleted) and fact.incident):  # the plug's: health says more
        entry.drain_asked, entry.drain_fatal, entry.comment = False, False, fact.comment


def _pass_over(state: State, fact: Fact) -> None:
    """Tells the read model nothing that another fact does not say."""


_EVOLVE: dict[Kind, Callable[[State, Any], None]] = {
    BudgetTreeChanged: _budget_tree_changed,
    PolicyChanged: _policy_changed,
    JobAdmitted: _job_admitted,
    JobRejected: _job_rejected,
    RunCharged: _run_charged,
    DrainRequested: _drain_requested,
    JobCancelRequested: _job_cancel_requested,
    JobSubmitted: _job_submitted,
    RepairCompleted: _back_requested,
    ResumeRequested: _back_requested,
    CapacityChanged: _capacity_changed,
    DrainCompleted: _pass_over,
    RepairRequested: _pass_over,
    HostStateChanged: _host_state_changed,
    JobFinished: _job_finished,
    JobRequeued: _job_requeued,
    PlacementDeferred: _placement_deferred,
    ReservationDropped: _reservation_dropped,
    ReservationMade: _reservation_made,
    RunAssigned: _run_assigned,
    RunEnded: _run_ended,
    RunPreemptionRequested: _run_preempted,
    RunStarted: _run_started,
    RunStopRequested: _run_stopping,
    RankingPublished: _ranking_published,
    CheckpointReported: _report_of_run,
    HostRegistered: _host_registered,
    HostSignal: _host_signal,
    ReplicasExited: _report_of_run,
    ReplicasStarted: _report_of_run,
    BudgetLeadTaken: _pass_over,
    RankerLeadTaken: _pass_over,
    PlacerLeadTaken: _pass_over,
    HealthLeadTaken: _pass_over,
}
READS: tuple[Kind, ...] = tuple(_EVOLVE)
"""Every kind there is: the position of any append is reached by the fold."""
