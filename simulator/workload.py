"""`trace.csv[.gz]`: the jobs of a history or a what-if, as they were or would be submitted (design, section 6).

    job_id,submit_s,budget,user,replicas,gpus_per_replica,min_runtime_s,runtime_s,resumable,priority,kind[,gpu_type][,cluster]

Columns stand in any order. `submit_s` counts from the start of the trace, `runtime_s` is the work of the job, both in
seconds, which may have fractions. What a cluster or a policy refuses (a job larger than the cluster, a minimum runtime
above the cap) is no error here: admission rejects it in the simulation, as it would have been.
"""

from collections.abc import Callable, Iterator
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import IO, Any

import msgspec

from simulator import csv_file
from simulator.agents import Behaviour
from tenure.domain.admission import PRIORITY_MAX, REPLICAS_MAX, check_budget
from tenure.domain.ids import BudgetPath, JobId, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.domain.names import check_label, check_word
from tenure.domain.nearest import shown
from tenure.domain.refusal import Refusal
from tenure.domain.shape import GPUS_PER_HOST_MAX
from tenure.domain.tree import BudgetTree
from tenure.domain.units import Millis

COLUMNS = (
    "job_id",
    "submit_s",
    "budget",
    "user",
    "replicas",
    "gpus_per_replica",
    "min_runtime_s",
    "runtime_s",
    "resumable",
    "priority",
    "kind",
)
OPTIONAL = ("gpu_type", "cluster")
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_LAUNCH = Launch(command=("simulated",))
"""Nothing is launched, but a job has a command."""


class TraceJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job of a trace. `submitted_at` is milliseconds from its start, `runs_for_ms` the work to be done.

    `behaviour`: what its processes do, where more is known than how long they work.
    """

    job: JobId
    submitted_at: Millis
    spec: JobSpec
    runs_for_ms: Millis
    kind: str
    behaviour: Behaviour | None = None


class BadRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A row that was skipped: the line of the file it stands in (the columns are line 1), and all that is wrong."""

    line: int
    reason: str


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace holds: jobs in order of submission, then of id, and the rows that were skipped."""

    jobs: tuple[TraceJob, ...]
    bad: tuple[BadRow, ...] = ()


def read_trace(path: Path, *, tree: BudgetTree, skip_bad: bool = False) -> Workload:
    """The jobs in a file, each funded by a leaf of `tree`.

    Raises `Refusal` naming file, line and column of the first bad row; with `skip_bad` such rows are left out and
    returned. A file without any good row is refused in both cases.
    """
    bad: list[BadRow] = []
    with csv_file.opened(path) as file:
        names = csv_file.columns(file.readline(csv_file.LINE_BYTES_MAX), path=path, required=COLUMNS, optional=OPTIONAL)
        rows = _Rows(names, tree=tree)
        jobs: list[TraceJob] = []
        for line, job in rows.read(file):
            if isinstance(job, TraceJob):
                jobs.append(job)
                continue
            refusal = csv_file.placed(job, f"{path}:{line}")
            if not skip_bad:
                raise refusal
            bad.append(BadRow(line=line, reason=str(refusal)))
    if not jobs:
        reason = f"none of its {len(bad)} rows can be used ({bad[0].reason})" if bad else "no jobs below the columns"
        raise Refusal(field=str(path), problem=reason, fix="give one row for each job")
    jobs.sort(key=attrgetter("submitted_at", "job"))
    return Workload(jobs=tuple(jobs), bad=tuple(bad))


class _Rows:
    """Reads rows, cheaply where they repeat: a text is checked once a column, jobs alike share one specification."""

    def __init__(self, names: dict[str, int], *, tree: BudgetTree) -> None:
        self._names, self._tree = names, tree
        self._lines: dict[str, int] = {}
        """The line of each job that was read."""
        self._kinds: dict[str, str] = {}
        self._of_spec = tuple(column for column in _FIELDS if column in names)
        self._values: dict[str, dict[str, Any]] = {column: {} for column in self._of_spec}
        self._specs: dict[tuple[str, ...], JobSpec] = {}
        """By the texts they were made of, in the order of `_of_spec`."""

    def read(self, file: IO[bytes]) -> Iterator[tuple[int, TraceJob | Refusal]]:
        """Each row below the columns with its line, as a job or as what is wrong with it."""
        names = self._names
        width, specs, lines, kinds, seconds = len(names), self._specs, self._lines, self._kinds, csv_file.seconds
        job_id, submit, runtime, kind = (names[name] for name in ("job_id", "submit_s", "runtime_s", "kind"))
        of_spec = itemgetter(*(names[column] for column in self._of_spec))
        for line, raw in enumerate(file, start=2):
            if raw.isspace():
                continue
            try:
                row = csv_file.fields(raw)
                if len(row) != width:
                    csv_file.check_width(row, names=names)
                job = TraceJob(
                    job=self._job_id(row[job_id]),
                    submitted_at=seconds(row[submit], column="submit_s"),
                    spec=specs.get(key := of_spec(row)) or self._spec(key),
                    runs_for_ms=seconds(row[runtime], column="runtime_s"),
                    kind=kinds.get(row[kind]) or self._kind(row[kind]),
                )
                lines[job.job] = line
                yield line, job
            except Refusal as refusal:
                yield line, refusal

    def _job_id(self, text: str) -> JobId:
        word = text.strip()
        if word in self._lines:
            problem = f"{shown(word)} is also in line {self._lines[word]}"
            raise Refusal(field="job_id", problem=problem, fix="give each job an id of its own")
        if not word:
            raise Refusal(field="job_id", problem="empty", fix="give each job an id of its own")
        return JobId(check_label(word, field="job_id"))

    def _kind(self, text: str) -> str:
        self._kinds[text] = kind = check_label(text.strip(), field="kind")
        return kind

    def _spec(self, key: tuple[str, ...]) -> JobSpec:
        """What the texts of a row ask for. Raises `Refusal`."""
        values: dict[str, Any] = {}
        for column, text in zip(self._of_spec, key, strict=True):
            known, (name, read) = self._values[column], _FIELDS[column]
            if text not in known:
                known[text] = read(text.strip(), self._tree)
            values[name] = known[text]
        self._specs[key] = spec = JobSpec(launch=_LAUNCH, **values)
        return spec


def _budget(text: str, tree: BudgetTree) -> BudgetPath:
    check_budget(BudgetPath(text), tree=tree)
    return BudgetPath(text)


def _user(text: str, _: BudgetTree) -> UserName:
    if not text:
        raise Refusal(field="user", problem="empty", fix="say whose job it is")
    return UserName(check_label(text, field="user"))


def _resumable(text: str, _: BudgetTree) -> bool:
    value = _BOOLEANS.get(text.lower())
    if value is None:
        problem = f"{shown(text)} is neither true nor false" if text else "empty"
        raise Refusal(field="resumable", problem=problem, fix="write true or false")
    return value


def _gpu_type(text: str, _: BudgetTree) -> str | None:
    return check_word(text, field="gpu_type") if text else None


def _cluster(text: str, _: BudgetTree) -> str | None:
    return check_word(text, field="cluster") if text else None


def _seconds(column: str) -> "_Read":
    return lambda text, _: csv_file.seconds(text, column=column)


def _whole(column: str, *, least: int, most: int) -> "_Read":
    return lambda text, _: csv_file.whole(text, column=column, least=least, most=most)


_Read = Callable[[str, BudgetTree], Any]
_FIELDS: dict[str, tuple[str, _Read]] = {
    "budget": ("budget", _budget),
    "user": ("user", _user),
    "replicas": ("replicas", _whole("replicas", least=1, most=REPLICAS_MAX)),
    "gpus_per_replica": ("gpus_per_replica", _whole("gpus_per_replica", least=1, most=GPUS_PER_HOST_MAX)),
    "min_runtime_s": ("min_runtime_ms", _seconds("min_runtime_s")),
    "resumable": ("resumable", _resumable),
    "priority": ("priority", _whole("priority", least=-PRIORITY_MAX, most=PRIORITY_MAX)),
    "gpu_type": ("gpu_type", _gpu_type),
    "cluster": ("cluster", _cluster),
}
"""For the columns that make a specification: the field each becomes, and what reads it."""
