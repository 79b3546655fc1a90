"""A checker of what `tenure simulate` leaves behind: it reads `events.jsonl[.gz]` and `report.json`, and nothing else.

It shares no code with what it checks. `findings` is empty where I1-I10 held as far as the lines show, and every figure
of the report follows from the lines; `check_export` raises AssertionError with what was found.
"""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.checks.export_figures import Figures, figures
from tests.checks.export_lines import broken_invariants

Line = Mapping[str, Any]
TOLERANCE = 1e-9
FIELDS = (
    "policy",
    "simulated_days",
    "wall_seconds",
    "jobs",
    "runs",
    "occupancy",
    "availability",
    "unallocated_fraction",
    "goodput",
    "delivered",
    "rolling_7d",
    "waits",
    "preemptions",
    "violations",
)
"""What design section 6 promises."""


def check_export(
    events: Path, report: Path, *, kinds: Mapping[str, str] | None = None, restart_overhead_s: float = 120.0
) -> None:
    """Raise AssertionError if the files do not agree with each other, or with I1-I10.

    `kinds`: the labels of the trace by job, to check the waits of each kind.
    """
    found = findings(
        read_lines(events), json.loads(report.read_text()), kinds=kinds, restart_overhead_s=restart_overhead_s
    )
    shown = "\n".join(found[:40])
    assert not found, f"{len(found)} findings in {events.name} and {report.name}:\n{shown}"


def read_lines(events: Path) -> list[dict[str, Any]]:
    """The lines of a file, compressed or not."""
    with gzip.open(events, "rt") if events.suffix == ".gz" else events.open() as file:
        return [json.loads(line) for line in file]


def findings(
    lines: Sequence[Line],
    report: Mapping[str, Any],
    *,
    kinds: Mapping[str, str] | None = None,
    restart_overhead_s: float = 120.0,
) -> list[str]:
    """Everything that is wrong, in words."""
    missing = [f"report: there is no {field}" for field in FIELDS if field not in report]
    if missing:
        return missing
    broken = broken_invariants(lines)
    window = report["window"]
    computed = figures(
        lines, start_s=window["start_s"], end_s=window["end_s"], kinds=kinds, restart_overhead_s=restart_overhead_s
    )
    found = broken + _differences(computed, report)
    if bool(report["violations"]) != bool(broken):
        found.append(f"report: violations {report['violations']}, but the lines show {len(broken)}")
    return found


def _differences(computed: Figures, report: Mapping[str, Any]) -> list[str]:
    said = flat({key: value for key, value in report.items() if key in computed})
    wanted = flat(computed)
    found = [f"report: there is no {key}" for key in wanted if key not in said]
    for key, value in said.items():
        top, _, rest = key.partition(".")
        if key not in wanted:
            if top != "waits" or rest.split(".")[0] in computed["waits"]:
                found.append(f"report: {key} is {value}, and nothing in the lines says so")
        elif not same(value, wanted[key]):
            found.append(f"report: {key} is {value}, by the lines {wanted[key]}")
    parts = dict(report.get("gpu_hours", {}))
    whole = parts.pop("capacity", 0.0)
    if not same(sum(parts.values()), whole):
        found.append(f"I5: {parts} do not add up to {whole} GPU-hours")
    return found


def flat(tree: Any, path: str = "") -> dict[str, Any]:
    """The leaves of a document by their path; budgets of a list by their own path."""
    if isinstance(tree, Mapping):
        parts = list(tree.items())
    elif isinstance(tree, list):
        parts = [(str(entry.get("path", index)), entry) for index, entry in enumerate(tree)]
    else:
        return {path: tree}
    return {key: value for name, part in parts for key, value in flat(part, f"{path}.{name}" if path else name).items()}


def same(said: Any, wanted: Any) -> bool:
    """Whether two figures are the same, but for the rounding of their sums."""
    if isinstance(said, str) or isinstance(wanted, str) or said is None or wanted is None:
        return bool(said == wanted)
    return bool(abs(said - wanted) <= TOLERANCE * max(1.0, abs(wanted)))
