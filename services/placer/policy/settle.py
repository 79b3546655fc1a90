"""What becomes of a run as its agents report: started, stopped, ended; and of its job: requeued or finished (P10).

A stop is SIGTERM, a grace period inside which a normal exit wins, SIGKILL. A run told to end for an asker or a drain
that exits with status 0 everywhere has completed, unless it saved a checkpoint after it was told: then it saved to be
resumed. See docs/decisions/0004-normal-exit-wins.md.
"""

from collections.abc import Iterable, Iterator

from services.placer.core import Ending, Job, Run, Stop
from services.placer.state import State
from tenure.domain.host import HostState
from tenure.domain.ids import HostId
from tenure.domain.job import only_host
from tenure.domain.reasons import EndCause, JobState, Number, Reason, Why
from tenure.domain.units import MINUTE, SECOND, Millis
from tenure.events.fact import Fact
from tenure.events.placing import JobFinished, JobRequeued, RunEnded, RunStarted, RunStopRequested
from tenure.events.reports import ReplicaExit

FACTS_MAX = 900
"""Facts in one decision, a few more at most: an append of up to 1,000 is atomic."""
HOLD_FIRST: Millis = 15 * SECOND
HOLD_LONGEST: Millis = 15 * MINUTE

_FINAL: dict[EndCause, JobState] = {
    EndCause.COMPLETED: JobState.COMPLETED,
    EndCause.FAILED: JobState.FAILED,
    EndCause.PREEMPTED: JobState.PREEMPTED,
    EndCause.DRAINED: JobState.PREEMPTED,
    EndCause.CANCELLED: JobState.CANCELLED,
}


def settle(state: State, now: Millis) -> Iterator[Fact]:
    """The facts that are due for runs that changed, by name, and for cancelled queued jobs; the rest comes next.

    Cut only between runs: what ends a run and what becomes of its job are written together or not at all.
    """
    count = 0
    for job_id in state.ending:  # the log was cut between a run's end and its job's
        job = state.core.jobs[job_id]
        if job.ending is not None and count < FACTS_MAX:
            count += 1
            yield _next_for_job(job.ending, job, now)
    for run_id in sorted(state.attention):
        run = state.core.runs[run_id]
        for fact in settle_run(run, state.core.jobs[run.job], state, now):
            count += 1
            yield fact
        if count >= FACTS_MAX:
            return
    for job_id in state.cancelled:
        count += 1
        if count > FACTS_MAX:
            return
        job = state.core.jobs[job_id]
        why = Why(rule="P5", reason=Reason.STOP_CANCELLED, numbers={"by": job.cancelled_by})
        yield _finished(job, JobState.CANCELLED, now, exit_code=None, why=why)


def settle_run(run: Run, job: Job, state: State, now: Millis) -> Iterator[Fact]:
    """The facts that are due for one run."""
    lost = [host for host in run.hosts if state.core.hosts[host].state is HostState.LOST or _gave_up(run, host)]
    replicas = len(run.placement)
    if run.started_at is None and len(run.started) == replicas:
        started_at = max(run.started.values())
        yield RunStarted(
            at=started_at,
            run=run.run,
            job=run.job,
            protected_until=started_at + job.spec.min_runtime_ms,
            charged=job.spec.allocated,
            hosts=run.hosts,
        )
    dead = [host for host in lost if state.core.hosts[host].state is HostState.LOST]
    gone = all(place.replica in run.exited or place.host in dead for place in run.placement)
    if not gone:
        stop = _stop_due(run, job, lost, now)
        if stop is not None:
            yield RunStopRequested(
                at=now,
                run=run.run,
                job=run.job,
                only_on=only_host(run.placement),
                by=stop.by,
                cause_of_end=stop.cause_of_end,
                why=stop.why,
            )
        return
    yield from _end(run, job, lost, state, now)


def _gave_up(run: Run, host: HostId) -> bool:
    """The host itself ended what it had of the run (a reboot, a shutdown)."""
    return any(gone.lost and gone.host == host for gone in run.exited.values())


def _stop_due(run: Run, job: Job, lost: list[HostId], now: Millis) -> Stop | None:
    """Why a run that is still there must be told to end, if it was not told yet. It is told once."""
    if run.stop is not None:
        return None
    if lost:
        why = Why(rule="P2", reason=Reason.STOP_HOST_LOST, numbers={"host": lost[0], "hosts_lost": len(lost)})
        return Stop(cause_of_end=EndCause.HOST_LOST, by=lost[0], why=why, at=now)
    if job.cancelled_by is not None:
        why = Why(rule="P5", reason=Reason.STOP_CANCELLED, numbers={"by": job.cancelled_by})
        return Stop(cause_of_end=EndCause.CANCELLED, by=job.cancelled_by, why=why, at=now)
    broken = first_failure(run.exited.values())
    if broken is not None:
        numbers = {"replica": broken.replica, "host": broken.host, **_exit_numbers(broken)}
        why = Why(rule="I2", reason=Reason.STOP_GANG_BROKEN, numbers=numbers)
        return Stop(cause_of_end=EndCause.FAILED, by=None, why=why, at=now)
    return None


def _end(run: Run, job: Job, lost: list[HostId], state: State, now: Millis) -> Iterator[Fact]:
    last_signs = [state.core.hosts[p.host].last_seen for p in run.placement if p.replica not in run.exited]
    ends = [gone.at for gone in run.exited.values()] + last_signs
    ended_at = max(*ends, run.assigned_at, run.started_at or 0)  # a host's last sign of life may come before its run
    failure = first_failure(run.exited.values())
    stop = run.stop
    broken = stop is not None and stop.why.reason is Reason.STOP_GANG_BROKEN
    dying = [host for host in run.hosts if broken and state.core.hosts[host].fatal]  # it broke for its host (S62)
    lost = dying or lost
    own_end = stop is not None and stop.cause_of_end in (EndCause.CANCELLED, EndCause.FAILED)
    if dying or (lost and not own_end):
        cause, by = EndCause.HOST_LOST, str(lost[0])
        started = run.started_at is not None or not any(_gave_up(run, host) for host in lost)
        loss: dict[str, Number] = {"host": lost[0], "hosts_lost": len(lost), "started": started}
        why = Why(rule="P2", reason=Reason.STOP_HOST_LOST, numbers=loss)
    elif stop is not None and not _normal_exit_wins(run, stop, failure):
        cause, by, why = stop.cause_of_end, stop.by or "", stop.why
    elif failure is None:
        cause, by, why = EndCause.COMPLETED, "", Why(rule="P10", reason=Reason.END_COMPLETED, numbers={"exit_code": 0})
    else:
        cause, by = EndCause.FAILED, ""
        numbers = {"replica": failure.replica, "host": failure.host, **_exit_numbers(failure)}
        why = Why(rule="P10", reason=Reason.END_FAILED, numbers=numbers)
    code = 0 if failure is None else _exit_code(failure)
    exit_code = code if run.exited else None
    yield RunEnded(
        at=ended_at,
        run=run.run,
        job=run.job,
        only_on=only_host(run.placement),
        cause_of_end=cause,
        by=by or None,
        exit_code=exit_code,
        why=why,
    )
    ending = Ending(
        run=run.run,
        number=run.number,
        cause_of_end=cause,
        exit_code=exit_code,
        checkpoint_at=run.checkpoint_at,
        why=why,
        launched=why.numbers.get("started") is not False,
    )
    yield _next_for_job(ending, job, now)


def _normal_exit_wins(run: Run, stop: Stop, failure: ReplicaExit | None) -> bool:
    """P10: every replica of a preempted or drained run ended with status 0, and not after saving itself for later."""
    early = stop.cause_of_end in (EndCause.PREEMPTED, EndCause.DRAINED)
    early = early or stop.why.reason is Reason.DISRUPT_HOST_FATAL
    saved_since = run.checkpoint_at is not None and run.checkpoint_at >= stop.at
    return early and failure is None and not saved_since


def _next_for_job(ending: Ending, job: Job, now: Millis) -> Fact:
    """P10: back to the queue with its place, or over."""
    cause = ending.cause_of_end
    if job.cancelled_by is not None and cause not in (EndCause.COMPLETED, EndCause.FAILED):
        return _finished(job, JobState.CANCELLED, now, exit_code=ending.exit_code, why=ending.why)
    early = cause in (EndCause.PREEMPTED, EndCause.DRAINED)
    if not (cause is EndCause.HOST_LOST or (early and job.spec.resumable)):
        return _finished(job, _FINAL[cause], now, exit_code=ending.exit_code, why=ending.why)
    reason = Reason.REQUEUE_HOST_LOST if cause is EndCause.HOST_LOST else Reason.REQUEUE_PREEMPTED
    numbers = {"submitted_at_ms": job.submitted_at, "checkpoint_at_ms": ending.checkpoint_at, "runs": ending.number}
    held_until = None
    if not ending.launched:
        reason, hold_ms = Reason.REQUEUE_LAUNCH_FAILED, hold_of(job.launches_given_up)
        held_until = now + hold_ms
        numbers |= {"launches_given_up": job.launches_given_up + 1, "hold_ms": hold_ms}
    return JobRequeued(
        at=now,
        job=job.job,
        run=ending.run,
        submitted_at=job.submitted_at,
        resume_count=job.resume_count + 1,
        why=Why(rule="P10", reason=reason, numbers=numbers),
        held_until=held_until,
    )


def hold_of(given_up: int) -> Millis:
    """How long a job waits after a host gave up its launch: twice as long each time, so that it goes in no circle."""
    return min(HOLD_FIRST << given_up, HOLD_LONGEST)


def _finished(job: Job, state: JobState, now: Millis, *, exit_code: int | None, why: Why) -> JobFinished:
    return JobFinished(at=now, job=job.job, state=state, exit_code=exit_code, why=why)


def first_failure(exits: Iterable[ReplicaExit]) -> ReplicaExit | None:
    """The earliest exit that was not a success; ties by replica number."""
    failures = [gone for gone in exits if gone.code != 0]
    return min(failures, key=lambda gone: (gone.at, gone.replica), default=None)


def _exit_numbers(gone: ReplicaExit) -> dict[str, int | str]:
    known = {"exit_code": gone.code, "signal": gone.signal, "error": gone.error}
    return {name: value for name, value in known.items() if value is not None}


def _exit_code(gone: ReplicaExit) -> int:
    """As a shell would say it: 128 + signal; 127 for what could not be launched."""
    if gone.code is not None:
        return gone.code
    return 128 + gone.signal if gone.signal is not None else 127
