"""The directory of one replica, `<run_dir>/<run_id>/<replica>/`: what the agent and the keeper tell each other.

    launch.json    what shall run; written by the agent before anything else (the intent)
    replica.json   who keeps it (claim), and once it runs its pid and start time; written by the keeper
    stop.json      the grace period of a stop; written by the agent
    exit.json      how it ended; written once, by the keeper or, when that is dead, by the agent
    stdout stderr  the streams, each with an .index (see logs.py)

The claim is made with link(2), so exactly one process ever makes it: either the keeper, which then starts the command,
or an agent that came back after a crash and must know that the command will never start. Nothing is synced to disk:
these files must survive the agent, not the machine (whose processes they describe die with it).
Standard library only, and no dataclasses: the keeper loads this module. Unknown fields are ignored and new ones need
a default, since a keeper started by an older agent may be running.
"""

# os.path, not pathlib: this runs between fork and exec, where every page touched costs time.
import errno
import json
import os
from typing import Any, NamedTuple

from services.agent.process.plain import plain_folder

LAUNCH = "launch.json"
REPLICA = "replica.json"
STOP = "stop.json"
EXIT = "exit.json"
KEEPER_ERRORS = "keeper.err"  # a traceback, should a keeper ever fail
STREAMS = ("stdout", "stderr")

_RESERVED = EXIT + ".reserved"
_RESERVED_EXIT_BYTES = 1024
"""exit.json is written at the launch as blanks of this size and filled in at the end, so that a job which fills the
disk cannot make its own exit unreportable."""


Place = str | os.PathLike[str]
"""The path of a replica's directory."""


class LaunchRecord(NamedTuple):
    """launch.json: the whole of what shall run. Text may hold surrogate escapes, as `os.fsdecode` makes them."""

    run_id: str
    job_id: str
    replica: int
    argv: list[str]
    working_dir: str
    environment: dict[str, str]
    gpus: list[int]
    grace_ms: int
    log_keep_bytes: int
    asked_ms: int
    uid: int = -1  # -1: the agent's own user
    gid: int = -1
    groups: list[int] = []  # noqa: RUF012 - never changed: a NamedTuple's default
    own_folder: str = ""
    cgroup: str = ""
    memory_bytes_max: int = 0
    pids_max: int = 0


class KeeperRecord(NamedTuple):
    """replica.json: the claim; `pid` is 0 until the command runs, `keeper_pid` 0 when an agent ruled the launch out."""

    boot_id: str
    keeper_pid: int
    keeper_start_ticks: int
    pid: int = 0
    start_ticks: int = 0
    started_ms: int = 0


class StopRecord(NamedTuple):
    """stop.json."""

    grace_ms: int


class ExitRecord(NamedTuple):
    """exit.json: `cause` is a value of `ExitCause`; at most one of `code` and `signal` is set."""

    at_ms: int
    cause: str
    code: int | None = None
    signal: int | None = None
    detail: str = ""


def read_launch(directory: Place) -> LaunchRecord | None:
    """The intent, or None when there is none that can be read."""
    fields = _read(directory, LAUNCH)
    return None if fields is None else LaunchRecord(**_known(fields, LaunchRecord._fields))


def read_keeper(directory: Place) -> KeeperRecord | None:
    """Who claimed the launch, or None when nobody did."""
    fields = _read(directory, REPLICA)
    return None if fields is None else KeeperRecord(**_known(fields, KeeperRecord._fields))


def read_stop(directory: Place) -> StopRecord | None:
    """The last stop asked for, or None."""
    fields = _read(directory, STOP)
    return None if fields is None else StopRecord(**_known(fields, StopRecord._fields))


def read_exit(directory: Place) -> ExitRecord | None:
    """How the replica ended, or None while it has not."""
    fields = _read(directory, EXIT)
    return None if fields is None else ExitRecord(**_known(fields, ExitRecord._fields))


def write_launch(directory: Place, record: LaunchRecord) -> None:
    """Write the intent. Not atomic: a launcher is asked only afterwards, so a torn intent was never launched."""
    with plain_folder(os.fspath(directory)) as folder:
        _write(folder, LAUNCH, _text(record))


def claim(directory: Place, record: KeeperRecord) -> bool:
    """Make this the one process that decides what becomes of the launch; False when another one already is."""
    with plain_folder(os.fspath(directory)) as folder:
        draft = _draft(folder, REPLICA, _text(record))
        try:
            os.link(draft, REPLICA, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            return False
        finally:
            os.unlink(draft, dir_fd=folder)
        return True


def write_keeper(directory: Place, record: KeeperRecord) -> None:
    """Replace the claim by one that knows more; for the process that made it."""
    _replace(directory, REPLICA, _text(record))


def write_stop(directory: Place, record: StopRecord) -> None:
    """Say how long the grace period of the stop that is about to be signalled is."""
    _replace(directory, STOP, _text(record))


def reserve_exit(directory: Place) -> None:
    """Take the disk space that `write_exit` will need."""
    with plain_folder(os.fspath(directory)) as folder:
        _write(folder, _RESERVED, b" " * _RESERVED_EXIT_BYTES)


def write_exit(directory: Place, record: ExitRecord) -> None:
    """Write how the replica ended, at once whole, in the space reserved for it if there is any."""
    with plain_folder(os.fspath(directory)) as folder:
        _write(folder, _RESERVED, _text(record).ljust(_RESERVED_EXIT_BYTES))
        os.rename(_RESERVED, EXIT, src_dir_fd=folder, dst_dir_fd=folder)


def write_keeper_error(directory: Place, text: str) -> None:
    """Leave people a trace of a keeper that failed."""
    with plain_folder(os.fspath(directory)) as folder:
        _write(folder, KEEPER_ERRORS, text.encode(errors="replace"))


def _replace(directory: Place, name: str, text: bytes) -> None:
    with plain_folder(os.fspath(directory)) as folder:
        os.rename(_draft(folder, name, text), name, src_dir_fd=folder, dst_dir_fd=folder)


def _draft(folder: int, name: str, text: bytes) -> str:
    """A file beside `name` with this text, named after the writer so that two writers never share one."""
    draft = f"{name}.{os.getpid()}"
    _write(folder, draft, text)
    return draft


def _text(record: LaunchRecord | KeeperRecord | StopRecord | ExitRecord) -> bytes:
    return json.dumps(record._asdict()).encode()


def _write(folder: int, name: str, text: bytes) -> None:
    """Write over the beginning of a file, made if need be. System calls only: see the remark above the imports."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        while text:
            text = text[os.write(descriptor, text) :]
    finally:
        os.close(descriptor)


def _read(directory: Place, name: str) -> dict[str, Any] | None:
    """None, too, where the job has put something else in the place of the file or of its folder."""
    try:
        with plain_folder(os.fspath(directory)) as folder:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
            return None
        raise
    try:
        text = b""
        while part := os.read(descriptor, 1 << 16):
            text += part
        fields = json.loads(text.decode())
    except ValueError:
        return None
    finally:
        os.close(descriptor)
    return fields if isinstance(fields, dict) else None


def _known(fields: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name in names}
