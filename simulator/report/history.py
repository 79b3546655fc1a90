"""The facts of a log as what happened: hosts, trees, jobs and runs, each with its instants. One pass over the log."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tenure.domain.ids import BudgetPath, HostId, JobId, RunId, UserName
from tenure.domain.rates import Rates
from tenure.domain.reasons import EndCause
from tenure.domain.tree import BudgetTree
from tenure.domain.units import GpuMillis, Millis
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted, RunCharged
from tenure.events.catalogue import Kind
from tenure.events.fact import Recorded
from tenure.events.hosts import CapacityChanged
from tenure.events.placing import JobFinished, RunEnded, RunStarted
from tenure.events.policy import PolicyChanged
from tenure.events.reports import CheckpointReported, HostRegistered

Pool = tuple[str, str]
"""A cluster of hosts and a GPU type."""
NO_RATES: Mapping[str, int] = {}


class JobStory:
    """What became of a job that was admitted."""

    __slots__ = (
        "allocated",
        "budget",
        "finished_at",
        "gpus",
        "min_runtime_ms",
        "resumable",
        "started_at",
        "submitted_at",
        "user",
        "wanted",
    )

    def __init__(self, fact: JobAdmitted) -> None:
        spec = fact.spec
        self.submitted_at: Millis = fact.submitted_at
        self.budget: BudgetPath = spec.budget
        self.user: UserName = spec.user
        self.gpus: int = spec.replicas * spec.gpus_per_replica
        self.min_runtime_ms: Millis = spec.min_runtime_ms
        self.allocated: bool = spec.min_runtime_ms > 0
        self.resumable: bool = spec.resumable
        self.wanted = spec.wanted
        self.started_at: Millis | None = None
        """Its first start."""
        self.finished_at: Millis | None = None


class RunStory:
    """One run that started. It holds its GPUs from its start to its end."""

    __slots__ = (
        "cause",
        "charged",
        "checkpoint",
        "ended_at",
        "gpu_type",
        "gpus",
        "hosts",
        "job",
        "refund_since",
        "resumes",
        "started_at",
    )

    def __init__(self, fact: RunStarted, job: JobStory, *, gpu_type: str) -> None:
        self.job: JobStory = job
        self.gpu_type: str = gpu_type
        """Of its hosts, when it started."""
        self.started_at: Millis = fact.at
        self.hosts = fact.hosts
        self.gpus: int = job.gpus
        self.charged: bool = fact.charged
        self.resumes: bool = job.resumable and job.started_at is not None
        """It begins with `restart_overhead`: a resumable job that ran before."""
        self.ended_at: Millis | None = None
        self.cause: EndCause | None = None
        self.checkpoint: Millis | None = None
        """Up to when its work is saved."""
        self.refund_since: Millis | None = None
        """What it held from then on was given back."""


class History:
    """What happened, in order of the log."""

    def __init__(self, recorded: Iterable[Recorded], *, rates_milli: Mapping[str, int] = NO_RATES) -> None:
        """`rates_milli`: the exchange rates that count while the log has no policy."""
        self.rates = Rates(rates_milli)
        self._has_policy = False
        self.hosts: dict[HostId, tuple[Millis, int]] = {}
        """When each host was first there, and its GPUs."""
        self.capacity: list[tuple[Millis, HostId, int]] = []
        """From when on which host offers how many GPUs."""
        self.offered: list[tuple[Millis, Pool, int]] = []
        """So many GPUs more or less that a pool offers, from when on."""
        self._pools: dict[HostId, tuple[Pool, int]] = {}
        """The pool that each host is in, and the GPUs it offers there."""
        self.trees: list[tuple[Millis, BudgetTree]] = []
        self.jobs: dict[JobId, JobStory] = {}
        self.runs: dict[RunId, RunStory] = {}
        fold = _FOLD.get
        for entry in recorded:
            fact = entry.fact
            tell = fold(type(fact))
            if tell is not None:
                tell(self, fact)

    def change_rates(self, rates_milli: Mapping[str, int], *, at: Millis) -> None:
        """As the ranker has it: a log's first policy counts for all that came before."""
        if not self._has_policy:
            self.rates.begin_with(rates_milli)
        else:
            self.rates.change(rates_milli, at=at)
        self._has_policy = True

    @property
    def types(self) -> frozenset[str]:
        """The GPU types that hosts have or that jobs ask for."""
        asked = (job.wanted.gpu_type for job in self.jobs.values())
        return frozenset({*(pool[1] for _, pool, _ in self.offered), *filter(None, asked)})

    def type_of(self, hosts: Iterable[HostId]) -> str:
        """The GPU type that a gang has now, which lies in one pool."""
        return next((self._pools[host][0][1] for host in hosts if host in self._pools), "")

    def put(self, host: HostId, *, at: Millis, cluster: str = "", gpu_type: str = "", gpus: int | None = None) -> None:
        """The host is in this pool from an instant on, and offers so many GPUs; what is left out stays as it was."""
        before, had = self._pools.get(host, (("", ""), 0))
        pool = (cluster or before[0], gpu_type or before[1])
        offers = had if gpus is None else gpus
        self._pools[host] = pool, offers
        if pool == before:
            self.offered.append((at, pool, offers - had))
        else:
            self.offered += [(at, before, -had), (at, pool, offers)]


def _registered(history: History, fact: HostRegistered) -> None:
    for spec in fact.hosts:
        history.hosts.setdefault(spec.host, (fact.at, spec.gpus))
        history.put(spec.host, at=fact.at, cluster=spec.cluster)


def _policy(history: History, fact: PolicyChanged) -> None:
    history.change_rates(fact.policy.rates_milli, at=fact.at)


def _capacity(history: History, fact: CapacityChanged) -> None:
    history.capacity.append((fact.at, fact.host, fact.gpus))
    history.put(fact.host, at=fact.at, gpu_type=fact.gpu_type, gpus=fact.gpus)


def _tree(history: History, fact: BudgetTreeChanged) -> None:
    history.trees.append((fact.at, fact.tree))


def _admitted(history: History, fact: JobAdmitted) -> None:
    history.jobs.setdefault(fact.job, JobStory(fact))


def _started(history: History, fact: RunStarted) -> None:
    job = history.jobs[fact.job]
    history.runs[fact.run] = RunStory(fact, job, gpu_type=history.type_of(fact.hosts))
    if job.started_at is None:
        job.started_at = fact.at


def _checkpoint(history: History, fact: CheckpointReported) -> None:
    run = history.runs.get(fact.run)
    if run is not None and (run.checkpoint is None or run.checkpoint < fact.at):
        run.checkpoint = fact.at


def _ended(history: History, fact: RunEnded) -> None:
    run = history.runs.get(fact.run)
    if run is not None:
        run.ended_at, run.cause = fact.at, fact.cause_of_end


def _charged(history: History, fact: RunCharged) -> None:
    run = history.runs.get(fact.run)
    if run is not None and fact.refunded_gpu_ms:
        run.refund_since = fact.refund_since


def _finished(history: History, fact: JobFinished) -> None:
    job = history.jobs.get(fact.job)
    if job is not None and job.finished_at is None:
        job.finished_at = fact.at


_FOLD: dict[Kind, Callable[[History, Any], None]] = {
    HostRegistered: _registered,
    PolicyChanged: _policy,
    CapacityChanged: _capacity,
    BudgetTreeChanged: _tree,
    JobAdmitted: _admitted,
    RunStarted: _started,
    CheckpointReported: _checkpoint,
    RunEnded: _ended,
    RunCharged: _charged,
    JobFinished: _finished,
}


def held_gpu_ms(gpus: int, since: Millis, until: Millis) -> GpuMillis:
    """GPU-time of some GPUs in [since, until), none if that is empty."""
    return gpus * (until - since) if until > since else 0
