"""LANL's host outages 1995-2005 (LA-UR-05-7318), a row each. We recognise Los Alamos for providing these data.

A system counts as watched from its first outage to its last: the dates of installation are damaged. It has as many
hosts as it says, those that never failed too.
"""

from pathlib import Path

from simulator.traces.notes import Action, Notes
from simulator.traces.outages.record import Observed, Outage, wall_s
from simulator.traces.source import Columns, Unreadable, csv_rows, number, whole

FORM = "%m/%d/%Y %H:%M"
HINT = "name LA-UR-05-7318-failure-data-1996-2005.csv"
CAUSES = ("Hardware", "Software", "Network", "Facilities", "Human Error", "Undetermined")
TIMES = ("Prob Started", "Prob Fixed")
HOSTS_MAX = 100_000
ROUNDED_S = 60
"""The minutes of Down Time were rounded, now and then one off."""


def read(path: Path, *, notes: Notes) -> Observed:
    """The outages in the file. Raises `Refusal`."""
    rows = csv_rows(path, notes=notes)
    line, header = next(rows)
    columns = Columns(header, name=path.name, line=line)
    columns.need("System", "nodes", "nodenumz", *TIMES, "Down Time", *CAUSES, hint=HINT)
    reader = _Reader(columns, notes=notes)
    outages = []
    for line, row in rows:
        try:
            outage = reader.outage(line, row)
        except Unreadable as trouble:
            notes.add(Action.DROPPED, str(trouble), line=line)
            continue
        if outage is not None:
            outages.append(outage)
    return Observed(outages=outages, watched=reader.watched())


class _Reader:
    """Reads rows, and keeps of every system its hosts and since when and until when it was watched."""

    def __init__(self, columns: Columns, *, notes: Notes) -> None:
        self._columns, self._notes = columns, notes
        self._hosts: dict[str, set[int]] = {}
        self._between: dict[str, tuple[int, int]] = {}

    def outage(self, line: int, row: list[str]) -> Outage | None:
        """The outage of a row; None, with a note, if it is none. Raises `Unreadable`."""
        system = self._cell(row, "System")
        host = whole(self._cell(row, "nodenumz"), what="nodenumz")
        hosts = whole(self._cell(row, "nodes"), what="nodes")
        down_s, up_s = (wall_s(self._cell(row, name), FORM, what=name) for name in TIMES)
        minutes = number(self._cell(row, "Down Time"), what="Down Time")
        if not system or host is None:
            raise Unreadable("no system, or no number of its host")
        if max(host, hosts or 0) > HOSTS_MAX:
            raise Unreadable("nodes is out of range")
        first_s, last_s = self._between.get(system, (down_s, down_s))
        self._between[system] = min(first_s, down_s), max(last_s, down_s)
        self._hosts.setdefault(system, set(range(hosts or 0))).add(host)
        if up_s <= down_s:
            why = "fixed when it started: an outage of no time" if up_s == down_s else "fixed before it started"
            self._notes.add(Action.DROPPED, why, line=line)
            return None
        if minutes is not None and abs(minutes * 60 - (up_s - down_s)) > ROUNDED_S:
            self._notes.add(Action.CHANGED, "Down Time differs from the two times: the times count", line=line)
        kind = next((cause for cause in CAUSES if self._cell(row, cause)), "unknown")
        return Outage(
            place=_place(system, host), down_s=down_s, up_s=up_s, kind=kind.lower().replace(" ", "-"), line=line
        )

    def watched(self) -> dict[str, tuple[int, int]]:
        """Every host of every system."""
        return {_place(system, host): self._between[system] for system, hosts in self._hosts.items() for host in hosts}

    def _cell(self, row: list[str], name: str) -> str:
        return row[self._columns.at(name)].strip()


def _place(system: str, host: int) -> str:
    return f"{system}/{host:06d}"
