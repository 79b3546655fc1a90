"""What the health role knows: every host, what was last said of it, and how well the log could be followed.

`Core` is folded from the log and is what a snapshot holds. `State` adds indexes that are rebuilt from it.
"""

import msgspec

from services.health.watch import Watch
from tenure.domain.host import HostSpec, HostState, RepairStep
from tenure.domain.ids import LOG_START, FactId, HostId, JobId, Position, RunId, UserName
from tenure.domain.policy import Policy
from tenure.domain.reasons import SUSPECT_BUT_HEARD, Reason, Why
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal

WATCHED = (HostState.HEALTHY, HostState.DRAINING, HostState.SUSPECT)
AT_WORK = (HostState.REPAIRING, HostState.PROBATION)
"""The repair plug has them."""
ENDS_MAX = 5_000
INCIDENTS_KEPT = 16
STORY_LENGTH = 8
"""State changes kept of each host, for the error of an illegal one."""


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """The host is to be empty (P9). `completed`: it was, and that was said. `automatic`: by evidence, not by people."""

    asked_at: Millis
    asked_by: FactId
    fatal: bool
    deadline: Millis | None
    completed: bool = False
    accepts: bool = False
    automatic: bool = False
    reason: Reason = Reason.HOST_DRAIN_REQUESTED
    why: Why | None = None
    """The evidence with its numbers, where that is what drains it."""


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """What the plug was asked for last, and what it answered (None: nothing yet)."""

    step: RepairStep
    reason: Reason
    asked_at: Millis
    evidence: tuple[str, ...] = ()
    answered_at: Millis | None = None
    ok: bool = False
    answer: FactId | None = None


class End(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a run ended: well (`died_on` None), or with the host whose replica was the first to fail.

    Not `launched`: the host gave it up before all of it ran.
    """

    at: Millis
    job: JobId
    user: UserName
    hosts: tuple[HostId, ...]
    died_on: HostId | None
    replica: int = 0
    """Which replica failed first."""
    launched: bool = True


class Assigned(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run that has not ended: where it is, and whose."""

    hosts: tuple[HostId, ...]
    user: UserName


class Return(msgspec.Struct, frozen=True, kw_only=True):
    """The drain was taken back: by an operator (`HOST_RESUMED`) or after a repair (`HOST_REPAIRED`)."""

    reason: Reason
    asked_by: FactId


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A past state change, as the story tells it."""

    at: Millis
    state: HostState
    reason: Reason


class Host(msgspec.Struct, kw_only=True):
    """A registered host. `state` is None until it was heard; `offered` is the capacity that was last said."""

    spec: HostSpec
    last_seen: Millis
    signs: int = 0
    """Signs of life in a row (registrations and beats), counted up to `SIGNS_NEEDED`."""
    gpus: int | None = None
    """Working GPUs by its last beat."""
    gpus_expected: int = 0
    """The most it registered since a person last resumed it."""
    strange_runs: bool = False
    """Its last beat names a run that is over (or was never assigned to it)."""
    state: HostState | None = None
    suspected_at: Millis = 0
    said_fatal: bool = False
    said_deadline: Millis | None = None
    said_accepts: bool = False
    offered: int = 0
    offered_type: str = ""
    drain: Drain | None = None
    returned: Return | None = None
    runs: dict[RunId, None] = {}
    """Runs assigned to it that have not ended."""
    overdue: dict[RunId, None] = {}
    """Those of them that it should have released by now (P7)."""
    story: tuple[Change, ...] = ()
    signals: tuple[HealthSignal, ...] = ()
    """What its agent last said of its devices ..."""
    signals_fact: FactId | None = None
    """... and when it said it: the latest fact, ..."""
    signals_over_at: Millis = 0
    """... and the latest instant at which any of it asked for a drain."""
    cleared_at: Millis = 0
    """It was taken for sound then: what was seen before is no evidence any more."""
    settled: tuple[tuple[str, str, str, Millis], ...] = ()
    """Signals that were open when it was: their keys and beginnings. Seen before that, they are no evidence."""
    excused: tuple[tuple[str, str, str, Millis], ...] = ()
    """Signals that a person saw and resumed it with: their keys and beginnings. They may go on."""
    agents: tuple[str, ...] = ()
    """Which machines' beats spoke for it, the last two different ones, the latest first."""
    agents_changed_at: Millis = 0
    doubled_at: Millis = 0
    """Two agents spoke for it in turns then."""
    lacking_since: Millis | None = None
    """Its beats name fewer GPUs than are expected."""
    incident: str = ""
    """What began when it left service and ends with its return."""
    incidents: tuple[Millis, ...] = ()
    """When its latest incidents by automation began."""
    held_back: bool = False
    """There is evidence against it, but automation holds enough already: that was said."""
    repair: Repair | None = None

    @property
    def is_held_up(self) -> bool:
        """It is heard, and on record as suspect: for runs that it does not release, or for unconfirmed evidence."""
        return self.state is HostState.SUSPECT and self.story[-1].reason in SUSPECT_BUT_HEARD

    @property
    def is_doubted(self) -> bool:
        """It is heard, and takes no runs until what is said against it is confirmed or over."""
        return self.state is HostState.SUSPECT and self.story[-1].reason is Reason.HOST_DOUBTED


class Core(msgspec.Struct, kw_only=True):
    """Everything folded from the log; `State` is this plus indexes."""

    position: Position = LOG_START
    hosts: dict[HostId, Host] = {}
    assigned: dict[RunId, Assigned] = {}
    ends: list[End] = []
    """How the latest runs ended, oldest first, at most `ENDS_MAX`."""
    last_beat: Millis = 0
    """The latest instant of any heartbeat."""
    followed_since: Millis = 0
    """Since then some host's heartbeats came without a gap of `suspect_after`."""
    policy: Policy | None = None
    """The log's; None: it has none, and what the role was started with counts."""
    mass_silence: dict[str, None] = {}
    """Clusters of which most hosts are on record as silent: each has a network of its own."""
    mass_over_at: dict[str, Millis] = {}
    """When that was over last, by cluster."""


class State:
    """The core with its indexes. One owner, one thread; `evolve` changes it in place."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.touched: dict[HostId, None] = dict.fromkeys(core.hosts)
        """Hosts of which something may have to be said. Scratch: `decide` drops those it has nothing to say of."""
        self.suspects: dict[HostId, None] = {}
        """Those that are silent."""
        self.handed_over: dict[str, None] = {}
        """What the hands of this process were told already. Scratch: another process tells its own again."""
        self.timers: dict[HostId, Millis] = {}
        """When the verdict on a host may change by itself. Scratch, refreshed by `decide`."""
        self.held_back: dict[HostId, None] = {}
        """Hosts with evidence against them that automation may not take yet, and those that are heard and suspect."""
        self.watched: dict[HostId, str] = {}
        """Hosts whose silence counts (healthy, draining, suspect), with their cluster, ..."""
        self.tally: dict[str, list[int]] = {}
        """... and by cluster how many of them are silent, and how many there are."""
        self.watch = Watch()
        """When hosts that are heard become silent. Scratch, refreshed by `decide`."""
        for name, host in core.hosts.items():
            self.index(name, host)

    def index(self, name: HostId, host: Host) -> None:
        """Bring the indexes in line with the state of one host."""
        self._count(name, -1)
        self.suspects.pop(name, None)
        self.watched.pop(name, None)
        self.held_back.pop(name, None)
        if host.held_back or host.is_held_up:
            self.held_back[name] = None
        if host.state in WATCHED:
            self.watched[name] = host.spec.cluster
        if host.state in (HostState.HEALTHY, HostState.DRAINING) or host.is_held_up:
            self.watch.add(name)
        elif host.state is HostState.SUSPECT:
            self.suspects[name] = None
        self._count(name, +1)

    def _count(self, name: HostId, change: int) -> None:
        cluster = self.watched.get(name)
        if cluster is not None:
            counts = self.tally.setdefault(cluster, [0, 0])
            counts[0] += change * (name in self.suspects)
            counts[1] += change

    def look_again(self) -> None:
        """At every host: what is due when may be another than it was."""
        self.watch = Watch()
        self.touched.update(dict.fromkeys(self.core.hosts))
        for name, host in self.core.hosts.items():
            self.index(name, host)

    def touch_waiting(self) -> None:
        """The repair plug may take hosts that wait for it: lost ones, and drained ones of a cluster that was silent."""
        waiting = (HostState.LOST, HostState.DRAINED)
        self.touched.update((name, None) for name, host in self.core.hosts.items() if host.state in waiting)

    @property
    def position(self) -> Position:
        """How far the log has been folded."""
        return self.core.position

    @position.setter
    def position(self, value: Position) -> None:
        self.core.position = value


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Core)


def initial() -> State:
    """Nothing known."""
    return State(Core())


def dump(state: State) -> bytes:
    """The core as bytes."""
    return _encoder.encode(state.core)


def load(payload: bytes) -> State:
    """The inverse of `dump`. Raises ValueError on damage."""
    return State(_decoder.decode(payload))
