"""Agents of virtual hosts: what they do with the facts of the placer, and how long jobs run.

They stand in for real hosts and processes only: everything that is decided is decided by the services' deciders.
"""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from tenure.domain.host import HostSpec
from tenure.domain.ids import LOG_START, FactId, HostId, JobId, Position, RunId
from tenure.domain.units import Millis
from tenure.events.fact import Fact
from tenure.events.placing import RunAssigned, RunEnded, RunPreemptionRequested, RunStopRequested
from tenure.events.reports import (
    CheckpointReported,
    Heartbeat,
    HostBeat,
    HostRegistered,
    ReplicaExit,
    ReplicasExited,
    ReplicasStarted,
    ReplicaStart,
)
from tenure.log.memory import MemoryLog

SIGTERM, SIGKILL = 15, 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What the processes of a job do. Lengths of time in milliseconds."""

    runs_for_ms: Millis
    """Work to be done: over all runs of a resumable job, by each run of another."""
    exit_code: int = 0
    starts_after_ms: Millis = 0
    stops_after_ms: Millis = 0
    """From SIGTERM to the exit; a process that takes longer than its grace is killed."""
    stop_exit_code: int | None = None
    """Its exit status when told to stop; None: it dies by the signal."""
    saves_on_stop: bool = True
    """A resumable job saves its progress when told to stop."""
    breaks_replica: int | None = None
    """Only this replica exits with `exit_code` when the work is done; the others go on until they are told to stop."""


@dataclass(slots=True, kw_only=True)
class _Process:
    """One run as its hosts see it."""

    assigned: RunAssigned
    behaviour: Behaviour
    started_at: Millis | None = None
    told_to_stop_at: Millis | None = None
    exited: set[int] = field(default_factory=set)


class VirtualAgents:
    """All hosts of a world, one agent. `act` lets things happen up to `now`; `next_at` is when the next one is due."""

    def __init__(self, specs: tuple[HostSpec, ...], log: MemoryLog, *, cluster: str, heartbeat_ms: Millis) -> None:
        self.behaviours: dict[JobId, Behaviour] = {}
        self.silent: dict[HostId, None] = {}
        self._specs, self._log, self._cluster, self._heartbeat_ms = specs, log, cluster, heartbeat_ms
        self._read: Position = LOG_START
        self._processes: dict[RunId, _Process] = {}
        self._done_ms: dict[JobId, Millis] = {}
        self._withheld: list[tuple[Fact, tuple[HostId, ...]]] = []
        self._due: list[tuple[Millis, int, Callable[[Millis], None]]] = []
        self._count = 0
        self._at(0, self._register)
        self._at(0, self._beat)

    @property
    def next_at(self) -> Millis:
        """The next instant at which a process starts or ends, or a heartbeat is due."""
        return self._due[0][0]

    def act(self, now: Millis) -> int:
        """Do what is due, follow the log. Returns how many facts were said."""
        before = len(self._log.recorded)
        for recorded in self._log.since(self._read):
            self._read = recorded.position
            self._follow(recorded.fact, now)
        while self._due[0][0] <= now:
            at, _, happen = heapq.heappop(self._due)
            happen(at)
        return len(self._log.recorded) - before

    def speak_again(self, host: HostId) -> None:
        """A silent host is heard again: what happened meanwhile is reported now, with its true times."""
        del self.silent[host]
        withheld, self._withheld = self._withheld, []
        for fact, hosts in withheld:
            self._say(fact, hosts=hosts)

    def _at(self, when: Millis, happen: Callable[[Millis], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (when, self._count, happen))

    def _say(self, fact: Fact, *, hosts: Iterable[HostId] = ()) -> None:
        if any(host in self.silent for host in hosts):
            self._withheld.append((fact, tuple(hosts)))
            return
        self._count += 1
        stamped = msgspec.structs.replace(fact, id=FactId(f"agent-{self._count}"), cluster=self._cluster)
        self._log.append_now([stamped])

    def _register(self, now: Millis) -> None:
        self._say(HostRegistered(at=now, agent="virtual", hosts=self._specs))

    def _beat(self, now: Millis) -> None:
        held: dict[HostId, list[RunId]] = {}
        for run_id, process in self._processes.items():
            for place in process.assigned.placement:
                held.setdefault(place.host, []).append(run_id)
        beats = tuple(
            HostBeat(host=spec.host, gpus=spec.gpus, runs=tuple(dict.fromkeys(held.get(spec.host, ()))))
            for spec in self._specs
            if spec.host not in self.silent
        )
        if beats:
            self._say(Heartbeat(at=now, agent="virtual", hosts=beats))
        self._at(now + self._heartbeat_ms, self._beat)

    def _follow(self, fact: Fact, now: Millis) -> None:
        if isinstance(fact, RunAssigned):
            behaviour = self.behaviours[fact.job]
            process = _Process(assigned=fact, behaviour=behaviour)
            self._processes[fact.run] = process
            self._at(now + behaviour.starts_after_ms, lambda at: self._start(process, at))
        elif isinstance(fact, RunPreemptionRequested | RunStopRequested):
            told = self._processes.get(fact.run)
            if told is not None and told.told_to_stop_at is None:
                told.told_to_stop_at = now
                takes = min(told.behaviour.stops_after_ms, told.assigned.grace_ms)
                self._at(now + takes, lambda at: self._stopped(told, at))
        elif isinstance(fact, RunEnded):
            self._processes.pop(fact.run, None)

    def _start(self, process: _Process, now: Millis) -> None:
        assigned, behaviour = process.assigned, process.behaviour
        if process.told_to_stop_at is not None:
            return
        process.started_at = now
        for host in dict.fromkeys(place.host for place in assigned.placement):
            starts = tuple(
                ReplicaStart(replica=p.replica, host=host, at=now) for p in assigned.placement if p.host == host
            )
            self._say(ReplicasStarted(at=now, run=assigned.run, job=assigned.job, replicas=starts), hosts=[host])
        done = self._done_ms.get(assigned.job, 0) if assigned.resumable else 0
        self._at(now + max(0, behaviour.runs_for_ms - done), lambda at: self._work_done(process, at))

    def _work_done(self, process: _Process, now: Millis) -> None:
        broken = process.behaviour.breaks_replica
        only = None if broken is None else {broken}
        self._exit(process, now, code=process.behaviour.exit_code, signal=None, only=only)

    def _stopped(self, process: _Process, now: Millis) -> None:
        behaviour, assigned = process.behaviour, process.assigned
        if len(process.exited) == len(assigned.placement):
            return
        if process.started_at is not None and assigned.resumable and behaviour.saves_on_stop:
            done = self._done_ms.get(assigned.job, 0) + now - process.started_at
            self._done_ms[assigned.job] = done
            host = assigned.placement[0].host
            self._say(CheckpointReported(at=now, run=assigned.run, job=assigned.job, host=host), hosts=[host])
        killed = behaviour.stops_after_ms > assigned.grace_ms
        code = None if killed else behaviour.stop_exit_code
        self._exit(process, now, code=code, signal=None if code is not None else SIGKILL if killed else SIGTERM)

    def _exit(
        self, process: _Process, now: Millis, *, code: int | None, signal: int | None, only: set[int] | None = None
    ) -> None:
        assigned = process.assigned
        for host in dict.fromkeys(place.host for place in assigned.placement):
            exits = tuple(
                ReplicaExit(
                    replica=place.replica, host=host, at=now, started_at=process.started_at, code=code, signal=signal
                )
                for place in assigned.placement
                if place.host == host
                and place.replica not in process.exited
                and (only is None or place.replica in only)
            )
            process.exited.update(gone.replica for gone in exits)
            if exits:
                self._say(ReplicasExited(at=now, run=assigned.run, job=assigned.job, replicas=exits), hosts=[host])
