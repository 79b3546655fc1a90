"""CSV files from people: opened whether compressed or not, a row a line, every error with its file, line and column.

A row never spans lines, so that one broken quote spoils one row and a line number always says where to look.
"""

import contextlib
import csv
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, cast

from tenure.domain.nearest import did_you_mean, shown
from tenure.domain.refusal import Refusal
from tenure.domain.units import DAY, SECOND, Millis

SECONDS_MAX = 10_000 * DAY // SECOND
"""The latest instant and the longest length of time, in seconds: 27 years."""
LINE_BYTES_MAX = 1 << 20
"""The first line is read no further: what has no line ends is no CSV."""
_BOM = b"\xef\xbb\xbf"
_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
_NUMBER = re.compile(r"[+-]?(\d{1,20}\.?\d{0,20}|\.\d{1,20})(e[+-]?\d{1,3})?", re.IGNORECASE | re.ASCII)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_DIGITS_MAX = 18
"""More digits than this make a number that nothing here may be."""


@contextlib.contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The lines of a file, unpacked if it is gzip or xz. Raises `Refusal`, also when it breaks off while it is read."""
    try:
        with path.open("rb") as file, contextlib.ExitStack() as stack:
            first = file.peek(len(_XZ))
            if first.startswith(_GZIP):
                unpacked = stack.enter_context(gzip.GzipFile(fileobj=file, mode="rb"))
                yield cast("IO[bytes]", io.BufferedReader(cast("io.RawIOBase", unpacked), 1 << 20))
            elif first.startswith(_XZ):
                yield stack.enter_context(lzma.open(file))
            elif path.suffix == ".gz" and first:
                raise Refusal(field=str(path), problem="not gzip", fix="compress it, or name it without .gz")
            else:
                yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Refusal(
            field=str(path), problem=f"broken gzip ({error})", fix="copy or make the file again; it is not whole"
        ) from error
    except lzma.LZMAError as error:
        raise Refusal(
            field=str(path), problem=f"broken xz ({error})", fix="copy or make the file again; it is not whole"
        ) from error
    except OSError as error:
        raise Refusal(
            field=str(path), problem=error.strerror or "cannot be read", fix="name a readable file"
        ) from error


def columns(first: bytes, *, path: Path, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, int]:
    """Where each column stands, from the first line of a file. Raises `Refusal`."""
    known, where = [*required, *optional], f"{path}:1"
    if not first:
        raise Refusal(field=str(path), problem="empty", fix=f"begin with a line of columns: {','.join(required)}")
    try:
        names = [name.strip() for name in fields(first.removeprefix(_BOM))]
    except Refusal as refusal:
        raise placed(refusal, where) from refusal
    if not set(names) & set(known):
        hint = "separate columns by commas" if re.search("[;\t|]", first.decode(errors="replace")) else ""
        fix = f"{hint or 'begin with the line'} {','.join(required)}"
        raise Refusal(field=where, problem="names none of the columns", fix=fix)
    found: dict[str, int] = {}
    for index, name in enumerate(names):
        if name not in known:
            fix = f"{did_you_mean(name, known)}known: {', '.join(known)}"
            raise Refusal(field=where, problem=f"unknown column {shown(name)}", fix=fix)
        if name in found:
            raise Refusal(field=where, problem=f"column {name} is there twice", fix="name each column once")
        found[name] = index
    missing = [name for name in required if name not in found]
    if missing:
        raise Refusal(field=where, problem=f"no column {', '.join(missing)}", fix=f"give {','.join(required)}")
    return found


def fields(line: bytes) -> list[str]:
    """The fields of a line. Raises `Refusal` (without a place) when it is not UTF-8 or its quotes are broken."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise Refusal(field="", problem=f"not UTF-8 at byte {error.start + 1}", fix="save the file as UTF-8") from error
    if '"' not in text:
        return text.rstrip("\r\n").split(",")
    try:
        return next(csv.reader([text], strict=True))
    except (csv.Error, StopIteration) as error:
        fix = 'close every quote on its own line, and write "" for a quote inside one'
        raise Refusal(field="", problem=f"broken quotes ({error})", fix=fix) from error


def placed(refusal: Refusal, where: str) -> Refusal:
    """A refusal that names a column (or nothing) as one that says where the column stands."""
    field = f"{where}, column {refusal.field}" if refusal.field else where
    return Refusal(field=field, problem=refusal.problem, fix=refusal.fix)


def check_width(row: Sequence[str], *, names: Mapping[str, int]) -> None:
    """Raise `Refusal` unless the row has a field for each column."""
    if len(row) != len(names):
        raise Refusal(
            field="",
            problem=f"{len(row)} fields, the first line names {len(names)} columns",
            fix="give each row as many; a field with a comma in it goes into quotes",
        )


def seconds(text: str, *, column: str) -> Millis:
    """Milliseconds of seconds as people write them: `90`, `12.5`, `1e3`. Raises `Refusal`."""
    if len(text) <= 8 and text.isascii() and text.isdigit():
        return int(text) * SECOND
    fix = "write seconds of 0 or more, such as 90 or 12.5"
    word = text.strip()
    if not word:
        raise Refusal(field=column, problem="empty", fix=fix)
    if not _NUMBER.fullmatch(word):
        raise Refusal(field=column, problem=f"{shown(word)} is not a number", fix=fix)
    number = float(word)
    if number < 0:
        raise Refusal(field=column, problem=f"{shown(word)} is negative", fix=fix)
    if number > SECONDS_MAX:
        raise Refusal(
            field=column,
            problem=f"{shown(word)} s is more than {SECONDS_MAX // (DAY // SECOND)} days",
            fix="count seconds from the start of the trace, not from 1970",
        )
    return round(number * SECOND)


def whole(text: str, *, column: str, least: int, most: int) -> int:
    """A whole number from `least` to `most`. Raises `Refusal`."""
    word, fix = text.strip(), f"write a whole number from {least} to {most}"
    if not word:
        raise Refusal(field=column, problem="empty", fix=fix)
    if not _WHOLE.fullmatch(word):
        fraction = _NUMBER.fullmatch(word) is not None
        problem = f"{shown(word)} is {'not whole' if fraction else 'not a number'}"
        raise Refusal(field=column, problem=problem, fix=fix)
    if len(word) > _DIGITS_MAX or not least <= int(word) <= most:
        raise Refusal(field=column, problem=f"{shown(word)} is out of range", fix=fix)
    return int(word)
