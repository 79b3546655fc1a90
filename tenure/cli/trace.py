"""`tenure trace`: a `trace.csv` for `tenure simulate`, from another scheduler's records or from nothing but a seed."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenure.cli import parsing, trace_faults
from tenure.cli.files import replacing, writable
from tenure.cli.options import SYSTEM, Json
from tenure.cli.terminal import Cell, Column, Table, cell, clean, print_json, print_table
from tenure.domain.refusal import Refusal
from tenure.domain.units import DAY, SECOND

if TYPE_CHECKING:
    from simulator.traces.convert import Imported, Options
    from simulator.traces.generate import Month
    from simulator.traces.write import TraceRow

USAGE = 2
HOUR_S, DAY_S = 3_600, 86_400
SOURCES = ("philly", "openb", "swf", "sacct")
NOTE_COLUMNS = (
    Column(title="ROWS", right=True),
    Column(title="WERE"),
    Column(title="BECAUSE", least=24),
    Column(title="FIRST LINE", right=True, drop=1),
)
RULE_COLUMNS = (
    Column(title="JOBS", right=True),
    Column(title="SIGNED BY RULE", least=24),
)
KIND_COLUMNS = (
    Column(title="KIND"),
    Column(title="JOBS", right=True),
    Column(title="GPU-HOURS", right=True),
    Column(title="OF ALL", right=True),
    Column(title="LARGEST", right=True),
)
group = typer.Typer(no_args_is_help=True, help="Traces and faults to simulate: imported, or constructed.")
Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="trace.csv[.gz].", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the group to the tree."""
    trace_faults.register(group, _usage)
    app.add_typer(group, name="trace", rich_help_panel=SYSTEM)


@group.command("import")
def import_trace(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="As it is, or gzip.", show_default=False)],
    source: Annotated[
        str, typer.Option("--from", metavar="FORMAT", help="philly, openb, swf or sacct.", show_default=False)
    ],
    out: Out,
    rules: Annotated[
        list[str] | None,
        typer.Option("--contract", metavar="RULE", help="For jobs that signed none, see below. Repeatable."),
    ] = None,
    gpus_per_host: Annotated[int, typer.Option(min=1, max=64, help="What replicas have to fit.")] = 8,
    max_gpus: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="The cluster's: larger jobs are clipped.", show_default="no limit")
    ] = 0,
    budgets_out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="budgets.yaml with shares by GPU-time.", show_default=False)
    ] = None,
    budget_map: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Budgets of groups: lines of group,budget.", show_default=False)
    ] = None,
    timezone: Annotated[
        str, typer.Option(metavar="ZONE", help="Of wall times.", show_default="UTC; philly: America/Los_Angeles")
    ] = "",
    since: Annotated[
        Any, typer.Option(parser=parsing.duration, metavar="TIME", help="Leave out what came before.")
    ] = 0,
    days: Annotated[float, typer.Option(min=0.0, max=10_000, help="So many, from --since.", show_default="all")] = 0.0,
    as_json: Json = False,
) -> None:
    """Make a trace of another scheduler's records, and say what was dropped, changed or clipped, and why.

    A contract rule is CONDITIONS: SETTINGS, such as 'gpus<=1: min_runtime=15m'.
    All its conditions have to hold; the first rule that fits a job counts.

    Conditions, with commas between them:
    gpus<=8, runtime>2h, limit=1h: compared by <= >= < > =
    budget=NAME, user=NAME, qos=NAME, partition=NAME: * and ? stand for anything
    share=30%: of the jobs that come to the rule, chosen by their ids
    all: every job

    Settings, with commas between them:
    unallocated, or min_runtime=15m, or min_runtime=50% of the runtime
    floor=15m, cap=8h: bounds of that percentage
    resumable: without it a job cannot resume
    priority=1, kind=NAME

    Jobs that no rule fits fall to these:
    gpus<=8, share=30%: unallocated, resumable
    gpus<=8, runtime<=15m: min_runtime=15m
    all: min_runtime=50%, floor=15m, cap=8h, resumable
    """
    with _usage("import"):
        place = writable(out, field="--out")
        shares_place = None if budgets_out is None else writable(budgets_out, field="--budgets-out")
        window = (since // SECOND, round((since / DAY + days) * DAY_S) if days else 0)
        options = _options(rules or (), gpus_per_host, max_gpus, budget_map, timezone, window)
        imported = _import(file, source, options)
    _write(place, imported.rows)
    _write_budgets(shares_place, imported)
    _tell_import(imported, out, as_json=as_json)


@group.command("generate")
def generate_trace(
    cluster: Annotated[Path, typer.Option("--cluster", metavar="FILE", help="cluster.yaml.", show_default=False)],
    budgets: Annotated[Path, typer.Option("--budgets", metavar="FILE", help="budgets.yaml.", show_default=False)],
    out: Out,
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same trace.")] = 1,
    days: Annotated[int, typer.Option("--days", help="How long jobs are submitted.")] = 37,
    demand: Annotated[
        float, typer.Option("--demand", help="GPUs asked for by unfinished jobs, over GPUs there; held within 0.5.")
    ] = 2.5,
    users: Annotated[int, typer.Option("--users", help="About so many people, at least two a budget.")] = 150,
    largest: Annotated[
        float, typer.Option("--largest", help="Part of the hosts that the largest gangs ask for.")
    ] = 0.5,
    unallocated: Annotated[float, typer.Option("--unallocated", help="Part of the GPU-time that is sweeps.")] = 0.15,
    as_json: Json = False,
) -> None:
    """Construct a trace: teams with office hours, deadlines and pauses; debug jobs, sessions, sweeps and gangs."""
    with _usage("generate"):
        from simulator.traces.generate import Month, generate
        from tenure.runtime.budgets_file import load_budgets
        from tenure.runtime.cluster_file import load_cluster

        place = writable(out, field="--out")
        month = Month(
            hosts=load_cluster(cluster),
            tree=load_budgets(budgets),
            days=days,
            seed=seed,
            demand=demand,
            users=users,
            largest=largest,
            unallocated=unallocated,
        )
        rows = generate(month)
    _write(place, rows)
    _tell_generated(rows, month, out, as_json=as_json)


@contextlib.contextmanager
def _usage(command: str) -> Iterator[None]:
    """What is refused inside is said in one line and exits with 2."""
    try:
        yield
    except Refusal as refusal:
        print(f"tenure trace {command}: {clean(' '.join(str(refusal).split()))}", file=sys.stderr)
        raise typer.Exit(USAGE) from refusal


def _options(
    rules: Sequence[str],
    gpus_per_host: int,
    max_gpus: int,
    budget_map: Path | None,
    timezone: str,
    window: tuple[int, int],
) -> "Options":
    """The options of an import, read. Raises `Refusal`."""
    from simulator.traces.contract import parse_rules
    from simulator.traces.convert import Options
    from simulator.traces.shares import load_map

    return Options(
        rules=parse_rules(rules),
        gpus_per_host=gpus_per_host,
        most_gpus=max_gpus,
        budgets=None if budget_map is None else load_map(budget_map),
        timezone=timezone,
        since_s=window[0],
        until_s=window[1],
    )


def _import(file: Path, source: str, options: "Options") -> "Imported":
    from simulator.traces.convert import Source, import_trace

    if source not in SOURCES:
        raise Refusal(field="--from", problem=f"{source[:40]!r} is not known", fix=f"choose {', '.join(SOURCES)}")
    return import_trace(file, source=Source(source), options=options)


def _write(place: Path, rows: "Sequence[TraceRow]") -> None:
    from simulator.traces.write import chunks

    with replacing(place) as file:
        for chunk in chunks(rows):
            file.write(chunk)


def _write_budgets(place: Path | None, imported: "Imported") -> None:
    from simulator.traces.shares import budgets_yaml

    if place is not None:
        with replacing(place) as file:
            file.write("".join(f"{line}\n" for line in budgets_yaml(imported.gpu_s)).encode())


def _tell_import(imported: "Imported", out: Path, *, as_json: bool) -> None:
    """What was read, what became of it, and which rule wrote how many contracts."""
    rows, notes = imported.rows, imported.notes
    days, gpu_hours = rows[-1].submit_s / DAY_S, sum(imported.gpu_s.values()) / HOUR_S
    if as_json:
        print_json(
            {
                "rows_read": notes.rows_read,
                "rows_dropped": notes.dropped,
                "jobs": len(rows),
                "days": days,
                "gpu_hours": gpu_hours,
                "largest_gpus": max(row.gpus for row in rows),
                "notes": [
                    {"action": note.action, "why": note.why, "rows": note.count, "first_line": note.first_line}
                    for note in notes.listing()
                ],
                "contracts": [
                    {"rule": rule.text, "jobs": count}
                    for rule, count in zip(imported.rules, imported.signed, strict=True)
                ],
                "budgets": [
                    {"path": path, "gpu_hours": gpu_s / HOUR_S} for path, gpu_s in sorted(imported.gpu_s.items())
                ],
            }
        )
        return
    told = [
        [cell(f"{note.count:,}"), cell(note.action), cell(note.why), cell(note.first_line)] for note in notes.listing()
    ]
    print_table(Table(columns=NOTE_COLUMNS, rows=told), empty="Every row was taken as it is.")
    print()
    contracts = zip(imported.signed, imported.rules, strict=True)
    print_table(
        Table(columns=RULE_COLUMNS, rows=[[cell(f"{count:,}"), cell(rule.text)] for count, rule in contracts]), empty=""
    )
    print(
        f"\n{len(rows):,} jobs of {notes.rows_read:,} rows are in {out}: {days:.1f} days, {gpu_hours:,.0f} GPU-hours, "
        f"{len(imported.gpu_s)} budgets"
    )


def _tell_generated(rows: "Sequence[TraceRow]", month: "Month", out: Path, *, as_json: bool) -> None:
    """What was constructed, and how much of it is outstanding after the first day."""
    from simulator.traces.fluid import outstanding

    samples = outstanding(rows, gpus=month.gpus, unallocated=month.unallocated)
    levels = [level for at_s, level in samples if at_s >= DAY_S] or [0.0]
    lowest, highest = min(levels), max(levels)
    gpu_s = sum(row.gpu_s for row in rows)
    kinds = {kind: [row for row in rows if row.kind == kind] for kind in sorted({row.kind for row in rows})}
    if as_json:
        listing = [
            {"kind": kind, "jobs": len(of_kind), "gpu_hours": sum(row.gpu_s for row in of_kind) / HOUR_S}
            for kind, of_kind in kinds.items()
        ]
        demand = {"min": lowest, "max": highest}
        print_json({"jobs": len(rows), "gpu_hours": gpu_s / HOUR_S, "kinds": listing, "outstanding_demand": demand})
        return
    told: list[list[Cell]] = []
    for kind, of_kind in kinds.items():
        part = sum(row.gpu_s for row in of_kind)
        largest = max(row.gpus for row in of_kind)
        words = (kind, f"{len(of_kind):,}", f"{part / HOUR_S:,.0f}", f"{100 * part / gpu_s:.1f} %", largest)
        told.append([cell(word) for word in words])
    print_table(Table(columns=KIND_COLUMNS, rows=told), empty="No jobs.")
    print(
        f"\n{len(rows):,} jobs of {len({row.user for row in rows})} people are in {out}: {gpu_s / HOUR_S:,.0f} "
        f"GPU-hours; after the first day {lowest:.2f} to {highest:.2f} times the GPUs are asked for"
    )
