"""Finds and kills what is left of a replica whose keeper died: the rare case nobody else can clean up after.

A living keeper never needs this. Without one, the processes are known by the environment they inherited
(TENURE_RUN_ID, TENURE_REPLICA) and, as long as its leader lives, by their session; all are younger than the keeper.
What cleared its environment and left the session is not found.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from services.agent.process.directory import KeeperRecord
from services.agent.process.proc import ProcessStat, all_stats, is_alive, open_process


async def kill_stragglers(*, run: str, replica: int, keeper: KeeperRecord) -> int:
    """SIGKILL all processes of the replica and wait until none is left. Returns how many there were.

    Scans /proc, about 20 us a process. Waits as long as a process stuck in the kernel takes to die.
    """
    killed = 0
    while found := list(_open_all(run=run, replica=replica, keeper=keeper)):
        killed += len(found)
        await asyncio.gather(*(_gone(descriptor) for descriptor in found))
    return killed


def _open_all(*, run: str, replica: int, keeper: KeeperRecord) -> Iterator[int]:
    """A pidfd, already killed, of each process of the replica that is alive now."""
    marks = {f"TENURE_RUN_ID={run}".encode(), f"TENURE_REPLICA={replica}".encode()}
    leader_lives = keeper.pid != 0 and is_alive(pid=keeper.pid, start_ticks=keeper.start_ticks)
    for stat in all_stats():
        if stat.state in ("Z", "X") or stat.pid == os.getpid() or stat.start_ticks < keeper.keeper_start_ticks:
            continue
        if not (leader_lives and stat.session == keeper.pid) and not _is_marked(stat, marks):
            continue
        descriptor = open_process(pid=stat.pid, start_ticks=stat.start_ticks)
        if descriptor is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            yield descriptor


def _is_marked(stat: ProcessStat, marks: set[bytes]) -> bool:
    try:
        return marks.issubset(Path(f"/proc/{stat.pid}/environ").read_bytes().split(b"\0"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # gone, or another user's
        return False


async def _gone(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(descriptor, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
