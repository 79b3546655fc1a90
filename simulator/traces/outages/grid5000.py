"""Grid'5000's hosts 2005-2006 in the format of the Failure Trace Archive: intervals up and down, a row each.

A host counts as watched from its first interval to its last. Why it was down is not told, nor whether somebody meant
it: hosts are down for a sixth of the time.
"""

from pathlib import Path

from simulator.traces.notes import Action, Notes
from simulator.traces.outages.record import Observed, Outage
from simulator.traces.source import Unreadable, lines_of, whole
from tenure.domain.refusal import Refusal

COLUMNS = (
    "event_id",
    "component_id",
    "node_id",
    "platform_id",
    "node_name",
    "event_type",
    "event_start_time",
    "event_stop_time",
    "event_end_reason",
)
NAME, TYPE, START, STOP = (COLUMNS.index(name) for name in COLUMNS[4:8])
DOWN, UP = "0", "1"


def read(path: Path, *, notes: Notes) -> Observed:
    """The intervals in which hosts were down. Raises `Refusal`."""
    outages: list[Outage] = []
    watched: dict[str, tuple[int, int]] = {}
    header = False
    for line, text in lines_of(path):
        if text.startswith("#"):
            header = header or tuple(text.lstrip("#").split()) == COLUMNS
            continue
        if not header:
            fix = "name event_trace.tab of the archive, whose first line is # and the columns"
            raise Refusal(field=f"{path.name}:{line}", problem=f"no line before it with # {COLUMNS[0]} ...", fix=fix)
        notes.rows_read += 1
        try:
            place, kind, start_s, stop_s = _interval(text.split())
        except Unreadable as trouble:
            notes.add(Action.DROPPED, str(trouble), line=line)
            continue
        first_s, last_s = watched.get(place, (start_s, stop_s))
        watched[place] = min(first_s, start_s), max(last_s, stop_s)
        if kind == UP:
            notes.add(Action.DROPPED, "no outage: the host was up", line=line)
        elif stop_s == start_s:
            notes.add(Action.DROPPED, "an outage of no time", line=line)
        else:
            outages.append(Outage(place=place, down_s=start_s, up_s=stop_s, kind="down", line=line))
    return Observed(outages=outages, watched=watched)


def _interval(cells: list[str]) -> tuple[str, str, int, int]:
    """Host, type, start and stop of a row. Raises `Unreadable`."""
    if len(cells) != len(COLUMNS):
        raise Unreadable(f"not {len(COLUMNS)} cells")
    start_s, stop_s = (whole(cells[at], what=COLUMNS[at]) for at in (START, STOP))
    if start_s is None or stop_s is None:
        raise Unreadable("no time of start or of stop")
    if cells[TYPE] not in (DOWN, UP):
        raise Unreadable("event_type is neither 0 nor 1")
    if stop_s < start_s:
        raise Unreadable("stops before it starts")
    return cells[NAME], cells[TYPE], start_s, stop_s
