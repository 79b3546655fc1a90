"""Reading of foreign files: compressed or not, any header order, and cells that may hold anything."""

import csv
import math
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from simulator.csv_file import opened
from simulator.traces.notes import Action, Notes
from tenure.domain.nearest import listed, shown
from tenure.domain.refusal import Refusal

MISSING = frozenset({"", "-1", "-", "na", "n/a", "nan", "nil", "none", "null", "unknown"})
"""What sources write where they know nothing, in lower case."""
LARGEST = 10**12
PART_OF_A_GPU = "asks for a part of a GPU: rounded up to whole ones"
LIMIT_GRACE_S = 3_600
"""A job that ran longer than this past its limit was closed late by the record keeper, not by the scheduler."""


_MINUTE_SECOND = re.compile(r":[0-5][0-9]:[0-5][0-9]")


class Unreadable(ValueError):
    """A cell that holds neither a value nor a sign that there is none; the message says which."""


class Columns:
    """Which column is where. Names are matched in any case."""

    def __init__(self, header: Sequence[str], *, name: str, line: int = 1) -> None:
        self.header = tuple(title.strip() for title in header)
        self._where = {title.lower(): index for index, title in reversed(list(enumerate(self.header)))}
        self._name, self._line = name, line

    def need(self, *wanted: str | tuple[str, ...], hint: str = "") -> None:
        """Raise `Refusal` naming every missing column; a tuple is satisfied by any of its columns."""
        missing = [
            " or ".join(names)
            for names in ((item,) if isinstance(item, str) else item for item in wanted)
            if not any(name.lower() in self._where for name in names)
        ]
        if missing:
            found = ", ".join(shown(title) for title in self.header[:12]) or "nothing"
            raise Refusal(
                field=f"{self._name}:{self._line}",
                problem=f"no column {', '.join(missing)} in the header ({found})",
                fix=hint or "name a file of this format",
            )

    def at(self, name: str) -> int:
        """The index of a column, -1 if it is not there."""
        return self._where.get(name.lower(), -1)


def csv_rows(path: Path, *, notes: Notes, delimiter: str = ",", quoted: bool = True) -> Iterator[tuple[int, list[str]]]:
    """Line and cells of every row, the header first. A row of another length than the header is noted and left out.

    A row never spans lines, so that one broken quote spoils one row. Raises `Refusal` for an empty or a damaged file.
    """
    width = 0
    for line, text in lines_of(path):
        cells = quoted_cells(text, delimiter) if quoted and '"' in text else text.split(delimiter)
        if not width:
            width = len(cells)
        else:
            notes.rows_read += 1
            if len(cells) != width:
                side = "fewer" if len(cells) < width else "more"
                notes.add(Action.DROPPED, f"{side} cells than the header", line=line)
                continue
        yield line, cells
    if not width:
        raise Refusal(field=path.name, problem="the file is empty", fix="name a file with a header and rows")


def quoted_cells(text: str, delimiter: str = ",") -> list[str]:
    """The cells of a line with quotes in it; none if the quotes make no sense."""
    try:
        return next(csv.reader([text], delimiter=delimiter))
    except csv.Error:
        return []


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of the lines that are not blank, of a file compressed with gzip or not. Raises `Refusal`."""
    with opened(path) as file:
        for line, raw in enumerate(file, start=1):
            text = raw.decode("utf-8-sig" if line == 1 else "utf-8", errors="replace").rstrip("\r\n")
            if text and not text.isspace():
                yield line, text


def number(text: str, *, what: str) -> float | None:
    """A number, None where there is none. Raises `Unreadable` for anything else, naming `what` it should have been."""
    stripped = text.strip()
    if stripped.lower() in MISSING:
        return None
    try:
        value = float(stripped)
    except ValueError:
        raise Unreadable(f"{what} is not a number") from None
    if value == -1:
        return None
    if not math.isfinite(value) or abs(value) > LARGEST:
        raise Unreadable(f"{what} is out of range")
    if value < 0:
        raise Unreadable(f"{what} is negative")
    return value


def whole(text: str, *, what: str) -> int | None:
    """Like `number`, rounded to the nearest whole one."""
    if text.isdecimal() and len(text) < 12:  # nearly every cell: the quick way to the same answer
        return int(text)
    value = number(text, what=what)
    return None if value is None else round(value)


def gpu_count(text: str, *, what: str, notes: Notes, line: int) -> int | None:
    """Whole GPUs, None where there is no number. A part of a GPU is a whole one, and noted. Raises `Unreadable`."""
    if text.isdecimal() and len(text) < 12:
        return int(text)
    value = number(text, what=what)
    if value is None or value == int(value):
        return None if value is None else int(value)
    notes.add(Action.CHANGED, PART_OF_A_GPU, line=line)
    return math.ceil(value)


def zone(name: str) -> ZoneInfo:
    """A time zone by its name. Raises `Refusal`."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        fix = "write a name such as UTC or America/Los_Angeles"
        raise Refusal(field="--timezone", problem=f"no time zone {shown(name)}", fix=fix) from error


class WallClock:
    """Epoch seconds of wall times in one zone. Hours that the clock repeats or skips are read in one way, and noted."""

    def __init__(self, name: str, *, notes: Notes) -> None:
        self._zone = zone(name)
        self._notes = notes
        self._cache: dict[str, int] = {}
        """Epoch seconds of the hours seen so far that are neither repeated nor skipped."""

    def epoch_s(self, text: str, *, what: str, line: int) -> int | None:
        """The instant of `2017-10-09 07:01:55` (or with a `T`, or an offset, or epoch seconds); None if missing.

        Raises `Unreadable`.
        """
        stripped = text.strip()
        if stripped.lower() in MISSING:
            return None
        if stripped.isdecimal():
            return whole(stripped, what=what)
        hour = self._cache.get(stripped[:13])
        if hour is not None and _MINUTE_SECOND.fullmatch(stripped, 13):
            return hour + 60 * int(stripped[14:16]) + int(stripped[17:])
        try:
            when = datetime.fromisoformat(stripped)
        except ValueError:
            raise Unreadable(f"{what} is not a time") from None
        if when.tzinfo is not None:
            return round(when.timestamp())
        try:
            return self._local(when, stripped, line=line)
        except (OverflowError, ValueError):
            raise Unreadable(f"{what} is out of range") from None

    def _local(self, when: datetime, text: str, *, line: int) -> int:
        first = when.replace(tzinfo=self._zone)
        instant = first.timestamp()
        if instant != first.replace(fold=1).timestamp():
            back = datetime.fromtimestamp(instant, tz=UTC).astimezone(self._zone).replace(tzinfo=None)
            if back == when:
                why = "in an hour that the clock repeats (end of daylight saving): read as the first of the two"
            else:
                why = "in an hour that the clock skips (start of daylight saving): read as an hour later"
            self._notes.add(Action.CHANGED, why, line=line)
        elif len(text) == 19 and self._runs_evenly(when):
            self._cache[text[:13]] = round(instant) - 60 * when.minute - when.second
        return round(instant)

    def _runs_evenly(self, when: datetime) -> bool:
        """Whether nothing is repeated or skipped in the whole hour of `when`."""
        start = when.replace(minute=0, second=0, microsecond=0, tzinfo=self._zone)
        ends = [start.replace(minute=minute, fold=fold).timestamp() for minute in (0, 59) for fold in (0, 1)]
        return ends[0] == ends[1] and ends[2] == ends[3] == ends[0] + 59 * 60


def within_limit(runtime_s: int, *, limit_s: int, notes: Notes, line: int) -> int:
    """The runtime, cut to the limit where it ran on for more than an hour."""
    if limit_s > 0 and limit_s + LIMIT_GRACE_S < runtime_s:
        notes.add(
            Action.CLIPPED, "ran more than an hour past its time limit (closed late): runtime cut to it", line=line
        )
        return limit_s
    return runtime_s


def at_least_a_second(runtime_s: int, *, notes: Notes, line: int) -> int:
    """The runtime; one of zero becomes a second."""
    if runtime_s >= 1:
        return runtime_s
    notes.add(Action.CHANGED, "ran for no time: runtime is 1 s", line=line)
    return 1


def nothing_left(path: Path, notes: Notes) -> Refusal:
    """The refusal of a file of which no job is left."""
    reasons = listed([f"{note.why} ({note.count})" for note in notes.listing()], most=4) or "no rows"
    return Refusal(field=path.name, problem=f"no job is left: {reasons}", fix="name a file with jobs that used GPUs")
