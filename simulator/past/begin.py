"""The state of a past at an instant, as a world takes it over: the facts that count, and the runs that are there.

What counts: everything of jobs that had not ended, or that held GPUs within the lookback window; all of hosts, trees
and policies. Of the rest nothing is left in the state of any role.
"""

from collections.abc import Iterable, Iterator

import msgspec

from simulator.past.outages import out_of_service
from simulator.past.story import Past
from simulator.past.worked import Behaviours, done_by
from simulator.simulation import Work, without_silence
from simulator.world import OPERATOR, Before
from tenure.domain.host import HostState
from tenure.domain.ids import JobId
from tenure.domain.units import DAY, Millis
from tenure.events.fact import Fact
from tenure.events.hosts import HostStateChanged
from tenure.events.intake import DrainRequested
from tenure.events.placing import RunPreemptionRequested
from tenure.events.policy import PolicyChanged

FURTHER: Millis = DAY
"""So much more than the window is kept: roles forget in steps of hours."""


def state_at(past: Past, *, at: Millis, lookback_ms: Millis, behaviours: Behaviours, work: Work) -> Before:
    """What a world takes over at an instant. `lookback_ms`: the longest window that will be asked about."""
    then = Past(past.facts[: past.cut(at)])
    kept = _kept(then, since=at - lookback_ms - FURTHER)
    running = [run.as_running() for job in then.jobs.values() if (run := job.open_run) is not None]
    done: dict[JobId, Millis] = {}
    for job in then.jobs.values():
        saved = done_by(job, job.runs, work=work).saved_ms
        if job.state is None and saved is not None:
            done[job.job] = saved
    return Before(
        at=at,
        facts=[*_counting(then.facts, kept), *_still_out(then, at=at)],
        running=running,
        behaviours={job: behaviours.by_job[job] for job in kept},
        done_ms=done,
    )


def _kept(then: Past, *, since: Millis) -> dict[JobId, None]:
    """The jobs of which anything counts."""
    return {
        job.job: None
        for job in then.jobs.values()
        if job.state is None or any(run.ended_at is None or run.ended_at >= since for run in job.runs[-1:])
    }


def _counting(facts: Iterable[Fact], kept: dict[JobId, None]) -> Iterator[Fact]:
    """The facts that count. Nobody waits for heartbeats, and no host is judged again by what was said of it then."""
    for fact in facts:
        job: JobId | None = getattr(fact, "job", None)
        if job is not None and job not in kept:
            continue
        match fact:
            case PolicyChanged():
                yield msgspec.structs.replace(fact, policy=without_silence(fact.policy))
            case HostStateChanged():
                yield msgspec.structs.replace(fact, automatic=False)
            case RunPreemptionRequested() if fact.escrow and fact.by not in kept:
                yield msgspec.structs.replace(fact, escrow=(), deadline=None)
            case _:
                yield fact


def _still_out(then: Past, *, at: Millis) -> Iterator[Fact]:
    """Orders for the hosts that are out of service: whatever took them, they stay out until they are given back."""
    for host, states in sorted(then.host_states.items()):
        left = out_of_service(states)
        if left is not None:
            yield DrainRequested(
                at=at,
                host=host,
                by=OPERATOR,
                comment=left.why.reason.value,
                fatal=left.fatal or left.state is HostState.LOST,
                deadline=left.deadline,
                accepts=left.accepts,
            )
