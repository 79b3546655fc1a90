"""Lets nats-server stage atomic batches in memory, which makes a small one several times faster.

The server collects a batch in a folder of its stream (`batches`) and syncs that to the disk as it does the stream,
although it throws it away whenever it starts: only what is committed, and then synced in the stream itself, is ever
acknowledged. So the folder may as well be in memory. The server removes the link when it starts, so it is made again
each time; where it cannot be made, batches are slower and nothing else changes. Measured in docs/decisions/0001.
"""

import asyncio
import contextlib
import hashlib
import os
import shutil
import stat
from pathlib import Path

from tenure.runtime.nats_server import POLL_S, START_S, is_listening

MEMORY = Path("/dev/shm")


def stage_in_memory(store: Path, *, stream: str) -> bool:
    """Link the stream's staging folder into memory. False where that cannot be done or is done already."""
    link = store / "jetstream" / "$G" / "streams" / stream / "batches"
    folder = _memory_folder(store, stream)
    if os.path.lexists(link):
        return False
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        ours = folder.lstat()
        if not stat.S_ISDIR(ours.st_mode) or ours.st_uid != os.getuid():
            return False
        link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        link.symlink_to(folder)
    except OSError:  # no such memory, or the server was faster
        return False
    return True


async def stage_when_up(store: Path, *, stream: str, port: int) -> None:
    """Wait until the server, which is just starting, has looked through its store, then stage in memory."""
    for _ in range(int(START_S / POLL_S)):
        if await asyncio.to_thread(is_listening, port):
            stage_in_memory(store, stream=stream)
            return
        await asyncio.sleep(POLL_S)


def clean_up(store: Path, *, stream: str) -> None:
    """Remove what the server left in memory; it must have ended."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(_memory_folder(store, stream))


def _memory_folder(store: Path, stream: str) -> Path:
    digest = hashlib.sha256(f"{store.absolute()} {stream} {os.getuid()}".encode()).hexdigest()
    return MEMORY / f"tenure-{digest[:24]}"
