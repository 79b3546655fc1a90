"""An export read back: what its lines say, and what is said of a file that is none."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulator.past.lines import facts_of
from simulator.past.story import Past
from simulator.report.breaches import find_breaches
from simulator.simulation import Simulation
from simulator.workload import TraceJob
from tenure.domain.ids import HostId, JobId
from tenure.domain.job import Topology
from tenure.domain.policy import Policy
from tenure.domain.refusal import Refusal
from tenure.domain.units import DAY, HOUR, MINUTE
from tenure.events.reports import HostRegistered
from tenure.export.jsonl import blocks
from tests.unit.simulator.past.scene import history, hosts, jobs, replayed, tree

HOST = {"t": 0, "type": "host", "host": "h", "gpus": 8, "gpu_type": "H100", "block": "b"}


def written(path: Path, *lines: dict[str, Any]) -> Path:
    told = [{"t": 0, "type": "origin", "epoch_ms": 0}, *lines]
    path.write_text("\n".join(json.dumps(line) for line in told))
    return path


def test_an_export_tells_the_same_jobs_trees_and_policies(tmp_path: Path) -> None:
    recorded = history(1)
    path = tmp_path / "events.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(blocks(recorded, origin_ms=0))))
    told, real = Past(facts_of(path)), Past(entry.fact for entry in recorded)
    assert [(at, one.fractions, one.by_path["c"].users_equal) for at, one in told.trees] == [
        (at, one.fractions, one.by_path["c"].users_equal) for at, one in real.trees
    ]
    assert [(at, policy.lookback_ms) for at, policy in told.policies] == [(0, 7 * DAY), (6 * DAY, 3 * DAY)]
    for job in real.jobs.values():
        same = told.jobs[job.job]
        assert (same.spec.gpus, same.spec.budget, same.spec.user) == (job.spec.gpus, job.spec.budget, job.spec.user)
        assert (same.submitted_at, same.state, same.cancelled_at) == (job.submitted_at, job.state, job.cancelled_at)
        assert [(run.started_at, run.ended_at, run.cause, run.checkpoint) for run in same.runs] == [
            (run.started_at, run.ended_at, run.cause, run.checkpoint) for run in job.runs
        ]
        assert [run.assigned.placement for run in same.runs] == [run.assigned.placement for run in job.runs]


def test_what_a_job_asks_for_beyond_its_size_is_told_too(tmp_path: Path) -> None:
    spec = replace(
        jobs(1)[0].spec,
        budget=tree().leaves[0],
        topology=Topology.ONE_BLOCK,
        grace_ms=5 * MINUTE,
        hosts=(HostId("h001"), HostId("h000")),
        hosts_excluded=(HostId("h000"),),
        gpus_per_replica=2,
        replicas=1,
        cluster="h100",
    )
    job = TraceJob(job=JobId("j"), submitted_at=0, spec=spec, runs_for_ms=HOUR, kind="")
    others = [replace(host, host=HostId(f"x{host.host}"), cluster="dev") for host in hosts(1)]
    simulation = Simulation(hosts=[*hosts(), *others], tree=tree(), policy=Policy(), jobs=[job])
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(blocks(simulation.run(DAY), origin_ms=0)))
    facts = facts_of(path)
    assert replace(Past(facts).jobs[JobId("j")].spec, launch=spec.launch) == spec
    clusters = {spec.host: spec.cluster for fact in facts if isinstance(fact, HostRegistered) for spec in fact.hosts}
    assert clusters["xh000"] == "dev" and clusters["h000"] == "h100"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([{"t": 0, "type": "cancel_requested", "job": "j"}], "missing required field `by`"),
        ([{"t": 0, "type": "capacity", "host": "h", "gpus": 8, "gpu_type": "H100"}], ":2: no line of an export (h is"),
        ([{"t": 0, "type": "host", "host": "h"}], "missing required field `gpus`"),
        ([{"t": "soon", "type": "host", "host": "h"}], ":2: no line of an export"),
        ([{"type": "host"}], "missing required field `t`"),
        ([{**HOST, "gpus": 0}], "0 is out of range"),
        ([{**HOST, "t": 1e300}], "is out of range"),
        ([{**HOST, "gpu_type": "a b"}], "gpu_type"),
        ([{"t": 0, "type": "host_state", "host": "h", "state": "odd", "previous": None}], "no line of an export"),
        ([{"t": 0, "type": "policy_changed", "by": "", "comment": "", "knobs": {"odd": [1, 2]}}], "unknown knob odd"),
        ([{"t": 0, "type": "budget_tree", "shares": {"a": 0.7, "b": 0.7}, "users_equal": []}], "sum to 140 %"),
        ([], "there is no host in it"),
    ],
)
def test_a_line_that_is_none_is_named(lines: list[dict[str, Any]], words: str, tmp_path: Path) -> None:
    path = written(tmp_path / "events.jsonl", *lines)
    with pytest.raises(Refusal) as caught:
        facts_of(path)
    assert words in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"job_id,submit_s\n", b'{"t": 0, "type": "host"}\n', b"[]", b"\xff\xfe\x00"])
def test_a_file_that_is_no_export_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(content)
    with pytest.raises(Refusal, match="tenure log export"):
        facts_of(path)
    with pytest.raises(Refusal):
        facts_of(tmp_path / "absent.jsonl")


def test_hosts_without_a_cluster_beside_jobs_that_name_several_are_refused(tmp_path: Path) -> None:
    asks = [
        {
            "t": 0,
            "type": "job_submitted",
            "job": f"j{cluster}",
            "budget": "a",
            "user": "ana",
            "replicas": 1,
            "gpus_per_replica": 1,
            "min_runtime_s": 0,
            "resumable": False,
            "priority": 0,
            "gpu_type": None,
            "gpu_cluster": cluster,
        }
        for cluster in ("east", "west")
    ]
    with pytest.raises(Refusal, match="export the log again"):
        facts_of(written(tmp_path / "events.jsonl", HOST, *asks))


def test_clocks_of_hosts_may_differ_from_those_of_roles(tmp_path: Path) -> None:
    """Hosts that are a second behind tell starts before the assignment, hosts that are ahead ends after the requeue."""
    recorded = history(1)
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"".join(blocks(recorded, origin_ms=0)))
    off = {"run_started": -1, "run_ended": 1}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    moved = [
        {
            key: max(0, value + off.get(line["type"], 0)) if key in ("t", "protected_until") else value
            for key, value in line.items()
        }
        for line in lines
    ]
    path.write_text("\n".join(json.dumps(line) for line in sorted(moved, key=lambda line: line["t"])))
    past, real = Past(facts_of(path)), Past(entry.fact for entry in recorded)
    for job in real.jobs.values():
        same = past.jobs[job.job]
        assert [run.cause for run in same.runs] == [run.cause for run in job.runs]
        assert [run.ended_at for run in same.runs] == [
            None if run.ended_at is None else run.ended_at + (1_000 if run.started_at is not None else 0)
            for run in job.runs
        ]
    found = {breach.partition(":")[0] for breach in find_breaches(replayed(past, start=3 * DAY))}
    assert found <= {"I5", "I10"}, "what was charged, and that it was asked for, no longer fit the moved instants"
