"""Everything a simulation is made of, read and checked: hosts, tree, trace, faults, knobs, and the window measured.

cluster.yaml, budgets.yaml, trace.csv, faults.csv, --set -> Plan -> Simulation -> the log, the report
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from simulator.faults import Fault, read_faults
from simulator.knobs import parse_knobs
from simulator.simulation import Work
from simulator.workload import TraceJob, Workload, read_trace
from tenure.domain.host import HostSpec
from tenure.domain.policy import Policy, check_clusters, types_unknown
from tenure.domain.refusal import Refusal
from tenure.domain.tree import BudgetTree
from tenure.domain.units import DAY, Millis, format_duration
from tenure.runtime.budgets_file import load_budgets
from tenure.runtime.cluster_file import load_cluster

WARMUP: Millis = 7 * DAY
"""How long the window of fair share takes to fill; what happens before it is not measured unless asked for."""
DAYS_MAX = 10_000


@dataclass(frozen=True, kw_only=True)
class Files:
    """Where the inputs are."""

    cluster: Path
    budgets: Path
    trace: Path
    faults: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be simulated from 0 to `end`, and reported on from `start` to `end`. Milliseconds."""

    hosts: tuple[HostSpec, ...]
    tree: BudgetTree
    policy: Policy
    work: Work
    trace: Workload
    faults: tuple[Fault, ...]
    start: Millis
    end: Millis

    @property
    def jobs(self) -> tuple[TraceJob, ...]:
        """The jobs that are submitted before the end."""
        jobs = self.trace.jobs
        return jobs if jobs[-1].submitted_at < self.end else tuple(job for job in jobs if job.submitted_at < self.end)


def read_plan(
    files: Files, *, settings: Iterable[str], days: float | None, warmup: Millis | None, skip_bad: bool
) -> Plan:
    """The plan in these files with these options; `days` and `warmup` None: what suits the trace. Raises `Refusal`."""
    policy, work = parse_knobs(settings)
    hosts, tree = load_cluster(files.cluster), load_budgets(files.budgets)
    check_clusters(policy, known={host.cluster for host in hosts})
    for strange in types_unknown(policy, known={host.gpu_type for host in hosts}):
        raise strange
    if not tree.leaves:
        raise Refusal(field=str(files.budgets), problem="no budgets", fix="give at least one that funds the jobs")
    faults = () if files.faults is None else read_faults(files.faults, hosts=hosts)
    trace = read_trace(files.trace, tree=tree, skip_bad=skip_bad)
    end = _end(trace, days=days)
    start = _start(warmup, end=end)
    return Plan(hosts=hosts, tree=tree, policy=policy, work=work, trace=trace, faults=faults, start=start, end=end)


def _end(trace: Workload, *, days: float | None) -> Millis:
    """The end of the day in which the last job is submitted, or after `days`."""
    if days is None:
        return (trace.jobs[-1].submitted_at // DAY + 1) * DAY
    if not 0 < days <= DAYS_MAX:
        raise Refusal(field="--days", problem=f"{days:g} is out of range", fix=f"give more than 0, at most {DAYS_MAX}")
    end, first = round(days * DAY), trace.jobs[0].submitted_at
    if end <= first:
        problem = f"no job is submitted in the first {days:g} days"
        raise Refusal(field="--days", problem=problem, fix=f"the first one comes on day {first / DAY:.1f}: give more")
    return end


def _start(warmup: Millis | None, *, end: Millis) -> Millis:
    """The end of the warm-up. Without a word about it, a short run is measured whole."""
    if warmup is None:
        return WARMUP if end > WARMUP else 0
    if warmup >= end:
        raise Refusal(
            field="--warmup",
            problem=f"{format_duration(warmup)} leaves nothing of {end / DAY:g} days to report on",
            fix="give a shorter one, such as 0",
        )
    return warmup
