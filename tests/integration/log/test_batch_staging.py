"""nats-server stages batches in memory where it is let, and loses nothing acknowledged when it is killed."""

import asyncio
import os
from pathlib import Path

import pytest

from tenure.domain.ids import FactId, JobId
from tenure.domain.job import JobSpec, Launch
from tenure.events.intake import JobSubmitted
from tenure.log.jetstream import JetStreamLog
from tenure.log.subjects import Subjects
from tenure.runtime.batch_staging import MEMORY, clean_up, stage_in_memory, stage_when_up
from tenure.runtime.nats_server import NatsServer

STREAM = Subjects("staged").stream
SPEC = JobSpec(budget="a", user="u", gpus_per_replica=1, launch=Launch(command=("true",)))


@pytest.mark.skipif(not os.access(MEMORY, os.W_OK), reason="no shared memory file system on this machine")
def test_batches_are_staged_in_memory_also_after_a_kill(tmp_path: Path) -> None:
    store = tmp_path / "store"
    link = store / "jetstream" / "$G" / "streams" / STREAM / "batches"
    server = NatsServer(tmp_path)
    try:
        assert stage_in_memory(store, stream=STREAM)
        server.start()
        asyncio.run(append(server.url, "first"))
        assert link.is_symlink() and link.resolve().parent == MEMORY
        server.kill()
        server.start()
        asyncio.run(stage_when_up(store, stream=STREAM, port=server.port))
        assert link.is_symlink()
        assert asyncio.run(append(server.url, "second")) == 6
    finally:
        server.stop()
        clean_up(store, stream=STREAM)
    assert not link.exists()


def test_a_folder_of_the_server_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "jetstream" / "$G" / "streams" / STREAM / "batches"
    folder.mkdir(parents=True)
    assert not stage_in_memory(tmp_path, stream=STREAM)
    assert folder.is_dir() and not folder.is_symlink()


async def append(url: str, name: str) -> int:
    """Append three facts at once; returns the position of the last."""
    log = await JetStreamLog.connect(url, cluster="staged")
    try:
        facts = [
            JobSubmitted(at=1, id=FactId(f"{name}{n}"), job=JobId(f"{name}{n}"), spec=SPEC)  # type: ignore[arg-type]
            for n in range(3)
        ]
        return (await log.append(facts)).last
    finally:
        await log.close()
