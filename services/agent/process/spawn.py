"""Starts the user's command as a new session and process group, and says in one line why it cannot.

Called by the keeper. posix_spawn(3) reports an exec that failed in the parent, shares memory with it until the exec
(cheap), and gives the command a clean slate: every signal at its default, none blocked, only stdin, stdout and stderr.
Standard library only.
"""

# os.path, not pathlib: this runs between fork and exec, where every page touched costs time.
# ruff: noqa: PTH110, PTH112, PTH118
import errno
import os
from collections.abc import Callable
from functools import partial

from services.agent.process.confined import CATCHABLE, LaunchError, spawn_confined
from services.agent.process.directory import STREAMS, LaunchRecord
from services.agent.process.logs import create_log

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def spawn(record: LaunchRecord, directory: str) -> int:
    """Start the command with its streams in `directory`; returns its pid, which is also its group and session.

    Raises LaunchError. Leaves the process at its root directory, so that it keeps no file system busy.
    """
    descriptors = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)]
    try:
        descriptors += [create_log(os.path.join(directory, stream)) for stream in STREAMS]
        if record.uid >= 0 or record.cgroup:
            return spawn_confined(record, descriptors, partial(first_that_starts, record))
        enter(record.working_dir)
        return first_that_starts(record, partial(_spawn, record, descriptors))
    finally:
        os.chdir("/")
        for descriptor in descriptors:
            os.close(descriptor)


def enter(working_dir: str) -> None:
    """Go to the working directory. Raises LaunchError."""
    try:
        os.chdir(working_dir)
    except OSError as error:
        raise LaunchError(
            f"cannot enter working directory {working_dir!r}: {error.strerror}; it must exist on every host of the run"
        ) from error


def _spawn(record: LaunchRecord, descriptors: list[int], program: str) -> int:
    return os.posix_spawn(
        program,
        record.argv,
        record.environment,
        file_actions=[(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate(descriptors)],
        setsid=True,
        setsigmask=(),
        setsigdef=CATCHABLE,
    )


def first_that_starts(record: LaunchRecord, start: Callable[[str], int]) -> int:
    """Try each place the command may be in, in order, as execvp(3) does. Raises LaunchError."""
    refused: OSError | None = None
    for program in _candidates(record):
        try:
            return start(program)
        except OSError as error:
            if error.errno == errno.ENOENT and os.path.exists(program):
                raise LaunchError(
                    f"{program!r} names an interpreter (first line, '#!') that this host does not have"
                ) from error
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                raise LaunchError(_explain(record, program, error)) from error
            if error.errno == errno.EACCES:
                refused = error
                refused.filename = program
    if refused is not None:
        raise LaunchError(_explain(record, refused.filename, refused)) from refused
    raise LaunchError(_not_found(record))


def _candidates(record: LaunchRecord) -> list[str]:
    command = record.argv[0]
    if "/" in command:
        return [command]
    path = record.environment.get("PATH", DEFAULT_PATH)
    return [os.path.join(place, command) for place in path.split(":")]


def _not_found(record: LaunchRecord) -> str:
    command = record.argv[0]
    if "/" in command:
        return f"command not found: {command!r} does not exist on this host (working directory {record.working_dir!r})"
    path = record.environment.get("PATH", DEFAULT_PATH)
    return f"command not found: {command!r} is in no directory of PATH={path}; give its full path or set PATH"


def _explain(record: LaunchRecord, program: str, error: OSError) -> str:
    if error.errno == errno.EACCES:
        if os.path.isdir(program):
            return f"{program!r} is a directory, not a command"
        return f"{program!r} may not be executed: make it executable (chmod +x) or start it through its interpreter"
    if error.errno == errno.ENOEXEC:
        return f"{program!r} is not a program: give it a first line such as '#!/bin/sh' or start it by its interpreter"
    if error.errno == errno.E2BIG:
        kilobytes = sum(len(text) for text in [*record.argv, *record.environment.values()]) // 1000
        return f"command and environment ({kilobytes} kB) are longer than this host allows: put the data into a file"
    return f"cannot start {program!r}: {error.strerror}"
