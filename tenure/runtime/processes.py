"""Which process is which. A pid is given to another program in time; pid, start and boot together never are."""

from pathlib import Path

import msgspec

_STATE, _START_TICKS = 0, 19
"""Fields of /proc/PID/stat after the program's name, which may hold anything."""
_BURIED = ("Z", "X")


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """One process for good: no clock that is set makes it look like another one (`start_ticks` count from the boot)."""

    pid: int
    start_ticks: int
    boot_id: str


def identify(pid: int) -> ProcessIdentity | None:
    """The process that has this pid now; None if there is none, or it only waits for burial."""
    fields = _stat(pid)
    if fields is None or fields[_STATE] in _BURIED:
        return None
    return ProcessIdentity(pid=pid, start_ticks=int(fields[_START_TICKS]), boot_id=_boot_id())


def is_running(process: ProcessIdentity) -> bool:
    """Whether this very process has not ended."""
    return identify(process.pid) == process


def is_alive(pid: int) -> bool:
    """Whether some process of this pid runs."""
    fields = _stat(pid)
    return fields is not None and fields[_STATE] not in _BURIED


def _stat(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
