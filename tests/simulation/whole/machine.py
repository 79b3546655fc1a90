"""Virtual processes of one agent's hosts: they live on when the agent dies, and die with their machine.

They stand where `services.agent.process.replicas` stands; everything above is the agent's own code.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from services.agent.process.spec import Adoption, ExitCause, Launched, LaunchFailed, LaunchSpec, ReplicaExit
from tenure.domain.ids import JobId, RunId
from tenure.domain.units import SECOND, Millis
from tests.simulation.whole.virtual_time import passed

SIGTERM, SIGKILL = 15, 9
Key = tuple[RunId, int]


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What the processes of a job do: it is the command of the job. Lengths of time in milliseconds."""

    runs_for_ms: Millis
    starts_after_ms: Millis = 0
    stops_after_ms: Millis = 0
    exit_code: int = 0
    breaks_replica: int = -1
    """Only this one exits with `exit_code` when the work is done, and the others go on; -1: all do."""

    @property
    def command(self) -> tuple[str, ...]:
        """As a job's launch has it."""
        return ("work", msgspec.json.encode(self).decode())


class _Process:
    """A replica as its machine sees it."""

    def __init__(self, spec: LaunchSpec, work: Work) -> None:
        self.spec, self.work = spec, work
        self.launched: Launched | None = None
        self.ended: ReplicaExit | None = None
        self.killed_at: float | None = None
        self.timers: list[asyncio.TimerHandle] = []


class Machine:
    """The processes of one agent's hosts. `done_ms`: the progress that jobs saved, on a disk all machines share."""

    def __init__(self, *, now: Callable[[], Millis], done_ms: dict[JobId, Millis]) -> None:
        self._now, self._done_ms = now, done_ms
        self.processes: dict[Key, _Process] = {}
        self.agent: VirtualReplicas | None = None

    def begin(self, spec: LaunchSpec) -> _Process:
        """The launch is written down: it is begun once, whoever asks again."""
        key = (spec.run, spec.replica)
        if key not in self.processes:
            self.processes[key] = _Process(spec, msgspec.json.decode(spec.command[1], type=Work))
        return self.processes[key]

    def start(self, process: _Process, checkpoints: Path) -> Launched:
        """The command runs."""
        spec, work = process.spec, process.work
        if process.launched is None:
            number = len(self.processes) + 100
            process.launched = Launched(
                run=spec.run,
                job=spec.job,
                replica=spec.replica,
                gpus=spec.gpus,
                pid=number,
                keeper_pid=number,
                at=self._now(),
            )
            if work.breaks_replica in (-1, spec.replica):
                left = max(0, work.runs_for_ms - self._done_ms.get(spec.job, 0))
                self._later(process, left, lambda: self.end(process, ExitCause.EXITED, code=work.exit_code))
        return process.launched

    def stop(self, process: _Process, *, grace_ms: Millis, checkpoints: Path) -> None:
        """SIGTERM: what a resumable job did is saved when it ends in time; else it is killed when the grace is over."""
        loop, work = asyncio.get_running_loop(), process.work
        kills_at = loop.time() + grace_ms / SECOND
        if process.killed_at is not None and process.killed_at <= kills_at:
            return
        first, process.killed_at = process.killed_at is None, kills_at
        self._later(process, grace_ms, lambda: self.end(process, ExitCause.KILLED, signal=SIGKILL))
        if first:
            self._later(process, work.stops_after_ms, lambda: self._save_and_end(process, checkpoints))

    def power_off(self) -> None:
        """All processes are gone, and nobody saw how. Their agent finds that out when it is back."""
        for process in self.processes.values():
            self._cancel(process)
            if process.launched is not None and process.ended is None:
                process.killed_at = -1.0

    def end(self, process: _Process, cause: ExitCause, *, code: int | None = None, signal: int | None = None) -> None:
        """No process of it is left."""
        self._cancel(process)
        spec = process.spec
        process.ended = ReplicaExit(
            run=spec.run,
            replica=spec.replica,
            at=self._now(),
            cause=cause,
            started_at=None if process.launched is None else process.launched.at,
            code=code,
            signal=signal,
        )
        if self.agent is not None:
            self.agent.on_exit(process.ended)

    def _save_and_end(self, process: _Process, checkpoints: Path) -> None:
        launched, spec = process.launched, process.spec
        if launched is not None and spec.replica == 0:
            self._done_ms[spec.job] = self._done_ms.get(spec.job, 0) + max(0, self._now() - launched.at)
            saved = checkpoints / spec.job / "saved"
            saved.parent.mkdir(parents=True, exist_ok=True)
            saved.touch()
            os.utime(saved, ns=(self._now() * 1_000_000,) * 2)
        self.end(process, ExitCause.STOPPED, signal=SIGTERM)

    def _later(self, process: _Process, after_ms: Millis, happen: Callable[[], None]) -> None:
        process.timers.append(asyncio.get_running_loop().call_later(after_ms / SECOND, happen))

    def _cancel(self, process: _Process) -> None:
        for timer in process.timers:
            timer.cancel()
        process.timers.clear()


class VirtualReplicas:
    """What `Hands` asks of `Replicas`, for one incarnation of an agent."""

    def __init__(self, machine: Machine, *, on_exit: Callable[[ReplicaExit], None], checkpoints: Path) -> None:
        self._machine, self._checkpoints = machine, checkpoints
        self.on_exit = on_exit
        machine.agent = self

    def running(self) -> tuple[Launched, ...]:
        """See `Replicas.running`."""
        known = sorted(self._machine.processes.items())
        return tuple(p.launched for _, p in known if p.launched is not None and p.ended is None)

    async def launch(self, spec: LaunchSpec) -> Launched | LaunchFailed:
        """See `Replicas.launch`."""
        process = self._machine.begin(spec)
        await passed(process.work.starts_after_ms / SECOND)
        if process.ended is not None:
            return LaunchFailed(run=spec.run, replica=spec.replica, at=process.ended.at, problem="ruled out")
        return self._machine.start(process, self._checkpoints)

    async def stop(self, *, run: RunId, replica: int, grace_ms: Millis) -> bool:
        """See `Replicas.stop`: it waits for a launch that is under way."""
        process = self._machine.processes.get((run, replica))
        while process is not None and process.launched is None and process.ended is None:
            await passed(0.1)
        if process is None or process.ended is not None:
            return False
        self._machine.stop(process, grace_ms=grace_ms, checkpoints=self._checkpoints)
        return True

    async def adopt(self) -> Adoption:
        """See `Replicas.adopt`: a launch that had not begun is ruled out."""
        machine = self._machine
        ended = []
        for _, process in sorted(machine.processes.items()):
            machine.agent = None  # who is told in the answer is not told again
            if process.launched is None and process.ended is None:
                machine.end(process, ExitCause.NOT_LAUNCHED)
            elif process.killed_at == -1.0 and process.ended is None:
                machine.end(process, ExitCause.LOST)
            if process.ended is not None:
                ended.append(process.ended)
        machine.agent = self
        return Adoption(running=self.running(), ended=tuple(ended))

    def forget(self, run: RunId) -> None:
        """See `Replicas.forget`."""
        for key in [key for key in self._machine.processes if key[0] == run]:
            del self._machine.processes[key]

    def close(self) -> None:
        """See `Replicas.close`."""
        if self._machine.agent is self:
            self._machine.agent = None
