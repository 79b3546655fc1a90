"""The replicas of one host: launch, stop, find again, hear of their exits. The way into this package.

Nothing here is needed for a replica to live: an agent may be killed at any point and its successor, given the same
directory, goes on. Per replica it costs one file descriptor (a pidfd of the keeper); no thread, no timer, no polling.
"""

import asyncio
import contextlib
import errno
import os
import re
import shutil
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import NamedTuple

from services.agent.log_clock import LogClock
from services.agent.process import cgroups
from services.agent.process import directory as files
from services.agent.process.directory import ExitRecord, KeeperRecord, StopRecord
from services.agent.process.intent import intent_of, problem_with
from services.agent.process.launcher_client import LauncherClient
from services.agent.process.logs import NOTHING_YET, LogChunk, read_log
from services.agent.process.proc import boot_id, is_alive, open_process
from services.agent.process.spec import Adoption, ExitCause, Launched, LaunchFailed, LaunchSpec, ReplicaExit
from services.agent.process.stragglers import kill_stragglers
from tenure.domain.ids import JobId, RunId
from tenure.domain.units import Millis

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
_CLAIM_POLL_S = 0.005
_CLAIM_PATIENCE_S = 2.0


def is_name(word: str) -> bool:
    """Whether a run's or a job's id can name a folder: it leads nowhere else."""
    return _RUN_NAME.fullmatch(word) is not None


class _Key(NamedTuple):
    run: RunId
    replica: int


class _Kept(NamedTuple):
    """A replica whose command was started, and by whom."""

    launched: Launched
    keeper: KeeperRecord


class Replicas:
    """The replicas in one `run_dir`, owned by one event loop. `on_exit` hears of each end, in that loop."""

    def __init__(
        self,
        *,
        run_dir: Path,
        launcher: LauncherClient,
        on_exit: Callable[[ReplicaExit], None],
        clock: LogClock,
    ) -> None:
        """Creates `run_dir`, open to its owner only: launch records hold the environment of jobs. Raises OSError."""
        self._run_dir = run_dir.absolute()
        self._run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._launcher, self._on_exit, self._clock = launcher, on_exit, clock
        self._boot_id = boot_id()
        self._running: dict[_Key, _Kept] = {}
        self._pidfds: dict[_Key, int] = {}  # of keepers; readable when the keeper is gone
        self._launching: dict[_Key, asyncio.Task[Launched | ReplicaExit]] = {}
        self._burying: dict[_Key, asyncio.Task[None]] = {}
        self._closed = False

    def running(self) -> tuple[Launched, ...]:
        """All replicas whose exit has not been said, in order of run and replica."""
        return tuple(self._running[key].launched for key in sorted(self._running))

    async def launch(self, spec: LaunchSpec) -> Launched | LaunchFailed:
        """Start a replica. A second launch of the same run and replica starts nothing and returns what became of it.

        Its exit is never said before the caller has this answer. Being cancelled does not cancel the launch. A failure
        leaves no process, only the directory, until `forget`.
        """
        key = _Key(run=spec.run, replica=spec.replica)
        if key in self._running:
            return self._running[key].launched
        launching = self._launching.get(key) or self._begin(key, self._launch(key, spec))
        try:
            found = await asyncio.shield(launching)
        except asyncio.CancelledError:
            self._watch_after(key, launching)
            raise
        if isinstance(found, Launched):
            asyncio.get_running_loop().call_soon(self._watch, key)
            return found
        return LaunchFailed(run=found.run, replica=found.replica, at=found.at, problem=found.detail)

    async def stop(self, *, run: RunId, replica: int, grace_ms: Millis) -> bool:
        """Ask a replica to end: SIGTERM to its group, SIGKILL to all of it `grace_ms` later. False if it does not run.

        Does not wait for the exit, which comes through `on_exit`. The keeper carries the stop through even if this
        agent dies. Asked again it sends no second SIGTERM; it can only shorten the grace period. Raises OSError.
        """
        key = _Key(run=run, replica=replica)
        if key in self._launching:
            await asyncio.wait({self._launching[key]})
        self._watch(key)
        if key in self._pidfds:
            with contextlib.suppress(OSError):  # a full disk: the keeper knows the grace period of the launch
                files.write_stop(self._directory(key), StopRecord(grace_ms=grace_ms))
            with contextlib.suppress(ProcessLookupError):  # it ended this moment
                signal.pidfd_send_signal(self._pidfds[key], signal.SIGTERM)
        return key in self._running

    async def adopt(self) -> Adoption:
        """Find the replicas that an earlier agent left in `run_dir`. To be called once, before anything is launched.

        A launch that no keeper had begun is ruled out for good. One that hangs (a working directory on a dead server)
        is in neither list: `launch` waits for it. Replicas whose keeper is gone without a word are listed as running;
        once they are dead, their exit (`LOST`) follows through `on_exit`. Raises OSError.
        """
        ended: list[ReplicaExit] = []
        for key in self._on_disk():
            end = self._read_end(key)
            if end is None:
                settling = self._begin(key, self._settle(key))
                await asyncio.wait({settling}, timeout=_CLAIM_PATIENCE_S)
                if not settling.done():
                    self._watch_after(key, settling)
                    continue
                found = settling.result()
                end = None if isinstance(found, Launched) else found
            if end is not None:
                ended.append(end)
        for key in self._running:
            asyncio.get_running_loop().call_soon(self._watch, key)
        return Adoption(running=self.running(), ended=tuple(ended))

    def read_log(self, *, run: RunId, replica: int, stream: str, offset: int, limit: int) -> LogChunk:
        """A part of "stdout" or "stderr", see `logs.read_log`; of ended replicas, too, until they are forgotten.

        Empty until the command was started. Raises FileNotFoundError for a replica that is not on this host, ValueError
        for names that cannot be one. May be called in any thread.
        """
        if stream not in files.STREAMS:
            raise ValueError(f"there is no stream {stream[:64]!r}: ask for {' or '.join(files.STREAMS)}")
        directory = self._directory(_Key(run=run, replica=replica))
        try:
            return read_log(str(directory / stream), offset=offset, limit=limit)
        except FileNotFoundError:
            if not directory.exists():
                raise
            return NOTHING_YET

    def forget(self, run: RunId) -> None:
        """Remove what is on disk of a run none of whose replicas is running here: records, exits, logs."""
        assert not any(key.run == run for key in [*self._running, *self._launching]), f"{run} is still running"
        shutil.rmtree(self._directory(_Key(run=run, replica=0)).parent, ignore_errors=True)

    def close(self) -> None:
        """Stop watching. Replicas go on, and can be adopted again."""
        self._closed = True
        for key in list(self._pidfds):
            self._unwatch(key)
        for burying in self._burying.values():
            burying.cancel()

    def _directory(self, key: _Key) -> Path:
        if not is_name(key.run):
            raise ValueError(f"run id {key.run!r} cannot name a directory")
        return self._run_dir / key.run / str(key.replica)

    def _on_disk(self) -> list[_Key]:
        return sorted(
            _Key(run=RunId(directory.parent.name), replica=int(directory.name))
            for directory in self._run_dir.glob("*/*")
            if directory.name.isdecimal() and is_name(directory.parent.name)
            if not directory.is_symlink() and not directory.parent.is_symlink()
        )

    def _begin(
        self, key: _Key, work: Coroutine[None, None, Launched | ReplicaExit]
    ) -> asyncio.Task[Launched | ReplicaExit]:
        launching = asyncio.create_task(work)
        self._launching[key] = launching
        launching.add_done_callback(lambda _: self._launching.pop(key))
        return launching

    async def _launch(self, key: _Key, spec: LaunchSpec) -> Launched | ReplicaExit:
        directory = self._directory(key)
        problem = problem_with(spec)
        if not problem and not directory.is_dir():  # else launched before, perhaps by an earlier agent
            problem = self._write_intent(directory, spec)
            if not problem:
                await self._ask_launcher(key, directory)
        if problem:
            return ReplicaExit(
                run=key.run, replica=key.replica, at=self._clock.now(), cause=ExitCause.NOT_LAUNCHED, detail=problem
            )
        return await self._settle(key)

    def _write_intent(self, directory: Path, spec: LaunchSpec) -> str:
        """Make the replica's directory. Returns "" or why it cannot be made, and then leaves none."""
        try:
            directory.parent.mkdir(mode=0o700, exist_ok=True)
            directory.mkdir(mode=0o700)
            files.write_launch(directory, intent_of(spec, asked_ms=self._clock.now()))
        except OSError as error:
            shutil.rmtree(directory, ignore_errors=True)
            return f"cannot write to {directory} on this host: {error.strerror}"
        return ""

    async def _ask_launcher(self, key: _Key, directory: Path) -> None:
        """Have it launched. What came of it stands in the directory, unless the launcher or the keeper itself broke.

        A launcher that died may or may not have begun. Asking the next one is safe: only one keeper gets the claim.
        """
        reply = await self._launcher.launch(directory) or await self._launcher.launch(directory)
        if reply is not None and (not reply.error or files.read_exit(directory) is not None):
            return
        keeper = files.read_keeper(directory) or self._rule_out(directory)
        if reply is not None:
            await self._kill_rest(key, keeper)
            self._write_end(key, ExitCause.NOT_LAUNCHED, detail=reply.error)
        elif keeper.keeper_pid == 0:
            problem = "the launcher process of the agent does not stay alive: see the host's memory and its Python"
            self._write_end(key, ExitCause.NOT_LAUNCHED, detail=problem)

    async def _settle(self, key: _Key) -> Launched | ReplicaExit:
        """Wait until it is certain whether the command was started; if nobody has begun, see to it that nobody will."""
        try:
            return await self._settled(key)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            return await self._disown(key)

    async def _disown(self, key: _Key) -> ReplicaExit:
        """The job has put something else in the place of its directory: nothing there is believed, it is ended."""
        anybody = KeeperRecord(boot_id=self._boot_id, keeper_pid=0, keeper_start_ticks=0)
        await kill_stragglers(run=key.run, replica=key.replica, keeper=anybody)
        detail = "its directory on this host was replaced while it ran"
        return ReplicaExit(run=key.run, replica=key.replica, at=self._clock.now(), cause=ExitCause.LOST, detail=detail)

    async def _settled(self, key: _Key) -> Launched | ReplicaExit:
        directory = self._directory(key)
        while True:
            keeper = files.read_keeper(directory) or self._rule_out(directory)
            if keeper.pid == 0:
                alive = self._is_kept(keeper)
                keeper = files.read_keeper(directory) or keeper  # read again: a dead keeper's record is complete now
            if keeper.pid != 0:
                return self._started(key, keeper)
            end = self._read_end(key)
            if end is not None:
                return end
            if keeper.keeper_pid == 0:
                return self._write_end(key, ExitCause.NOT_LAUNCHED, detail="the agent died before it was started")
            if not alive:
                await self._kill_rest(key, keeper)
                return self._write_end(key, ExitCause.LOST, detail="its keeper died while starting it")
            await asyncio.sleep(_CLAIM_POLL_S)

    def _rule_out(self, directory: Path) -> KeeperRecord:
        """Claim a launch that nobody has begun, so that nobody will. Returns the claim that holds, ours or not."""
        nobody = KeeperRecord(boot_id=self._boot_id, keeper_pid=0, keeper_start_ticks=0)
        if files.claim(directory, nobody):
            return nobody
        return files.read_keeper(directory) or nobody

    async def _kill_rest(self, key: _Key, keeper: KeeperRecord) -> None:
        """End what a dead keeper left: all of its control group, or else what can be found."""
        launch = files.read_launch(self._directory(key))
        if launch is not None and launch.cgroup:
            cgroups.kill(launch.cgroup)
            await asyncio.to_thread(cgroups.remove, launch.cgroup)
        await kill_stragglers(run=key.run, replica=key.replica, keeper=keeper)

    def _is_kept(self, keeper: KeeperRecord) -> bool:
        return keeper.boot_id == self._boot_id and is_alive(
            pid=keeper.keeper_pid, start_ticks=keeper.keeper_start_ticks
        )

    def _started(self, key: _Key, keeper: KeeperRecord) -> Launched:
        launch = files.read_launch(self._directory(key))
        assert launch is not None, "the intent is written before the claim"
        launched = Launched(
            run=key.run,
            job=JobId(launch.job_id),
            replica=key.replica,
            gpus=tuple(launch.gpus),
            pid=keeper.pid,
            keeper_pid=keeper.keeper_pid,
            at=self._as_said(keeper.started_ms),
        )
        self._running[key] = _Kept(launched=launched, keeper=keeper)
        return launched

    def _read_end(self, key: _Key) -> ReplicaExit | None:
        end = files.read_exit(self._directory(key))
        return None if end is None else self._as_exit(key, end)

    def _as_exit(self, key: _Key, end: ExitRecord) -> ReplicaExit:
        kept = self._running.get(key)
        keeper = files.read_keeper(self._directory(key)) if kept is None else kept.keeper
        return ReplicaExit(
            run=key.run,
            replica=key.replica,
            at=self._as_said(end.at_ms),
            cause=ExitCause(end.cause),
            started_at=self._as_said(keeper.started_ms) if keeper is not None and keeper.pid else None,
            code=end.code,
            signal=end.signal,
            detail=end.detail,
        )

    def _as_said(self, at: Millis) -> Millis:
        """What a keeper wrote by the machine's clock, by the agent's."""
        return at - self._clock.ahead_ms

    def _write_end(self, key: _Key, cause: ExitCause, *, detail: str) -> ReplicaExit:
        """Write an exit that no keeper will write, so that a later agent says the same of it."""
        record = ExitRecord(at_ms=self._clock.now() + self._clock.ahead_ms, cause=cause, detail=detail)
        with contextlib.suppress(OSError):  # a full disk: a later agent finds out again
            files.write_exit(self._directory(key), record)
        return self._as_exit(key, record)

    def _watch(self, key: _Key) -> None:
        """Hear of the end of a running replica, which may have come already. Does nothing the second time."""
        if self._closed or key not in self._running or key in self._pidfds or key in self._burying:
            return
        keeper = self._running[key].keeper
        pidfd = None
        if keeper.boot_id == self._boot_id:
            pidfd = open_process(pid=keeper.keeper_pid, start_ticks=keeper.keeper_start_ticks)
        if pidfd is None:
            self._ended(key)
            return
        self._pidfds[key] = pidfd
        asyncio.get_running_loop().add_reader(pidfd, self._ended, key)

    def _watch_after(self, key: _Key, launching: asyncio.Task[Launched | ReplicaExit]) -> None:
        launching.add_done_callback(lambda _: self._watch(key))

    def _unwatch(self, key: _Key) -> None:
        pidfd = self._pidfds.pop(key, None)
        if pidfd is not None:
            asyncio.get_running_loop().remove_reader(pidfd)
            os.close(pidfd)

    def _ended(self, key: _Key) -> None:
        """The keeper is gone: report what it wrote, or find out what it could not."""
        self._unwatch(key)
        with contextlib.suppress(ChildProcessError):  # ours only if this process is pid 1 and inherited it
            os.waitpid(self._running[key].keeper.keeper_pid, os.WNOHANG)
        end = self._read_end(key)
        if end is None:
            self._burying[key] = asyncio.create_task(self._bury(key))
            return
        del self._running[key]
        self._on_exit(end)

    async def _bury(self, key: _Key) -> None:
        """End what a dead keeper left running, then report it lost."""
        keeper = self._running[key].keeper
        detail = "the host was restarted"
        if keeper.boot_id == self._boot_id:
            await self._kill_rest(key, keeper)
            detail = "its keeper was killed; what it had started was killed, too"
        end = self._write_end(key, ExitCause.LOST, detail=detail)
        del self._running[key], self._burying[key]
        self._on_exit(end)
