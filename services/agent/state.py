"""What an agent knows: the runs the log gives its hosts, and what it saw itself of their replicas.

`Core` is folded from the log and is what a snapshot holds. The rest is the agent's own observation: it is rebuilt from
the run directories at start, never from the log.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import LOG_START, HostId, JobId, Position, RunId
from tenure.domain.job import ReplicaPlace
from tenure.domain.policy import Policy
from tenure.domain.severity import Severity
from tenure.domain.units import Millis
from tenure.events.placing import RunAssigned
from tenure.events.reports import HealthSignal, Heartbeat, HostSignal, ReplicaExit


class Key(NamedTuple):
    """One replica of one run."""

    run: RunId
    replica: int


class Wanted(msgspec.Struct, kw_only=True):
    """A run that the log gives to hosts of this agent, until it has ended."""

    assigned: RunAssigned
    mine: tuple[ReplicaPlace, ...]
    stop: bool = False
    started: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    """Replicas of ours whose start, whose exit is in the log ..."""
    given_up: dict[int, Millis] = {}
    """... and until when the books have those that were given up with their host."""


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """Which machine spoke for a host, since when."""

    machine: str
    at: Millis


class Core(msgspec.Struct, kw_only=True):
    """Everything folded from the log."""

    position: Position = LOG_START
    registrations: dict[HostId, Registration] = {}
    """The last one of each host of this agent ..."""
    host_states: dict[HostId, HostState] = {}
    """... and its state."""
    policy: Policy | None = None
    """The log's; None: it has none, and what the agent was started with counts."""
    runs: dict[RunId, Wanted] = {}
    signals: dict[HostId, tuple[HealthSignal, ...]] = {}
    """The open incidents of hosts of this agent, as they were last said."""
    unanswered: dict[HostId, None] = {}
    """Healthy hosts of ours of which something grave is said that the health role has not spoken of yet ..."""
    fatal: dict[HostId, None] = {}
    """... and those whose runs it ends."""


def news_of_care(known: tuple[HealthSignal, ...], said: HostSignal) -> bool:
    """Whether it tells of an incident that asks for more than to be watched, and did not when it was last told."""
    before = {signal.incident: signal.severity.rank for signal in known}
    return any(
        not signal.over
        and signal.severity is not Severity.WATCH
        and signal.severity.rank > before.get(signal.incident, Severity.WATCH.rank)
        for signal in said.signals
    )


@dataclass(slots=True, kw_only=True)
class Replica:
    """One replica as this agent saw it. `said_*`: the log has it; so it has its occupancy up to `occupied_until`."""

    key: Key
    assigned: RunAssigned
    place: ReplicaPlace
    started_at: Millis | None = None
    said_start: bool = False
    exit: ReplicaExit | None = None
    said_exit: bool = False
    told_to_stop: bool = False
    occupied_until: Millis | None = None
    given_up_at: Millis | None = None
    """The log gave the run up as lost with this host: what it held since the last sign of life is nobody's (P2)."""

    def held_until(self, now: Millis) -> Millis:
        """Until when it has occupied its GPUs, as far as that counts."""
        end = now if self.exit is None else self.exit.at
        return end if self.given_up_at is None else min(end, self.given_up_at)

    @property
    def told_too_much(self) -> Millis | None:
        """From here to `occupied_until` the log has occupancy that is nobody's: it gave the run up, we did not know."""
        if self.started_at is None or self.given_up_at is None or self.occupied_until is None:
            return None
        books_end = max(self.started_at, self.given_up_at)
        return books_end if books_end < self.occupied_until else None

    @property
    def host(self) -> HostId:
        """The host it is on."""
        return self.place.host

    @property
    def settled(self) -> bool:
        """It is gone, and all of it is in the log: its exit and its occupancy."""
        if self.exit is None or not self.said_exit:
            return False
        if self.started_at is None:
            return True
        told = self.occupied_until or self.started_at
        return told >= self.held_until(self.exit.at) and self.told_too_much is None


@dataclass(slots=True, kw_only=True)
class Checkpoint:
    """The newest progress a job of ours saved, found in its checkpoint directory."""

    run: RunId
    job: JobId
    host: HostId
    at: Millis
    said: bool = False


@dataclass(slots=True)
class State:
    """One agent. One owner, one thread."""

    core: Core
    hosts: tuple[HostSpec, ...]
    replicas: dict[Key, Replica] = field(default_factory=dict)
    checkpoints: dict[JobId, Checkpoint] = field(default_factory=dict)
    machine: str = ""
    """Which machine, and process, this is."""
    rival: tuple[HostId, Registration] | None = None
    """Another machine that came first speaks for a host of ours."""
    registered: bool = False
    """The log has heard from this agent since it started."""
    unsaid: dict[Key, None] = field(default_factory=dict)
    """Replicas with a start or an exit that the log does not have."""
    pending_beats: tuple[Heartbeat, ...] = ()
    """Heartbeats that are on disk and not yet in the log."""
    pending_signals: HostSignal | None = None
    """A report of signals that is not yet in the log."""
    preparing_beat: bool = False
    """The next heartbeats are being measured and written to disk."""
    next_beat_at: Millis = 0
    _keys: dict[RunId, list[Key]] = field(default_factory=dict)
    attention: dict[RunId, None] = field(default_factory=dict)
    """Runs that changed and may need something done or said. Scratch: emptied when nothing is."""

    @property
    def position(self) -> Position:
        """How far the log has been folded."""
        return self.core.position

    @position.setter
    def position(self, value: Position) -> None:
        self.core.position = value

    def see(self, replica: Replica) -> None:
        """Something about a replica was observed: say it, and look at its run again."""
        if replica.key not in self.replicas:
            self._keys.setdefault(replica.key.run, []).append(replica.key)
        self.replicas[replica.key] = replica
        self.unsaid[replica.key] = None
        self.attention[replica.key.run] = None
        self.note_given_up(replica)

    def note_given_up(self, replica: Replica) -> None:
        """Whether the log gave it up with its host, perhaps before this agent knew of it."""
        wanted = self.core.runs.get(replica.key.run)
        if wanted is not None and replica.given_up_at is None:
            replica.given_up_at = wanted.given_up.get(replica.key.replica)
            self.attention[replica.key.run] = None

    def drop(self, run: RunId) -> None:
        """Nothing of the run is left to do or to say."""
        for key in self._keys.pop(run, ()):
            del self.replicas[key]
            self.unsaid.pop(key, None)

    def awaits_verdict(self, key: Key, host: HostId) -> bool:
        """Whether the log is about to say what becomes of the host, and of this run on it (S62, S63)."""
        pending = self.pending_signals
        if pending is not None and pending.host == host and news_of_care(self.core.signals.get(host, ()), pending):
            return True
        wanted = self.core.runs.get(key.run)
        to_stop = host in self.core.fatal and wanted is not None and not wanted.stop
        return to_stop or host in self.core.unanswered

    def of_run(self, run: RunId) -> list[Replica]:
        """The replicas of a run that this agent has seen, in order."""
        return [self.replicas[key] for key in self._keys.get(run, ())]
