"""Disks and file systems: room, read-only mounts, and errors the kernel counts."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from services.agent.signals.signal import clean, raise_signal
from tenure.domain.severity import Severity
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal

SOURCE = "disks"

LOW, FULL = 0.05, 0.01
"""Free parts of a file system's room, or of its files, below which it is watched, and below which it is full."""
_WATCH, _DRAIN = Severity.WATCH, Severity.DRAIN
_GIB = 1 << 30
_READ_MAX = 1 << 20


def judge_room(
    paths: Sequence[Path], *, read_at: Millis, measure: Callable[[Path], os.statvfs_result] = os.statvfs
) -> list[HealthSignal]:
    """The signals of the file systems that hold `paths` at `read_at` (epoch ms). May block where one hangs."""
    found: list[HealthSignal] = []
    for path in paths:
        try:
            room = measure(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            text = f"cannot be measured: {error.strerror or error}"
            found.append(_signal("disk_unreachable", _WATCH, text, str(path), str(error), read_at))
            continue
        if room.f_flag & os.ST_RDONLY:
            found.append(_signal("fs_read_only", _DRAIN, "the file system is read-only", str(path), "ro", read_at))
        for code, free, total in (
            ("disk", room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize),
            ("inodes", room.f_favail, room.f_files),
        ):
            if total > 0 and free < LOW * total:
                full = free < FULL * total
                shown = f"{free / _GIB:.1f} of {total / _GIB:.1f} GiB" if code == "disk" else f"{free} of {total} files"
                found.append(
                    _signal(
                        f"{code}_{'full' if full else 'low'}",
                        _DRAIN if full else _WATCH,
                        f"{shown} left",
                        str(path),
                        shown,
                        read_at,
                    )
                )
    return found


def judge_mounts(proc: Path, *, read_at: Millis) -> list[HealthSignal]:
    """File systems that their own error handling made read-only, from `proc` (normally /proc)/mounts.

    Those were mounted to be written (`errors=remount-ro`) and are not.
    """
    found = []
    for line in _read(proc / "mounts").splitlines():
        fields = line.split(" ")
        if len(fields) < 4:
            continue
        options = fields[3].split(",")
        if "ro" in options and "errors=remount-ro" in options:
            text = f"the file system at {fields[1]} was made read-only after errors"
            found.append(_signal("fs_read_only", _DRAIN, text, fields[1], line, read_at))
    return found


def read_errors(sysfs: Path) -> dict[str, int]:
    """Errors the kernel counted since the boot, by disk: of ext4 file systems and SCSI disks. Unreadable is absent."""
    counts: dict[str, int] = {}
    for path in [*_glob(sysfs, "fs/ext4/*/errors_count"), *_glob(sysfs, "block/*/device/ioerr_cnt")]:
        text = _read(path).strip()
        name = path.parent.name if path.name == "errors_count" else path.parent.parent.name
        try:
            counts[clean(name, 64)] = int(text, 0)
        except ValueError:
            continue
    return counts


def judge_errors(now: Mapping[str, int], *, read_at: Millis, before: Mapping[str, int]) -> list[HealthSignal]:
    """A signal for each disk with more errors than `before` (an earlier reading)."""
    return [
        _signal("disk_error", _WATCH, f"{count - before[disk]} new errors", disk, f"{count} errors", read_at)
        for disk, count in sorted(now.items())
        if count > before.get(disk, count)
    ]


def _signal(code: str, severity: Severity, text: str, device: str, line: str, at: Millis) -> HealthSignal:
    return raise_signal(code, severity, text, source=SOURCE, at=at, device=clean(device, 64), evidence=line)


def _glob(root: Path, pattern: str) -> list[Path]:
    try:
        return sorted(root.glob(pattern))
    except OSError:
        return []


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_READ_MAX).decode("utf-8", "replace")
    except OSError:
        return ""
