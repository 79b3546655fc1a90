"""Titan's GPU lives (Ostrouchov et al., SC'20): a stay of one GPU at one place a row; a host has one GPU.

What failed was dated by when it was taken out, some in an inventory of the whole machine. When its place worked again
is not told: the next GPU was entered weeks later, in the next inventory.
"""

from pathlib import Path

from simulator.traces.notes import Action, Notes
from simulator.traces.outages.record import Observed, Outage, wall_s
from simulator.traces.source import Columns, Unreadable, csv_rows

FORM = "%Y-%m-%d %H:%M:%S"
HINT = "name gc_full.csv of OLCF's TitanGPULife"
KINDS = {"DBE": "dbe", "OTB": "otb"}
"""Double-bit ECC error, fallen off the bus."""


def read(path: Path, *, notes: Notes) -> Observed:
    """The faults in the file. All places count as watched from its first to its last second. Raises `Refusal`."""
    rows = csv_rows(path, notes=notes)
    line, header = next(rows)
    columns = Columns(header, name=path.name, line=line)
    columns.need("location", "insert", "remove", "event", hint=HINT)
    place_at, insert_at, remove_at, event_at = (columns.at(name) for name in ("location", "insert", "remove", "event"))
    outages: list[Outage] = []
    places: dict[str, None] = {}
    first, last = None, 0
    for line, row in rows:
        place, event = row[place_at].strip(), row[event_at].strip().upper()
        try:
            removed_s = wall_s(row[remove_at], FORM, what="remove")
        except Unreadable as trouble:
            notes.add(Action.DROPPED, str(trouble), line=line)
            continue
        if not place:
            notes.add(Action.DROPPED, "no location", line=line)
            continue
        places[place] = None
        first, last = min(first or removed_s, removed_s), max(last, removed_s)
        if event in ("", "NA"):
            notes.add(Action.DROPPED, "no fault: the GPU was moved, or was there at the end", line=line)
        elif event not in KINDS:
            notes.add(Action.DROPPED, "event is neither DBE nor OTB", line=line)
        else:
            if row[insert_at].strip() in ("", "NA"):
                notes.add(Action.KEPT, "no time of insertion: the fault is dated by the removal anyway", line=line)
            outages.append(Outage(place=place, down_s=removed_s, up_s=None, kind=KINDS[event], line=line))
    watched = dict.fromkeys(places, (first or 0, last))
    return Observed(outages=outages, watched=watched)
