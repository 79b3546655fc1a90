"""Agents of virtual hosts: what they do with the facts of the placer, and how long jobs run.

They stand in for real hosts and processes only: everything that is decided is decided by the services' deciders.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from tenure.domain.host import HostSpec
from tenure.domain.ids import FactId, HostId, JobId, RunId
from tenure.domain.job import Placement, ReplicaPlace
from tenure.domain.units import MINUTE, Millis
from tenure.events.catalogue import Kind
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
NEVER: Millis = 1 << 62


class Behaviour(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What stopping costs the simulated work of resumable jobs (design, section 6). Lengths of time in milliseconds."""

    restart_overhead_ms: Millis = 2 * MINUTE
    """Every run of a resumable job but its first spends so long before it goes on where it was."""
    checkpoint_interval_ms: Millis = 30 * MINUTE
    """A host loss throws a resumable job back to its last periodic checkpoint."""


FREE = Work(restart_overhead_ms=0, checkpoint_interval_ms=0)
"""Nothing is lost by stopping."""


class Running(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run that is there when a world begins: what was reported of it, and when it was told to stop, if it was."""

    assigned: RunAssigned
    started_at: Millis | None = None
    """None: not every replica is there."""
    told_to_stop: bool = False
    exited: tuple[int, ...] = ()
    """Its replicas that are gone."""


class _Process(msgspec.Struct, kw_only=True, gc=False):
    """One run as its hosts see it."""

    assigned: RunAssigned
    behaviour: Behaviour
    started_at: Millis | None = None
    told_to_stop_at: Millis | None = None
    exited: set[int] = set()
    broken: bool = False
    """A host of it was lost: the rest of the gang saves nothing any more."""


class VirtualAgents:
    """All hosts of a world, one agent. `act` lets things happen up to `now`; `next_at` is when the next one is due."""

    def __init__(
        self,
        specs: tuple[HostSpec, ...],
        log: MemoryLog,
        *,
        cluster: str,
        heartbeat_ms: Millis | None,
        work: Work = FREE,
        began: Millis = 0,
    ) -> None:
        """`began`: the instant at which the hosts are there, and say so; without heartbeats they are known already."""
        self.behaviours: dict[JobId, Behaviour] = {}
        self.silent: dict[HostId, None] = {}
        self.broken: dict[HostId, None] = {}
        """Hosts that give up whatever is launched on them."""
        self.gpus: dict[HostId, int] = {}
        """Working GPUs of hosts that lack some."""
        self._specs, self._log, self._cluster, self._work = specs, log, cluster, work
        self._processes: dict[RunId, _Process] = {}
        self._done_ms: dict[JobId, Millis] = {}
        """Work that resumable jobs have behind them; a job is here from its first stop on."""
        self._follow: dict[Kind, Callable[[Any, Millis], None]] = {
            RunAssigned: self._assigned,
            RunPreemptionRequested: self._told_to_stop,
            RunStopRequested: self._told_to_stop,
            RunEnded: self._ended,
        }
        self._inbox = log.inbox(self._follow)
        self._withheld: list[tuple[Fact, tuple[HostId, ...]]] = []
        self._due: list[tuple[Millis, int, Callable[[Millis], None]]] = []
        self._count = 0
        if heartbeat_ms is None:
            self._at(NEVER, lambda _: None)
        else:
            self._at(began, self._register)
            self._at(began, partial(self._beat, every_ms=heartbeat_ms))

    @property
    def next_at(self) -> Millis:
        """The next instant at which a process starts or ends, or a heartbeat is due."""
        return self._due[0][0]

    def act(self, now: Millis) -> int:
        """Do what is due, follow the log. Returns how many facts were said."""
        recorded, inbox, due = self._log.recorded, self._inbox, self._due
        before = len(recorded)
        if inbox:
            for entry in inbox:
                self._follow[type(entry.fact)](entry.fact, now)
            inbox.clear()
        while due[0][0] <= now:
            at, _, happen = heapq.heappop(due)
            happen(at)
        return len(recorded) - before

    def inherit(self, running: Iterable[Running], *, done_ms: Mapping[JobId, Millis], now: Millis) -> None:
        """Take over what is there now: runs, and the work that resumable jobs have behind them. Older facts are old."""
        self._inbox.clear()
        self._done_ms.update(done_ms)
        for run in running:
            assigned, behaviour = run.assigned, self.behaviours[run.assigned.job]
            process = _Process(assigned=assigned, behaviour=behaviour, started_at=run.started_at)
            process.exited = set(run.exited)
            self._processes[assigned.run] = process
            if run.told_to_stop:
                process.told_to_stop_at = now
                takes = min(behaviour.stops_after_ms, assigned.grace_ms)
                self._at(now + takes, partial(self._stopped, process))
            elif run.started_at is None:
                self._at(now + behaviour.starts_after_ms, partial(self._start, process))
            else:
                self._at(max(now, run.started_at + self._left(process)), partial(self._work_done, process))

    def join(self, specs: Sequence[HostSpec], now: Millis) -> None:
        """Further hosts are there from now on."""
        named = {spec.host for spec in specs}
        self._specs = (*(spec for spec in self._specs if spec.host not in named), *specs)
        self._say(HostRegistered(at=now, agent="virtual", hosts=tuple(specs)))
        self._say(Heartbeat(at=now, agent="virtual", hosts=self._beats(specs)))

    def speak_again(self, host: HostId) -> None:
        """A silent host is heard again: what happened meanwhile is reported now, with its true times."""
        del self.silent[host]
        withheld, self._withheld = self._withheld, []
        for fact, hosts in withheld:
            self._say(fact, hosts=hosts)

    def lose(self, host: HostId, now: Millis) -> None:
        """The host fails with all it runs: its replicas are gone at once, with all they did since a checkpoint."""
        for process in list(self._processes.values()):
            if any(place.host == host for place in process.assigned.placement):
                self._fall_back(process, now)
                on_host = {place.replica for place in process.assigned.placement if place.host == host}
                self._exit(process, now, code=None, signal=None, only=on_host, lost=True)

    def _at(self, when: Millis, happen: Callable[[Millis], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (when, self._count, happen))

    def _say(self, fact: Fact, *, hosts: Iterable[HostId] = ()) -> None:
        if self.silent and any(host in self.silent for host in hosts):
            self._withheld.append((fact, tuple(hosts)))
            return
        self._count += 1
        stamped = msgspec.structs.replace(fact, id=FactId(f"agent-{self._count}"), cluster=self._cluster)
        self._log.append_now([stamped])

    def _register(self, now: Millis) -> None:
        self._say(HostRegistered(at=now, agent="virtual", hosts=self._specs))

    def _beat(self, now: Millis, *, every_ms: Millis) -> None:
        beats = self._beats(self._specs)
        if beats:
            self._say(Heartbeat(at=now, agent="virtual", hosts=beats))
        self._at(now + every_ms, partial(self._beat, every_ms=every_ms))

    def _beats(self, specs: Iterable[HostSpec]) -> tuple[HostBeat, ...]:
        held: dict[HostId, list[RunId]] = {}
        for run_id, process in self._processes.items():
            for place in process.assigned.placement:
                held.setdefault(place.host, []).append(run_id)
        return tuple(
            HostBeat(
                host=spec.host,
                gpus=self.gpus.get(spec.host, spec.gpus),
                runs=tuple(dict.fromkeys(held.get(spec.host, ()))),
            )
            for spec in specs
            if spec.host not in self.silent
        )

    def _assigned(self, fact: RunAssigned, now: Millis) -> None:
        behaviour = self.behaviours[fact.job]
        process = _Process(assigned=fact, behaviour=behaviour)
        self._processes[fact.run] = process
        self._at(now + behaviour.starts_after_ms, partial(self._start, process))

    def _told_to_stop(self, fact: RunPreemptionRequested | RunStopRequested, now: Millis) -> None:
        told = self._processes.get(fact.run)
        if told is not None and told.told_to_stop_at is None:
            told.told_to_stop_at = now
            takes = min(told.behaviour.stops_after_ms, told.assigned.grace_ms)
            self._at(now + takes, partial(self._stopped, told))

    def _ended(self, fact: RunEnded, _: Millis) -> None:
        self._processes.pop(fact.run, None)

    def _start(self, process: _Process, now: Millis) -> None:
        assigned = process.assigned
        if process.told_to_stop_at is not None or process.exited:
            return
        broken = {place.replica for place in assigned.placement if place.host in self.broken}
        if broken:
            self._exit(process, now, code=None, signal=None, only=broken, lost=True)
            return
        process.started_at = now
        for hosts, places in self._reports(assigned.placement):
            starts = tuple([ReplicaStart(replica=place.replica, host=place.host, at=now) for place in places])
            self._say(ReplicasStarted(at=now, run=assigned.run, job=assigned.job, replicas=starts), hosts=hosts)
        self._at(now + self._left(process), partial(self._work_done, process))

    def _left(self, process: _Process) -> Millis:
        """How long the run takes from its start if nothing stops it."""
        left, job = process.behaviour.runs_for_ms, process.assigned.job
        if job not in self._done_ms:
            return left
        return max(0, left - self._done_ms[job]) + self._work.restart_overhead_ms

    def _work_done(self, process: _Process, now: Millis) -> None:
        broken = process.behaviour.breaks_replica
        only = None if broken is None else {broken}
        self._exit(process, now, code=process.behaviour.exit_code, signal=None, only=only)

    def _stopped(self, process: _Process, now: Millis) -> None:
        behaviour, assigned = process.behaviour, process.assigned
        if len(process.exited) == len(assigned.placement):
            return
        if behaviour.saves_on_stop and not process.broken:
            self._save(process, up_to=now)
        killed = behaviour.stops_after_ms > assigned.grace_ms
        code = None if killed else behaviour.stop_exit_code
        self._exit(process, now, code=code, signal=None if code is not None else SIGKILL if killed else SIGTERM)

    def _fall_back(self, process: _Process, now: Millis) -> None:
        """What is left of a run after a host loss: its last periodic checkpoint."""
        if process.started_at is not None and not process.broken and self._work.checkpoint_interval_ms:
            began = process.started_at + self._overhead(process)
            whole = max(0, now - began) // self._work.checkpoint_interval_ms
            if whole:
                self._save(process, up_to=began + whole * self._work.checkpoint_interval_ms)
        if process.assigned.resumable:
            self._done_ms.setdefault(process.assigned.job, 0)
        process.broken = True

    def _save(self, process: _Process, *, up_to: Millis) -> None:
        """A resumable run that began has a checkpoint of what it had done by `up_to`."""
        assigned = process.assigned
        if process.started_at is None or not assigned.resumable:
            return
        fresh = max(0, up_to - process.started_at - self._overhead(process))
        self._done_ms[assigned.job] = self._done_ms.get(assigned.job, 0) + fresh
        host = assigned.placement[0].host
        self._say(CheckpointReported(at=up_to, run=assigned.run, job=assigned.job, host=host), hosts=[host])

    def _overhead(self, process: _Process) -> Millis:
        return self._work.restart_overhead_ms if process.assigned.job in self._done_ms else 0

    def _exit(
        self,
        process: _Process,
        now: Millis,
        *,
        code: int | None,
        signal: int | None,
        only: set[int] | None = None,
        lost: bool = False,
    ) -> None:
        assigned = process.assigned
        for hosts, places in self._reports(assigned.placement):
            exits = tuple(
                [
                    ReplicaExit(
                        replica=place.replica,
                        host=place.host,
                        at=now,
                        started_at=process.started_at,
                        code=code,
                        signal=signal,
                        lost=lost,
                    )
                    for place in places
                    if place.replica not in process.exited and (only is None or place.replica in only)
                ]
            )
            process.exited.update([gone.replica for gone in exits])
            if exits:
                self._say(ReplicasExited(at=now, run=assigned.run, job=assigned.job, replicas=exits), hosts=hosts)

    def _reports(self, placement: Placement) -> Iterable[tuple[Sequence[HostId], Sequence[ReplicaPlace]]]:
        """What the agent says in one fact: all of a run, or host by host while some are silent."""
        if not self.silent:
            return [((), placement)]
        hosts = dict.fromkeys([place.host for place in placement])
        return [([host], [place for place in placement if place.host == host]) for host in hosts]
