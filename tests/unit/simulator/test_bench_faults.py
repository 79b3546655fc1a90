"""`make bench ARGS=faults`: hosts that warn or fail in a small history, and what is counted of their drains."""

import gzip
from pathlib import Path

import pytest

from tests.bench.faults import SHOWN, Bench
from tests.bench.one_simulation import Case, simulate

COLUMNS = "job_id,submit_s,budget,user,replicas,gpus_per_replica,min_runtime_s,runtime_s,resumable,priority,kind"


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """Eight hosts, each with a job that runs for two days and is protected for four hours."""
    (tmp_path / "cluster.yaml").write_text("clusters: [{name: c, hosts: 8, gpus_per_host: 8, gpu_type: A}]")
    (tmp_path / "budgets.yaml").write_text("budgets: {a: {share: 50}, b: {share: 50}}")
    rows = [f"j{job},{job},{'ab'[job % 2]},u,1,8,14400,172800,true,0,debug" for job in range(8)]
    (tmp_path / "trace.csv.gz").write_bytes(gzip.compress("\n".join([COLUMNS, *rows]).encode()))
    return Case(folder=str(tmp_path), faults=str(tmp_path / "faults.csv"), days=2)


def test_a_warning_drains_at_the_end_of_the_contract(case: Case) -> None:
    Path(case.faults).write_text("host,down_s,up_s,kind\nh000,7200,86400,drain-dbe\n")
    figures = simulate(case)
    assert (figures["drains_at_once"], figures["drains_at_boundaries"], figures["drains_in_time"]) == (0, 1, 1.0)
    assert 60 < figures["drain_p90_min"] <= 130
    assert (figures["protected_ended_by_fatal_evidence"], figures["protected_ended_otherwise"]) == (0, 0)
    assert 0.9 < figures["availability"] < 1


def test_a_fatal_fault_ends_what_is_protected(case: Case) -> None:
    Path(case.faults).write_text("host,down_s,up_s,kind\nh000,7200,86400,otb\nh001,7200,86400,psu\n")
    figures = simulate(case)
    assert (figures["drains_at_once"], figures["drains_at_boundaries"], figures["drains_in_time"]) == (2, 0, None)
    assert (figures["protected_ended_by_fatal_evidence"], figures["protected_ended_otherwise"]) == (2, 0)
    assert figures["promises_broken"] == 0


def test_a_setting_without_its_records_is_skipped_with_a_reason(tmp_path: Path) -> None:
    bench = Bench(shared=tmp_path, folder=tmp_path, days=None, limit_s=1, simulate=lambda case: {})
    assert bench.figures("as often") is None
    assert "no scenarios/ai2-month/trace.csv.gz, traces/failures/titan-gpu/" in bench.skipped["as often"]


def test_records_are_scaled_to_the_month(shared: Path, tmp_path: Path) -> None:
    if not (shared / "traces" / "failures").is_dir() or not (shared / "scenarios" / "ai2-month").is_dir():
        pytest.skip("needs shared/traces/failures and shared/scenarios/ai2-month beside the project")
    simulated: list[Case] = []

    def simulate_nothing(case: Case) -> dict[str, float]:
        simulated.append(case)
        return {"delivered": 1.0}

    bench = Bench(shared=shared, folder=tmp_path, days=3, limit_s=60, simulate=simulate_nothing)
    figures = bench.figures("warned")
    assert figures is not None
    assert tuple(figures) == SHOWN
    kinds = {line.rsplit(",", 1)[1] for line in Path(simulated[0].faults).read_text().splitlines()[1:]}
    assert {"drain-dbe", "otb", "hardware"} <= kinds
    assert (figures["delivered"], figures["occupancy"], simulated[0].days) == (1.0, None, 3)
