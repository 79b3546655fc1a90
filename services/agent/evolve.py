"""How each fact changes what an agent is to hold: runs given to its hosts, stops, ends, hosts given up as lost.

Its own reports of health it reads to know after a restart what it has said.
"""

from services.agent.state import State, Wanted
from tenure.domain.host import HostState
from tenure.domain.reasons import EndCause
from tenure.events.fact import Recorded
from tenure.events.hosts import HostStateChanged
from tenure.events.placing import RunAssigned, RunEnded, RunPreemptionRequested, RunStopRequested
from tenure.events.reports import HostSignal, still_open

READS = (RunAssigned, RunPreemptionRequested, RunStopRequested, RunEnded, HostStateChanged, HostSignal)


def evolve(state: State, recorded: Recorded) -> None:
    """Fold one fact: which runs are wanted here, to stop, over, lost with their host; what was said of its health."""
    fact = recorded.fact
    core = state.core
    core.position = recorded.position
    if isinstance(fact, RunAssigned):
        ours = {spec.host for spec in state.hosts}
        mine = tuple(place for place in fact.placement if place.host in ours)
        if mine:
            core.runs[fact.run] = Wanted(assigned=fact, mine=mine)
            state.attention[fact.run] = None
    elif isinstance(fact, RunPreemptionRequested | RunStopRequested):
        wanted = core.runs.get(fact.run)
        if wanted is not None:
            wanted.stop = True
            state.attention[fact.run] = None
    elif isinstance(fact, RunEnded):
        core.runs.pop(fact.run, None)
        for replica in state.of_run(fact.run):
            state.attention[fact.run] = None
            if fact.cause_of_end is EndCause.HOST_LOST and replica.exit is None and replica.given_up_at is None:
                replica.given_up_at = replica.occupied_until or replica.started_at
    elif isinstance(fact, HostStateChanged) and fact.state is HostState.LOST:
        _give_up(state, fact)
    elif isinstance(fact, HostSignal) and any(spec.host == fact.host for spec in state.hosts):
        core.signals[fact.host] = still_open(core.signals.get(fact.host, ()), fact.signals)


def _give_up(state: State, fact: HostStateChanged) -> None:
    """P2: the books of what a lost host held end with its last sign of life, but for ends that were heard before."""
    for replica in state.replicas.values():
        if replica.host == fact.host and not replica.said_exit and replica.given_up_at is None:
            replica.given_up_at = fact.last_seen
            state.attention[replica.key.run] = None
