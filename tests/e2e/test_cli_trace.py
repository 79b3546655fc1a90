"""`tenure trace` as its user runs it: foreign files in, a trace out; everything wrong is one line and a 2."""

import csv
import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from simulator.faults import read_faults
from simulator.workload import read_trace
from tenure.cli.main import main
from tenure.runtime.budgets_file import load_budgets
from tenure.runtime.cluster_file import load_cluster
from tests.e2e.command_line import TENURE

COLUMNS = "job_id,submit_s,budget,user,replicas,gpus_per_replica,min_runtime_s,runtime_s,resumable,priority,kind"
TITAN = "SN,location,insert,remove,duration,out,event"
SACCT = """JobID|User|Account|Partition|QOS|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|AllocTRES
7|ana|chem|gpu|high|COMPLETED|2026-03-01T10:00:00|2026-03-01T10:05:00|2026-03-01T12:05:00|7200|240|4|gres/gpu=32
7.batch|||||COMPLETED|2026-03-01T10:05:00|2026-03-01T10:05:00|2026-03-01T12:05:00|7200||1|
8|ben|bio|gpu|normal|CANCELLED by 0|2026-03-01T10:00:00|None|2026-03-01T10:05:00|0|240|1|gres/gpu=1
9|ben|bio|gpu|normal|COMPLETED|2026-03-01T09:00:00|2026-03-01T10:05:00|2026-03-01T10:07:00|120|240|1|gres/gpu=1
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a dump of Slurm's accounting, a cluster and a tree."""
    (tmp_path / "dump.txt").write_text(SACCT)
    (tmp_path / "cluster.yaml").write_text("clusters: [{name: a, hosts: 8, gpus_per_host: 8, gpu_type: H100}]\n")
    (tmp_path / "tree.yaml").write_text("budgets: {left: {share: 50}, right: {share: 50}}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trace(*options: str) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own."""
    return subprocess.run([TENURE, "trace", *options], capture_output=True, text=True, timeout=60, check=False)


def answer(*options: str) -> str:
    done = trace(*options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(name: str) -> list[dict[str, Any]]:
    data = Path(name).read_bytes()
    text = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
    assert text.splitlines()[0] == COLUMNS
    return list(csv.DictReader(text.splitlines()))


def test_a_dump_becomes_a_trace_and_budgets_that_are_read(folder: Path) -> None:
    options = ("import", "dump.txt", "--from", "sacct", "--out", "trace.csv.gz", "--budgets-out", "budgets.yaml")
    said = answer(*options, "--contract", "qos=high: min_runtime=50%, resumable, priority=1, kind=paper")
    assert [tuple(row.values()) for row in rows("trace.csv.gz")] == [
        ("9", "0", "bio", "ben", "1", "1", "900", "120", "false", "0", "debug"),
        ("7", "3600", "chem", "ana", "4", "8", "3600", "7200", "true", "1", "paper"),
    ]
    assert "1  dropped  a step of a job" in said
    assert "1  dropped  never started: cancelled or still in the queue" in said
    assert "1  qos=high: min_runtime=50%, resumable, priority=1, kind=paper" in said
    assert said.endswith("2 jobs of 4 rows are in trace.csv.gz: 0.0 days, 64 GPU-hours, 2 budgets\n")
    tree = load_budgets(Path("budgets.yaml"))
    assert {leaf: tree.by_path[leaf].share_ppm for leaf in tree.leaves} == {"bio": 620, "chem": 999_380}
    assert len(read_trace(Path("trace.csv.gz"), tree=tree).jobs) == 2
    before = Path("trace.csv.gz").read_bytes()
    answer(*options, "--contract", "qos=high: min_runtime=50%, resumable, priority=1, kind=paper")
    assert Path("trace.csv.gz").read_bytes() == before


def test_the_same_as_json(folder: Path) -> None:
    told = json.loads(
        answer("import", "dump.txt", "--from", "sacct", "--out", "trace.csv", "--max-gpus", "16", "--json")
    )
    assert (told["rows_read"], told["rows_dropped"], told["jobs"]) == (4, 2, 2)
    assert told["largest_gpus"] == 16
    assert {(note["action"], note["rows"], note["first_line"]) for note in told["notes"]} == {
        ("dropped", 1, 3),
        ("dropped", 1, 4),
        ("clipped", 1, 2),
    }
    assert sum(rule["jobs"] for rule in told["contracts"]) == 2
    assert [budget["path"] for budget in told["budgets"]] == ["bio", "chem"]


def test_a_map_of_budgets(folder: Path) -> None:
    Path("map.csv").write_text("group,budget\nchem,science/chem\n*,science/rest\n")
    options = ("import", "dump.txt", "--from", "sacct", "--out", "trace.csv", "--budget-map", "map.csv")
    answer(*options, "--budgets-out", "budgets.yaml")
    assert [row["budget"] for row in rows("trace.csv")] == ["science/rest", "science/chem"]
    assert load_budgets(Path("budgets.yaml")).leaves == ("science/chem", "science/rest")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", "pbs"], "--from: 'pbs' is not known; choose philly, openb, swf, sacct"),
        (["--from", "philly"], "dump.txt:1: no column timestamp, duration, num_gpus, cluster in the header"),
        (["--from", "sacct", "--contract", "gpus<8 unallocated"], "rule 'gpus<8 unallocated': no ':'; write"),
        (["--from", "sacct", "--timezone", "Nowhere"], "--timezone: no time zone 'Nowhere'"),
        (["--from", "sacct", "--since", "9d"], "dump.txt: no job is left"),
        (["--from", "sacct", "--budgets-out", "absent/b.yaml"], "--budgets-out: "),
        (["--from", "sacct", "--budget-map", "absent.csv"], "absent.csv: No such file"),
    ],
)
def test_what_is_wrong_is_one_line_and_a_2(
    folder: Path, capfd: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["trace", "import", "dump.txt", "--out", "trace.csv", *options]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("tenure trace import: ")
    assert message in err
    assert not Path("trace.csv").exists()


def test_a_month_is_constructed_and_the_same_again(folder: Path) -> None:
    files = ("--cluster", "cluster.yaml", "--budgets", "tree.yaml")
    said = answer("generate", *files, "--days", "4", "--seed", "5", "--out", "month.csv.gz")
    told = json.loads(answer("generate", *files, "--days", "4", "--seed", "5", "--out", "again.csv.gz", "--json"))
    assert Path("month.csv.gz").read_bytes() == Path("again.csv.gz").read_bytes()
    jobs = rows("month.csv.gz")
    assert len(jobs) == told["jobs"] == sum(kind["jobs"] for kind in told["kinds"])
    assert {row["kind"] for row in jobs} >= {"debug", "interactive", "sweep", "small", "large"}
    assert 2.0 <= told["outstanding_demand"]["min"] <= told["outstanding_demand"]["max"] <= 3.0
    assert f"{len(jobs):,} jobs of " in said
    answer("generate", *files, "--days", "4", "--seed", "6", "--out", "again.csv.gz")
    assert rows("again.csv.gz") != jobs


def test_a_month_that_cannot_be_made_is_one_line_and_a_2(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = ["--cluster", "cluster.yaml", "--budgets", "tree.yaml", "--out", "month.csv"]
    assert main(["trace", "generate", *files, "--demand", "99"]) == 2
    assert capfd.readouterr().err == "tenure trace generate: --demand: 99 is out of range; use 0.5 to 20\n"
    assert not Path("month.csv").exists()


def test_recorded_failures_become_faults_that_are_read(folder: Path) -> None:
    stays = [f"{gpu},c{gpu},,2016-01-0{1 + gpu % 5} 10:00:00,,,{'OTB' if gpu % 2 else 'DBE'}" for gpu in range(80)]
    Path("titan.csv").write_text(
        "\n".join(["SN,location,insert,remove,duration,out,event", *stays, "bad,c1,,soon,,,DBE"])
    )
    options = ("faults", "titan.csv", "--from", "titan", "--cluster", "cluster.yaml", "--days", "4", "--warn", "dbe")
    said = answer(*options, "--out", "one.csv")
    assert "remove is not a time" in said
    assert "64 of 80 places were drawn, from 2016-01-01 on" in said
    faults = read_faults(Path("one.csv"), hosts=load_cluster(Path("cluster.yaml")))
    assert {fault.kind for fault in faults} <= {"drain-dbe", "otb"}
    told = json.loads(answer(*options, "--out", "two.csv", "--with", "one.csv", "--json"))
    assert (told["rows_read"], told["outages"], told["outages_joined"]) == (81, len(faults), len(faults))
    assert Path("two.csv").read_bytes() == Path("one.csv").read_bytes()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", "blue"], "--from: 'blue' is not known; choose titan, lanl, grid5000"),
        (["--from", "titan"], "dump.txt:1: no column location"),
        (["--from", "titan", "--since", "May"], "--since: 'May' is no day"),
        (["--from", "titan", "--repair", "0"], "--repair: shorter than a second"),
    ],
)
def test_faults_that_cannot_be_made_are_one_line_and_a_2(
    folder: Path, capfd: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["trace", "faults", "dump.txt", "--cluster", "cluster.yaml", "--out", "faults.csv", *options]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("tenure trace faults: ")
    assert message in err
    assert not Path("faults.csv").exists()
