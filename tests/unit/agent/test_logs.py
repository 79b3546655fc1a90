"""A stream's offsets keep their meaning whatever is cut, on file systems with and without holes."""

import errno
import fcntl
import math
import os
from pathlib import Path

import pytest

from services.agent.process.logs import LATEST_S, SOONEST_S, Trimmer, create_log, punch_head, read_log

KEEP = 64 << 10


def no_holes(_descriptor: int, _length: int) -> None:
    """A file system such as NFS 4.1 answers so."""
    raise OSError(errno.EOPNOTSUPP, "Operation not supported")


class Stream:
    """A stream, its writer and what was written in all."""

    def __init__(self, folder: Path, punch) -> None:
        self.path = str(folder / "stdout")
        self.writer = create_log(self.path)
        self.trimmer = Trimmer(self.path, keep_bytes=KEEP, punch=punch)
        self.written = b""
        self.now_s = 100.0

    def write(self, size: int) -> None:
        data = os.urandom(size)
        os.write(self.writer, data)
        self.written += data

    def trim(self, *, after_s: float = 1.0) -> float:
        self.now_s += after_s
        return self.trimmer.trim(self.now_s)

    def kept(self) -> bytes:
        """All that can be read, in small pieces, from the beginning."""
        got, offset = b"", 0
        while True:
            chunk = read_log(self.path, offset=offset, limit=5000)
            if not chunk.data:
                return got
            assert chunk.data == self.written[chunk.start_offset : chunk.next_offset]
            got, offset = got + chunk.data, chunk.next_offset

    def bytes_on_disk(self) -> int:
        folder = Path(self.path).parent
        return sum(file.stat().st_blocks * 512 for file in folder.iterdir() if file.name != "stdout.index")


@pytest.fixture(params=[punch_head, no_holes], ids=["holes", "no holes"])
def stream(request, tmp_path):
    stream = Stream(tmp_path, request.param)
    yield stream
    os.close(stream.writer)


def test_what_is_below_the_limit_is_kept_whole(stream):
    stream.write(KEEP // 2)
    stream.trim()
    assert stream.kept() == stream.written


def test_a_reader_in_the_way_is_looked_for_again_soon(stream):
    stream.write(5 * KEEP)
    with Path(stream.path + ".index").open("rb") as index:
        fcntl.flock(index, fcntl.LOCK_SH)
        assert stream.trim() == SOONEST_S and stream.trimmer.kept_out
        assert stream.trim() == SOONEST_S and stream.bytes_on_disk() >= 5 * KEEP
    stream.trim()
    assert not stream.trimmer.kept_out and stream.bytes_on_disk() <= KEEP * 5 // 4 + 3 * 4096


def test_after_every_cut_the_newest_half_of_the_limit_is_there_and_no_more_than_it(stream):
    for size in [KEEP, 100, KEEP // 3, 3 * KEEP, 1, KEEP // 2, KEEP // 2, 5 * KEEP + 7]:
        stream.write(size)
        stream.trim()
        kept = stream.kept()
        assert stream.written.endswith(kept)
        assert len(kept) >= min(KEEP // 2, len(stream.written))
        assert stream.bytes_on_disk() <= KEEP * 5 // 4 + 3 * 4096


def test_an_offset_that_was_cut_leads_to_the_oldest_byte(stream):
    stream.write(4 * KEEP)
    stream.trim()
    chunk = read_log(stream.path, offset=10, limit=100)
    assert chunk.start_offset == chunk.oldest_offset > 10
    assert chunk.data == stream.written[chunk.start_offset : chunk.start_offset + 100]
    assert chunk.end_offset == len(stream.written)


def test_a_negative_offset_counts_from_the_end(stream):
    stream.write(4 * KEEP)
    stream.trim()
    stream.write(50)
    chunk = read_log(stream.path, offset=-100, limit=1000)
    assert chunk.start_offset == len(stream.written) - 100
    assert chunk.data and stream.written[-100:].startswith(chunk.data)
    assert read_log(stream.path, offset=-(10 * KEEP), limit=1).start_offset > 0


def test_an_offset_past_the_end_reads_nothing(stream):
    stream.write(10)
    chunk = read_log(stream.path, offset=1000, limit=10)
    assert (chunk.data, chunk.next_offset) == (b"", 10)


def test_a_flood_is_looked_at_soon_and_a_trickle_late(stream):
    stream.write(KEEP)
    assert stream.trim(after_s=0.1) == SOONEST_S
    stream.write(KEEP // 64)
    assert stream.trim(after_s=1.0) == 2.0, "at eight times that speed a quarter of the limit takes two seconds"
    stream.write(10)
    assert stream.trim(after_s=1.0) == LATEST_S


def test_a_quiet_stream_need_not_be_looked_at(stream):
    assert stream.trim() == math.inf
    stream.write(10)
    assert stream.trim() == LATEST_S
    assert stream.trim() == math.inf


def test_a_full_disk_costs_the_old_bytes_where_there_are_no_holes(tmp_path, monkeypatch):
    stream = Stream(tmp_path, no_holes)
    stream.write(2 * KEEP)

    def full(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "sendfile", full)
    stream.trim()
    assert stream.kept() == b""
    stream.write(100)
    assert stream.kept() == stream.written[-100:]
    os.close(stream.writer)
