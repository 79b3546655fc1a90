"""One page that tells a log: it works offline, from a file, with nothing beside it."""

import os
import re
from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from simulator.pictures.history import Line
from simulator.pictures.pack import pack
from simulator.pictures.told import tell

SCRIPTS = ("data.js", "timeline_draw.js", "timeline_input.js", "charts.js", "tables.js", "main.js")
"""In the order in which they are put into the page: one script, each part uses those before it."""


def write_html(
    path: Path,
    *,
    lines: Iterable[Line],
    report: Mapping[str, Any],
    budgets: Mapping[str, float],
    kinds: Mapping[str, str] | None = None,
) -> None:
    """Write the page of a log, simulated or live, to `path`.

    `lines`: those of `events.jsonl`, in order of time. `report`: `report.json`, or nothing where there is none.
    `budgets`: each budget's share of its parent, 0 to 1, by path; the log's own `budget_tree` lines come first.
    `kinds`: the kind of each job, for the waits by kind.
    """
    told = tell(lines, report=report, budgets=budgets, kinds=kinds)
    write_whole(path, fill(title=told.title, data=pack(told)))


def fill(*, title: str, data: Mapping[str, Any]) -> str:
    """The page with everything that belongs in it."""
    encoded = msgspec.json.encode(data).decode().replace("<", "\\u003c")  # nothing in it ends the script element
    parts = {
        "title": escape(title),
        "style": asset("report.css"),
        "script": "\n".join(asset(name) for name in SCRIPTS),
        "data": encoded,
    }
    return re.sub(r"@(title|style|data|script)@", lambda match: parts[match.group(1)], asset("report.html"))


def asset(name: str) -> str:
    """A file that is packaged beside this module."""
    return (files("simulator.pictures") / "assets" / name).read_text(encoding="utf-8")


def write_whole(path: Path, text: str | bytes) -> None:
    """Write a file that is replaced only when the new one is whole."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(text.encode() if isinstance(text, str) else text)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
