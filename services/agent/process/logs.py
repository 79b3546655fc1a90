"""A replica's output: a file per stream that the command appends to, bounded in size, read by offset.

The command writes straight into the file (no pipe, so it never depends on the agent) and the file is cut at its head
while it writes: `Trimmer` runs in the keeper, `read_log` in the agent. An offset counts bytes since the stream began
and never changes its meaning, so a reader that follows continues where it was, or learns what was dropped.

Cutting frees the blocks of the head (fallocate(2), FALLOC_FL_PUNCH_HOLE): the file keeps its length, loses its disk
space, and no byte is lost that was not meant to be. Where the file system cannot do that (NFS before 4.2), the file is
copied to `<stream>.old` and truncated; a byte written between the last copy and the truncation is lost there.

`<stream>.index` holds `oldest base`: the offset of the oldest byte kept, and of the first byte of the file. It is
locked (flock) while the two and the files change, so a reader never sees them disagree. Standard library only.
"""

# os.path, not pathlib: this runs between fork and exec, where every page touched costs time.
# ruff: noqa: PTH104, PTH116
import ctypes
import errno
import fcntl
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from services.agent.process.plain import open_plain

BLOCK_BYTES = 4096
SOONEST_S, LATEST_S = 0.1, 4.0
"""Bounds of the time between two looks at a stream: a flood passes the limit by what is written in one such time."""

_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01
_INDEX_BYTES = 48

Punch = Callable[[int, int], None]
"""Frees the first bytes of a file: (descriptor, bytes). Raises OSError when the file system cannot."""


class LogChunk(NamedTuple):
    """A part of a stream: `data` is [start_offset, next_offset). Bytes before `oldest_offset` are gone.

    `end_offset` is where the stream ended when it was read: `next_offset == end_offset` means nothing more for now.
    """

    data: bytes
    start_offset: int
    next_offset: int
    oldest_offset: int
    end_offset: int


NOTHING_YET = LogChunk(data=b"", start_offset=0, next_offset=0, oldest_offset=0, end_offset=0)


class _Index(NamedTuple):
    oldest: int
    base: int


def punch_head(descriptor: int, length: int) -> None:
    """Free the disk space of the first `length` bytes; the file's size and the offsets of the rest stay."""
    if _libc.fallocate(descriptor, _PUNCH_HOLE_KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(length)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


_libc = ctypes.CDLL(None, use_errno=True)


def create_log(path: str) -> int:
    """Create an empty stream; returns the descriptor to give to the command (append only)."""
    index = open_plain(path + ".index", os.O_WRONLY | os.O_CREAT)
    try:
        _write_index(index, _Index(oldest=0, base=0))
    finally:
        os.close(index)
    return open_plain(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


class Trimmer:
    """Keeps one stream at about its newest `keep_bytes`; says when to look again. Owned by the keeper."""

    def __init__(self, path: str, *, keep_bytes: int, punch: Punch = punch_head) -> None:
        """`punch` is replaced where there is no file system without holes to test on."""
        self._path, self._keep_bytes, self._punch = path, keep_bytes, punch
        self._punches = True
        self.kept_out = False
        """A reader was there at the last look: what was to be cut is still there."""
        self._seen_bytes = 0
        self._seen_at_s: float | None = None  # None after a silence: what is written then came in the last moment

    def trim(self, now_s: float) -> float:
        """Cut the head off if the stream has outgrown its limit by a quarter. Returns seconds until the next look.

        That time lets the stream grow by another quarter even at eight times its present speed. It is infinite if
        nothing was written since the last look. `now_s` is a clock that does not jump.
        """
        try:
            size = os.lstat(self._path).st_size
            self.kept_out = size > self._keep_bytes // 2 and not self._cut()
        except OSError:  # the user removed the file, or the disk fails: the command goes on, the next look tries again
            return LATEST_S
        grown, took_s = size - self._seen_bytes, SOONEST_S if self._seen_at_s is None else now_s - self._seen_at_s
        self._seen_bytes, self._seen_at_s = size, now_s
        if self.kept_out:
            return SOONEST_S
        if grown == 0:
            self._seen_at_s = None
            return math.inf
        safe_s = took_s * (self._keep_bytes / 4) / (8 * abs(grown))
        return min(max(safe_s, SOONEST_S), LATEST_S)

    def _cut(self) -> bool:
        """False if a reader holds the index just now."""
        descriptor = open_plain(self._path, os.O_RDWR)
        try:
            with _locked_index(self._path, exclusive=True) as lock:
                if lock is None:
                    return _is_missing(self._path + ".index")
                index = _read_index(lock)
                end = index.base + os.fstat(descriptor).st_size
                if self._punches and end - index.oldest > self._keep_bytes * 5 // 4:
                    self._punches = self._cut_by_hole(descriptor, lock, index=index, end=end)
                if not self._punches and end - index.base > self._keep_bytes // 2:
                    self._cut_by_copy(descriptor, lock, index=index)
                return True
        finally:
            os.close(descriptor)

    def _cut_by_hole(self, descriptor: int, lock: int, *, index: _Index, end: int) -> bool:
        """False when this file system has no holes."""
        oldest = (end - self._keep_bytes) // BLOCK_BYTES * BLOCK_BYTES
        try:
            self._punch(descriptor, oldest - index.base)
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
                return False
            raise
        _write_index(lock, index._replace(oldest=oldest))
        return True

    def _cut_by_copy(self, descriptor: int, lock: int, *, index: _Index) -> None:
        """Keep the newest half of the limit in `.old` and begin the file anew; until it is half full both are kept."""
        size = os.fstat(descriptor).st_size
        start = copied = max(0, size - self._keep_bytes // 2)
        draft = self._path + ".old.draft"
        old = open_plain(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            while sent := os.sendfile(old, descriptor, copied, 1 << 20):
                copied += sent
        except OSError:  # the disk is full: better no old bytes than a full disk
            os.ftruncate(old, 0)
            start = copied = os.fstat(descriptor).st_size
        finally:
            os.close(old)
        os.ftruncate(descriptor, 0)
        os.rename(draft, self._path + ".old")
        _write_index(lock, _Index(oldest=index.base + start, base=index.base + copied))


def read_log(path: str, *, offset: int, limit: int) -> LogChunk:
    """Up to `limit` bytes of a stream from `offset` on, or from the oldest kept byte if that is later.

    A negative `offset` counts from the end. May wait for the millisecond that a trim takes. Raises OSError.
    """
    descriptor = open_plain(path, os.O_RDONLY)
    try:
        with _locked_index(path, exclusive=False) as lock:
            index = _Index(oldest=0, base=0) if lock is None else _read_index(lock)
            end = index.base + os.fstat(descriptor).st_size
            start = min(max(offset if offset >= 0 else end + offset, index.oldest), end)
            if start < index.base:
                data = _read_old(path, offset=start - index.oldest, limit=min(limit, index.base - start))
            else:
                data = os.pread(descriptor, limit, start - index.base)
    finally:
        os.close(descriptor)
    return LogChunk(
        data=data, start_offset=start, next_offset=start + len(data), oldest_offset=index.oldest, end_offset=end
    )


def _read_old(path: str, *, offset: int, limit: int) -> bytes:
    descriptor = open_plain(path + ".old", os.O_RDONLY)
    try:
        return os.pread(descriptor, limit, offset)
    finally:
        os.close(descriptor)


@contextmanager
def _locked_index(path: str, *, exclusive: bool) -> Iterator[int | None]:
    """The index's descriptor, locked. None when there is none, or when it is not to be had without waiting."""
    try:
        descriptor = open_plain(path + ".index", os.O_RDWR)
    except FileNotFoundError:
        yield None
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
        except BlockingIOError:
            yield None
            return
        yield descriptor
    finally:
        os.close(descriptor)


def _is_missing(path: str) -> bool:
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    return False


def _index_text(index: _Index) -> bytes:
    return f"{index.oldest} {index.base}\n".encode().rjust(_INDEX_BYTES)


def _read_index(descriptor: int) -> _Index:
    oldest, base = os.pread(descriptor, _INDEX_BYTES, 0).split()
    return _Index(oldest=int(oldest), base=int(base))


def _write_index(descriptor: int, index: _Index) -> None:
    os.pwrite(descriptor, _index_text(index), 0)
