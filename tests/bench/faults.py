"""Recorded failures of other clusters beside ai2-month: `python -m tests.bench.faults` prints JSON.

Titan's GPU faults of autumn 2016 for each of its 1,024 GPUs and LANL's outages of spring 2004 for each of its 128
hosts, scaled as `tenure trace faults` does; docs/traces.md says how. Each simulation is a process of its own:

    as often      as they were
    ten times     both ten times as often
    warned        the same, with the double-bit errors told while the host works on: drains at contract boundaries
    grid5000      instead of both, Grid'5000's nodes of August 2005: down for a fifth of the time, in hundreds

`--limit 600` cuts each simulation after so many seconds, `--days 9` after so many simulated days, `--only NAME` is one
of them. What has no history in the folder `shared` beside the project (`--shared`) is skipped.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from simulator.traces.outages.scale import FaultRow, Scaling, Source, chunks, import_outages, in_turn
from tenure.runtime.cluster_file import load_cluster
from tests.bench.months import ROOT, WHOLE, Figures, Simulate, in_a_process
from tests.bench.one_simulation import Case

MONTH = "scenarios/ai2-month"
FILES = {
    Source.TITAN: "titan-gpu/gc_full.csv.gz",
    Source.LANL: "lanl-nodes/LA-UR-05-7318-failure-data-1996-2005.csv.xz",
    Source.GRID5000: "grid5000/event_trace.tab.xz",
}
SINCE = {Source.TITAN: "2016-08-15", Source.LANL: "2004-03-01", Source.GRID5000: "2005-08-01"}
"""The first day of each window; no inventory of the whole machine falls into that of Titan."""
REPAIR_S = 24 * 3_600
"""How long a host without a GPU is away: Titan does not say."""
SHOWN = (
    "delivered",
    "worst_budget",
    "availability",
    "occupancy",
    "goodput",
    "outages",
    "host_hours_down",
    "drains_at_once",
    "drains_at_boundaries",
    "drains_in_time",
    "drain_p90_min",
    "drains_taken_back",
    "protected_ended_by_fatal_evidence",
    "protected_ended_otherwise",
    "promises_broken",
    "simulated_days",
    "of_days",
    "seconds",
)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """Which records fail, how often, and which kinds are told before."""

    sources: tuple[Source, ...] = (Source.TITAN, Source.LANL)
    times: float = 1
    warned: tuple[str, ...] = ()


SETTINGS = {
    "as often": Setting(),
    "ten times": Setting(times=10),
    "warned": Setting(times=10, warned=("dbe",)),
    "grid5000": Setting(sources=(Source.GRID5000,)),
}


class Bench:
    """The settings, with what bounds them."""

    def __init__(
        self, *, shared: Path, folder: Path, days: float | None, limit_s: float, simulate: Simulate = in_a_process
    ) -> None:
        self._shared, self._folder, self._days, self._limit_s = shared, folder, days, limit_s
        self._simulate = simulate
        self.skipped: dict[str, str] = {}
        """What was not measured, and why."""

    def figures(self, name: str) -> Figures | None:
        """Those of one setting; None: a history is not there."""
        setting, month = SETTINGS[name], self._shared / MONTH
        needed = [month / WHOLE, *(self._record(source) for source in setting.sources)]
        missing = [str(path.relative_to(self._shared)) for path in needed if not path.is_file()]
        if missing:
            self.skipped[name] = f"no {', '.join(missing)} in the folder shared beside the project"
            print(f"{name}: skipped: {self.skipped[name]}", file=sys.stderr, flush=True)
            return None
        rows = self._rows(setting, month)
        path = self._folder / f"{name.replace(' ', '-')}.csv"
        path.write_bytes(b"".join(chunks(rows)))
        print(f"{name} ...", file=sys.stderr, flush=True)
        began = time.monotonic()
        case = Case(folder=str(month), faults=str(path), days=self._days, limit_s=self._limit_s)
        down_s = sum(row.up_s - row.down_s for row in rows if row.up_s is not None)
        known = self._simulate(case) | {"outages": len(rows), "host_hours_down": round(down_s / 3_600)}
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        return {figure: known.get(figure) for figure in SHOWN}

    def _record(self, source: Source) -> Path:
        return self._shared / "traces" / "failures" / FILES[source]

    def _rows(self, setting: Setting, month: Path) -> list[FaultRow]:
        hosts, rows = load_cluster(month / "cluster.yaml"), []
        for source in setting.sources:
            since = datetime.strptime(SINCE[source], "%Y-%m-%d").replace(tzinfo=UTC)
            scaling = Scaling(
                hosts=hosts,
                since_s=int(since.timestamp()),
                times=setting.times,
                repair_s=24 * 3_600,
                warned=setting.warned,
            )
            rows += import_outages(self._record(source), source=source, scaling=scaling).rows
        return in_turn([(row, 0) for row in rows])[0]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.faults", description="ai2-month with failing hosts.")
    parser.add_argument("--only", action="append", choices=tuple(SETTINGS), help="one setting; repeatable")
    parser.add_argument("--days", type=float, help="simulated days of each, all unless said")
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="of each simulation (600)")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared", help="where the histories are")
    asked = parser.parse_args(arguments)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as folder:
        bench = Bench(shared=asked.shared, folder=Path(folder), days=asked.days, limit_s=asked.limit)
        for name in asked.only or SETTINGS:
            figures = bench.figures(name)
            if figures is not None:
                found[name] = figures
    print(json.dumps(({"conditions": {"skipped": bench.skipped}} if bench.skipped else {}) | found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
