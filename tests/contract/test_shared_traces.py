"""The real histories beside the project: each is imported whole, and what their descriptions count is counted."""

from pathlib import Path

import pytest

from simulator.traces.contract import parse_rules
from simulator.traces.convert import Imported, Options, Source, import_trace
from simulator.traces.notes import Action
from simulator.traces.shares import budgets_yaml
from simulator.traces.write import chunks
from simulator.workload import read_trace
from tenure.domain.refusal import Refusal
from tenure.runtime.budgets_file import load_budgets


@pytest.fixture
def traces(shared: Path) -> Path:
    folder = shared / "traces"
    if not folder.is_dir():
        pytest.skip("needs the folder `shared/traces` beside the project")
    return folder


def read(path: Path, source: Source, **options: int) -> Imported:
    return import_trace(path, source=source, options=Options(rules=parse_rules(()), **options))


def told(result: Imported) -> dict[str, int]:
    return {f"{note.action}: {note.why}": note.count for note in result.notes.listing()}


def check_files(result: Imported, folder: Path) -> None:
    """What is written is read again, every job of it, funded by the tree that comes with it."""
    (folder / "budgets.yaml").write_text("\n".join(budgets_yaml(result.gpu_s)))
    tree = load_budgets(folder / "budgets.yaml")
    (folder / "trace.csv").write_bytes(b"".join(chunks(result.rows)))
    jobs = read_trace(folder / "trace.csv", tree=tree).jobs
    assert [job.job for job in jobs] == [row.job_id for row in result.rows]
    assert sum(tree.by_path[leaf].share_ppm for leaf in tree.leaves) == 1_000_000


def test_philly(traces: Path, tmp_path: Path) -> None:
    result = read(traces / "philly/philly_jobs.csv.gz", Source.PHILLY, most_gpus=400)
    assert len(result.rows) == result.notes.rows_read == 82_247
    assert round(sum(result.gpu_s.values()) / 3600) == 978_078
    assert len(result.gpu_s) == 15
    assert sum(row.replicas == 2 and row.gpus_per_replica == 6 for row in result.rows) == 7
    assert max(row.gpus for row in result.rows) == 128
    assert told(result) == {
        "changed: in an hour that the clock repeats (end of daylight saving): read as the first of the two": 7,
        "changed: not a multiple of a host: cut into smaller equal replicas": 7,
        "kept: the same as an earlier row: taken as a burst, for there are no ids": 65,
    }
    # 108 days by the wall clock, and the hour that was there twice.
    assert result.rows[-1].submit_s == (108 * 24 + 21) * 3600 + 31 * 60 + 30 + 3600
    check_files(result, tmp_path)


@pytest.mark.parametrize(("name", "models"), [("default", 0), ("gpuspec33", 2_092)])
def test_openb(traces: Path, tmp_path: Path, name: str, models: int) -> None:
    result = read(traces / f"openb/openb_pod_list_{name}.csv.gz", Source.OPENB)
    assert result.notes.rows_read == 8_152
    assert sorted(result.gpu_s) == ["BE", "Burstable", "Guaranteed", "LS"]
    notes = told(result)
    assert notes.pop("changed: asks for models of GPU: any model", 0) == models
    assert notes == {
        "dropped: asks for no GPU": 1_088,
        "dropped: never started: given up in the queue": 861,
        "changed: asks for a part of a GPU: rounded up to whole ones": 2_573,
        "kept: ends with the trace, so perhaps later: runtime as far as it is seen": 32,
    }
    assert len(result.rows) == 6_203
    check_files(result, tmp_path)


def test_ricc(traces: Path) -> None:
    result = read(traces / "ricc/RICC-2010-2.swf.gz", Source.SWF, most_gpus=8_192)
    assert result.notes.rows_read == 447_794
    assert len(result.rows) == 447_786
    notes = told(result)
    assert notes["dropped: never started: cancelled with no run time"] == 8
    assert notes["clipped: ran more than an hour past its time limit (closed late): runtime cut to it"] == 1_518
    assert notes["changed: no requested processors: those it was given"] == 2
    assert result.notes.dropped == 8
    assert max(row.gpus for row in result.rows) == 8_192
    assert len({row.user for row in result.rows}) == 176
    assert len(result.gpu_s) == 121


@pytest.mark.parametrize(
    ("path", "source", "missing"),
    [
        ("philly/all_status_duration_gpus.csv.gz", Source.PHILLY, "timestamp, cluster"),
        ("philly/cluster_machine_list.csv", Source.PHILLY, "timestamp, duration, num_gpus, cluster"),
        ("openb/openb_node_list_all_node.csv.gz", Source.OPENB, "name, num_gpu"),
        ("philly/philly_jobs.csv.gz", Source.SACCT, "JobID or JobIDRaw, User, Account"),
        ("openb/openb_pod_list_default.csv.gz", Source.SWF, "1 fields, 18 are expected"),
    ],
)
def test_files_that_lie_beside_them_are_told_apart(traces: Path, path: str, source: Source, missing: str) -> None:
    with pytest.raises(Refusal) as caught:
        read(traces / path, source)
    assert missing in str(caught.value)


def test_nothing_is_noted_that_is_no_action(traces: Path) -> None:
    result = read(traces / "openb/openb_pod_list_default.csv.gz", Source.OPENB)
    assert {note.action for note in result.notes.listing()} <= set(Action)
    assert all(note.first_line > 1 and note.count > 0 for note in result.notes.listing())
