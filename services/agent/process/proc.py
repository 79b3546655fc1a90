"""Reads /proc: who a process is, whose child it is, how much CPU it used.

Below everything else of the agent that touches processes; standard library only, because the keeper runs on it.
A pid alone names nothing (the kernel reuses it); a pid, its start time in clock ticks and the boot id name one
process for ever.
"""

# os.path, not pathlib: this runs between fork and exec, where every page touched costs time.
# ruff: noqa: PTH123, PTH208
import os
from collections.abc import Iterator
from typing import NamedTuple


class ProcessStat(NamedTuple):
    """The fields of /proc/<pid>/stat that tenure uses; times in clock ticks (see `os.sysconf('SC_CLK_TCK')`)."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    cpu_ticks: int  # user and system time, of the process and of its children already waited for
    start_ticks: int  # since boot


def boot_id() -> str:
    """A name for this boot of the machine: processes known under another one are gone."""
    descriptor = os.open("/proc/sys/kernel/random/boot_id", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 64).decode().strip()
    finally:
        os.close(descriptor)


def parse_stat(line: bytes) -> ProcessStat:
    """One line of /proc/<pid>/stat. The name may hold blanks and brackets: fields count from the last ')'."""
    pid, _, rest = line.partition(b" ")
    fields = rest[rest.rindex(b")") + 2 :].split()
    return ProcessStat(
        pid=int(pid),
        state=fields[0].decode(),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        cpu_ticks=int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14]),
        start_ticks=int(fields[19]),
    )


def read_stat(pid: int) -> ProcessStat | None:
    """What the kernel knows of `pid` now, or None when there is no such process."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return None
    try:
        return parse_stat(os.read(descriptor, 4096))
    except ProcessLookupError:  # it ended between the two calls
        return None
    finally:
        os.close(descriptor)


def all_stats() -> Iterator[ProcessStat]:
    """Every process of this machine, once; about 10 us each."""
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := read_stat(int(name))) is not None:
            yield stat


def is_alive(*, pid: int, start_ticks: int) -> bool:
    """Whether exactly this process still runs: same pid, same start, not a zombie."""
    stat = read_stat(pid)
    return stat is not None and stat.start_ticks == start_ticks and stat.state not in ("Z", "X")


def open_process(*, pid: int, start_ticks: int) -> int | None:
    """A pidfd of exactly this process, or None when it is gone. The caller closes it.

    The start time is compared after the pidfd exists: from then on the pid cannot come to mean another process.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    stat = read_stat(pid)
    if stat is None or stat.start_ticks != start_ticks:
        os.close(descriptor)
        return None
    return descriptor


def children_of(pid: int) -> list[int]:
    """Pids of the direct children of a single-threaded process; may miss one that is just being born or moved."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(child) for child in file.read().split()]
    except FileNotFoundError:  # a kernel without CONFIG_PROC_CHILDREN
        return [stat.pid for stat in all_stats() if stat.parent == pid]
