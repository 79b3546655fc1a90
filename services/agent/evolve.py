"""How each fact changes what an agent is to hold: runs given to its hosts, stops, ends, hosts given up as lost.

Its own reports it reads to know after a restart what it has said, and what the log had heard before it gave a host up.
"""

from services.agent.machine import came_first, replaces
from services.agent.state import Key, Registration, State, Wanted, news_of_care
from tenure.domain.host import HostState
from tenure.domain.reasons import EndCause
from tenure.domain.units import Millis
from tenure.events.fact import Recorded
from tenure.events.hosts import HostStateChanged
from tenure.events.placing import RunAssigned, RunEnded, RunPreemptionRequested, RunStopRequested
from tenure.events.policy import PolicyChanged
from tenure.events.reports import HostRegistered, HostSignal, ReplicasExited, ReplicasStarted, still_open

READS = (
    RunAssigned,
    RunPreemptionRequested,
    RunStopRequested,
    RunEnded,
    HostRegistered,
    ReplicasStarted,
    ReplicasExited,
    HostStateChanged,
    HostSignal,
    PolicyChanged,
)


def evolve(state: State, recorded: Recorded, *, suspect_after_ms: Millis) -> None:
    """Fold one fact: which runs are wanted here, to stop, over, lost with their host; what was said of its health.

    `suspect_after_ms` counts while the log has no policy.
    """
    fact = recorded.fact
    core = state.core
    if core.policy is not None:
        suspect_after_ms = core.policy.suspect_after_ms
    core.position = recorded.position
    if isinstance(fact, RunAssigned):
        ours = {spec.host for spec in state.hosts}
        mine = tuple(place for place in fact.placement if place.host in ours)
        if mine:
            core.runs[fact.run] = Wanted(assigned=fact, mine=mine)
            state.attention[fact.run] = None
    elif isinstance(fact, PolicyChanged):
        core.policy = fact.policy
    elif isinstance(fact, RunPreemptionRequested | RunStopRequested):
        wanted = core.runs.get(fact.run)
        if wanted is not None:
            wanted.stop = True
            state.attention[fact.run] = None
    elif isinstance(fact, ReplicasStarted | ReplicasExited):
        _note_heard(state, fact)
    elif isinstance(fact, RunEnded):
        core.runs.pop(fact.run, None)
        for replica in state.of_run(fact.run):
            state.attention[fact.run] = None
            if fact.cause_of_end is EndCause.HOST_LOST and replica.exit is None and replica.given_up_at is None:
                replica.given_up_at = replica.occupied_until or replica.started_at
    elif isinstance(fact, HostRegistered):
        _registered(state, fact, suspect_after_ms=suspect_after_ms)
    elif isinstance(fact, HostStateChanged):
        _host_changed(state, fact)
    elif isinstance(fact, HostSignal) and any(spec.host == fact.host for spec in state.hosts):
        known = core.signals.get(fact.host, ())
        if core.host_states.get(fact.host) is HostState.HEALTHY and news_of_care(known, fact):
            core.unanswered[fact.host] = None
        core.signals[fact.host] = still_open(known, fact.signals)


def _registered(state: State, fact: HostRegistered, *, suspect_after_ms: Millis) -> None:
    """An agent speaks for a host of ours: this one, its predecessor, or another machine that has the same name."""
    ours = {spec.host for spec in state.hosts}
    for spec in fact.hosts:
        if spec.host not in ours:
            continue
        before = state.core.registrations.get(spec.host)
        state.core.registrations[spec.host] = Registration(machine=fact.machine, at=fact.at)
        if fact.machine == state.machine and came_first(before, fact, within_ms=suspect_after_ms):
            state.rival = (spec.host, before) if before is not None else None
        elif replaces(before, fact, state.machine, within_ms=suspect_after_ms):
            state.rival = (spec.host, state.core.registrations[spec.host])


def _host_changed(state: State, fact: HostStateChanged) -> None:
    core = state.core
    if any(spec.host == fact.host for spec in state.hosts):
        core.host_states[fact.host] = fact.state
        core.unanswered.pop(fact.host, None)
        core.fatal.pop(fact.host, None)
        if fact.state is HostState.DRAINING and fact.fatal:
            core.fatal[fact.host] = None
    if fact.state is HostState.LOST:
        _give_up(state, fact)


def _note_heard(state: State, fact: ReplicasStarted | ReplicasExited) -> None:
    wanted = state.core.runs.get(fact.run)
    if wanted is None:
        return
    ours = {place.replica for place in wanted.mine}
    heard = tuple(said.replica for said in fact.replicas if said.replica in ours)
    if isinstance(fact, ReplicasStarted):
        wanted.started += heard
    else:
        wanted.ended += heard


def _give_up(state: State, fact: HostStateChanged) -> None:
    """P2: the books of what a lost host held end with its last sign of life, but for ends that were heard before.

    A replica whose start was not heard before held nothing, to the books.
    """
    for run, wanted in state.core.runs.items():
        for number in (place.replica for place in wanted.mine if place.host == fact.host):
            if number in wanted.ended or number in wanted.given_up:
                continue  # its books were closed before
            wanted.given_up[number] = fact.last_seen if number in wanted.started else 0
            replica = state.replicas.get(Key(run, number))
            if replica is not None:
                state.note_given_up(replica)
