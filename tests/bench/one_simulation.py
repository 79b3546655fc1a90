"""One simulation of the bench `months`, in a process of its own, so that its memory is its own too.

`python -m tests.bench.one_simulation CASE` takes a case as JSON and prints its figures as JSON; progress is on stderr.
"""

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from simulator.baseline import PRIORITY
from simulator.collector import resting_collector
from simulator.plan import WARMUP, Files, Plan, read_plan
from simulator.report import Report, build_report, write_report
from simulator.simulation import FAIR, Simulation
from tenure.cli.files import write_blocks
from tenure.cli.progress import Simulating
from tenure.domain.units import DAY, Millis
from tenure.events.fact import Recorded
from tenure.export.jsonl import blocks
from tests.bench.drains import drained


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What is simulated. `days`: no more than the first so many."""

    folder: str
    """Where its cluster.yaml, budgets.yaml and trace are."""
    trace: str = "trace.csv.gz"
    faults: str = ""
    """A faults.csv; none unless said."""
    policy: str = "fair"
    days: float | None = None
    limit_s: float = 600
    """It is cut when reading and simulating have taken so long."""


class _Cut(Exception):
    """Its time is over."""


def simulate(case: Case) -> dict[str, Any]:
    """The figures of a case, over the days that it managed. It does all that `tenure simulate` does, files included."""
    began = time.monotonic()
    plan = _plan(case)
    jobs, end = plan.jobs, plan.end
    simulation = Simulation(
        hosts=plan.hosts,
        tree=plan.tree,
        policy=plan.policy,
        work=plan.work,
        faults=plan.faults,
        jobs=jobs,
        roles=PRIORITY if case.policy == "priority" else FAIR,
    )
    with resting_collector():
        _run(simulation, end=end, until_s=began + case.limit_s)
        reached, recorded = simulation.world.now, simulation.world.recorded
        report = None if reached == 0 else _report(plan, recorded, case=case, end=reached)
    seconds = time.monotonic() - began
    submitted = sum(job.submitted_at <= reached for job in jobs)
    figures = {
        "jobs": submitted,
        "simulated_days": round(reached / DAY, 2),
        "of_days": round(end / DAY, 2),
        "limit_s": case.limit_s,
        "seconds": round(seconds, 1),
        "simulated_days_a_second": round(reached / DAY / seconds, 3),
        "facts": len(recorded),
        "us_a_fact": round(seconds / len(recorded) * 1e6, 1),
        "us_a_job": round(seconds / max(submitted, 1) * 1e6),
        "peak_memory_mib": _peak_memory_mib(),
    }
    figures |= {} if report is None else _served(report)
    return figures | (drained(recorded) if case.faults else {})


def _plan(case: Case) -> Plan:
    folder = Path(case.folder)
    files = Files(cluster=folder / "cluster.yaml", budgets=folder / "budgets.yaml", trace=folder / case.trace)
    if case.faults:
        files = replace(files, faults=Path(case.faults))
    return read_plan(files, settings=(), days=case.days, warmup=None, skip_bad=False)


def _run(simulation: Simulation, *, end: Millis, until_s: float) -> None:
    """Simulate to the end, or as far as it comes by `until_s` of the monotonic clock."""
    with Simulating(end=end) as simulating:

        def passed(now: Millis) -> None:
            simulating.passed(now)
            if time.monotonic() >= until_s:
                raise _Cut

        try:
            simulation.run(end, progress=passed)
        except _Cut:
            print(f"cut on day {simulation.world.now / DAY:.1f} of {end / DAY:g}", file=sys.stderr, flush=True)


def _report(plan: Plan, recorded: list[Recorded], *, case: Case, end: Millis) -> Report:
    """The report of what was simulated, written with the log as the command would."""
    report = build_report(
        recorded,
        policy_name=case.policy,
        kinds={job.job: job.kind for job in plan.jobs},
        start=WARMUP if end > WARMUP else 0,
        end=end,
        lookback_ms=plan.policy.lookback_ms,
        wall_seconds=0,
        work=plan.work,
    )
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder:
        write_blocks(Path(folder) / "events.jsonl", blocks(recorded, origin_ms=0))
        write_report(Path(folder) / "report.json", report)
    return report


def _served(report: Report) -> dict[str, Any]:
    """What the jobs and the budgets got, from a report."""
    debug, largest = report.waits["debug"], report.waits["largest"]
    return {
        "delivered": round(report.delivered.ratio, 4),
        "worst_budget": _rounded(report.delivered.worst),
        "any_7_days": _rounded(report.rolling_7d.ratio),
        "worst_budget_in_any_7_days": _rounded(report.rolling_7d.worst),
        "availability": round(report.availability, 4),
        "occupancy": round(report.occupancy, 4),
        "goodput": round(report.goodput, 4),
        "debug_wait_p90_s": debug.p90_s,
        "debug_wait_p99_s": debug.p99_s,
        "largest_wait_p90_s": largest.p90_s,
        "preemptions": report.preemptions.total,
        "promises_broken": report.violations,
    }


def _peak_memory_mib() -> int:
    """The most that this process had in memory; what the one had that started it does not count."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) // 1024


def _rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 4)


if __name__ == "__main__":
    print(msgspec.json.encode(simulate(msgspec.json.decode(sys.argv[1], type=Case))).decode())
