"""`trace.csv[.gz]`: the jobs of a history or a what-if, as they were or would be submitted (design, section 6).

    job_id,submit_s,budget,user,replicas,gpus_per_replica,min_runtime_s,runtime_s,resumable,priority,kind[,gpu_type]

Columns stand in any order. `submit_s` counts from the start of the trace, `runtime_s` is the work of the job, both in
seconds, which may have fractions. What a cluster or a policy refuses (a job larger than the cluster, a minimum runtime
above the cap) is no error here: admission rejects it in the simulation, as it would have been.
"""

from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import IO

import msgspec

from simulator import csv_file
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
OPTIONAL = ("gpu_type",)
_OF_SPEC = ("budget", "user", "replicas", "gpus_per_replica", "min_runtime_s", "resumable", "priority")
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
_LAUNCH = Launch(command=("simulated",))
"""Nothing is launched, but a job has a command."""


class TraceJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job of a trace. `submitted_at` is milliseconds from its start, `runs_for_ms` the work to be done."""

    job: JobId
    submitted_at: Millis
    spec: JobSpec
    runs_for_ms: Millis
    kind: str


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
        names = csv_file.columns(file.readline(), path=path, required=COLUMNS, optional=OPTIONAL)
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
    jobs.sort(key=lambda job: (job.submitted_at, job.job))
    return Workload(jobs=tuple(jobs), bad=tuple(bad))


class _Rows:
    """Reads rows, cheaply where they repeat: jobs alike share one specification, and each is checked once."""

    def __init__(self, names: dict[str, int], *, tree: BudgetTree) -> None:
        self._names, self._tree = names, tree
        self._lines: dict[str, int] = {}
        """The line of each job that was read."""
        self._specs: dict[tuple[str, ...], JobSpec] = {}
        """By the fields they were made of."""
        self._kinds: dict[str, str] = {}

    def read(self, file: IO[bytes]) -> Iterator[tuple[int, TraceJob | Refusal]]:
        """Each row below the columns with its line, as a job or as what is wrong with it."""
        names = self._names
        width, specs, seconds = len(names), self._specs, csv_file.seconds
        job_id, submit, runtime, kind = (names[name] for name in ("job_id", "submit_s", "runtime_s", "kind"))
        of_spec = itemgetter(*(names[name] for name in (*_OF_SPEC, *OPTIONAL) if name in names))
        for line, raw in enumerate(file, start=2):
            if raw.isspace():
                continue
            try:
                row = csv_file.fields(raw)
                if len(row) != width:
                    csv_file.check_width(row, names=names)
                key = of_spec(row)
                spec = specs.get(key)
                submitted_at = seconds(row[submit], column="submit_s")
                runs_for_ms = seconds(row[runtime], column="runtime_s")
                job = TraceJob(
                    job=self._job_id(row[job_id]),
                    submitted_at=submitted_at,
                    spec=self._spec(key) if spec is None else spec,
                    runs_for_ms=runs_for_ms,
                    kind=self._kind(row[kind]),
                )
                self._lines[job.job] = line
                yield line, job
            except Refusal as refusal:
                yield line, refusal

    def _job_id(self, text: str) -> JobId:
        word = text.strip()
        earlier = self._lines.get(word)
        if earlier is not None:
            raise Refusal(
                field="job_id", problem=f"{shown(word)} is also in line {earlier}", fix="give each job an id of its own"
            )
        if not word:
            raise Refusal(field="job_id", problem="empty", fix="give each job an id of its own")
        return JobId(check_label(word, field="job_id"))

    def _kind(self, text: str) -> str:
        kind = self._kinds.get(text)
        if kind is None:
            kind = self._kinds[text] = check_label(text.strip(), field="kind")
        return kind

    def _spec(self, key: tuple[str, ...]) -> JobSpec:
        """What the fields of a row ask for, `gpu_type` last if there is one. Raises `Refusal`."""
        budget, user, replicas, gpus, min_runtime, resumable, priority, *rest = (text.strip() for text in key)
        check_budget(BudgetPath(budget), tree=self._tree)
        if not user:
            raise Refusal(field="user", problem="empty", fix="say whose job it is")
        can_resume = _BOOLEANS.get(resumable.lower())
        if can_resume is None:
            problem = f"{shown(resumable)} is neither true nor false" if resumable else "empty"
            raise Refusal(field="resumable", problem=problem, fix="write true or false")
        spec = JobSpec(
            budget=BudgetPath(budget),
            user=UserName(check_label(user, field="user")),
            replicas=csv_file.whole(replicas, column="replicas", least=1, most=REPLICAS_MAX),
            gpus_per_replica=csv_file.whole(gpus, column="gpus_per_replica", least=1, most=GPUS_PER_HOST_MAX),
            min_runtime_ms=csv_file.seconds(min_runtime, column="min_runtime_s"),
            resumable=can_resume,
            priority=csv_file.whole(priority, column="priority", least=-PRIORITY_MAX, most=PRIORITY_MAX),
            gpu_type=check_word(rest[0], field="gpu_type") if rest and rest[0] else None,
            launch=_LAUNCH,
        )
        self._specs[key] = spec
        return spec
