"""A table of a page: shown as HTML, and exported as CSV and JSON with the same rows. Values are raw, units in names."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Value = str | int | float | bool | None
Row = Mapping[str, Value]


class Kind(StrEnum):
    """How the values of a column are shown."""

    TEXT = "text"
    NUMBER = "number"
    RATIO = "ratio"
    PERCENT = "percent"
    """A fraction as a percentage."""
    GPU_TIME = "gpu_time"
    """GPU-milliseconds as GPU-hours."""
    AHEAD = "ahead"
    """The same, as ahead or behind."""
    INSTANT = "instant"
    """Epoch milliseconds; 0: none."""
    SINCE = "since"
    """The same, as how long ago."""
    UNTIL = "until"
    """The same, as how long it still is."""
    BAND = "band"
    """From one such to another, which stands in `below`."""
    LENGTH = "length"
    """Milliseconds."""
    STATE = "state"
    JOB = "job"
    BUDGET = "budget"
    HOST = "host"


FORMULA = frozenset("=+-@＝＋－＠")
"""What a formula begins with, also in full width; spreadsheets pass over blanks and newlines before it."""
RIGHT = (Kind.NUMBER, Kind.RATIO, Kind.PERCENT, Kind.GPU_TIME, Kind.LENGTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column. `says`: what it means, for a tooltip and screen readers; `below`: a second value under the first."""

    key: str
    title: str
    kind: Kind = Kind.TEXT
    says: str = ""
    below: str = ""
    wide: bool = False
    shown: bool = True

    @property
    def right(self) -> bool:
        """Whether it is a number."""
        return self.kind in RIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under columns. `key`: the column whose value names a row; `empty`: what is said where there is none."""

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    key: str
    empty: str = "Nothing."

    def document(self) -> list[dict[str, Value]]:
        """The rows with the columns' values alone."""
        keys = [each for column in self.columns for each in (column.key, column.below) if each]
        return [{key: row.get(key) for key in keys} for row in self.rows]


def as_csv(table: Table) -> str:
    """The table for a spreadsheet, texts in quotes; what it would take for a formula has an apostrophe before it."""
    out = io.StringIO()
    rows = table.document()
    keys = list(rows[0]) if rows else [each for column in table.columns for each in (column.key, column.below) if each]
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(keys)
    for row in rows:
        writer.writerow([_harmless(row[key]) for key in keys])
    return out.getvalue()


def _harmless(value: Value) -> Any:
    if isinstance(value, str) and (value[:1].isspace() or value[:1] in FORMULA):
        return f"'{value}"
    return "" if value is None else value
