"""Files that commands write: whole or not at all, compressed where the name says so."""

import contextlib
import gzip
import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, cast

from tenure.domain.refusal import Refusal

_BUFFER_BYTES = 1 << 20


def writable(path: Path, *, field: str) -> Path:
    """Where a file is to be made or replaced, links followed. Raises `Refusal`: before the work, not after it."""
    place = path.resolve()
    if place.exists() and not place.is_file():
        what = "a directory" if place.is_dir() else "not a file"
        raise Refusal(field=field, problem=f"{path} is {what}", fix="name a file, or leave it out")
    if not os.access(place.parent, os.W_OK):
        fix = "name a file in a directory that you may write"
        raise Refusal(field=field, problem=f"{place.parent} cannot be written", fix=fix)
    return place


def write_blocks(output: Path, blocks: Iterable[bytes]) -> int:
    """Write lines, however many at a time; the file is replaced only when all are written. How many there were."""
    written = 0
    with replacing(output) as file:
        for block in blocks:
            file.write(block)
            written += block.count(b"\n")
    return written


@contextlib.contextmanager
def replacing(output: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `output` when the block is through; one named `.gz` is compressed."""
    fresh = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with fresh.open("wb") as file:
            if output.suffix == ".gz":
                with (
                    gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0, compresslevel=4) as packed,
                    io.BufferedWriter(cast("io.RawIOBase", packed), _BUFFER_BYTES) as buffered,
                ):
                    yield buffered
            else:
                yield file
        fresh.replace(output)
    finally:
        fresh.unlink(missing_ok=True)
