"""What the agent's decider tells its hands to do."""

from dataclasses import dataclass

from services.agent.state import Key, Registration
from tenure.domain.ids import HostId, JobId, RunId
from tenure.domain.job import ReplicaPlace
from tenure.domain.units import Millis
from tenure.events.placing import RunAssigned

OLD_AFTER: Millis = 2_000
"""An agent that was suspended for longer reads the log again before it starts anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartReplica:
    """Launch it; what comes of it is observed."""

    assigned: RunAssigned
    place: ReplicaPlace
    decided_at: Millis

    def is_old(self, now: Millis) -> bool:
        """Whether so much time has passed that another agent may speak for the host by now."""
        return now - self.decided_at > OLD_AFTER


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverStart:
    """It was to stop before it was launched: note that it is gone without having been."""

    assigned: RunAssigned
    place: ReplicaPlace


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplica:
    """SIGTERM, the grace period, SIGKILL. `given_up`: the log has ended the run without hearing of this replica."""

    key: Key
    grace_ms: Millis
    given_up: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetRun:
    """Nothing of the run is left to do or to say: its files may go once logs need not be kept."""

    run: RunId


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareBeat:
    """Measure and write down the next heartbeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveWay:
    """Another machine was given the name of this host, and came first: end without touching anything."""

    host: HostId
    rival: Registration


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The log has these now."""

    started: tuple[Key, ...] = ()
    exited: tuple[Key, ...] = ()
    checkpoints: tuple[tuple[JobId, Millis], ...] = ()
    beats: bool = False
    told: tuple[tuple[Key, Millis], ...] = ()
    """Up to where the log has a replica's occupancy with them."""
    signals: bool = False
    registration: bool = False


Instruction = StartReplica | NeverStart | StopReplica | ForgetRun | PrepareBeat | GiveWay | Said
