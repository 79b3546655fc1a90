"""Folding the log into the health role's state, one function a kind of fact."""

from collections.abc import Callable
from typing import Any

import msgspec

from services.health.policy.silence import SIGNS_NEEDED, Survey
from services.health.policy.transitions import check_transition
from services.health.state import (
    AT_WORK,
    ENDS_MAX,
    INCIDENTS_KEPT,
    STORY_LENGTH,
    Assigned,
    Change,
    Drain,
    End,
    Host,
    Repair,
    Return,
    State,
)
from tenure.domain.host import EMPTIED, HostSpec, HostState
from tenure.domain.ids import HostId
from tenure.domain.reasons import EndCause, Reason
from tenure.domain.units import Millis
from tenure.events.catalogue import Kind
from tenure.events.fact import Recorded
from tenure.events.hosts import CapacityChanged, DrainCompleted, HostStateChanged, RepairRequested
from tenure.events.intake import DrainRequested, RepairCompleted, ResumeRequested
from tenure.events.leading import HealthLeadTaken
from tenure.events.placing import PlacementDeferred, RunAssigned, RunEnded
from tenure.events.policy import PolicyChanged
from tenure.events.reports import Heartbeat, HostRegistered, HostSignal, still_open


def _host_registered(state: State, fact: HostRegistered, *, suspect_after_ms: Millis) -> None:
    for spec in fact.hosts:
        host = state.core.hosts.get(spec.host)
        if host is None:
            host = state.core.hosts[spec.host] = Host(spec=spec, last_seen=fact.at)
        _register(host, spec)
        state.index(spec.host, host)
        _hear(host, fact.at, suspect_after_ms=suspect_after_ms)
        state.touched[spec.host] = None


def _register(host: Host, spec: HostSpec) -> None:
    """What it is now. A machine that came back with fewer GPUs lacks them until somebody resumes it so (S62)."""
    same = spec.gpu_type == host.spec.gpu_type
    host.gpus_expected = max(spec.gpus, host.gpus_expected if same else 0)
    host.spec = spec


def _heartbeat(state: State, fact: Heartbeat, *, suspect_after_ms: Millis) -> None:
    core = state.core
    if fact.at - core.last_beat >= suspect_after_ms:
        core.followed_since = fact.at
    core.last_beat = max(core.last_beat, fact.at)
    for beat in fact.hosts:
        host = core.hosts.get(beat.host)
        if host is None:  # not registered yet: its type and place are unknown
            continue
        _hear(host, fact.at, suspect_after_ms=suspect_after_ms)
        if host.agents[:1] != (fact.machine or fact.agent,):
            _another_agent(host, fact, suspect_after_ms=suspect_after_ms)
            state.touched[beat.host] = None
        told = (host.lacking_since is None) == (beat.gpus >= host.gpus_expected)
        if host.state is HostState.HEALTHY and beat.gpus == host.gpus and told:
            continue
        host.gpus = beat.gpus
        _count_gpus(host, fact.at)
        host.strange_runs = any(run not in host.runs for run in beat.runs)
        state.touched[beat.host] = None


def _another_agent(host: Host, fact: Heartbeat, *, suspect_after_ms: Millis) -> None:
    """A new agent after an old one is a restart; the old one again soon after it means two machines of one name."""
    speaker = fact.machine or fact.agent
    if host.agents[1:] == (speaker,) and fact.at - host.agents_changed_at < suspect_after_ms:
        host.doubled_at = fact.at
    host.agents, host.agents_changed_at = (speaker, *host.agents[:1]), fact.at


def _count_gpus(host: Host, at: Millis) -> None:
    """Since when its beats name fewer working GPUs than it has (S62)."""
    if host.gpus is None or host.gpus >= host.gpus_expected:
        if host.lacking_since is not None:
            host.signals_over_at = max(host.signals_over_at, at)
        host.lacking_since = None
    elif host.lacking_since is None:
        host.lacking_since = at


def _host_signal(state: State, fact: HostSignal) -> None:
    host = state.core.hosts.get(fact.host)
    if host is None:  # not registered yet
        return
    host.signals, host.signals_fact = still_open(host.signals, fact.signals), fact.id
    host.signals_over_at = max(host.signals_over_at, fact.at)
    state.touched[fact.host] = None


def _hear(host: Host, at: Millis, *, suspect_after_ms: Millis) -> None:
    """Count a sign of life. A row of them is broken by a silence; one that was overtaken by a later one is no news."""
    if at < host.last_seen:
        return
    in_row = at - host.last_seen < suspect_after_ms
    host.signs = min(host.signs + 1, SIGNS_NEEDED) if in_row else 1
    host.last_seen = at


def _policy_changed(state: State, fact: PolicyChanged) -> None:
    state.core.policy = fact.policy
    state.look_again()


def _host_state_changed(state: State, fact: HostStateChanged) -> None:
    host = state.core.hosts[fact.host]
    check_transition(host, to=fact.state, reason=fact.why.reason)
    was_doubted, was_at_work = host.is_doubted, host.state in AT_WORK
    was_silent = host.state in (HostState.SUSPECT, HostState.LOST) and not host.is_held_up
    if fact.state is HostState.SUSPECT:
        host.suspected_at = fact.at
    if fact.state is HostState.LOST or (fact.why.reason is Reason.HOST_SILENT and not was_silent):
        host.signs = 0
    if fact.state is HostState.LOST:
        host.strange_runs = True  # its runs are given up; whether it still has them is unknown until its next beat
        if host.drain is None:
            host.incidents = (*host.incidents, fact.at)[-INCIDENTS_KEPT:]
    if fact.state is HostState.HEALTHY:
        _in_service(state, host, fact)
    elif fact.incident and not host.incident:
        host.incident = fact.incident
    if fact.state is HostState.DRAINING:
        _drains(host, fact)
    host.held_back = fact.why.reason is Reason.HOST_HELD_BACK
    host.state, host.said_fatal, host.said_deadline = fact.state, fact.fatal, fact.deadline
    host.said_accepts = fact.accepts
    host.story = (*host.story, Change(at=fact.at, state=fact.state, reason=fact.why.reason))[-STORY_LENGTH:]
    state.index(fact.host, host)
    state.touched[fact.host] = None
    if was_doubted and not host.is_doubted:
        state.touched.update(state.held_back)
    if was_at_work and host.state not in AT_WORK:
        state.touch_waiting()
    mass, cluster = state.core.mass_silence, host.spec.cluster
    was_mass = mass.pop(cluster, False) is None
    silent, watched = state.tally.get(cluster, (0, 0))
    if Survey(silent=silent, watched=watched, heard=watched - silent).is_mass:
        mass[cluster] = None
    elif was_mass:
        state.core.mass_over_at[cluster] = fact.at
        state.touched.update(state.held_back)
        state.touch_waiting()


def _in_service(state: State, host: Host, fact: HostStateChanged) -> None:
    """It takes runs (again). Others that automation could not take for want of room are looked at again."""
    by_person = fact.why.reason is Reason.HOST_RESUMED
    if host.returned is not None:  # asked for while it was silent: it returns when it is heard
        by_person = by_person or host.returned.reason is Reason.HOST_RESUMED
    host.returned = None
    if host.state is HostState.HEALTHY:  # nothing but a word about it
        return
    if host.drain is not None and host.drain.automatic:
        host.drain = None
    if host.incident and host.drain is None:
        host.incident, host.repair, host.cleared_at = "", None, fact.at
        host.settled = tuple([signal.incident for signal in host.signals])
        host.excused = host.settled if by_person else ()
    state.touched.update(state.held_back)


def _drains(host: Host, fact: HostStateChanged) -> None:
    """Evidence is as good as an order: it makes a drain, or one fatal that goes on."""
    if host.drain is not None:
        fatal, accepts = host.drain.fatal or fact.fatal, host.drain.accepts and fact.accepts
        host.drain = msgspec.structs.replace(host.drain, fatal=fatal, accepts=accepts)
    elif fact.automatic:
        host.drain = Drain(
            asked_at=fact.at,
            asked_by=fact.cause or fact.id,
            fatal=fact.fatal,
            deadline=None,
            automatic=True,
            reason=fact.why.reason,
            why=fact.why,
        )
        host.incidents = (*host.incidents, fact.at)[-INCIDENTS_KEPT:]


def _capacity_changed(state: State, fact: CapacityChanged) -> None:
    host = state.core.hosts[fact.host]
    host.offered, host.offered_type = fact.gpus, fact.gpu_type
    state.touched[fact.host] = None


def _drain_completed(state: State, fact: DrainCompleted) -> None:
    host = state.core.hosts[fact.host]
    if host.drain is not None and host.drain.asked_at == fact.started_at:
        host.drain = msgspec.structs.replace(host.drain, completed=True)


def _drain_requested(state: State, fact: DrainRequested) -> None:
    host = state.core.hosts.get(fact.host)
    if host is None:
        return
    before = host.drain
    host.drain = Drain(
        asked_at=fact.at if before is None else before.asked_at,
        asked_by=fact.id,
        fatal=fact.fatal,
        deadline=fact.deadline,
        accepts=fact.accepts,
        automatic=before is not None and before.automatic,
        reason=Reason.HOST_DRAIN_REQUESTED if before is None else before.reason,
        completed=before is not None and before.completed,
    )
    host.returned = None
    state.touched[fact.host] = None


def _return_asked(state: State, fact: ResumeRequested | RepairCompleted) -> None:
    host = state.core.hosts.get(fact.host)
    if host is None:
        return
    state.touched[fact.host] = None
    if isinstance(fact, ResumeRequested):
        host.gpus_expected = host.spec.gpus
        _count_gpus(host, fact.at)
    if isinstance(fact, RepairCompleted) and fact.incident:
        _repair_answered(host, fact)
    elif host.drain is not None or host.state in EMPTIED:
        reason = Reason.HOST_REPAIRED if isinstance(fact, RepairCompleted) else Reason.HOST_RESUMED
        host.drain, host.returned = None, Return(reason=reason, asked_by=fact.id)


def _repair_requested(state: State, fact: RepairRequested) -> None:
    repair = Repair(step=fact.step, reason=fact.reason, asked_at=fact.at, evidence=fact.evidence)
    state.core.hosts[fact.host].repair = repair
    state.touched[fact.host] = None


def _repair_answered(host: Host, fact: RepairCompleted) -> None:
    """The plug's word counts once, for what it was asked last."""
    asked = host.repair
    awaited = asked is not None and asked.answered_at is None and asked.step is fact.step
    if asked is not None and awaited and fact.incident == host.incident:
        host.repair = msgspec.structs.replace(asked, answered_at=fact.at, ok=fact.ok, answer=fact.id)


def _run_assigned(state: State, fact: RunAssigned) -> None:
    hosts = tuple(dict.fromkeys([place.host for place in fact.placement]))
    state.core.assigned[fact.run] = Assigned(hosts=hosts, user=fact.user)
    for name in hosts:
        state.core.hosts[name].runs[fact.run] = None


def _run_ended(state: State, fact: RunEnded) -> None:
    run = state.core.assigned.pop(fact.run, None)
    if run is None:
        return
    for name in run.hosts:
        host = state.core.hosts[name]
        host.runs.pop(fact.run, None)
        overdue = host.overdue.pop(fact.run, False) is None
        if host.drain is not None or overdue or host.state is HostState.LOST:
            state.touched[name] = None
    _count_end(state, fact, run)


def _count_end(state: State, fact: RunEnded, run: Assigned) -> None:
    """What the end of a run says about its hosts: it went well, or a replica failed first on one of them."""
    launched = fact.why.numbers.get("started") is not False
    if fact.cause_of_end is EndCause.COMPLETED:
        died_on = None
    elif fact.cause_of_end is EndCause.FAILED or not launched:
        died_on = HostId(str(fact.why.numbers.get("host")))
    else:
        return
    replica = fact.why.numbers.get("replica")
    end = End(
        at=fact.at,
        job=fact.job,
        user=run.user,
        hosts=run.hosts,
        died_on=died_on,
        replica=replica if isinstance(replica, int) else 0,
        launched=launched,
    )
    state.core.ends.append(end)
    del state.core.ends[:-ENDS_MAX]
    if died_on in state.core.hosts:
        state.touched[died_on] = None


def _placement_deferred(state: State, fact: PlacementDeferred) -> None:
    for name, runs in fact.overdue.items():
        host = state.core.hosts[name]
        host.overdue.update(dict.fromkeys(run for run in runs if run in host.runs))
        state.touched[name] = None


def _lead_taken(state: State, fact: HealthLeadTaken) -> None:
    """In the guarded lane, so it must be read, but it tells nothing of hosts."""


_HEARD: dict[Kind, Callable[..., None]] = {HostRegistered: _host_registered, Heartbeat: _heartbeat}
_FOLD: dict[Kind, Callable[[State, Any], None]] = {
    HostStateChanged: _host_state_changed,
    CapacityChanged: _capacity_changed,
    DrainCompleted: _drain_completed,
    DrainRequested: _drain_requested,
    ResumeRequested: _return_asked,
    RepairCompleted: _return_asked,
    RunAssigned: _run_assigned,
    RunEnded: _run_ended,
    PlacementDeferred: _placement_deferred,
    HostSignal: _host_signal,
    RepairRequested: _repair_requested,
    HealthLeadTaken: _lead_taken,
    PolicyChanged: _policy_changed,
}
READS: tuple[Kind, ...] = (*_HEARD, *_FOLD)


def evolve(state: State, recorded: Recorded, *, suspect_after_ms: Millis) -> None:
    """Fold one fact in place. Signs of life further apart than `suspect_after` are no row.

    `suspect_after_ms` counts while the log has no policy.
    """
    if state.core.policy is not None:
        suspect_after_ms = state.core.policy.suspect_after_ms
    fact, kind = recorded.fact, type(recorded.fact)
    fold = _FOLD.get(kind)
    if fold is not None:
        fold(state, fact)
    elif kind in _HEARD:
        _HEARD[kind](state, fact, suspect_after_ms=suspect_after_ms)
    state.core.position = recorded.position
