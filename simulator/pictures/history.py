"""A log in columns: what the lines of `events.jsonl` say of hosts, jobs, runs and budgets, as arrays to draw from.

    lines -> History -> series, waits, stops -> page, image

Instants are integer milliseconds since the log's t = 0. A log may begin in the middle of things and end at any moment:
a run of a job that was never told is drawn for the budget `UNTOLD`, a run without an end lasts until the log's end.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tenure.domain.tree import PPM
from tenure.domain.units import SECOND, Millis

Line = Mapping[str, Any]
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

UNTOLD = "(unknown)"
"""The budget of a job whose submission is not in the log."""
RUNNING = "running"
"""The cause of a run that had not ended when the log did."""
_WORDS_AND_NUMBERS = re.compile(r"(\D*)(\d*)")
CAUSES = (RUNNING, "completed", "failed", "preempted", "drained", "host_lost", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Jobs in order of submission, one entry each. `budget` is an index into the history's leaves."""

    ids: tuple[str, ...]
    users: tuple[str, ...]
    """Empty where the log does not say."""
    budget: Ints
    submitted: Ints
    finished: Ints
    """The end of the log while it is not."""
    first_start: Ints
    """-1 while there was none."""
    gpus: Ints
    min_runtime: Ints
    resumable: NDArray[np.bool_]
    priority: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Runs in order of their start. `job` is an index into the jobs, `cause` into `CAUSES`."""

    job: Ints
    number: Ints
    start: Ints
    end: Ints
    gpus: Ints
    charged: NDArray[np.bool_]
    protected_until: Ints
    cause: Ints
    by: tuple[str, ...]
    """The asking job or the draining host; empty: nobody."""
    reasons: tuple[Mapping[str, Any], ...]
    refunded: Ints
    """GPU-milliseconds that a host fault took back from the charge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Neighbouring GPUs of one host that one run holds. `run` and `host` are indices, `first` a GPU of the host."""

    run: Ints
    host: Ints
    first: Ints
    count: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The host at an index offers so many available GPUs from an instant on; in order of time."""

    at: Ints
    host: Ints
    gpus: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Everything the pictures are drawn from; hosts in order of name.

    `trees` are (instant, each leaf's share of the whole from then on), in order of time.
    """

    end: int
    epoch_ms: int | None
    hosts: tuple[str, ...]
    gpus: Ints
    """GPUs of each host: the most it ever offered or held."""
    leaves: tuple[str, ...]
    """Every budget that funds jobs, in order of path."""
    trees: tuple[tuple[int, Floats], ...]
    capacity: Capacity
    jobs: Jobs
    runs: Runs
    spans: Spans

    @property
    def installed(self) -> int:
        """All GPUs."""
        return int(self.gpus.sum())

    @property
    def first_row(self) -> Ints:
        """The row of each host's first GPU, counting all GPUs from the top."""
        return np.concatenate([[0], np.cumsum(self.gpus)[:-1]]) if len(self.gpus) else np.zeros(0, dtype=np.int64)


def read_history(lines: Iterable[Line], *, budgets: Mapping[str, float], until: Millis = 0) -> History:
    """The history that `lines` tell, in the schema of `tenure.export.jsonl`; lines of other types are passed over.

    `budgets`: each budget's share of its parent, 0 to 1, by path; used until the log has a `budget_tree` line.
    `until`: the log reaches at least to here, even if nothing happened so late.
    """
    reading = _Reading(budgets=budgets, end=until)
    read = {
        "origin": reading.origin,
        "capacity": reading.capacity,
        "job_submitted": reading.submitted,
        "run_started": reading.started,
        "run_ended": reading.ended,
        "job_finished": reading.finished,
        "budget_tree": reading.tree,
    }
    for line in lines:
        at = _millis(line["t"])
        reading.end = max(reading.end, at)
        known = read.get(line["type"])
        if known is not None:
            known(at, line)
    return reading.history()


@dataclass(slots=True)
class _Reading:
    """What was read so far, a list a column."""

    budgets: Mapping[str, float]
    end: int = 0
    epoch_ms: int | None = None
    hosts: dict[str, int] = field(default_factory=dict)
    gpus: list[int] = field(default_factory=list)
    offers: list[tuple[int, int, int]] = field(default_factory=list)
    trees: list[tuple[int, Mapping[str, float]]] = field(default_factory=list)
    jobs: dict[str, int] = field(default_factory=dict)
    told: list[tuple[str, str, int, int, int, bool, int]] = field(default_factory=list)
    """Of each job: budget, user, submitted, GPUs, minimum runtime, resumable, priority."""
    ends_of_jobs: dict[int, int] = field(default_factory=dict)
    first_starts: dict[int, int] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    starts: list[tuple[int, int, int, bool, int, int]] = field(default_factory=list)
    """Of each run: job, number, start, charged, protected until, GPUs."""
    ends_of_runs: dict[int, tuple[int, Line]] = field(default_factory=dict)
    spans: list[tuple[int, int, int, int]] = field(default_factory=list)

    def origin(self, at: int, line: Line) -> None:
        self.epoch_ms = int(line["epoch_ms"]) - at

    def capacity(self, at: int, line: Line) -> None:
        gpus = int(line["gpus"])
        self.offers.append((at, self._host(line["host"], gpus), gpus))

    def tree(self, at: int, line: Line) -> None:
        self.trees.append((at, line["shares"]))

    def submitted(self, at: int, line: Line) -> None:
        self.jobs[line["job"]] = len(self.told)
        self.told.append(
            (
                line["budget"],
                line.get("user") or "",
                at,
                line["replicas"] * line["gpus_per_replica"],
                _millis(line["min_runtime_s"]),
                bool(line["resumable"]),
                line["priority"],
            )
        )

    def started(self, at: int, line: Line) -> None:
        held = line["hosts"]
        gpus = sum(map(len, held.values()))
        job = self.jobs.get(line["job"])
        if job is None:
            job = self.jobs[line["job"]] = len(self.told)
            self.told.append((UNTOLD, "", at, gpus, _millis(line["protected_until"]) - at, False, 0))
        run = self.runs[str(line["run"])] = len(self.starts)
        number = str(line["run"]).rpartition(".")[2]
        protected = _millis(line["protected_until"])
        self.first_starts.setdefault(job, at)
        self.starts.append((job, int(number) if number.isdigit() else 1, at, bool(line["charged"]), protected, gpus))
        for host, indices in held.items():
            self._hold(run, host, indices)

    def ended(self, at: int, line: Line) -> None:
        run = self.runs.get(str(line["run"]))
        if run is not None:
            self.ends_of_runs[run] = (at, line)

    def finished(self, at: int, line: Line) -> None:
        job = self.jobs.get(line["job"])
        if job is not None:
            self.ends_of_jobs[job] = at

    def history(self) -> History:
        """All of it as arrays."""
        trees = self.trees or [(0, self.budgets)]
        leaves = sorted({told[0] for told in self.told} | {leaf for _, shares in trees for leaf in _leaves(shares)})
        index = {leaf: number for number, leaf in enumerate(leaves)}
        hosts = sorted(self.hosts, key=_natural)
        place = np.zeros(len(hosts), dtype=np.int64)
        place[[self.hosts[host] for host in hosts]] = np.arange(len(hosts))
        at, host, gpus = _columns(self.offers, 3)
        run, where, first, count = _columns(self.spans, 4)
        return History(
            end=self.end,
            epoch_ms=self.epoch_ms,
            hosts=tuple(hosts),
            gpus=np.array([self.gpus[self.hosts[host]] for host in hosts], dtype=np.int64),
            leaves=tuple(leaves),
            trees=tuple((when, _fractions(shares, leaves)) for when, shares in trees),
            capacity=Capacity(at=at, host=place[host], gpus=gpus),
            jobs=self._jobs(index),
            runs=self._runs(),
            spans=Spans(run=run, host=place[where], first=first, count=count),
        )

    def _jobs(self, index: Mapping[str, int]) -> Jobs:
        numbers = [(index[told[0]], *told[2:]) for told in self.told]
        budget, submitted, gpus, min_runtime, resumable, priority = _columns(numbers, 6)
        everything = range(len(self.told))
        return Jobs(
            ids=tuple(self.jobs),
            users=tuple(told[1] for told in self.told),
            budget=budget,
            submitted=submitted,
            finished=np.array([self.ends_of_jobs.get(job, self.end) for job in everything], dtype=np.int64),
            first_start=np.array([self.first_starts.get(job, -1) for job in everything], dtype=np.int64),
            gpus=gpus,
            min_runtime=min_runtime,
            resumable=resumable.astype(np.bool_),
            priority=priority,
        )

    def _runs(self) -> Runs:
        job, number, start, charged, protected_until, gpus = _columns(self.starts, 6)
        cause = {name: place for place, name in enumerate(CAUSES)}
        nothing: tuple[int, Line] = (self.end, {"cause": RUNNING})
        ends = [self.ends_of_runs.get(run, nothing) for run in range(len(self.starts))]
        refunded = [round(end.get("refunded_gpu_s", 0) * SECOND) for _, end in ends]
        return Runs(
            job=job,
            number=number,
            start=start,
            end=np.array([at for at, _ in ends], dtype=np.int64),
            gpus=gpus,
            charged=charged.astype(np.bool_),
            protected_until=protected_until,
            cause=np.array([cause[end["cause"]] for _, end in ends], dtype=np.int64),
            by=tuple(end.get("by") or "" for _, end in ends),
            reasons=tuple(end.get("reason") or {} for _, end in ends),
            refunded=np.array(refunded, dtype=np.int64),
        )

    def _host(self, name: str, gpus: int) -> int:
        host = self.hosts.setdefault(name, len(self.gpus))
        if host == len(self.gpus):
            self.gpus.append(0)
        self.gpus[host] = max(self.gpus[host], gpus)
        return host

    def _hold(self, run: int, name: str, indices: Iterable[int]) -> None:
        held = sorted(indices)
        host = self._host(name, held[-1] + 1)
        first = held[0]
        if held[-1] - first < len(held):  # nearly always
            self.spans.append((run, host, first, len(held)))
            return
        for before, gpu in zip(held, [*held[1:], -1], strict=True):
            if gpu != before + 1:
                self.spans.append((run, host, first, before + 1 - first))
                first = gpu


def _leaves(shares: Mapping[str, float]) -> set[str]:
    return set(shares) - {path.rpartition("/")[0] for path in shares}


def _fractions(shares: Mapping[str, float], leaves: Iterable[str]) -> Floats:
    """Each leaf's share of the whole: the product of the shares down its path (P1); 0 for what is not in the tree."""
    fractions: dict[str, float] = {"": 1.0}
    for path in sorted(shares):  # a parent comes before its children
        fractions[path] = fractions[path.rpartition("/")[0]] * round(shares[path] * PPM) / PPM
    return np.array([fractions.get(leaf, 0.0) for leaf in leaves], dtype=np.float64)


def _columns(rows: list[Any], width: int) -> Ints:
    """The columns of `rows`, each an array."""
    return np.array(rows, dtype=np.int64).reshape(len(rows), width).T


def _natural(name: str) -> tuple[tuple[str, int], ...]:
    """An order of names in which h9 comes before h10."""
    return tuple((text, int(digits or 0)) for text, digits in _WORDS_AND_NUMBERS.findall(name))


def _millis(seconds: float) -> int:
    return round(seconds * SECOND)
