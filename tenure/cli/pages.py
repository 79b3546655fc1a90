"""A page of tables as Markdown, and as HTML that mail readers show.

Of HTML only what they all keep: tables, styles on the elements themselves, no script, nothing that is loaded. It sets
no colour of text or background, so that each reader's own light and dark ones hold.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tenure.cli.terminal import clean

_FONT = "font-family:Helvetica,Arial,sans-serif;font-size:14px;line-height:1.45"
_LINE = "border-bottom:1px solid #8a8a8a"
_TABLE = f'<table role="presentation" cellpadding="0" cellspacing="0" width="100%" style="table-layout:fixed;{_FONT}">'
_DATA = f'<table cellpadding="6" cellspacing="0" border="0" width="100%" style="border-collapse:collapse;{_FONT}">'
_OBEYED = re.compile(r"([\\`*_\[\]<>|#~&])")
"""Characters that Markdown would obey."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A table with what is said above it. The first `words` columns are words, the others numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    empty: str
    words: int = 1
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """All of it, as plain text."""

    title: str
    notes: Sequence[str]
    sections: Sequence[Section]


def as_markdown(page: Page) -> str:
    """GitHub's kind of Markdown."""
    lines = [f"# {_plain(page.title)}", ""]
    for note in page.notes:
        lines += [_plain(note), ""]
    for section in page.sections:
        lines += [f"## {_plain(section.title)}", ""]
        for note in section.notes:
            lines += [_plain(note), ""]
        if section.rows:
            lines.append(_line(section.columns))
            lines.append(
                _line(["---" if at < section.words else "---:" for at in range(len(section.columns))], raw=True)
            )
            lines += [_line(row) for row in section.rows]
        else:
            lines.append(_plain(section.empty))
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def as_html(page: Page) -> str:
    """A whole document: as the body of a mail, or as a file."""
    inner = [f'<h1 style="font-size:20px;margin:0 0 12px">{_shown(page.title)}</h1>', *map(_paragraph, page.notes)]
    for section in page.sections:
        inner.append(f'<h2 style="font-size:16px;margin:24px 0 8px">{_shown(section.title)}</h2>')
        inner += [_paragraph(note) for note in section.notes]
        inner.append(_table(section) if section.rows else _paragraph(section.empty))
    body = "\n".join(inner)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="supported-color-schemes" content="light dark">\n'
        f"<title>{_shown(page.title)}</title>\n</head>\n"
        f'<body style="margin:0;padding:16px">\n{_TABLE}<tr><td style="max-width:900px">\n{body}\n</td></tr></table>\n'
        "</body>\n</html>\n"
    )


def _table(section: Section) -> str:
    heads = "".join(
        f'<th scope="col" align="{_side(section, at)}" style="{_LINE};white-space:nowrap">{_shown(name)}</th>'
        for at, name in enumerate(section.columns)
    )
    lines = [f'<div style="overflow-x:auto">{_DATA}', f"<tr>{heads}</tr>"]
    for row in section.rows:
        cells = "".join(
            f'<td align="{_side(section, at)}" style="{_LINE}{_width(section, at)}">{_shown(value)}</td>'
            for at, value in enumerate(row)
        )
        lines.append(f"<tr>{cells}</tr>")
    return "\n".join([*lines, "</table></div>"])


def _side(section: Section, at: int) -> str:
    return "left" if at < section.words else "right"


def _width(section: Section, at: int) -> str:
    return "" if at < section.words else ";white-space:nowrap"


def _paragraph(text: str) -> str:
    return f'<p style="margin:0 0 10px">{_shown(text)}</p>'


def _shown(text: str) -> str:
    return escape(clean(text))


def _plain(text: str) -> str:
    return _OBEYED.sub(r"\\\1", clean(text))


def _line(cells: Sequence[str], *, raw: bool = False) -> str:
    return "| " + " | ".join(cells if raw else map(_plain, cells)) + " |"
