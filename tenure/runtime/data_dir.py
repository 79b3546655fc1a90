"""The data directory of `tenure up`: where everything lies, who owns it, and how the CLI finds what runs there.

lock            held by the one `up` that owns the directory
endpoint.json   where that `up` answers, for the CLI
console.json    where its web console answers
targets.json    where its processes answer Prometheus, as its `file_sd_configs` reads it
children.json   pid and start time of every process it started, for the next `up` to find leftovers
run/            ready files, tokens        log/   one log per role
keys/           seeds and keys, for the owner alone
nats/ clickhouse/ agent/ snapshots/        the roles' own files
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TypeVar

import msgspec
import platformdirs

from tenure.domain.refusal import Refusal
from tenure.runtime.processes import ProcessIdentity

T = TypeVar("T")

RECENT_MAX = 10
FREE_BYTES_MIN = 200 * 1024 * 1024


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a running system answers. `pid` is its `up`; the rest is for tools on the same machine."""

    address: str
    pid: int
    data: str
    cluster: str = "tenure"
    nats: str = ""
    nats_key_file: str | None = None
    clickhouse: str = ""
    clickhouse_token_file: str | None = None
    tls_name: str = ""
    """The name in its certificate; empty: it speaks no TLS."""
    tls_ca: str = ""
    """Who signed that; empty: somebody the system trusts."""
    started_at_ms: int = 0


class ConsoleAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a web console answers. `wanted`: where it was to; it takes another port where that is taken."""

    url: str
    host: str
    port: int
    wanted: str


class ChildRecord(ProcessIdentity, frozen=True, kw_only=True):
    """A process that an `up` started."""

    name: str


class DataDir:
    """The layout of one data directory. Nothing is created before `prepare`."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.endpoint_file = self.root / "endpoint.json"
        self.children_file = self.root / "children.json"
        self.console_file = self.root / "console.json"
        self.targets_file = self.root / "targets.json"
        self.run = self.root / "run"
        self.log = self.root / "log"
        self.keys = self.root / "keys"
        self._lock: IO[str] | None = None

    def ready_file(self, role: str) -> Path:
        """Where `role` says that it has caught up."""
        return self.run / f"{role}.ready.json"

    def log_file(self, role: str) -> Path:
        """What `role` wrote to its stdout and stderr."""
        return self.log / f"{role}.log"

    def prepare(self, *, free_bytes_min: int = FREE_BYTES_MIN) -> None:
        """Create the directory. Raises `Refusal` when it cannot be written or its disk is nearly full."""
        fix = "name a directory that you may write with --data"
        try:
            for folder in (self.root, self.run, self.log):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            free = shutil.disk_usage(self.root).free
            probe = self.root / ".probe"
            probe.write_bytes(b"tenure" * 1000)
            probe.unlink()
        except OSError as error:
            raise Refusal(field=str(self.root), problem=error.strerror or "cannot be written", fix=fix) from error
        if free < free_bytes_min:
            raise Refusal(
                field=str(self.root),
                problem=f"only {free >> 20} MB free",
                fix=f"free at least {free_bytes_min >> 20} MB or choose another disk with --data",
            )

    def own(self) -> None:
        """Take the lock until the process ends, however it ends. Raises `Refusal` if another `up` has it."""
        lock = (self.root / "lock").open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            endpoint = self.endpoint()
            where = f"pid {endpoint.pid}, {endpoint.address}" if endpoint else "it is just starting"
            raise Refusal(
                field=str(self.root),
                problem=f"in use by a running tenure up ({where})",
                fix="use that one, stop it, or give another directory with --data",
            ) from error
        self._lock = lock

    def write_endpoint(self, endpoint: Endpoint) -> None:
        """Tell the CLI where the system answers, from here and as the last `up` of this user."""
        write_json(self.endpoint_file, msgspec.to_builtins(endpoint))
        with contextlib.suppress(OSError):  # a read-only home does not keep the system from running
            others = [str(root) for root in recent_roots() if root != self.root]
            write_json(last_up_file(), {"data": [str(self.root), *others[: RECENT_MAX - 1]]})

    def write_metrics_targets(self, targets: Sequence[str]) -> None:
        """Tell Prometheus where to ask."""
        write_json(self.targets_file, [{"targets": list(targets)}] if targets else [])

    def endpoint(self) -> Endpoint | None:
        """Where the system of this directory answers, if one was started and has not ended in order."""
        return _read(self.endpoint_file, Endpoint)

    def console(self) -> ConsoleAddress | None:
        """Where the web console of this directory answers, or answered last."""
        return read_console_address(self.console_file)

    def write_children(self, children: Mapping[str, ChildRecord]) -> None:
        """Record the processes, so that the next `up` can find what a killed one left behind."""
        write_json(self.children_file, [msgspec.to_builtins(child) for child in children.values()])

    def children(self) -> list[ChildRecord]:
        """The processes recorded last."""
        return _read(self.children_file, list[ChildRecord]) or []

    def release(self) -> None:
        """The system has ended in order."""
        self.endpoint_file.unlink(missing_ok=True)
        self.children_file.unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def default_root() -> Path:
    """The data directory when none is named."""
    return platformdirs.user_data_path("tenure", appauthor=False)


def last_up_file() -> Path:
    """Which data directories this user's latest `up`s had."""
    return platformdirs.user_state_path("tenure", appauthor=False) / "last-up.json"


def recent_roots() -> list[Path]:
    """The data directories of this user's latest `up`s, the last one first."""
    found = _read(last_up_file(), dict[str, list[str]])
    return [Path(root) for root in found.get("data", [])] if found else []


def write_json(path: Path, document: object) -> None:
    """Replace the file by the document; a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps(document, indent=1))
    os.replace(fresh, path)


def read_console_address(path: Path) -> ConsoleAddress | None:
    """What a web console wrote of itself; None where there is nothing of the kind."""
    return _read(path, ConsoleAddress)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
