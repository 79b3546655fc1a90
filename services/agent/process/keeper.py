"""The keeper of one replica: the parent of the user's command, from before its start until everything of it is gone.

Forked by the launcher, one per replica. It claims the launch, starts the command, then sleeps until a child ends, a
stop is asked for (SIGTERM to the keeper), a grace period is over, or a log may have to be trimmed. It is a subreaper:
whatever the command leaves behind, in whichever group or session, becomes its child and is killed before the exit is
written. It does not need the agent, so an agent may die at any moment: of a launch, of a run, or of a stop.

What it cannot hold: a process handed to another daemon (docker, systemd-run, at), which was never its descendant.
"""

# os.path, not pathlib: this runs between fork and exec, where every page touched costs time.
# ruff: noqa: PTH118
import contextlib
import fcntl
import math
import os
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from services.agent.process import cgroups
from services.agent.process import directory as files
from services.agent.process.confined import LaunchError
from services.agent.process.directory import ExitRecord, KeeperRecord, LaunchRecord
from services.agent.process.logs import LATEST_S, SOONEST_S, Trimmer
from services.agent.process.proc import boot_id, children_of, read_stat
from services.agent.process.spawn import spawn

WAITED_SIGNALS = frozenset({signal.SIGCHLD, signal.SIGTERM, signal.SIGIO})
"""Blocked from the launcher on, and only ever waited for: none can arrive too early or interrupt anything."""

_KILL_AGAIN_S = 0.05
LAST_LOOKS, _LAST_LOOK_S = 100, 0.01
_STILL_DYING_S = 1.0


class Reply(NamedTuple):
    """The launch is decided: `error` says in one line why the command does not run, the directory all else."""

    directory: str
    error: str = ""


def keep(directory: str, reply: Callable[[Reply], None]) -> None:
    """Carry one replica through its life. Returns when it is over, or at once if another process claimed it."""
    launch = files.read_launch(directory)
    own = read_stat(os.getpid())
    assert launch is not None and own is not None, "the intent is written before the launcher is asked"
    keeper = KeeperRecord(boot_id=boot_id(), keeper_pid=own.pid, keeper_start_ticks=own.start_ticks)
    try:
        if not files.claim(directory, keeper):
            reply(Reply(directory=directory))
            return
        files.reserve_exit(directory)
        leader = _start(launch, keeper, directory)
    except (LaunchError, OSError) as error:
        line = f"cannot write to {directory}: {error.strerror}" if isinstance(error, OSError) else str(error)
        if launch.cgroup:
            cgroups.remove(launch.cgroup)
        files.write_exit(directory, ExitRecord(at_ms=_now_ms(), cause="not_launched", detail=line))
        reply(Reply(directory=directory, error=line))
        return
    reply(Reply(directory=directory))
    files.write_exit(directory, _Watch(launch, directory, leader).until_gone())


def _start(launch: LaunchRecord, keeper: KeeperRecord, directory: str) -> int:
    """Start the command and write down which process it is; nothing of it is left when that fails."""
    started_ms = _now_ms()
    leader = spawn(launch, directory)
    stat = read_stat(leader)
    assert stat is not None, "a child that was not waited for has an entry in /proc"
    try:
        files.write_keeper(directory, keeper._replace(pid=leader, start_ticks=stat.start_ticks, started_ms=started_ms))
    except OSError:
        _Watch(launch, directory, leader).kill_all()
        raise
    return leader


class _Watch:
    """Waits for a command and all its descendants, and ends them when told."""

    def __init__(self, launch: LaunchRecord, directory: str, leader: int) -> None:
        self._launch, self._directory, self._leader = launch, directory, leader
        self._status: int | None = None  # exit code of the leader, or minus its signal
        self._alone = False  # no child is left
        self._deadline = math.inf  # end of the grace period, on the monotonic clock
        self._killed_leader = False
        self._cause = "exited"
        self._logs = _Logs(directory, keep_bytes=launch.log_keep_bytes)

    def until_gone(self) -> ExitRecord:
        """Block until the command and everything it started is gone; returns how the command itself ended."""
        while not self._alone:
            received = _wait_for_signal(min(self._logs.look_at_s, self._deadline))
            if received == signal.SIGTERM:
                self._begin_stop()
            elif received == signal.SIGIO:
                self._logs.written()
            self._reap()
            if self._is_over():
                self.kill_all()
            elif time.monotonic() >= self._logs.look_at_s:
                self._logs.look()
        if self._launch.cgroup:
            cgroups.remove(self._launch.cgroup)
        self._logs.look_last()
        assert self._status is not None, "the leader is a child and there are none left"
        code, by_signal = (self._status, None) if self._status >= 0 else (None, -self._status)
        return ExitRecord(at_ms=_now_ms(), cause=self._cause, code=code, signal=by_signal)

    def kill_all(self) -> None:
        """SIGKILL everything that descends from this process, until nothing does.

        The group first and at once, so that it cannot fork its way out; then child by child, since whatever loses its
        parent becomes a child of this process. Children are not waited for in between: no pid can change its meaning.
        """
        if self._status is None and self._cause == "stopped":
            self._cause = "killed"
        if self._launch.cgroup:
            cgroups.kill(self._launch.cgroup)
        patience_s = _KILL_AGAIN_S
        while not self._alone:
            children = children_of(os.getpid())
            if any(stat.group == self._leader for child in children if (stat := read_stat(child)) is not None):
                _signal(os.killpg, self._leader, signal.SIGKILL)
            for child in children:
                _signal(os.kill, child, signal.SIGKILL)
            signal.sigtimedwait({signal.SIGCHLD}, patience_s)
            patience_s = min(2 * patience_s, _STILL_DYING_S)  # a process stuck in the kernel dies when it can
            self._reap()

    def _is_over(self) -> bool:
        """No more waiting: the grace period has passed, or the command ended by itself and left something behind."""
        if time.monotonic() >= self._deadline:
            return True
        return self._status is not None and self._cause == "exited"

    def _begin_stop(self) -> None:
        """SIGTERM to the group, once; a later stop can only shorten the grace period.

        SIGCONT lets a suspended process see the signal. If the command ends first, the rest of its group still has
        the grace period: a shell dies at once while the training it started writes a checkpoint.
        """
        asked = files.read_stop(self._directory)
        grace_ms = self._launch.grace_ms if asked is None else asked.grace_ms
        self._reap()
        if self._status is not None and self._cause == "exited":  # it ended by itself just before
            return
        self._deadline = min(self._deadline, time.monotonic() + grace_ms / 1000)
        if self._cause == "exited":
            self._cause = "stopped"
            _signal(os.killpg, self._leader, signal.SIGTERM)
            _signal(os.killpg, self._leader, signal.SIGCONT)

    def _reap(self) -> None:
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._leader:
                    self._status = os.waitstatus_to_exitcode(status)
        except ChildProcessError:
            self._alone = True


class _Logs:
    """Both streams of a replica, looked at while they grow; a silent replica costs nothing."""

    def __init__(self, directory: str, *, keep_bytes: int) -> None:
        self.look_at_s = time.monotonic() + SOONEST_S
        self._trimmers = [Trimmer(os.path.join(directory, stream), keep_bytes=keep_bytes) for stream in files.STREAMS]
        self._directory = directory
        self._descriptor = -1

    def look(self) -> None:
        """Trim, and decide when to look again: at a time, or when SIGIO says that something was written."""
        now_s = time.monotonic()
        pause_s = min(trimmer.trim(now_s) for trimmer in self._trimmers)
        if pause_s == math.inf:
            pause_s = LATEST_S
            if self._ask_for_signal():  # and look again, for what was written just before
                pause_s = min(trimmer.trim(now_s) for trimmer in self._trimmers)
        self.look_at_s = now_s + pause_s

    def look_last(self) -> None:
        """Trim for good: readers come and go, so one that is in the way is waited for, but not for ever."""
        for _ in range(LAST_LOOKS):
            self.look()
            if not any(trimmer.kept_out for trimmer in self._trimmers):
                return
            time.sleep(_LAST_LOOK_S)

    def written(self) -> None:
        """SIGIO has come: look soon, however quiet it was."""
        self.look_at_s = min(self.look_at_s, time.monotonic() + SOONEST_S)

    def _ask_for_signal(self) -> bool:
        """Have the kernel send one SIGIO at the next write to a file of the directory. False if it cannot.

        dnotify, unlike inotify, needs no instance, of which a user has 128.
        """
        try:
            if self._descriptor < 0:
                self._descriptor = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.fcntl(self._descriptor, fcntl.F_NOTIFY, fcntl.DN_MODIFY)
        except OSError:
            return False
        return True


def _wait_for_signal(until_s: float) -> int | None:
    """The next of the waited signals; None at `until_s` on the monotonic clock, which may be infinite."""
    if until_s == math.inf:
        return signal.sigwait(WAITED_SIGNALS)
    received = signal.sigtimedwait(WAITED_SIGNALS, max(0.0, until_s - time.monotonic()))
    return None if received is None else received.si_signo


def _signal(send: Callable[[int, int], None], target: int, number: signal.Signals) -> None:
    """Send a signal to an own child or its group. One that runs as another user may refuse it: it is waited for."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        send(target, number)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
