"""A simulation's report as a short table: of one run, or of two side by side."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tenure.cli.terminal import Cell, Column, Table, cell, print_table
from tenure.cli.words import age
from tenure.domain.refusal import Refusal
from tenure.domain.units import SECOND

Report = Mapping[str, Any]
"""`report.json` as it is read."""
_FIRST_CLASSES = ("all", "debug", "largest")


def read_report(path: Path) -> Report:
    """A `report.json` as somebody wrote it, with every figure that is shown. Raises `Refusal`."""
    fix = "name the --report of an earlier tenure simulate"
    try:
        report: Report = json.loads(path.read_bytes())
        _of_one(report)
        _waits([report], names=[""])
    except OSError as error:
        raise Refusal(field=str(path), problem=error.strerror or "cannot be read", fix=fix) from error
    except ValueError as error:
        raise Refusal(field=str(path), problem=f"is not JSON ({str(error)[:60]})", fix=fix) from error
    except (AttributeError, KeyError, TypeError) as error:
        raise Refusal(field=str(path), problem=f"no report ({str(error)[:60]} is missing)", fix=fix) from error
    return report


def show(reports: Sequence[Report], *, names: Sequence[str]) -> None:
    """The figures of the reports, one column each (`names` heads them), then the waits by class."""
    told = [_of_one(report) for report in reports]
    figures = Table(
        columns=[Column(title=""), *(Column(title=name.upper(), right=True, least=8) for name in names)],
        rows=[[cell(title), *(one[title] for one in told)] for title in told[0]],
    )
    print_table(figures, empty="")
    print()
    print_table(_waits(reports, names=names), empty="no waits: jobs of the last two days are not counted")


def _of_one(report: Report) -> dict[str, Cell]:
    """Every figure of a report under its title."""
    delivered, rolling, preempted = report["delivered"], report["rolling_7d"], report["preemptions"]
    budgets, worst = delivered["budgets"], delivered["worst"]
    violations = report["violations"]
    return {
        "jobs": cell(f"{report['jobs']:,}"),
        "runs": cell(f"{report['runs']:,}"),
        "occupancy": _share(report["occupancy"]),
        "of it unallocated": _share(report["unallocated_fraction"]),
        "availability": _share(report["availability"]),
        "goodput": _share(report["goodput"]),
        "delivered of owed": _share(delivered["ratio"]),
        "worst budget": _share(worst),
        "budgets at 95 % or more": cell(f"{delivered['at_least_95']} of {len(budgets)}"),
        "any 7 days": _share(rolling["ratio"]),
        "worst budget in any 7 days": _share(rolling["worst"]),
        "preemptions": cell(f"{preempted['total']:,}"),
        "of unallocated runs": cell(f"{preempted['unallocated']:,}"),
        "of allocated runs": cell(f"{preempted['allocated']:,}"),
        "stopped by drains": cell(f"{preempted['drain']:,}"),
        "GPU-hours lost": cell(f"{preempted['lost_gpu_hours']:,.1f}"),
        "promises broken": cell(f"{violations:,}", "red" if violations else ""),
        "simulated days": cell(f"{report['simulated_days']:g}"),
        "seconds it took": cell(f"{report['wall_seconds']:.1f}"),
    }


def _waits(reports: Sequence[Report], *, names: Sequence[str]) -> Table:
    """The waits by class of job; in a comparison a class has a row for each report."""
    classes = dict.fromkeys(name for report in reports for name in report["waits"])
    ordered = [name for name in _FIRST_CLASSES if name in classes]
    ordered += sorted(name for name in classes if name not in _FIRST_CLASSES)
    rows = []
    for name in ordered:
        for run, report in zip(names, reports, strict=True):
            waits = report["waits"].get(name)
            if waits is not None and waits["n"]:
                lengths = [_length(waits[field]) for field in ("p50_s", "p90_s", "p99_s", "max_s")]
                whose = [cell(run)] if len(names) > 1 else []
                rows.append([cell(name), *whose, cell(f"{waits['n']:,}"), *lengths])
    whose_title = [Column(title="IN", least=8)] if len(names) > 1 else []
    numbers = [Column(title=title, right=True) for title in ("JOBS", "P50", "P90", "P99", "LONGEST")]
    return Table(columns=[Column(title="WAITS OF"), *whose_title, *numbers], rows=rows)


def _length(seconds: float | None) -> Cell:
    return cell(None if seconds is None else age(round(seconds * SECOND)))


def _share(fraction: float | None) -> Cell:
    return cell(None if fraction is None else f"{fraction * 100:.2f}%")
