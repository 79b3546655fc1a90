"""The agent's hands: carry out what the decider wants with real processes, and note what is seen of them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path

from services.agent.beats import Spool, make_beats, occupied, read_spool, spool_key, write_spool
from services.agent.gpu.provider import GpuProvider, Utilisation, mean_share
from services.agent.instructions import (
    ForgetRun,
    GiveWay,
    Instruction,
    NeverStart,
    PrepareBeat,
    Said,
    StartReplica,
    StopReplica,
)
from services.agent.log_clock import LogClock
from services.agent.machine import refusal
from services.agent.patience import Patience, in_time
from services.agent.policy.told import told_by
from services.agent.process import spec as process
from services.agent.process.launcher_client import LauncherClient
from services.agent.process.replicas import Replicas
from services.agent.run_files import RunFiles, newest_change
from services.agent.starting import NO_RULES, Rules, Starting
from services.agent.state import Checkpoint, Key, Replica, State
from services.agent.watch.verdict import word_on_host
from tenure.domain.ids import HostId, JobId, RunId
from tenure.domain.policy import Policy
from tenure.domain.units import Millis
from tenure.events.reports import Heartbeat, ReplicaExit

logger = logging.getLogger(__name__)


class Hands:
    """Belongs to one loop: `perform` is called by it, `poke` wakes it when something was seen."""

    def __init__(
        self,
        *,
        agent: str,
        data: Path,
        checkpoints: Path,
        providers: Mapping[HostId, GpuProvider],
        clock: LogClock,
        policy: Policy,
        rules: Rules = NO_RULES,
    ) -> None:
        self.poke: Callable[[], None] = lambda: None
        self.look_back: Callable[[], None] = lambda: None
        self.signals_said: Callable[[], None] = lambda: None
        self.look_again: Callable[[HostId], Awaitable[None]] = lambda _: asyncio.sleep(0)
        self.state: State
        self._agent, self._checkpoints, self._providers = agent, checkpoints, providers
        self._clock, self._policy = clock, policy
        self._spool_path = data / "beat.json"
        run_dir = data / "runs"
        self._launcher = LauncherClient()
        self.replicas = Replicas(run_dir=run_dir, launcher=self._launcher, on_exit=self._on_exit, clock=clock)
        self.files = RunFiles(run_dir, remove=self.replicas.forget)
        self._starting = Starting(
            launch=lambda spec: self.replicas.launch(spec),
            files=self.files,
            checkpoints=checkpoints,
            providers=providers,
            clock=clock,
            rules=rules,
        )
        self.spool: Spool | None = None
        """The last heartbeats that were made to be sent."""
        self._prepared: dict[Key, Millis] = {}
        self._driver = Patience[tuple[dict[HostId, Utilisation], dict[HostId, int]]]("the GPUs' driver")
        self._folders = Patience[dict[JobId, Millis | None]]("the checkpoints' file system")
        self._gpus_working: dict[HostId, int] = {}
        """How many GPUs of each host worked when the driver last answered."""
        self._beating = asyncio.Lock()
        """Held while heartbeats are made and written: how far a replica's occupancy is told is not known meanwhile."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving = False
        self.failure: BaseException | None = None
        """What ended work of ours that was not expected to end."""

    async def take_over(self, state: State) -> tuple[Spool | None, int]:
        """Find what an earlier agent left: its replicas, and the heartbeats it may not have sent.

        Returns the spool, which the caller compares with the log, and how many replicas go on. Raises OSError.
        """
        self.state = state
        spool = read_spool(self._spool_path)
        reported = occupied(spool)
        adoption = await self.replicas.adopt()
        for launched in adoption.running:
            self._adopt(Key(launched.run, launched.replica), launched.at, None, reported)
        for ended in adoption.ended:
            self._adopt(Key(ended.run, ended.replica), ended.started_at, ended, reported)
        return spool, len(adoption.running)

    async def perform(self, instructions: Sequence[Instruction]) -> None:
        """Carry out; nothing here waits for a process. Raises what broke work beside, and `Refusal` to give way."""
        if self.failure is not None:
            raise self.failure
        for instruction in instructions:
            match instruction:
                case StartReplica() if instruction.is_old(self._clock.now()):
                    self.look_back()
                case StartReplica(assigned=assigned, place=place):
                    replica = Replica(key=Key(assigned.run, place.replica), assigned=assigned, place=place)
                    if self._leaving:
                        replica.exit = self._starting.never(place, error="its host is being shut down", lost=True)
                    self.state.see(replica)
                    if replica.exit is None:
                        self._spawn(self._launch(replica))
                case NeverStart(assigned=assigned, place=place):
                    never = self._starting.never(place, error="stopped before it started")
                    key = Key(assigned.run, place.replica)
                    self.state.see(Replica(key=key, assigned=assigned, place=place, exit=never))
                case StopReplica(key=key, grace_ms=grace_ms, given_up=given_up):
                    self._note_stop(self.state.replicas[key], given_up=given_up)
                    self._spawn(self._stop(key, grace_ms))
                case ForgetRun(run=run):
                    self._forget(run)
                case PrepareBeat():
                    self.state.next_beat_at = self._clock.now() + self._policy.heartbeat_ms
                    self.state.preparing_beat = True
                    self._spawn(self._prepare_beat())
                case GiveWay(host=host, rival=rival):
                    raise refusal(host, rival, suspect_after_ms=self._policy.suspect_after_ms)
                case Said():
                    self._said(instruction)

    async def leave(self, *, stop_runs: bool) -> None:
        """The agent goes. With `stop_runs` its replicas end first, as if the host had ended them; else they go on."""
        self._leaving = True
        if stop_runs:
            for replica in self.state.replicas.values():
                if replica.exit is None and not replica.told_to_stop:
                    self._spawn(self._stop(replica.key, replica.assigned.grace_ms))

    def hurry(self) -> None:
        """What still runs gets no more time."""
        for replica in self.state.replicas.values():
            if replica.exit is None:
                self._spawn(self._stop(replica.key, 0))

    @property
    def busy(self) -> bool:
        """Something of ours still runs, or its end is not in the log."""
        return bool(self.state.unsaid) or any(replica.exit is None for replica in self.state.replicas.values())

    def is_over(self, run: RunId, replica: int) -> bool:
        """Whether the replica is gone, so that it writes nothing more."""
        seen = self.state.replicas.get(Key(run, replica))
        return seen is None or seen.exit is not None

    async def close(self) -> None:
        """Let go of the processes; they go on."""
        self.replicas.close()
        await self._launcher.close()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        """Work of ours has ended. What it did not expect ends the agent: its successor finds everything on disk."""
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.failure = task.exception()
            self.poke()

    def _note_stop(self, replica: Replica, *, given_up: bool) -> None:
        replica.told_to_stop = True
        if given_up and replica.given_up_at is None:
            replica.given_up_at = replica.occupied_until or replica.started_at

    def _forget(self, run: RunId) -> None:
        for replica in self.state.of_run(run):
            saved = self.state.checkpoints.get(replica.assigned.job)
            if saved is not None and saved.run == run and saved.said:
                del self.state.checkpoints[replica.assigned.job]
        self.state.drop(run)
        try:
            self.files.note_over(run)
        except OSError as error:  # its exits are in the log already: a successor only says them again
            logger.warning("%s is over, but that cannot be written down: %s", run, error)

    def _adopt(
        self, key: Key, started_at: Millis | None, ended: process.ReplicaExit | None, reported: Mapping[str, Millis]
    ) -> None:
        assigned = self.files.read_assigned(key.run)
        if assigned is None:
            return
        place = next(place for place in assigned.placement if place.replica == key.replica)
        replica = Replica(
            key=key,
            assigned=assigned,
            place=place,
            started_at=started_at,
            occupied_until=reported.get(spool_key(key)),
        )
        if ended is not None:
            replica.exit = self._exit_of(replica, ended)
        self.state.see(replica)

    async def _launch(self, replica: Replica) -> None:
        started = await self._starting.start(replica.assigned, replica.place)
        if isinstance(started, ReplicaExit):
            replica.exit = started
            logger.warning("%s replica %d is not started: %s", replica.key.run, replica.key.replica, started.error)
        else:
            replica.started_at = started
        self._seen(replica)

    async def _stop(self, key: Key, grace_ms: Millis) -> None:
        try:
            await self.replicas.stop(run=key.run, replica=key.replica, grace_ms=grace_ms)
        except OSError as error:
            logger.warning("%s replica %d cannot be told to stop yet: %s", key.run, key.replica, error)
            replica = self.state.replicas.get(key)
            if replica is not None:
                replica.told_to_stop = False

    def _on_exit(self, ended: process.ReplicaExit) -> None:
        replica = self.state.replicas.get(Key(ended.run, ended.replica))
        if replica is not None:  # else of a run that nobody wants any more
            self._spawn(self._report_exit(replica, ended))

    async def _report_exit(self, replica: Replica, ended: process.ReplicaExit) -> None:
        looking = in_time(partial(self._newest, [replica]), name="checkpoints")
        newest, _ = await asyncio.gather(looking, self.look_again(replica.host))  # S63
        self._note_checkpoints([replica], newest or {})
        await word_on_host(self.state, replica)
        async with self._beating:
            replica.exit = self._exit_of(replica, ended)
        self._seen(replica)

    def _exit_of(self, replica: Replica, ended: process.ReplicaExit) -> ReplicaExit:
        """The exit as the log is told it: was it the job, a stop that the placer asked for, or the host?

        It is not before the last heartbeat that reports the replica: that one may have been made between its end and
        the moment we heard of it, and what is charged must be what was reported.
        """
        told = max(replica.occupied_until or 0, self._prepared.get(replica.key, 0))
        unknown = ended.code is None and ended.signal is None
        wanted = self.state.core.runs.get(replica.key.run)
        asked = replica.told_to_stop or wanted is None or wanted.stop
        stopped = ended.cause in (process.ExitCause.STOPPED, process.ExitCause.KILLED)
        finished = ended.code == 0 and not replica.assigned.resumable
        by_host = ended.cause is process.ExitCause.LOST or (stopped and not asked and not finished)
        return ReplicaExit(
            replica=ended.replica,
            host=replica.host,
            at=max(ended.at, told),
            started_at=replica.started_at,
            code=ended.code,
            signal=ended.signal,
            error=(ended.detail or ended.cause.value) if unknown else None,
            lost=by_host,
        )

    def _seen(self, replica: Replica) -> None:
        self.state.see(replica)
        self.poke()

    def _newest(self, replicas: Sequence[Replica]) -> dict[JobId, Millis | None]:
        """The newest thing in each job's checkpoint directory. Blocks: they may be on a file system that hangs."""
        folders = {replica.assigned.job: self._checkpoints / replica.assigned.job for replica in replicas}
        return {job: newest_change(folder) for job, folder in folders.items()}

    def _note_checkpoints(self, replicas: Sequence[Replica], newest: Mapping[JobId, Millis | None]) -> None:
        """Note progress saved since these runs began."""
        for replica in replicas:
            assigned, changed_at = replica.assigned, newest.get(replica.assigned.job)
            at = None if changed_at is None else changed_at - self._clock.ahead_ms
            known = self.state.checkpoints.get(assigned.job)
            if at is None or replica.started_at is None or at < replica.started_at:
                continue
            if known is None or at > known.at:
                saved = Checkpoint(run=assigned.run, job=assigned.job, host=replica.host, at=at)
                self.state.checkpoints[assigned.job] = saved

    async def _prepare_beat(self) -> None:
        """Measure, and write the beats down; what blocks is done in a thread, so that launches do not wait for it."""
        try:
            live = [r for r in self.state.replicas.values() if r.exit is None and r.assigned.resumable]
            if live:
                self._note_checkpoints(live, await self._folders.ask(partial(self._newest, live)) or {})
            await self._write_beats()
        except OSError as error:
            logger.warning("heartbeats wait until they can be written to disk: %s", error)
        finally:
            self.state.preparing_beat = False
            self.poke()

    async def _write_beats(self) -> None:
        held, working = self._held(), [spec.host for spec in self.state.hosts]
        shares: dict[HostId, Utilisation] = {}
        if (measured := await self._driver.ask(partial(self._measure, held, working))) is not None:
            shares, self._gpus_working = measured
        async with self._beating:
            beats, prepared = make_beats(
                self.state,
                self._clock.now(),
                agent=self._agent,
                busy=lambda replica: mean_share(shares.get(replica.host, {}), replica.place.gpus),
                gpus_working=lambda spec: self._gpus_working.get(spec.host, spec.gpus),
            )
            until = {spool_key(r.key): r.occupied_until for r in self.state.replicas.values() if r.occupied_until}
            until.update({spool_key(key): instant for key, instant in prepared.items()})
            spool = Spool(before=self.state.position, beats=beats, occupied_until=until)
            await asyncio.to_thread(write_spool, self._spool_path, spool)
            self._pend(spool, prepared)

    def _pend(self, spool: Spool, prepared: Mapping[Key, Millis]) -> None:
        self.spool, self.state.pending_beats, self._prepared = spool, spool.beats, dict(prepared)
        self.poke()

    def send_again(self, spool: Spool) -> None:
        """The heartbeats of an earlier agent are not in the log: they are sent before any of ours."""
        self._pend(spool, {})

    def known(self, spool: Spool, recorded: Sequence[Heartbeat]) -> None:
        """The log has these heartbeats, perhaps cut."""
        self._said(Said(beats=True, told=tuple(told_by(spool.beats, recorded).items())))

    def _held(self) -> dict[HostId, dict[int, list[int]]]:
        """Per host and GPU the roots of the processes that hold it."""
        held: dict[HostId, dict[int, list[int]]] = {}
        for launched in self.replicas.running():
            replica = self.state.replicas.get(Key(launched.run, launched.replica))
            if replica is not None:
                for gpu in launched.gpus:
                    held.setdefault(replica.host, {}).setdefault(gpu, []).append(launched.keeper_pid)
        return held

    def _measure(
        self, held: Mapping[HostId, Mapping[int, list[int]]], hosts: Sequence[HostId]
    ) -> tuple[dict[HostId, Utilisation], dict[HostId, int]]:
        """How busy the held GPUs are, and how many work on each host. Blocks: a sick driver may not answer."""
        shares = {host: self._providers[host].utilisation(held=gpus) for host, gpus in held.items()}
        return shares, {host: sum(1 for gpu in self._providers[host].gpus() if not gpu.fault) for host in hosts}

    def _said(self, said: Said) -> None:
        state = self.state
        state.registered = state.registered or said.registration
        if said.signals:
            state.pending_signals = None
            self.signals_said()
        if said.beats:
            state.pending_beats = ()
            for key, until in said.told:
                if key in state.replicas:
                    state.replicas[key].occupied_until = until
                    state.attention[key.run] = None
            self._prepared = {}
        for job, at in said.checkpoints:
            if state.checkpoints[job].at == at:
                state.checkpoints[job].said = True
        for key in said.started:
            state.replicas[key].said_start = True
        for key in said.exited:
            state.replicas[key].said_exit = True
        for key in {*said.started, *said.exited}:
            replica = state.replicas[key]
            state.attention[key.run] = None
            if replica.exit is None or replica.said_exit:
                state.unsaid.pop(key, None)
