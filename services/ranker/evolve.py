"""The fold: what each fact changes. No decision is made here; the rules are in `policy/`."""

from collections.abc import Callable
from typing import Any

from services.ranker.job import job_from
from services.ranker.policy import charge, news
from services.ranker.run import Held, Run
from services.ranker.state import Host, State, promise, promise_reservation
from tenure.domain.host import HostState
from tenure.domain.ids import JobId
from tenure.domain.rates import weighed
from tenure.domain.reasons import SUSPECT_BUT_HEARD
from tenure.domain.units import HOUR, MINUTE, Millis
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted, RunCharged
from tenure.events.catalogue import Kind
from tenure.events.fact import Lane, Recorded
from tenure.events.hosts import CapacityChanged, HostStateChanged
from tenure.events.leading import RankerLeadTaken
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
from tenure.events.ranking import RankingPublished
from tenure.events.reports import HostRegistered, ReplicasExited, ReplicasStarted

FORGET_EVERY = 6 * HOUR
"""How often old steps are dropped, and how much longer than the window they are kept (clocks differ)."""
WIDEN_EVERY = 5 * MINUTE
"""How often the window grows, while a longer one was asked for than is remembered."""


def evolve(state: State, recorded: Recorded) -> None:
    """Fold one fact."""
    state.position = recorded.position
    fact = recorded.fact
    fold = FOLDS.get(type(fact))
    if fold is None:
        return
    fold(state, fact)
    if fact.lane is Lane.REPORT:
        return
    if state.began is None:
        state.began = fact.at
    if fact.at > state.clock:
        state.clock = fact.at
        _forget(state)
        _widen(state)
        news.look(state)


def _tree(state: State, fact: BudgetTreeChanged) -> None:
    state.tree = fact.tree
    state.shares.change(fact.tree, at=fact.at)
    state.regroup()
    state.news_at = state.position


def _policy(state: State, fact: PolicyChanged) -> None:
    is_first = state.policy_of_log is None
    state.policy = state.policy_of_log = fact.policy
    state.set_rates(dict(fact.policy.rates_milli), at=fact.at, are_first=is_first)
    state.queue.set_policy(fact.policy)
    state.regroup()
    state.set_window(min(fact.policy.lookback_ms, _remembered(state)))
    state.said_ratios = None
    state.news_at = state.position


def _capacity(state: State, fact: CapacityChanged) -> None:
    host = state.hosts.setdefault(fact.host, Host())
    state.capacity.step(host.gpu_type, fact.at, -host.gpus)
    state.capacity.step(fact.gpu_type, fact.at, fact.gpus)
    host.gpus = fact.gpus
    if state.capacity_since is None or fact.at < state.capacity_since:
        state.capacity_since = fact.at
        state.look_every_ms = None
    if fact.gpus > host.gpus_most or fact.gpu_type != host.gpu_type:
        _repool(state, host, gpus_most=max(fact.gpus, host.gpus_most), gpu_type=fact.gpu_type, cluster=host.cluster)
        state.news_at = state.position


def _registered(state: State, fact: HostRegistered) -> None:
    """Which clusters the hosts are in. What they offer, health says."""
    for spec in fact.hosts:
        host = state.hosts.setdefault(spec.host, Host())
        if spec.cluster != host.cluster:
            state.news_at = state.position if host.gpus_most else state.news_at
            _repool(state, host, gpus_most=host.gpus_most, gpu_type=host.gpu_type, cluster=spec.cluster)


def _repool(state: State, host: Host, *, gpus_most: int, gpu_type: str, cluster: str) -> None:
    """The host is another part of the empty cluster than it was."""
    before = list(state.gpus_by_pool)
    state.count_gpus(host, -1)
    host.gpus_most, host.gpu_type, host.cluster = gpus_most, gpu_type, cluster
    state.count_gpus(host, +1)
    state.queue.resize(state.gpus_by_pool)
    if state.policy.rates_milli and sorted(before) != sorted(state.gpus_by_pool):
        state.regroup()  # what jobs of any type commit at most may be another


def _host_state(state: State, fact: HostStateChanged) -> None:
    """Silent: charged to its last sign of life. Lost: that is the end. Heard again: as if nothing had been."""
    host = state.hosts.setdefault(fact.host, Host())
    silent = fact.state in (HostState.SUSPECT, HostState.LOST) and fact.why.reason not in SUSPECT_BUT_HEARD
    if not silent and host.silent_since is None:
        return
    host.silent_since = fact.last_seen if silent else None
    host.lost = fact.state is HostState.LOST
    for run_id, number in list(state.held_on.get(fact.host, ())):
        run = state.runs[run_id]
        held = run.replicas[number]
        if fact.state is HostState.LOST:
            _finish(state, run, number, held, at=fact.last_seen)
        else:
            charge.pause(run, held, state.accounts(run), last_seen=host.silent_since)


def _admitted(state: State, fact: JobAdmitted) -> None:
    if fact.job not in state.jobs:
        state.jobs[fact.job] = job_from(fact)
        _enqueue(state, fact.job)


def _requeued(state: State, fact: JobRequeued) -> None:
    assert fact.job in state.jobs, f"{fact.job} is requeued but was never admitted"
    if fact.job not in state.queue:
        _enqueue(state, fact.job)


def _finished(state: State, fact: JobFinished) -> None:
    _unreserve(state, fact.job)
    if fact.job in state.queue:
        # Those behind it move up against other budgets, unlike after a start, whose commitment stays.
        state.queue.remove(fact.job)
        state.news_at = state.position
    state.jobs.pop(fact.job, None)


def _assigned(state: State, fact: RunAssigned) -> None:
    if fact.run in state.runs:
        return
    _unreserve(state, fact.job)
    if fact.job in state.queue and state.queue.remove(fact.job):
        state.news_at = state.position
    replicas = {}
    for place in fact.placement:
        host = state.hosts.get(place.host)
        paused = None if host is None else host.silent_since
        replicas[place.replica] = Held(place.host, len(place.gpus), paused=paused)
    gpus = sum(held.gpus for held in replicas.values())
    run = Run(
        run=fact.run,
        job=fact.job,
        budget=fact.budget,
        user=fact.user,
        gpus=gpus,
        min_runtime_ms=fact.min_runtime_ms,
        replicas=replicas,
        gpu_type=state.type_of(fact.placement),
    )
    state.runs[fact.run] = run
    state.index_run(run)
    news.jump(state, run.budget, state.commitment_of(run, fact.at))


def _replicas_started(state: State, fact: ReplicasStarted) -> None:
    run = state.runs.get(fact.run)
    if run is None or run.ended_at is not None:
        return
    accounts = state.accounts(run)
    for start in fact.replicas:
        held = run.replicas.get(start.replica)
        if held is not None and held.host == start.host:
            charge.begin(run, held, accounts, at=start.at)


def _replicas_exited(state: State, fact: ReplicasExited) -> None:
    run = state.runs.get(fact.run)
    if run is None or run.ended_at is not None:
        return
    for gone in fact.replicas:
        held = run.replicas.get(gone.replica)
        if held is None or held.host != gone.host:  # what others say of it does not count
            continue
        if gone.started_at is not None:
            charge.begin(run, held, state.accounts(run), at=gone.started_at)
        _finish(state, run, gone.replica, held, at=gone.at)


def _run_started(state: State, fact: RunStarted) -> None:
    run = state.runs.get(fact.run)
    if run is not None and run.protected_until is None:
        promise(state, run, -1)
        run.protected_until = fact.protected_until
        promise(state, run, +1)


def _run_ended(state: State, fact: RunEnded) -> None:
    """Its books stay open for a refund if it is allocated. A replica of whose end nobody spoke held until now."""
    run = state.runs.get(fact.run)
    if run is None or run.ended_at is not None:
        return
    for number, held in run.replicas.items():
        if held.end is None:
            _finish(state, run, number, held, at=fact.at if held.paused is None else held.paused)
    news.jump(state, run.budget, -state.commitment_of(run, fact.at))
    promise(state, run, -1)
    run.ended_at = fact.at
    if not run.allocated:
        del state.runs[run.run]


def _charged(state: State, fact: RunCharged) -> None:
    run = state.runs.pop(fact.run, None)
    if run is None or fact.refunded_gpu_ms == 0:
        return
    until = fact.at if fact.refund_until is None else fact.refund_until
    since = until - 1 if fact.refund_since is None else fact.refund_since
    charge.refund(run, state.accounts(run), since=since, until=until, gpu_ms=fact.refunded_gpu_ms)
    news.jump(state, run.budget, -weighed(fact.refunded_gpu_ms, milli=state.rates.milli_at(run.gpu_type, since)))


def _reserved(state: State, fact: ReservationMade) -> None:
    job = state.jobs.get(fact.job)
    if job is None or not job.allocated or fact.job in state.reserved or fact.job not in state.queue:
        return
    state.reserved[fact.job] = state.type_of(fact.placement)
    promise_reservation(state, job, +1)
    _requeue_in_place(state, fact.job)


def _reservation_dropped(state: State, fact: ReservationDropped) -> None:
    if _unreserve(state, fact.job) and fact.job in state.queue:
        _requeue_in_place(state, fact.job)


def _enqueue(state: State, job: JobId) -> None:
    if state.queue.add(state.jobs[job], reserved=job in state.reserved):
        state.news_at = state.position


def _requeue_in_place(state: State, job: JobId) -> None:
    """What picking the job would add has changed, and with it the line it stands in."""
    state.queue.remove(job)
    state.queue.add(state.jobs[job], reserved=job in state.reserved)
    state.news_at = state.position


def _unreserve(state: State, job: JobId) -> bool:
    if job not in state.reserved:
        return False
    promise_reservation(state, state.jobs[job], -1)
    del state.reserved[job]
    return True


def _finish(state: State, run: Run, number: int, held: Held, *, at: int) -> None:
    charge.finish(run, held, state.accounts(run), at=at)
    state.held_on.get(held.host, {}).pop((run.run, number), None)


def _forget(state: State) -> None:
    """Drop what lies before the window, now and then. Depends on the facts alone, so every fold does it alike."""
    before = state.clock - state.policy.lookback_ms - FORGET_EVERY
    since = state.began if state.forgotten_to is None else state.forgotten_to
    if since is None or before < since + FORGET_EVERY:
        return
    state.forgotten_to = before
    state.capacity.forget(before)
    state.rates.forget(before)
    state.shares.forget(before)
    for run in [run for run in state.runs.values() if run.ended_at is not None and run.ended_at < before]:
        del state.runs[run.run]  # nobody has closed its books in all that time
    state.ledger.forget(before, referred=((run.budget, run.user) for run in state.runs.values()))


def _remembered(state: State) -> Millis:
    """How far back from now the curves are whole."""
    return state.policy.lookback_ms if state.forgotten_to is None else max(0, state.clock - state.forgotten_to)


def _widen(state: State) -> None:
    """A longer lookback than is remembered is grown into: the window begins where memory does, until it is whole."""
    longest = min(state.policy.lookback_ms, _remembered(state))
    if longest >= state.window_ms + WIDEN_EVERY or state.window_ms < longest == state.policy.lookback_ms:
        state.set_window(longest)


def _lead_taken(state: State, fact: RankerLeadTaken) -> None:
    """In the guarded lane, so it must be read, but it moves no ratio."""


FOLDS: dict[Kind, Callable[[State, Any], None]] = {
    BudgetTreeChanged: _tree,
    PolicyChanged: _policy,
    HostRegistered: _registered,
    CapacityChanged: _capacity,
    HostStateChanged: _host_state,
    JobAdmitted: _admitted,
    JobRequeued: _requeued,
    JobFinished: _finished,
    RunAssigned: _assigned,
    RunStarted: _run_started,
    ReplicasStarted: _replicas_started,
    ReplicasExited: _replicas_exited,
    RunEnded: _run_ended,
    RunCharged: _charged,
    ReservationMade: _reserved,
    ReservationDropped: _reservation_dropped,
    RankingPublished: news.note_ranking,
    RankerLeadTaken: _lead_taken,
}
"""How each kind is folded. These are the kinds that the role reads."""
