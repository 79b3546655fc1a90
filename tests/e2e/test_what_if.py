"""A what-if on the log of a running system: what it would have been, before a share is changed, and of its export."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.system import TENURE, System, running

JOBS, SECONDS = 24, 1.5


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """One host of four GPUs that two budgets have had in turns: 24 jobs that hold all of it for a second or two."""
    with running(tmp_path_factory.mktemp("whatif"), hosts="1x4") as system:
        jobs = [
            system.submit("a" if number % 2 else "b", ["/bin/sleep", str(SECONDS)], gpus=4, seconds=20)
            for number in range(JOBS)
        ]
        for job in jobs:
            assert system.wait(job, timeout_s=120).state == "completed"
        yield system
        system.check()
        assert system.stop() == 0


def tenure(system: System, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TENURE_SERVER": system.address}
    done = subprocess.run(
        [TENURE, *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == status, done.stderr
    return done


def position(system: System) -> int:
    return system.client.tree().position


def test_the_log_replayed_unchanged_has_the_same_runs_and_nearly_the_same_waits(system: System) -> None:
    report = json.loads(tenure(system, "simulate", "--from-log", "--json").stdout)
    what_if = report["what_if"]
    assert what_if["compared_with"] == "log" and what_if["jobs_estimated"] == 0
    assert report["jobs"] == report["runs"] == JOBS and report["violations"] == 0
    for gain in what_if["budgets"][:2]:
        real, again = gain["really"], gain["after"]
        assert again["jobs"] == real["jobs"] == JOBS / 2
        assert again["delivered_gpu_hours"] == pytest.approx(real["delivered_gpu_hours"], rel=0.02)
        assert again["wait_mean_s"] == pytest.approx(real["wait_mean_s"], rel=0.1), "what decisions take is left out"


def test_a_dry_run_tells_who_gains_and_changes_nothing(system: System) -> None:
    before = position(system)
    document = json.loads(tenure(system, "budget", "set", "a=75", "b=5", "--dry-run", "--json").stdout)
    by_name = {gain["name"]: gain for gain in document["what_if"]["budgets"]}
    assert by_name["a"]["wait_mean_change_s"] < -1 < 1 < by_name["b"]["wait_mean_change_s"], "a comes first now"
    said = tenure(system, "budget", "set", "a=75", "b=5", "--dry-run").stdout
    assert said.startswith("Nothing is changed.") and "beside the same time replayed unchanged" in said
    assert position(system) == before


def test_a_dry_run_without_a_budget_says_what_becomes_of_its_jobs(system: System) -> None:
    said = tenure(system, "budget", "set", "b=5", "--remove", "a", "--dry-run").stdout
    assert f"with the new tree, a at a share of 0 (it funds {JOBS // 2} jobs), beside" in said


def test_a_dry_run_is_refused_as_the_change_would_be(system: System) -> None:
    really = tenure(system, "budget", "set", "a=90", status=1).stderr
    assert tenure(system, "budget", "set", "a=90", "--dry-run", status=1).stderr == really
    assert "100 %" in really


def test_an_export_of_it_says_the_same(system: System, tmp_path: Path) -> None:
    export = tmp_path / "events.jsonl.gz"
    tenure(system, "log", "export", "-o", str(export))
    live: Any = json.loads(tenure(system, "simulate", "--from-log", "--json").stdout)
    told: Any = json.loads(tenure(system, "simulate", "--from-log", str(export), "--json").stdout)
    assert told["runs"] == live["runs"]
    for one, other in zip(told["what_if"]["budgets"], live["what_if"]["budgets"], strict=True):
        assert one["after"]["delivered_gpu_hours"] == pytest.approx(other["after"]["delivered_gpu_hours"], rel=0.01)


def test_a_file_of_another_tree_and_a_time_before_the_log_are_said(system: System, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("budgets: {left: {share: 50}, b: {share: 50}}\n")
    said = tenure(system, "simulate", "--from-log", "--budgets", str(other), status=2).stderr
    assert f"{JOBS // 2} jobs of the log are funded by a" in said and len(said.splitlines()) == 1
    said = tenure(system, "simulate", "--from-log", "--since", "30d", status=2).stderr
    assert "before the log began" in said and len(said.splitlines()) == 1
