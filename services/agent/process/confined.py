"""Starts the user's command as another account and in a control group of its own. For root, and for delegated groups.

posix_spawn(3) can do neither, so the keeper forks; it is small and has one thread. The child joins the group, gives its
rights up for good, and only then looks at anything of the user's: the working directory, the program, what is to be its
own folder. Standard library only.
"""

# os.path, not pathlib: this runs between fork and exec, where every page touched costs time.
import contextlib
import os
import signal
from collections.abc import Callable
from typing import NoReturn

from services.agent.process import cgroups
from services.agent.process.directory import LaunchRecord

CATCHABLE = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
_FAILED = 127
_LINE_MAX = 4_096


class LaunchError(Exception):
    """The command cannot be started; the message is one line for the user, naming the thing and the fix."""


def spawn_confined(
    record: LaunchRecord, descriptors: list[int], first_that_starts: Callable[[Callable[[str], int]], int]
) -> int:
    """Start the command; `descriptors` become its stdin, stdout, stderr. Returns its pid. Raises LaunchError."""
    assert min(descriptors) > len(descriptors) - 1, "0 to 2 are the keeper's"
    if record.cgroup:
        try:
            cgroups.make(record.cgroup, memory_bytes_max=record.memory_bytes_max, pids_max=record.pids_max)
        except OSError as error:
            raise LaunchError(f"no control group can be made on this host: {error}") from error
    if record.uid >= 0:
        for descriptor in descriptors[1:]:
            os.fchown(descriptor, record.uid, record.gid)
    reading, writing = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        _become(record, descriptors, first_that_starts, writing)
    os.close(writing)
    line = os.read(reading, _LINE_MAX)
    os.close(reading)
    if line:
        os.waitpid(child, 0)
        raise LaunchError(line.decode(errors="replace"))
    return child


def _become(
    record: LaunchRecord,
    descriptors: list[int],
    first_that_starts: Callable[[Callable[[str], int]], int],
    writing: int,
) -> NoReturn:
    """Never returns: the command takes this process over, or the reason why not is said and it ends."""
    try:
        os.setsid()
        for target, source in enumerate(descriptors):
            os.dup2(source, target)
        _give_up_rights(record)
        _reach(record)
        for number in CATCHABLE:
            with contextlib.suppress(OSError, ValueError):  # two are the C library's own
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        first_that_starts(lambda program: os.execve(program, record.argv, record.environment))
    except LaunchError as error:
        os.write(writing, str(error).encode(errors="replace")[:_LINE_MAX])
    except BaseException as error:  # noqa: BLE001 - the last frame: whatever it was, it is said
        os.write(writing, f"it cannot be given to its user on this host: {error}".encode(errors="replace")[:_LINE_MAX])
    finally:
        os._exit(_FAILED)


def _give_up_rights(record: LaunchRecord) -> None:
    if record.cgroup:
        cgroups.enter(record.cgroup)
    if record.uid >= 0:
        os.setgroups(record.groups)
        os.setresgid(record.gid, record.gid, record.gid)
        os.setresuid(record.uid, record.uid, record.uid)
        assert record.uid != 0 and os.getresuid() == (record.uid,) * 3, "there is no way back"


def _reach(record: LaunchRecord) -> None:
    """Enter the working directory as who the command runs as. Raises LaunchError."""
    try:
        os.chdir(record.working_dir)
    except OSError as error:
        raise LaunchError(
            f"cannot enter working directory {record.working_dir!r}: {error.strerror}; "
            "it must exist on every host of the run"
        ) from error
    if record.own_folder and not os.access(record.own_folder, os.W_OK | os.X_OK):
        raise LaunchError(
            f"{record.own_folder} cannot be written by the job's user: let everybody pass through the folders above it "
            "(chmod o+x), or give the agent another place with --checkpoints"
        )
