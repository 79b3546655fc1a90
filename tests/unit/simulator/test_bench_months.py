"""`make bench ARGS=months`: what is simulated, what bounds it, and how its figures come into the page."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.bench import months, report
from tests.bench.months import Bench, Figures
from tests.bench.one_simulation import Case, simulate

COLUMNS = "job_id,submit_s,budget,user,replicas,gpus_per_replica,min_runtime_s,runtime_s,resumable,priority,kind"
PAGE = f"before\n{report.BEGIN}\nold\n{report.END}\nafter"


@pytest.fixture
def case(tmp_path: Path) -> Case:
    (tmp_path / "cluster.yaml").write_text("clusters: [{name: c, hosts: 2, gpus_per_host: 8, gpu_type: A}]")
    (tmp_path / "budgets.yaml").write_text("budgets: {a: {share: 50}, b: {share: 50}}")
    rows = [f"j{job},{job * 7200},{'ab'[job % 2]},u,1,8,900,5400,true,0,debug" for job in range(40)]
    (tmp_path / "trace.csv.gz").write_bytes(gzip.compress("\n".join([COLUMNS, *rows]).encode()))
    return Case(folder=str(tmp_path))


def ricc(tmp_path: Path, *, jobs: int) -> Path:
    """A shared folder with a small history in the place of RICC, and nothing else."""
    path = tmp_path / "shared" / months.HISTORIES["ricc"].file
    path.parent.mkdir(parents=True)
    lines = [f"{job} {60 * job} 0 1800 1 -1 -1 1 3600 -1 1 7 3 -1 1 -1 -1 -1" for job in range(1, jobs + 1)]
    path.write_bytes(gzip.compress("\n".join(["; UnixStartTime: 1272639895", *lines, ""]).encode()))
    return tmp_path / "shared"


def bench(tmp_path: Path, shared: Path, simulated: list[Case]) -> Bench:
    """A bench whose simulations take half a second a job."""

    def simulated_as(case: Case) -> Figures:
        simulated.append(case)
        jobs = gzip.decompress((Path(case.folder) / case.trace).read_bytes()).count(b"\n") - 1
        return {"jobs": jobs, "seconds": jobs / 2, "facts": 25 * jobs, "us_a_job": 500_000, "occupancy": 0.5}

    (tmp_path / "work").mkdir()
    return Bench(shared=shared, folder=tmp_path / "work", days=3, limit_s=60, simulate=simulated_as)


def test_a_whole_simulation_says_what_came_out_and_what_it_took(case: Case) -> None:
    figures = simulate(case)
    assert (figures["jobs"], figures["simulated_days"], figures["of_days"]) == (40, 4.0, 4.0)
    assert (figures["delivered"], figures["promises_broken"]) == (1.0, 0)
    assert min(figures["facts"], figures["us_a_fact"], figures["us_a_job"], figures["peak_memory_mib"]) > 0
    assert set(figures) == {name for shown in months.SHOWN.values() for name in shown} | {"availability"}


def test_days_and_the_limit_bound_it(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    fewer = simulate(Case(folder=case.folder, days=1.5))
    assert (fewer["jobs"], fewer["simulated_days"], fewer["of_days"]) == (18, 1.5, 1.5)
    cut = simulate(Case(folder=case.folder, limit_s=0))
    assert (cut["simulated_days"], cut["of_days"]) == (0.04, 4.0), "an hour is looked at as a whole"
    assert "cut on day 0.0 of 4" in capsys.readouterr().err


def test_a_process_of_its_own_gives_the_same(case: Case) -> None:
    alone, here = months.in_a_process(case), simulate(case)
    assert {name: alone[name] for name in months.SERVED} == {name: here[name] for name in months.SERVED}
    assert alone["facts"] == here["facts"]


def test_what_is_not_there_is_skipped_with_a_reason(tmp_path: Path) -> None:
    simulated: list[Case] = []
    measured = bench(tmp_path, tmp_path, simulated)
    assert (measured.months(), measured.traces(), measured.growth()) == ({}, {}, {})
    assert not simulated
    assert set(measured.skipped) == {"ai2-month", "contended-month", "philly", "ricc", "openb"}
    assert "traces/ricc/RICC-2010-2.swf.gz" in measured.skipped["ricc"]


def test_growth_is_told_as_ratios_and_nothing_is_simulated_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(months, "GROWTH", (4, 10))
    simulated: list[Case] = []
    measured = bench(tmp_path, ricc(tmp_path, jobs=30), simulated)
    (traced,) = measured.traces().values()
    grown = measured.growth()
    assert [(case.trace, case.days, case.limit_s) for case in simulated] == [
        ("trace.csv.gz", 3, 60),
        ("first-4.csv.gz", 3, 60),
        ("first-10.csv.gz", 3, 60),
    ]
    assert list(grown) == ["ricc, 4 jobs", "ricc, 10 jobs", "ricc, all jobs"]
    assert [figures["jobs"] for figures in grown.values()] == [4, 10, 30]
    assert [figures["times_facts"] for figures in grown.values()] == [1.0, 2.5, 7.5]
    assert [figures["times_us_a_job"] for figures in grown.values()] == [1.0, 1.0, 1.0]
    assert (traced["jobs"], traced["occupancy"]) == (30, 0.5)


def test_a_simulation_that_was_ended_has_no_figures() -> None:
    found = months.with_ratios({"few": {"jobs": 10, "seconds": 2}, "many": {"jobs": 40, "seconds": None}})
    assert found["many"]["times_jobs"] == 4.0
    assert found["many"]["times_seconds"] is None
    assert report.shown(None) == "-"


def test_neighbours_with_the_same_figures_stand_side_by_side() -> None:
    figures = {
        "conditions": {"limit_s": 60},
        "ai2-month fair": {"seconds": 9.0, "preemptions": 7},
        "contended-month fair": {"seconds": 7.5, "preemptions": None},
        "alone": {"jobs": 3},
    }
    page = report.render({"months": {"at": "2026-01-01", "machine": "one", "figures": figures}})
    assert page.endswith(
        "\n2026-01-01, one; limit_s 60. See `tests/bench/months.py`.\n"
        "\n| figure | wanted | ai2-month fair | contended-month fair |\n|---|---|---|---|\n"
        "| seconds | <= 8 | 9 * | 7.5 |\n| preemptions |  | 7 | - |\n"
        "\n| | figure | value |\n|---|---|---|\n| alone | jobs | 3 |\n"
    )


def test_a_part_that_is_measured_again_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Sequence[str]] = []

    def measure(name: str, options: Sequence[str]) -> dict[str, Any]:
        given.append([name, *options])
        return {"at": "today", "machine": "one", "figures": {"conditions": {"days": 30}, "part": {"new": 2}}}

    monkeypatch.setattr(report, "measure", measure)
    monkeypatch.setattr(report, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(report, "FIGURES", tmp_path / "figures.json")
    report.PAGE.write_text(PAGE)
    before = {
        "at": "then",
        "machine": "one",
        "figures": {"conditions": {"by": "hand"}, "other": {"old": 1}, "part": {"old": 1}},
    }
    report.FIGURES.write_text(json.dumps({"months": before}))
    report.main(["months", "--only", "growth", "--days", "30"])
    assert given == [["months", "--only", "growth", "--days", "30"]]
    kept = json.loads(report.FIGURES.read_text())["months"]["figures"]
    assert kept == {"other": {"old": 1}, "part": {"new": 2}, "conditions": {"days": 30}}
    report.main(["months"])
    assert "other" not in json.loads(report.FIGURES.read_text())["months"]["figures"]


@pytest.mark.parametrize("arguments", [["nothing"], ["log", "months", "--days", "3"]])
def test_modules_and_their_options_are_checked(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        report.main(arguments)
