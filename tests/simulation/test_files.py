"""What a simulation leaves behind, read by a checker that has nothing else: both policies, losses, an edited tree."""

import random
from pathlib import Path

import pytest

from simulator.baseline import PRIORITY
from simulator.faults import Fault
from simulator.report import build_report, write_report
from simulator.simulation import FAIR, Roles, Simulation, Work
from simulator.workload import TraceJob
from tenure.domain.ids import BudgetPath, HostId, JobId, UserName
from tenure.domain.job import JobSpec, Launch
from tenure.domain.policy import Policy
from tenure.domain.tree_check import check_tree
from tenure.domain.units import DAY, HOUR, MINUTE
from tenure.export.jsonl import lines
from tenure.runtime.cluster_file import parse_hosts
from tests.checks.export import check_export

TREE = {"a": {"share": 60, "children": {"x": {"share": 70}, "y": {"share": 30}}}, "b": {"share": 40}}
LATER = {"a": {"share": 30, "children": {"x": {"share": 70}, "y": {"share": 30}}}, "b": {"share": 70}}
KINDS = {"debug": (1, 2, 10, 10), "long": (1, 8, 120, 600), "gang": (3, 8, 60, 240), "sweep": (1, 4, 0, 200)}
"""Replicas, GPUs of each, minutes of contract, minutes of work."""
FAULTS = (
    Fault(host=HostId("h001"), down_at=30 * HOUR, up_at=33 * HOUR, kind="xid79"),
    Fault(host=HostId("h003"), down_at=50 * HOUR, up_at=None, kind="psu"),
)
END = 3 * DAY + 2 * HOUR + 30 * MINUTE


def trace() -> list[TraceJob]:
    """Some 200 jobs in three days on 32 GPUs: more than fit."""
    chance = random.Random(5)
    jobs = []
    for number in range(200):
        kind = chance.choice(sorted(KINDS))
        replicas, gpus, contract, work = KINDS[kind]
        spec = JobSpec(
            budget=BudgetPath(chance.choice(("a/x", "a/y", "b"))),
            user=UserName("ana"),
            replicas=replicas,
            gpus_per_replica=gpus,
            min_runtime_ms=contract * MINUTE,
            resumable=chance.random() < 0.7,
            priority=chance.choice((0, 0, 1)),
            launch=Launch(command=("true",)),
        )
        runs_for_ms = round(work * MINUTE * chance.uniform(0.2, 1.5))
        submitted_at = chance.randrange(0, 3 * DAY, 1000)
        jobs.append(
            TraceJob(
                job=JobId(f"j{number:03}"), submitted_at=submitted_at, spec=spec, runs_for_ms=runs_for_ms, kind=kind
            )
        )
    return sorted(jobs, key=lambda job: (job.submitted_at, job.job))


def simulate(folder: Path, *, roles: Roles) -> None:
    """Three days, the first of warm-up, to `events.jsonl` and `report.json`."""
    folder.mkdir()
    jobs, policy, work = trace(), Policy(), Work(restart_overhead_ms=5 * MINUTE)
    simulation = Simulation(
        hosts=parse_hosts("4x8"),
        tree=check_tree({"budgets": TREE}),
        policy=policy,
        work=work,
        jobs=jobs,
        faults=FAULTS,
        edits=[(40 * HOUR + 20 * MINUTE, check_tree({"budgets": LATER}))],
        roles=roles,
    )
    recorded = simulation.run(END)
    report = build_report(
        recorded,
        policy_name="any",
        kinds={job.job: job.kind for job in jobs},
        start=DAY,
        end=END,
        lookback_ms=policy.lookback_ms,
        wall_seconds=0.0,
        work=work,
    )
    assert report.violations == 0, report.violations_shown
    assert report.host_losses.runs and report.preemptions.allocated and report.waits["all"].n
    write_report(folder / "report.json", report)
    (folder / "events.jsonl").write_bytes(b"".join(line + b"\n" for line in lines(recorded, origin_ms=0)))


@pytest.mark.parametrize("roles", [FAIR, PRIORITY], ids=["fair", "priority"])
def test_the_files_hold_what_they_must_and_are_the_same_again(tmp_path: Path, roles: Roles) -> None:
    for name in ("one", "two"):
        simulate(tmp_path / name, roles=roles)
    kinds = {str(job.job): job.kind for job in trace()}
    check_export(
        tmp_path / "one" / "events.jsonl", tmp_path / "one" / "report.json", kinds=kinds, restart_overhead_s=300
    )
    for name in ("events.jsonl", "report.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
