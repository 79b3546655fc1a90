"""Facts of the agents: what really is on the hosts."""

from collections.abc import Iterable
from typing import ClassVar

import msgspec

from tenure.domain.host import HostSpec
from tenure.domain.ids import BudgetPath, HostId, JobId, RunId, UserName
from tenure.domain.severity import Severity
from tenure.domain.units import Millis
from tenure.events.fact import Fact, Lane


class HostRegistered(Fact, frozen=True, kw_only=True, tag=True):
    """An agent speaks for these hosts. Said at each start of the agent.

    `machine` is the process that speaks, `MACHINE.PROCESS`: two machines with one host name have different ones.
    """

    lane: ClassVar[Lane] = Lane.REPORT

    agent: str
    hosts: tuple[HostSpec, ...]
    machine: str = ""


class ReplicaStart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One replica's process exists on `host` since `at`."""

    replica: int
    host: HostId
    at: Millis


class ReplicasStarted(Fact, frozen=True, kw_only=True, tag=True):
    """Replicas of a run were launched on hosts of one agent."""

    lane: ClassVar[Lane] = Lane.REPORT

    run: RunId
    job: JobId
    replicas: tuple[ReplicaStart, ...]


class ReplicaExit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One replica's whole process group is gone since `at`, its GPUs are free.

    Exactly one of `code` (exit status), `signal` and `error` (it could not be launched, or nobody saw its end) is set.
    `started_at` is None if it never ran. `lost`: its host ended it (a reboot, a shutdown), not the job and not a stop
    that the placer asked for.
    """

    replica: int
    host: HostId
    at: Millis
    started_at: Millis | None = None
    code: int | None = None
    signal: int | None = None
    error: str | None = None
    lost: bool = False


class ReplicasExited(Fact, frozen=True, kw_only=True, tag=True):
    """Replicas of a run are gone from hosts of one agent."""

    lane: ClassVar[Lane] = Lane.REPORT

    run: RunId
    job: JobId
    replicas: tuple[ReplicaExit, ...]


class CheckpointReported(Fact, frozen=True, kw_only=True, tag=True):
    """The job saved its progress at `at`: what came before is safe from a host loss (P2, P6)."""

    lane: ClassVar[Lane] = Lane.REPORT

    run: RunId
    job: JobId
    host: HostId


class Segment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Occupancy: one run held `gpus` GPUs of one host during [since, until). Never crosses a full hour (UTC).

    With `gpus` below zero it takes back what was told before: the host was given up, and the books end at its last sign
    of life (P2).
    `busy_milli` is the mean utilisation of those GPUs in thousandths, None where it cannot be measured. `replica`: the
    one that held them.
    """

    run: RunId
    job: JobId
    budget: BudgetPath
    user: UserName
    charged: bool
    gpus: int
    since: Millis
    until: Millis
    busy_milli: int | None = None
    replica: int | None = None


class HostBeat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A sign of life of one host: the GPUs that work, the runs it really holds, occupancy not reported before."""

    host: HostId
    gpus: int
    runs: tuple[RunId, ...] = ()
    segments: tuple[Segment, ...] = ()


class Heartbeat(Fact, frozen=True, kw_only=True, tag=True):
    """A sign of life of an agent and its hosts. `final` segments of ended runs come with the next one.

    `machine` is as in `HostRegistered`.
    """

    lane: ClassVar[Lane] = Lane.REPORT

    agent: str
    hosts: tuple[HostBeat, ...]
    machine: str = ""


class HealthSignal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One incident as a source tells it: `code` of `device`, seen `count` times during [first_at, last_at].

    `device` is a GPU's or switch's PCI address (`0000:9b:00.0`), a GPU's index where its source knows no more (`gpu3`),
    a port (`mlx5_0/1`), a disk or path, or `host`. `source` and `code` are words like `kernel` and `xid_79` (a custom
    check's source is `check:NAME`), `text` says it to people, `evidence` is the line it was read from, cut. An incident
    is the same as long as its source, device, code and `first_at` are; `over` says that it has ended.
    """

    device: str
    source: str
    code: str
    severity: Severity
    text: str
    first_at: Millis
    last_at: Millis
    count: int = 1
    evidence: str = ""
    over: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """Source, device, code: of each host one incident at a time has it."""
        return (self.source, self.device, self.code)

    @property
    def incident(self) -> tuple[str, str, str, Millis]:
        """It is the same incident for as long as this stays the same."""
        return (*self.key, self.first_at)


def still_open(known: tuple[HealthSignal, ...], said: tuple[HealthSignal, ...]) -> tuple[HealthSignal, ...]:
    """The incidents of a host after `said`: what is said of one replaces what was known of it."""
    latest = {each.key: each for each in (*known, *said)}
    return tuple(each for each in latest.values() if not each.over)


class HostSignal(Fact, frozen=True, kw_only=True, tag=True):
    """Incidents of one host that began, became graver, went on or ended since the agent last said so.

    It repeats nothing else: what was said of other incidents still holds. docs/health.md lists the codes.
    """

    lane: ClassVar[Lane] = Lane.REPORT

    host: HostId
    signals: tuple[HealthSignal, ...] = ()


def hosts_in(fact: Fact) -> Iterable[HostId]:
    """The hosts that a report says something of."""
    match fact:
        case HostRegistered() | Heartbeat():
            return [each.host for each in fact.hosts]
        case ReplicasStarted() | ReplicasExited():
            return [each.host for each in fact.replicas]
        case CheckpointReported() | HostSignal():
            return [fact.host]
        case _:
            raise TypeError(f"{type(fact).__name__} is no report")
