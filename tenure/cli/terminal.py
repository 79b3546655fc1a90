"""Words and tables on the terminal: columns that fit it, plain text where there is none, nothing that it would obey.

Text from outside is never read as markup, and control characters in it are shown, not sent.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

GAP = 2
EMPTY = "-"


@dataclass(frozen=True, slots=True)
class Cell:
    """A value in a table, with a rich style."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table.

    On a narrow terminal those that are empty go first, then values are cut with an ellipsis down to `least` characters
    (0: never), then columns go, those with the highest `drop` first (0: never).
    """

    title: str
    right: bool = False
    drop: int = 0
    least: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What is to be shown: a cell for every column in every row."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    def widths(self) -> list[int]:
        """The width each column needs to show everything."""
        return [
            max([len(column.title), *(len(row[index].text) for row in self.rows)])
            for index, column in enumerate(self.columns)
        ]


def cell(value: object, style: str = "") -> Cell:
    """A cell that shows `value`; None and the empty string become a dash."""
    text = "" if value is None else clean(str(value))
    return Cell(text or EMPTY, style)


def clean(text: str) -> str:
    """`text` on one line with control characters written as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def is_terminal(stream: IO[str] | None = None) -> bool:
    """Whether a person looks at the stream (default: stdout) on a terminal that understands colour codes."""
    return (stream or sys.stdout).isatty() and os.environ.get("TERM") != "dumb"


def fit(table: Table, width: int) -> Table:
    """The table without the columns that do not fit `width`."""
    columns, natural = list(table.columns), table.widths()
    kept = list(range(len(columns)))

    def needed(widths: Sequence[int]) -> int:
        return sum(widths[i] for i in kept) + GAP * (len(kept) - 1)

    def drop_while_wider(widths: Sequence[int], candidates: Sequence[int]) -> None:
        for index in sorted(candidates, key=lambda i: (-columns[i].drop, -i)):
            if columns[index].drop and needed(widths) > width:
                kept.remove(index)

    drop_while_wider(natural, [i for i in kept if all(row[i].text == EMPTY for row in table.rows)])
    drop_while_wider(_least_widths(table), list(kept))
    return Table(
        columns=[columns[i] for i in kept],
        rows=[[row[i] for i in kept] for row in table.rows],
    )


def _least_widths(table: Table) -> list[int]:
    """How narrow each column may become."""
    return [
        min(natural, column.least or natural) for natural, column in zip(table.widths(), table.columns, strict=True)
    ]


def as_rich(table: Table, width: int) -> "RichTable":
    """The table for a terminal of `width` characters."""
    from rich.table import Table as RichTable
    from rich.text import Text

    fitting = fit(table, width)
    drawn = RichTable(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold", show_edge=False)
    for column, least in zip(fitting.columns, _least_widths(fitting), strict=True):
        drawn.add_column(
            Text(column.title),
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            min_width=least,
        )
    for row in fitting.rows:
        drawn.add_row(*(Text(item.text, style=item.style) for item in row))
    return drawn


def as_plain(table: Table) -> list[str]:
    """The table as aligned lines of full width, for files and pipes."""
    widths = table.widths()
    titles = [Cell(column.title) for column in table.columns]
    lines: list[str] = []
    for row in (titles, *table.rows):
        parts = [
            item.text.rjust(width) if column.right else item.text.ljust(width)
            for item, width, column in zip(row, widths, table.columns, strict=True)
        ]
        lines.append((" " * GAP).join(parts).rstrip())
    return lines


def print_table(table: Table, *, empty: str) -> None:
    """Show the table on stdout, or the line `empty` when it has no rows."""
    if not table.rows:
        print(empty)
    elif is_terminal():
        out = console()
        out.print(as_rich(table, out.width))
    else:
        print("\n".join(as_plain(table)))


def say(*parts: str | Cell) -> None:
    """One line on stdout; cells in their style where the terminal has colours."""
    cells = [part if isinstance(part, Cell) else Cell(part) for part in parts]
    if is_terminal() and any(part.style for part in cells):
        console().print(styled(*cells), soft_wrap=True)
    else:
        print("".join(part.text for part in cells))


def styled(*cells: Cell) -> "Text":
    """The cells as one rich text."""
    from rich.text import Text

    return Text.assemble(*((part.text, part.style) for part in cells))


def console() -> "Console":
    """The terminal on stdout."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def print_json(document: object) -> None:
    """The document on stdout, for programs."""
    print(json.dumps(document, indent=2, ensure_ascii=False))
