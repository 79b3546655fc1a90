"""Jobs that are alike to every rule of the placer: where one cannot start, the next cannot either."""

from collections.abc import Hashable
from typing import NamedTuple

from tenure.domain.ids import BudgetPath, JobId
from tenure.domain.job import HostChoice, JobSpec, Topology, Wanted
from tenure.domain.units import Millis

Shape = tuple[Wanted, int, int, Topology, HostChoice | None]
"""Clusters and types, replicas, GPUs per replica, topology, hosts by name: jobs of one shape fit, or do not, alike."""


class Alike(NamedTuple):
    """What decides where a job fits (P6), whom it may disrupt (P5) and which reserved hosts it may use (P8)."""

    budget: BudgetPath
    priority: int
    min_runtime_ms: Millis
    wanted: Wanted
    replicas: int
    gpus_per_replica: int
    topology: Topology
    choice: HostChoice | None

    @property
    def gpus(self) -> int:
        """GPUs of the gang."""
        return self.replicas * self.gpus_per_replica


def alike_of(spec: JobSpec) -> Alike:
    """The class a job is in."""
    return Alike(
        spec.budget,
        spec.priority,
        spec.min_runtime_ms,
        spec.wanted,
        spec.replicas,
        spec.gpus_per_replica,
        spec.topology,
        spec.choice,
    )


class Line:
    """The waiting jobs of one class, in the order in which they came in."""

    __slots__ = ("alike", "barren", "jobs", "told")

    def __init__(self, alike: Alike) -> None:
        self.alike = alike
        self.jobs: dict[JobId, None] = {}
        self.told: dict[JobId, Millis] = {}
        """Those that were told last that there is no timetable for them, and when."""
        self.barren: tuple[int, Hashable] | None = None
        """Scratch: no victims were found for the class when so much was within reach of it."""

    @property
    def shape(self) -> Shape:
        """What decides where the jobs fit."""
        alike = self.alike
        return alike.wanted, alike.replicas, alike.gpus_per_replica, alike.topology, alike.choice


class Waiting:
    """Jobs that may be started, by class."""

    __slots__ = ("line_of", "lines", "of_shape")

    def __init__(self) -> None:
        self.of_shape: dict[Shape, dict[Line, None]] = {}
        self.lines: dict[Alike, Line] = {}
        self.line_of: dict[JobId, Line] = {}

    def add(self, job: JobId, spec: JobSpec) -> None:
        """It waits now."""
        alike = alike_of(spec)
        line = self.lines.get(alike)
        if line is None:
            line = self.lines[alike] = Line(alike)
            self.of_shape.setdefault(line.shape, {})[line] = None
        line.jobs[job] = None
        self.line_of[job] = line

    def remove(self, job: JobId) -> None:
        """It does not wait any more, if it did."""
        line = self.line_of.pop(job, None)
        if line is not None:
            del line.jobs[job]
            line.told.pop(job, None)
            if not line.jobs:
                del self.lines[line.alike]
                of_shape = self.of_shape[line.shape]
                del of_shape[line]
                if not of_shape:
                    del self.of_shape[line.shape]
