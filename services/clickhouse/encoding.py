"""Content encodings of HTTP bodies, both ways, piece by piece: lz4 and zstd frames, gzip, deflate."""

import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

import lz4.frame

from services.clickhouse.trouble import BAD_ARGUMENTS, CANNOT_DECOMPRESS, DatabaseError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_PIECE_BYTES = 1 << 20
_FAILURES = (RuntimeError, EOFError, OSError, zlib.error, zstd.ZstdError)


class _Decompressor(Protocol):
    """What the lz4 and zstd modules offer: one frame, with a bound on what one call returns."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Inflate:
    """zlib in the same shape."""

    def __init__(self, wbits: int) -> None:
        self._zlib = zlib.decompressobj(wbits)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)


_DECOMPRESSORS: dict[str, Callable[[], _Decompressor]] = {
    "lz4": lz4.frame.LZ4FrameDecompressor,
    "zstd": zstd.ZstdDecompressor,
    "gzip": lambda: _Inflate(31),
    "deflate": lambda: _Inflate(15),
}


def decode(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """The plain bytes of a body, at most a mebibyte at a time. Frames may follow each other, as clients send them.

    Raises `DatabaseError` for an unknown encoding and for bytes that are not in it.
    """
    if encoding in ("", "identity"):
        yield from pieces
        return
    make = _DECOMPRESSORS.get(encoding)
    if make is None:
        raise DatabaseError(BAD_ARGUMENTS, f"Unknown Content-Encoding {encoding[:40]!r}: use lz4, zstd, gzip, deflate")
    frame: _Decompressor | None = None
    try:
        for piece in pieces:
            waiting = piece
            while waiting or (frame is not None and not frame.needs_input):
                frame = frame or make()
                plain = frame.decompress(waiting, _PIECE_BYTES)
                waiting = b""
                if frame.eof:
                    waiting, frame = frame.unused_data or b"", None
                if plain:
                    yield plain
    except _FAILURES as error:
        raise DatabaseError(CANNOT_DECOMPRESS, f"The body is not valid {encoding}: {error}") from error
    if frame is not None:
        raise DatabaseError(CANNOT_DECOMPRESS, f"The body ends in the middle of its {encoding} data")


class Encoder(Protocol):
    """One response body in the making."""

    def compress(self, data: bytes) -> bytes:
        """The next bytes to send, perhaps none."""

    def flush(self) -> bytes:
        """The last bytes to send."""


class _Lz4Encoder:
    def __init__(self) -> None:
        self._frame = lz4.frame.LZ4FrameCompressor(auto_flush=True)
        self._head: bytes = self._frame.begin()

    def compress(self, data: bytes) -> bytes:
        head, self._head = self._head, b""
        compressed: bytes = self._frame.compress(data)
        return head + compressed

    def flush(self) -> bytes:
        head, self._head = self._head, b""
        tail: bytes = self._frame.flush()
        return head + tail


_ENCODERS: dict[str, Callable[[], Encoder]] = {
    "lz4": _Lz4Encoder,
    "zstd": lambda: zstd.ZstdCompressor(level=1),
    "gzip": lambda: zlib.compressobj(1, zlib.DEFLATED, 31),
    "deflate": lambda: zlib.compressobj(1, zlib.DEFLATED, 15),
}


def choose(accepted: str) -> str | None:
    """The first encoding in an Accept-Encoding header that is known here."""
    names = (item.partition(";")[0].strip().lower() for item in accepted.split(","))
    return next((name for name in names if name in _ENCODERS), None)


def encoder(encoding: str) -> Encoder:
    """A fresh encoder for what `choose` returned."""
    return _ENCODERS[encoding]()
