"""The pictures' numbers are the report's: both count the same simulated log, one from its lines, one from its facts."""

import json
from typing import Any

import msgspec
import pytest

from simulator.faults import Fault
from simulator.pictures.told import Told, tell
from simulator.report import build_report
from simulator.simulation import Simulation, Work
from simulator.workload import TraceJob
from tenure.domain.ids import BudgetPath, HostId, JobId, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.domain.tree_check import check_tree
from tenure.domain.units import DAY, HOUR, MINUTE, SECOND
from tenure.export.jsonl import lines
from tenure.runtime.cluster_file import parse_hosts
from tenure.runtime.options import build_policy

TREE = check_tree(
    {"budgets": {"a": {"share": 60, "children": {"x": {"share": 50}, "y": {"share": 50}}}, "b": {"share": 40}}}
)
END = 4 * DAY
START = DAY
WORK = Work()


def trace() -> list[TraceJob]:
    """More jobs than four hosts can take, of every kind, by arithmetic."""
    found = []
    for number in range(220):
        length = (20 * MINUTE, 3 * HOUR, 7 * HOUR, 11 * HOUR)[number * 7 % 4]
        spec = JobSpec(
            budget=BudgetPath(("a/x", "a/y", "b")[number * 5 % 3]),
            user=UserName("ana"),
            replicas=(1, 1, 1, 2)[number % 4],
            gpus_per_replica=(1, 4, 8)[number * 11 % 3],
            min_runtime_ms=(0, 10 * MINUTE, HOUR, 4 * HOUR)[number * 3 % 4],
            resumable=number % 5 != 0,
            priority=0,
            launch=Launch(command=("simulated",)),
        )
        job, at = JobId(f"j{number:03}"), number * 26 * MINUTE + number % 7 * SECOND
        kind = ("train", "eval")[number % 2]
        found.append(TraceJob(job=job, submitted_at=at, spec=spec, runs_for_ms=length, kind=kind))
    return found


@pytest.fixture(scope="module")
def both() -> tuple[Told, dict[str, Any]]:
    jobs, kinds = trace(), {job.job: job.kind for job in trace()}
    faults = [Fault(host=HostId("h001"), down_at=30 * HOUR, up_at=41 * HOUR, kind="gpu")]
    simulation = Simulation(
        hosts=parse_hosts("4x8"), tree=TREE, policy=build_policy({}), jobs=jobs, faults=faults, work=WORK
    )
    recorded = simulation.run(END)
    report = build_report(
        recorded,
        policy_name="fair",
        kinds=kinds,
        start=START,
        end=END,
        lookback_ms=7 * DAY,
        wall_seconds=1.0,
        work=WORK,
    )
    as_written = msgspec.to_builtins(report)
    told = [json.loads(line) for line in lines(recorded, origin_ms=0)]
    return tell(told, report=as_written, budgets={}, kinds=kinds), as_written


def measured(hourly: Any) -> float:
    """GPU-hours of the stretch that the report is over."""
    return float(hourly[..., START // HOUR : END // HOUR].sum()) / HOUR


def test_parts_of_all_gpu_time(both: tuple[Told, dict[str, Any]]) -> None:
    told, report = both
    series, parts = told.series, report["gpu_hours"]
    found = {
        "charged": measured(series.charged),
        "refunded": measured(series.lost),
        "unallocated": measured(series.unallocated),
        "idle": measured(series.idle),
        "unavailable": measured(series.unavailable),
    }
    assert min(found.values()) > 0, "every part is tried"
    assert found == pytest.approx({name: parts[name] for name in found}, abs=1e-3)


def test_owed_and_delivered(both: tuple[Told, dict[str, Any]]) -> None:
    told, report = both
    for leaf, budget in enumerate(report["delivered"]["budgets"]):
        assert told.history.leaves[leaf] == budget["path"]
        assert measured(told.series.owed[leaf]) == pytest.approx(budget["owed_gpu_hours"], abs=1e-3)
        assert measured(told.series.charged[leaf]) == pytest.approx(budget["delivered_gpu_hours"], abs=1e-3)


def test_waits(both: tuple[Told, dict[str, Any]]) -> None:
    told, report = both
    counted = {name: wait["n"] for name, wait in report["waits"].items() if wait["n"]}
    assert {name: len(lengths) for name, lengths in told.waits.items()} == counted
    assert {"all", "debug", "train", "eval"} <= set(counted)
    for name, lengths in told.waits.items():
        assert lengths[-1] / SECOND == report["waits"][name]["max_s"]


def test_early_ends(both: tuple[Told, dict[str, Any]]) -> None:
    told, report = both
    preempted = [stop for stop in told.stops if stop.label != "host lost"]
    assert sum(stop.count for stop in preempted) == report["preemptions"]["total"] > 0
    assert sum(stop.lost_gpu_ms for stop in preempted) / HOUR == pytest.approx(
        report["preemptions"]["lost_gpu_hours"], abs=1e-3
    )
    lost = [stop for stop in told.stops if stop.label == "host lost"]
    assert sum(stop.count for stop in lost) == report["host_losses"]["runs"] > 0
