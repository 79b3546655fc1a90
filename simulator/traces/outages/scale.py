"""From recorded outages to those of a cluster's hosts: places drawn, a window, how often, none on top of another.

importer -> Observed -> scale -> FaultRows -> faults.csv; what was done to the rows -> Notes
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec

from simulator.faults import COLUMNS, Fault
from simulator.traces.notes import Action, Notes
from simulator.traces.outages import grid5000, lanl, titan
from simulator.traces.outages.record import Observed, Outage
from simulator.world import WARNED
from tenure.domain.host import HostSpec
from tenure.domain.ids import HostId
from tenure.domain.nearest import listed
from tenure.domain.refusal import Refusal
from tenure.domain.units import SECOND

DAY_S = 86_400


class Source(StrEnum):
    """The records that can be read."""

    TITAN = "titan"
    LANL = "lanl"
    GRID5000 = "grid5000"


READERS: dict[Source, Callable[..., Observed]] = {
    Source.TITAN: titan.read,
    Source.LANL: lanl.read,
    Source.GRID5000: grid5000.read,
}
A_GPU = frozenset({Source.TITAN})
"""Sources whose place is one GPU. A place of the others is a host."""


class Scaling(msgspec.Struct, frozen=True, kw_only=True):
    """How a record becomes the outages of some hosts.

    `since_s`: where the window begins on the source's clock (None: with the record). `days` of the cluster's life are
    filled with `times` as many of the record, so that outages come `times` as often and each lasts as long as it did.
    `repair_s` stands for what the source does not say. Outages of the kinds `warned` are told before they are felt.
    """

    hosts: tuple[HostSpec, ...]
    since_s: int | None = None
    days: float = 37
    times: float = 1
    seed: int = 1
    repair_s: int = 12 * 3_600
    warned: tuple[str, ...] = ()


class FaultRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of faults.csv. Seconds from its start."""

    host: str
    down_s: int
    up_s: int | None
    """None: never."""
    kind: str


assert FaultRow.__struct_fields__ == COLUMNS, "what is written is what is read"


class Scaled(msgspec.Struct, frozen=True, kw_only=True):
    """The outages of a cluster, and what was done to the record to get them."""

    rows: list[FaultRow]
    notes: Notes
    places: int
    """Those that were watched all through the window."""
    drawn: int
    since_s: int


def import_outages(path: Path, *, source: Source, scaling: Scaling) -> Scaled:
    """The outages in a record, as those of `scaling.hosts`. Raises `Refusal` if it is none, or too small."""
    notes = Notes()
    observed = READERS[source](path, notes=notes)
    if not observed.outages:
        reasons = listed([f"{note.why} ({note.count})" for note in notes.listing()], most=4) or "no rows"
        raise Refusal(field=path.name, problem=f"no outage is left: {reasons}", fix=f"name a file of {source}")
    since_s = min(low for low, _ in observed.watched.values()) if scaling.since_s is None else scaling.since_s
    until_s = since_s + round(scaling.days * scaling.times * DAY_S)
    places = sorted(place for place, (low, high) in observed.watched.items() if low <= since_s and until_s <= high)
    slots = [spec.host for spec in scaling.hosts for _ in range(spec.gpus if source in A_GPU else 1)]
    if len(places) < len(slots):
        what = "GPUs" if source in A_GPU else "hosts"
        raise Refusal(
            field="--cluster",
            problem=f"{len(slots)} {what}, and the record has {len(places)} that it watched all through the window",
            fix="choose another window by --since and --days, fewer --times, or a smaller cluster",
        )
    drawn = random.Random(scaling.seed).sample(places, len(slots))  # not for secrets
    host_of = dict(zip(drawn, slots, strict=True))
    rows = [
        (_row(host_of[outage.place], outage, scaling=scaling, since_s=since_s, notes=notes), outage.line)
        for outage in observed.outages
        if _is_wanted(outage, drawn=host_of, since_s=since_s, until_s=until_s, notes=notes)
    ]
    apart = _apart(rows, notes=notes)
    assert notes.rows_read == len(apart) + notes.dropped, "every row is an outage or was dropped for a reason"
    return Scaled(rows=apart, notes=notes, places=len(places), drawn=len(drawn), since_s=since_s)


def chunks(rows: Iterable[FaultRow]) -> Iterator[bytes]:
    """The bytes of the file, a line a piece, the columns first."""
    yield f"{','.join(COLUMNS)}\n".encode()
    for row in rows:
        yield f"{row.host},{row.down_s},{'' if row.up_s is None else row.up_s},{row.kind}\n".encode()


def _is_wanted(outage: Outage, *, drawn: Mapping[str, HostId], since_s: int, until_s: int, notes: Notes) -> bool:
    """Whether it is of a place that was drawn and goes on in the window; noted if not."""
    if outage.place not in drawn:
        why = "of a place that was not drawn for this cluster"
    elif outage.down_s >= until_s:
        why = "after the window"
    elif (outage.down_s if outage.up_s is None else outage.up_s) <= since_s:
        why = "before the window"
    else:
        return True
    notes.add(Action.DROPPED, why, line=outage.line)
    return False


def _row(host: HostId, outage: Outage, *, scaling: Scaling, since_s: int, notes: Notes) -> FaultRow:
    """The outage on the cluster's clock: it begins earlier by `times`, and lasts as long as it did."""
    down_s, up_s = outage.down_s, outage.up_s
    if up_s is None:
        notes.add(Action.CHANGED, "its end is not told: as long as --repair", line=outage.line)
        up_s = down_s + scaling.repair_s
    if down_s < since_s:
        notes.add(Action.CLIPPED, "began before the window: cut to the window's beginning", line=outage.line)
        down_s = since_s
    at_s = round((down_s - since_s) / scaling.times)
    kind = f"{WARNED}{outage.kind}" if outage.kind in scaling.warned else outage.kind
    return FaultRow(host=host, down_s=at_s, up_s=at_s + up_s - down_s, kind=kind)


def _apart(rows: list[tuple[FaultRow, int]], *, notes: Notes) -> list[FaultRow]:
    """The outages one after another; those that became part of others are noted."""
    kept, joined = in_turn(rows)
    for line in joined:
        notes.add(Action.DROPPED, "its host was down: part of that outage", line=line)
    return kept


def in_turn(rows: Iterable[tuple[FaultRow, int]]) -> tuple[list[FaultRow], list[int]]:
    """The outages by time, then host. One that begins while its host is down only makes that outage longer.

    The second list has the lines of those.
    """
    kept: list[FaultRow] = []
    joined: list[int] = []
    last: dict[str, int] = {}
    """Which outage is the last of its host."""
    for row, line in sorted(rows, key=lambda entry: (entry[0].down_s, entry[0].host, entry[1])):
        index = last.get(row.host)
        earlier_up_s = -1 if index is None else kept[index].up_s
        if index is None or (earlier_up_s is not None and earlier_up_s < row.down_s):
            last[row.host] = len(kept)
            kept.append(row)
            continue
        joined.append(line)
        up_s = None if earlier_up_s is None or row.up_s is None else max(earlier_up_s, row.up_s)
        kept[index] = msgspec.structs.replace(kept[index], up_s=up_s)
    return kept, joined


def added(rows: Iterable[FaultRow], others: Sequence[Fault]) -> tuple[list[FaultRow], int]:
    """The outages with those of another faults.csv, to the second, and how many became part of others."""
    read = [
        FaultRow(
            host=fault.host,
            down_s=fault.down_at // SECOND,
            up_s=None if fault.up_at is None else -(-fault.up_at // SECOND),
            kind=fault.kind,
        )
        for fault in others
    ]
    kept, joined = in_turn([(row, 0) for row in (*read, *rows)])
    return kept, len(joined)
