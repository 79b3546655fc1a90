"""Reading logs as they grow: /dev/kmsg a record at a time, files from where they were read to."""

import os
import stat
import time
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from pathlib import Path

from services.agent.signals.fabric import parse_fabric_log
from services.agent.signals.kernel import parse_kernel_log
from services.agent.signals.storms import WINDOW_MS
from tenure.domain.units import SECOND, Millis
from tenure.events.reports import HealthSignal

READ_MAX = 8 << 20
"""Bytes of a log that are read at a time; the rest waits for the next look."""
READ_S = 1.0
_RECORD_MAX = 1 << 14


class LogTail:
    """What was added to a log since the last look: a file, or /dev/kmsg. Nothing where it cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._is_device = False
        self._left = b""
        self._inode = 0
        self._began = False
        self.is_old = False
        """What was read last was there before the first look: nobody knows what of it was mended long ago."""

    @property
    def is_device(self) -> bool:
        """It is the kernel's ring of records: it may hold what is long past, and forgets."""
        return self._is_device

    def read(self) -> bytes:
        """The whole lines that are new; of a file that was there before, the last `READ_MAX` bytes at most.

        Raises OSError where the log is there and cannot be read.
        """
        rest, self.is_old = b"", False
        if self._descriptor is not None and self._was_replaced():
            rest = self._left + os.read(self._descriptor, READ_MAX)
            rest += b"" if rest.endswith(b"\n") or not rest else b"\n"
            self.close()
        if self._descriptor is None and not self._open():
            return rest
        return rest + (self._records() if self._is_device else self._lines())

    def _open(self) -> bool:
        """Whether the log is there."""
        first, self._began = not self._began, True
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        status = os.fstat(self._descriptor)
        self._is_device, self._inode = not stat.S_ISREG(status.st_mode), status.st_ino
        if first and not self._is_device:
            self.is_old = True
            os.lseek(self._descriptor, max(0, status.st_size - READ_MAX), os.SEEK_SET)
        return True

    def close(self) -> None:
        """Let the log go."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor, self._left = None, b""

    def _was_replaced(self) -> bool:
        """Rotated or emptied."""
        if self._is_device or self._descriptor is None:
            return False
        try:
            status = self._path.stat()
        except OSError:
            return False  # what is left of it can still be read
        return status.st_ino != self._inode or status.st_size < os.lseek(self._descriptor, 0, os.SEEK_CUR)

    def _records(self) -> bytes:
        assert self._descriptor is not None
        records: list[bytes] = []
        size, deadline = 0, time.monotonic() + READ_S
        while size < READ_MAX and time.monotonic() < deadline:
            try:
                record = os.read(self._descriptor, _RECORD_MAX)
            except BlockingIOError:
                break
            except BrokenPipeError:  # the kernel overwrote records that were not read yet: on with the oldest there is
                continue
            if not record:
                break
            records.append(record)
            size += len(record)
        return b"".join(records)

    def _lines(self) -> bytes:
        assert self._descriptor is not None
        fresh = os.read(self._descriptor, READ_MAX)
        data = self._left + fresh
        end = len(data) if not fresh else data.rfind(b"\n") + 1  # a half line that does not grow is a whole one
        self._left = data[end:] if end or len(data) < READ_MAX else b""
        return data[:end]


class KernelLog:
    """The source `kernel`."""

    def __init__(self, path: Path, *, proc: Path, after: Millis | None = None) -> None:
        """`after`: until when an earlier agent of this host has read it (epoch ms)."""
        self._tail, self._proc = LogTail(path), proc
        self._after = after

    def __call__(self, now: Millis) -> Sequence[HealthSignal]:
        """The signals that are new."""
        data = self._tail.read()
        if not data:
            return []
        booted, (after, read_at) = booted_at(self._proc, now), _bounds(self._tail, self._after, now)
        return parse_kernel_log(data, read_at=read_at, booted_at=booted, zone=local_zone(), after=after)


class FabricLog:
    """The source `fabric-log`."""

    def __init__(self, path: Path, *, after: Millis | None = None) -> None:
        """`after`: until when an earlier agent of this host has read it (epoch ms)."""
        self._tail, self._after = LogTail(path), after

    def __call__(self, now: Millis) -> Sequence[HealthSignal]:
        """The signals that are new."""
        data = self._tail.read()
        after, read_at = _bounds(self._tail, self._after, now)
        found = parse_fabric_log(data, read_at=read_at, zone=local_zone())
        return [signal for signal in found if after is None or signal.last_at > after]


def _bounds(tail: LogTail, after: Millis | None, now: Millis) -> tuple[Millis | None, Millis]:
    """Until when lines are no news, and the instant of those whose stamps cannot be placed.

    Of what was there before the first look the last hour counts, and no line that nobody knows the instant of.
    """
    if tail.is_old:
        after = max(now - WINDOW_MS, after or 0)
        return after, after
    return (max(now - WINDOW_MS, after or 0) if tail.is_device else after), now


def booted_at(proc: Path, now: Millis) -> Millis | None:
    """When the kernel started (epoch ms), by /proc/uptime; None where that cannot be read."""
    try:
        seconds = float((proc / "uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return now - int(seconds * SECOND)


def local_zone() -> tzinfo:
    """The zone of stamps that name none."""
    return datetime.now().astimezone().tzinfo or UTC
