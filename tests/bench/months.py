"""What simulating takes and what comes out: `python -m tests.bench.months` prints JSON.

Three parts, each simulation in a process of its own, one after another, with report and log as `tenure simulate` writes
them; the histories are in the folder `shared` beside the project (`--shared`), and parts without theirs are skipped:

    months   the two constructed months under `fair` and `priority`
    traces   Philly on 50 hosts of 8 GPUs, RICC on 1,024 of 8 with a core as a GPU, openb on 8 of 8, imported as
             `tenure trace import --max-gpus` does with its own contracts and budgets
    growth   RICC cut to its first 10,000 and 100,000 jobs, and whole: what a job costs as jobs become more

`--limit 600` cuts each simulation after so many seconds, nine at most; a figure is then over the days that it managed.
`--days 2` stops each after so many simulated days, `--only growth` measures one part. A figure that is missing is null:
nothing waited of that class, or the simulation had to be ended.
"""

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from simulator.traces.contract import parse_rules
from simulator.traces.convert import Options, Source, import_trace
from simulator.traces.shares import budgets_yaml
from simulator.traces.write import TraceRow, chunks
from tests.bench.one_simulation import Case

ROOT = Path(__file__).parents[2]
MONTHS = ("ai2-month", "contended-month")
POLICIES = ("fair", "priority")
GROWTH = (10_000, 100_000)
"""The first so many jobs of RICC; then all of them."""
WHOLE = "trace.csv.gz"
STOPPED_AFTER_S = 300
"""A simulation that does not come to its cut is ended so long after its limit, and has no figures."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A trace of another scheduler, and the cluster it is simulated on."""

    file: str
    source: Source
    hosts: int
    gpus_per_host: int = 8


HISTORIES = {
    "philly": History(file="traces/philly/philly_jobs.csv.gz", source=Source.PHILLY, hosts=50),
    "ricc": History(file="traces/ricc/RICC-2010-2.swf.gz", source=Source.SWF, hosts=1024),
    "openb": History(file="traces/openb/openb_pod_list_default.csv.gz", source=Source.OPENB, hosts=8),
}
REACHED = ("simulated_days", "of_days", "limit_s")
SPEED = ("seconds", "simulated_days_a_second", "facts", "us_a_fact", "peak_memory_mib")
SERVED = (
    "delivered",
    "worst_budget",
    "any_7_days",
    "worst_budget_in_any_7_days",
    "occupancy",
    "goodput",
    "debug_wait_p90_s",
    "debug_wait_p99_s",
    "largest_wait_p90_s",
    "preemptions",
    "promises_broken",
)
SHOWN = {
    "months": (*SERVED, *REACHED, *SPEED),
    "traces": ("jobs", *REACHED, *SERVED, *SPEED),
    "growth": ("jobs", *REACHED, "seconds", "facts", "us_a_job", "us_a_fact", "peak_memory_mib"),
}
Figures = dict[str, Any]
Simulate = Callable[[Case], Figures]


class Bench:
    """The parts, with what bounds them."""

    def __init__(
        self, *, shared: Path, folder: Path, days: float | None, limit_s: float, simulate: Simulate | None = None
    ) -> None:
        self._shared, self._folder, self._days, self._limit_s = shared, folder, days, limit_s
        self._simulate = simulate or in_a_process
        self._known: dict[Case, Figures] = {}
        self.skipped: dict[str, str] = {}
        """What was not measured, and why."""

    def months(self) -> dict[str, Figures]:
        """The constructed months under both policies."""
        found = {}
        for month in MONTHS:
            folder = self._shared / "scenarios" / month
            if self._is_there(month, folder / WHOLE):
                for policy in POLICIES:
                    found[f"{month} {policy}"] = self._figures("months", self._case(folder, policy=policy))
        return found

    def traces(self) -> dict[str, Figures]:
        """The histories of other schedulers."""
        found = {}
        for name in HISTORIES:
            folder = self._imported(name)
            if folder is not None:
                found[f"{name} fair"] = self._figures("traces", self._case(folder))
        return found

    def growth(self) -> dict[str, Figures]:
        """RICC by number of jobs; what is more than with the fewest, as a ratio."""
        folder = self._imported("ricc")
        if folder is None:
            return {}
        found = {}
        for jobs in GROWTH:
            found[f"ricc, {jobs:,} jobs"] = self._figures("growth", self._case(folder, trace=first(jobs)))
        found["ricc, all jobs"] = self._figures("growth", self._case(folder))
        return with_ratios(found)

    def _case(self, folder: Path, *, trace: str = WHOLE, policy: str = "fair") -> Case:
        return Case(folder=str(folder), trace=trace, policy=policy, days=self._days, limit_s=self._limit_s)

    def _figures(self, part: str, case: Case) -> Figures:
        """Of one case, those that its part shows; it is simulated once, however many parts have it."""
        if case not in self._known:
            what = f"{Path(case.folder).name}/{case.trace} {case.policy}"
            print(f"{what} ...", file=sys.stderr, flush=True)
            began = time.monotonic()
            self._known[case] = self._simulate(case)
            print(f"{what}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        return {name: self._known[case].get(name) for name in SHOWN[part]}

    def _imported(self, name: str) -> Path | None:
        """The folder with the history as a trace, its budgets and its cluster; made once. None: it is not there."""
        folder, history = self._folder / name, HISTORIES[name]
        file = self._shared / history.file
        if folder.is_dir():
            return folder
        if not self._is_there(name, file):
            return None
        print(f"{name}: importing", file=sys.stderr, flush=True)
        options = Options(rules=parse_rules(()), most_gpus=history.hosts * history.gpus_per_host)
        imported = import_trace(file, source=history.source, options=options)
        folder.mkdir()
        cluster = {"name": name, "hosts": history.hosts, "gpus_per_host": history.gpus_per_host, "gpu_type": "GPU"}
        (folder / "cluster.yaml").write_text(json.dumps({"clusters": [cluster]}))
        (folder / "budgets.yaml").write_text("\n".join(budgets_yaml(imported.gpu_s)))
        write_trace(folder / WHOLE, imported.rows)
        for jobs in GROWTH if name == "ricc" else ():
            write_trace(folder / first(jobs), imported.rows[:jobs])
        return folder

    def _is_there(self, name: str, file: Path) -> bool:
        if file.is_file():
            return True
        self.skipped[name] = f"no {file.relative_to(self._shared)} in the folder shared beside the project"
        print(f"{name}: skipped: {self.skipped[name]}", file=sys.stderr, flush=True)
        return False


def first(jobs: int) -> str:
    """The name of a trace that is cut."""
    return f"first-{jobs}.csv.gz"


def write_trace(path: Path, rows: Sequence[TraceRow]) -> None:
    """A compressed trace."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.writelines(chunks(rows))


def with_ratios(found: dict[str, Figures]) -> dict[str, Figures]:
    """The figures, and how many times those of the first entry they are."""
    first = next(iter(found.values()), {})
    for figures in found.values():
        for name in ("jobs", "seconds", "facts", "us_a_job"):
            one, other = first.get(name), figures.get(name)
            figures[f"times_{name}"] = round(other / one, 2) if one and other is not None else None
    return found


def in_a_process(case: Case) -> Figures:
    """Simulate one case in a process of its own; no figures if it does not come to an end in time."""
    command = [sys.executable, "-m", "tests.bench.one_simulation", msgspec.json.encode(case).decode()]
    until_s = case.limit_s + STOPPED_AFTER_S
    try:
        run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False, timeout=until_s)
    except subprocess.TimeoutExpired:
        print(f"ended after {until_s:.0f} s", file=sys.stderr, flush=True)
        return {}
    if run.returncode != 0:
        raise SystemExit(f"the simulation of {case.folder} failed with status {run.returncode}")
    figures: Figures = json.loads(run.stdout)
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.months", description="Simulated months and histories.")
    parser.add_argument("--only", action="append", choices=tuple(SHOWN), help="one part; repeatable")
    parser.add_argument("--days", type=float, help="simulated days of each, all unless said")
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="of each simulation (600)")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared", help="where the histories are")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder:
        bench = Bench(shared=asked.shared, folder=Path(folder), days=asked.days, limit_s=asked.limit)
        parts = {"months": bench.months, "traces": bench.traces, "growth": bench.growth}
        groups = [parts[name]() for name in asked.only or parts]
    figures: dict[str, Any] = {"conditions": {"skipped": bench.skipped}} if bench.skipped else {}
    for group in groups:
        figures |= group
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
