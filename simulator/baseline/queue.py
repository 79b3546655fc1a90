"""B1, the queue: first come, first served.

Jobs that are alike (same team, same shape) stand in one line: when the first of a line cannot start,
none of it can, so that thousands of blocked jobs cost as much as one.
"""

from bisect import bisect_left, insort
from collections.abc import Collection
from typing import NamedTuple

from tenure.domain.ids import BudgetPath, JobId
from tenure.domain.job import JobSpec, Wanted
from tenure.domain.units import Millis


class Alike(NamedTuple):
    """What decides whether a job may start: jobs with the same values start, or do not, alike.

    The team matters only to a job with a contract.
    """

    allocated: bool
    team: BudgetPath
    wanted: Wanted
    replicas: int
    gpus_per_replica: int


class Place(NamedTuple):
    """A job's place in its line: the original submit time, then the id."""

    submitted_at: Millis
    job: JobId


class Line:
    """Queued jobs that are alike, in order. `spec` is that of one of them: all have its shape."""

    __slots__ = ("alike", "gpus", "places", "spec", "untold")

    def __init__(self, alike: Alike, spec: JobSpec) -> None:
        self.alike = alike
        self.spec = spec
        self.gpus = spec.gpus
        self.places: list[Place] = []
        self.untold: dict[JobId, None] = {}
        """Jobs of which it was not said yet why they wait."""


class Queue:
    """All lines that are not empty."""

    def __init__(self) -> None:
        self.lines: dict[Alike, Line] = {}
        self.fresh: dict[Alike, None] = {}
        """Scratch: lines that got a job since they were last looked at."""
        self._places: dict[JobId, tuple[Alike, Place]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, job: JobId) -> bool:
        return job in self._places

    def add(self, job: JobId, spec: JobSpec, submitted_at: Millis, *, told: bool) -> None:
        """The job waits from now on. `told`: it was said why."""
        alike = alike_of(spec)
        line = self.lines.get(alike)
        if line is None:
            line = self.lines[alike] = Line(alike, spec)
        place = Place(submitted_at, job)
        insort(line.places, place)
        self._places[job] = (alike, place)
        self.fresh[alike] = None
        if not told:
            line.untold[job] = None

    def drop(self, job: JobId) -> None:
        """The job does not wait any more, if it did."""
        found = self._places.pop(job, None)
        if found is None:
            return
        alike, place = found
        line = self.lines[alike]
        del line.places[bisect_left(line.places, place)]
        line.untold.pop(job, None)
        if not line.places:
            del self.lines[alike]
            self.fresh.pop(alike, None)

    def tell(self, job: JobId) -> None:
        """It was said why the job waits."""
        found = self._places.get(job)
        if found is not None:
            self.lines[found[0]].untold.pop(job, None)

    def untold(self, line: Line, *, since: int) -> list[JobId]:
        """The jobs of the line from that index on of which it was not said why they wait, in order."""
        first = line.places[since]
        places = [self._places[job][1] for job in line.untold]
        return [place.job for place in sorted(places) if place >= first]

    def fresh_lines(self) -> Collection[Line]:
        """The lines that got a job lately."""
        return [self.lines[alike] for alike in self.fresh if alike in self.lines]


def alike_of(spec: JobSpec) -> Alike:
    """The line a job stands in."""
    team = spec.budget if spec.allocated else BudgetPath("")
    return Alike(spec.allocated, team, spec.wanted, spec.replicas, spec.gpus_per_replica)
