"""Real processes write: any bytes, from anywhere, without end; they are read by offset and cannot fill the disk."""

import asyncio
import os

import pytest

from services.agent.process.logs import LogChunk
from tenure.domain.ids import RunId
from tests.integration.agent.conftest import RealHost, until

KEEP = 1 << 20


def read(host: RealHost, *, offset: int, limit: int = 1 << 16, stream: str = "stdout") -> LogChunk:
    return host.replicas.read_log(run=RunId("j-1.1"), replica=0, stream=stream, offset=offset, limit=limit)


def test_binary_output_is_read_as_it_was_written(play, tmp_path):
    data = os.urandom(300_000)
    (tmp_path / "data").write_bytes(data)

    async def story(host: RealHost) -> None:
        await host.start("sh", "-c", "cat data; cat data >&2")
        await host.exit_of()
        for stream in ("stdout", "stderr"):
            got, offset = b"", 0
            while chunk := read(host, offset=offset, stream=stream).data:
                got, offset = got + chunk, offset + len(chunk)
            assert got == data

    play(story)


def test_a_reader_follows_what_is_written_meanwhile(play, tmp_path):
    async def story(host: RealHost) -> None:
        await host.start("sh", "-c", "echo one; while ! test -e go; do sleep 0.01; done; echo two")
        await host.said("one\n")
        first = read(host, offset=0)
        assert (first.data, first.next_offset, first.end_offset) == (b"one\n", 4, 4)
        assert read(host, offset=first.next_offset).data == b""
        (tmp_path / "go").touch()
        await host.exit_of()
        assert read(host, offset=first.next_offset).data == b"two\n"

    play(story)


def test_a_flood_is_bounded_and_a_follower_gets_every_kept_byte_in_its_place(play, tmp_path):
    """Line n is the number n in 15 digits, so every byte says which offset it was written at."""
    flood = f"""
import os, sys, time
for n in range(1500000):
    sys.stdout.write(f'{{n:015d}}\\n')
    while n == 750000 and os.fstat(1).st_blocks * 512 > {KEEP * 5 // 4 + 8192}:
        time.sleep(0.01)
"""

    async def story(host: RealHost) -> None:
        await host.launch("python3", "-c", flood, log_keep_bytes=KEEP, environment={"PATH": os.environ["PATH"]})
        stream = tmp_path / "runs/j-1.1/0/stdout"
        offset = largest = skipped = 0
        while offset < 1_500_000 * 16:
            await until(stream.exists)
            largest = max(largest, stream.stat().st_blocks * 512)
            chunk = read(host, offset=offset)
            skipped += chunk.start_offset - offset
            check_numbers(chunk)
            offset = chunk.next_offset
            await asyncio.sleep(0)
        end = await host.exit_of()
        assert end.code == 0
        assert stream.stat().st_size == 1_500_000 * 16, "offsets never change their meaning"
        assert stream.stat().st_blocks * 512 <= KEEP * 5 // 4 + 8192
        assert largest < 24_000_000, "it was cut while it was written"
        assert read(host, offset=0).oldest_offset > 0
        await host.start("true", run="j-2.1")

    play(story)


def check_numbers(chunk: LogChunk) -> None:
    first = -chunk.start_offset % 16
    for place in range(first, len(chunk.data) - 15, 16):
        assert int(chunk.data[place : place + 15]) == (chunk.start_offset + place) // 16


@pytest.mark.parametrize("script", ["exec yes", "sleep 0.5; exec yes"], ids=["at once", "after a silence"])
def test_a_flood_without_end_does_not_fill_the_disk(play, tmp_path, script):
    async def story(host: RealHost) -> None:
        await host.launch("sh", "-c", script, log_keep_bytes=KEEP)
        stream = tmp_path / "runs/j-1.1/0/stdout"
        await until(stream.exists)

        def is_cut_while_it_grows() -> bool:
            now = stream.stat()
            return now.st_size > 500 << 20 and now.st_blocks * 512 < now.st_size // 2

        await until(is_cut_while_it_grows)
        await host.stop(grace_ms=0)
        await host.exit_of()
        assert stream.stat().st_blocks * 512 <= KEEP * 5 // 4 + 8192
        assert set(read(host, offset=0).data) == set(b"y\n")

    play(story)


def test_output_stays_readable_when_the_command_removes_its_file(play, tmp_path):
    async def story(host: RealHost) -> None:
        await host.start("sh", "-c", "echo hello; rm runs/j-1.1/0/stdout; echo lost; exit 4")
        assert (await host.exit_of()).code == 4
        assert read(host, offset=0).data == b""

    play(story)
