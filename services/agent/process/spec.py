"""What the upper half of the agent says to `Replicas` and hears from it: frozen values, instants in epoch ms."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tenure.domain.ids import JobId, RunId
from tenure.domain.units import Millis

LOG_KEEP_BYTES = 64 << 20
LOG_KEEP_BYTES_MIN = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Whom the processes of a replica belong to."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """One replica to start.

    `environment` is the whole environment (see `environment.py`); TENURE_RUN_ID and TENURE_REPLICA are set whatever it
    says. `working_directory` None means the environment's HOME, else `/`. `grace_ms` is the grace period of a stop that
    does not come through `Replicas.stop`. Of each stream the newest `log_keep_bytes` are kept.

    `account` None: the agent's own. `own_folder` is one that the account must be able to work in. `cgroup` is the
    control group to be made for it ("": none), with limits where they are not 0.
    """

    run: RunId
    job: JobId
    replica: int
    command: tuple[str, ...]
    environment: Mapping[str, str]
    gpus: tuple[int, ...]
    grace_ms: Millis
    working_directory: str | None = None
    log_keep_bytes: int = LOG_KEEP_BYTES
    account: Account | None = None
    own_folder: str = ""
    cgroup: str = ""
    memory_bytes_max: int = 0
    pids_max: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A replica whose command was started at `at`. `pid` leads its process group and session.

    `keeper_pid` is the root of everything the replica consists of: give it to `GpuProvider.utilisation`.
    """

    run: RunId
    job: JobId
    replica: int
    gpus: tuple[int, ...]
    pid: int
    keeper_pid: int
    at: Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFailed:
    """The command was not started and never will be; `problem` is one line for the job's owner."""

    run: RunId
    replica: int
    at: Millis
    problem: str


class ExitCause(StrEnum):
    """Why a replica is gone."""

    EXITED = "exited"
    """It ended by itself: `code` or `signal` says how."""
    STOPPED = "stopped"
    """It was asked to stop and ended inside the grace period; an exit that won the race has its own `code`."""
    KILLED = "killed"
    """It was still there at the end of the grace period and got SIGKILL."""
    NOT_LAUNCHED = "not_launched"
    """An earlier agent was asked to start it, but it never ran (`detail` says why) and never will."""
    LOST = "lost"
    """Its keeper was killed, or the machine restarted: it is gone, nobody saw how. `at` is when that was noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaExit:
    """A replica of which no process is left since `at`. At most one of `code` and `signal` is set.

    `started_at` is None if it never ran (or died in the millisecond it was started in).
    They are those of the command itself. A shell that reports a signal of its child as 128 + n did exit with that code.
    """

    run: RunId
    replica: int
    at: Millis
    cause: ExitCause
    started_at: Millis | None = None
    code: int | None = None
    signal: int | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """What an agent finds when it starts: replicas that go on, and those that ended and were not forgotten yet."""

    running: tuple[Launched, ...] = field(default=())
    ended: tuple[ReplicaExit, ...] = field(default=())
