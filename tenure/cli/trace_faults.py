"""`tenure trace faults`: a `faults.csv` for `tenure simulate --faults`, from the recorded failures of others."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenure.cli import parsing
from tenure.cli.files import replacing, writable
from tenure.cli.options import Json
from tenure.cli.terminal import Column, Table, cell, print_json, print_table
from tenure.domain.refusal import Refusal
from tenure.domain.units import HOUR, SECOND

if TYPE_CHECKING:
    from simulator.traces.outages.scale import FaultRow, Scaled, Scaling

DAY_S = 86_400
SOURCES = ("titan", "lanl", "grid5000")
NOTE_COLUMNS = (
    Column(title="ROWS", right=True),
    Column(title="WERE"),
    Column(title="BECAUSE", least=24),
    Column(title="FIRST LINE", right=True, drop=1),
)
Usage = Callable[[str], AbstractContextManager[None]]


def register(group: typer.Typer, usage: Usage) -> None:
    """Add the command to `tenure trace`."""

    @group.command("faults")
    def faults(
        file: Annotated[Path, typer.Argument(metavar="FILE", help="As it is, gzip or xz.", show_default=False)],
        source: Annotated[
            str, typer.Option("--from", metavar="RECORD", help="titan, lanl or grid5000.", show_default=False)
        ],
        cluster: Annotated[Path, typer.Option("--cluster", metavar="FILE", help="cluster.yaml.", show_default=False)],
        out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="faults.csv.", show_default=False)],
        since: Annotated[
            str, typer.Option(metavar="DATE", help="First day of the window.", show_default="the record's first")
        ] = "",
        days: Annotated[float, typer.Option(min=0.01, max=10_000, help="How long the cluster lives.")] = 37,
        times: Annotated[
            float, typer.Option(min=0.01, max=1_000, help="So many days of the record in each: faults as often.")
        ] = 1,
        repair: Annotated[
            Any, typer.Option(parser=parsing.duration, metavar="TIME", help="Where the record has no end.")
        ] = 12 * HOUR,
        warn: Annotated[
            list[str] | None, typer.Option(metavar="KIND", help="Told while the host works on. Repeatable.")
        ] = None,
        beside: Annotated[
            Path | None, typer.Option("--with", metavar="FILE", help="A faults.csv to add.", show_default="none")
        ] = None,
        seed: Annotated[int, typer.Option(help="Draws the places; the same seed draws the same.")] = 1,
        as_json: Json = False,
    ) -> None:
        """Make outages of hosts of other clusters' recorded failures, and say what was dropped, changed or clipped.

        Places of the record are drawn for the cluster: one for each GPU (titan) or for each host (lanl, grid5000).
        """
        with usage("faults"):
            place = writable(out, field="--out")
            scaling = _scaling(cluster, since, days, times, repair, seed, tuple(warn or ()))
            scaled = _import(file, source, scaling)
            rows, joined = _added(scaled, beside, scaling)
        _write(place, rows)
        _tell(scaled, rows, joined, out, as_json=as_json)


def _scaling(
    cluster: Path, since: str, days: float, times: float, repair: int, seed: int, warned: tuple[str, ...]
) -> "Scaling":
    """The options, read. Raises `Refusal`."""
    from simulator.traces.outages.scale import Scaling
    from tenure.runtime.cluster_file import load_cluster

    if repair < SECOND:
        raise Refusal(field="--repair", problem="shorter than a second", fix="write a time such as 12h")
    return Scaling(
        hosts=load_cluster(cluster),
        since_s=_day_s(since) if since else None,
        days=days,
        times=times,
        seed=seed,
        repair_s=repair // SECOND,
        warned=warned,
    )


def _day_s(text: str) -> int:
    try:
        return int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise Refusal(field="--since", problem=f"{text[:40]!r} is no day", fix="write it as 2016-08-01") from None


def _import(file: Path, source: str, scaling: "Scaling") -> "Scaled":
    from simulator.traces.outages.scale import Source, import_outages

    if source not in SOURCES:
        raise Refusal(field="--from", problem=f"{source[:40]!r} is not known", fix=f"choose {', '.join(SOURCES)}")
    return import_outages(file, source=Source(source), scaling=scaling)


def _added(scaled: "Scaled", beside: Path | None, scaling: "Scaling") -> "tuple[list[FaultRow], int]":
    """All outages, with those of another file, and how many became part of others then. Raises `Refusal`."""
    from simulator.faults import read_faults
    from simulator.traces.outages.scale import added

    return (scaled.rows, 0) if beside is None else added(scaled.rows, read_faults(beside, hosts=scaling.hosts))


def _write(place: Path, rows: "list[FaultRow]") -> None:
    from simulator.traces.outages.scale import chunks

    with replacing(place) as file:
        for chunk in chunks(rows):
            file.write(chunk)


def _tell(scaled: "Scaled", rows: "list[FaultRow]", joined: int, out: Path, *, as_json: bool) -> None:
    """What was read, what became of it, and how much is down."""
    notes = scaled.notes
    kinds = {kind: sum(row.kind == kind for row in rows) for kind in sorted({row.kind for row in rows})}
    down_h = sum(row.up_s - row.down_s for row in rows if row.up_s is not None) / 3_600
    since = datetime.fromtimestamp(scaled.since_s, tz=UTC).strftime("%Y-%m-%d")
    if as_json:
        print_json(
            {
                "rows_read": notes.rows_read,
                "rows_dropped": notes.dropped,
                "outages": len(scaled.rows),
                "outages_written": len(rows),
                "outages_joined": joined,
                "host_hours": down_h,
                "since": since,
                "places": scaled.places,
                "places_drawn": scaled.drawn,
                "kinds": [{"kind": kind, "outages": count} for kind, count in kinds.items()],
                "notes": [
                    {"action": note.action, "why": note.why, "rows": note.count, "first_line": note.first_line}
                    for note in notes.listing()
                ],
            }
        )
        return
    told = [
        [cell(f"{note.count:,}"), cell(note.action), cell(note.why), cell(note.first_line)] for note in notes.listing()
    ]
    more = len(rows) + joined - len(scaled.rows)
    beside = f", {more:,} of the other file, {joined:,} of them all part of another" if more else ""
    print_table(Table(columns=NOTE_COLUMNS, rows=told), empty="Every row was taken as it is.")
    said = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items()) or "none"
    print(
        f"\n{len(scaled.rows):,} outages of {notes.rows_read:,} rows"
        f"{beside}; in {out} are {len(rows):,}, {down_h:,.0f} host-hours: {said}\n"
        f"{scaled.drawn:,} of {scaled.places:,} places were drawn, from {since} on"
    )
