"""Traces: what is read, and every bad row with its file, line, column and the fix."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest

from simulator.workload import COLUMNS, read_trace
from tenure.domain.ids import BudgetPath
from tenure.domain.refusal import Refusal
from tenure.domain.tree_check import check_tree
from tenure.domain.units import HOUR

HEADER = ",".join(COLUMNS)
GOOD = "j1,0,science/chem,ana,2,8,3600,7200,true,1,large"
TREE = check_tree(
    {"budgets": {"science": {"share": 60, "children": {"chem": {"share": 100}}}, "language": {"share": 40}}}
)


def trace(folder: Path, *rows: str, header: str = HEADER, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text("\n".join([header, *rows, ""]))
    return path


def row(**changes: object) -> str:
    """The good row with other fields."""
    fields = dict(zip(COLUMNS, GOOD.split(","), strict=True)) | {key: str(value) for key, value in changes.items()}
    return ",".join(fields.values())


def refused(path: Path, *, skip_bad: bool = False) -> str:
    with pytest.raises(Refusal) as caught:
        read_trace(path, tree=TREE, skip_bad=skip_bad)
    said = str(caught.value)
    assert "\n" not in said
    assert said.startswith(str(path))
    return said.removeprefix(str(path)).removeprefix(":")


def test_a_row_becomes_a_job(tmp_path: Path) -> None:
    (job,) = read_trace(trace(tmp_path, GOOD), tree=TREE).jobs
    assert (job.job, job.submitted_at, job.runs_for_ms, job.kind) == ("j1", 0, 2 * HOUR, "large")
    spec = job.spec
    assert (spec.budget, spec.user, spec.replicas, spec.gpus_per_replica) == ("science/chem", "ana", 2, 8)
    assert (spec.min_runtime_ms, spec.resumable, spec.priority, spec.gpu_type) == (HOUR, True, 1, None)


def test_columns_stand_in_any_order_and_gpu_type_is_optional(tmp_path: Path) -> None:
    names = ["gpu_type", *reversed(COLUMNS)]
    fields = ["H100", *reversed(GOOD.split(","))]
    path = trace(tmp_path, ",".join(fields), ",".join(["", *fields[1:-1], "j2"]), header=",".join(names))
    first, second = read_trace(path, tree=TREE).jobs
    assert (first.spec.gpu_type, first.spec.replicas, first.kind) == ("H100", 2, "large")
    assert (second.job, second.spec.gpu_type) == ("j2", None)


def test_jobs_come_in_order_of_submission_then_of_id(tmp_path: Path) -> None:
    rows = [row(job_id="c", submit_s=5), row(job_id="b", submit_s=9), row(job_id="a", submit_s=9), row(job_id="d")]
    assert [job.job for job in read_trace(trace(tmp_path, *rows), tree=TREE).jobs] == ["d", "c", "a", "b"]


@pytest.mark.parametrize(
    ("text", "at"),
    [("12.5", 12_500), ("0.0004", 0), ("1e3", 1_000_000), (" 7 ", 7_000), ("+2.", 2_000), ("007", 7_000)],
)
def test_seconds_have_fractions_and_become_whole_milliseconds(tmp_path: Path, text: str, at: int) -> None:
    (job,) = read_trace(trace(tmp_path, row(submit_s=text, runtime_s=text)), tree=TREE).jobs
    assert (job.submitted_at, job.runs_for_ms) == (at, at)


@pytest.mark.parametrize("text", ["false", "False", "0", "no"])
def test_booleans_as_programs_write_them(tmp_path: Path, text: str) -> None:
    assert not read_trace(trace(tmp_path, row(resumable=text)), tree=TREE).jobs[0].spec.resumable


def test_what_admission_refuses_is_read(tmp_path: Path) -> None:
    """Too large for the cluster, above the cap: the simulation rejects them, as the system would."""
    (job,) = read_trace(trace(tmp_path, row(replicas=10_000, min_runtime_s=10**6, runtime_s=0)), tree=TREE).jobs
    assert (job.spec.replicas, job.spec.min_runtime_ms, job.runs_for_ms) == (10_000, 10**9, 0)


def test_quotes_bom_crlf_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    quoted = row(user='"Doe, ""J"""', job_id='"j,7"')
    path.write_bytes(b"\xef\xbb\xbf" + f"{HEADER}\r\n\r\n{quoted}\r\n\r\n".encode())
    (job,) = read_trace(path, tree=TREE).jobs
    assert (job.job, job.spec.user, job.kind) == ("j,7", 'Doe, "J"', "large")


@pytest.mark.parametrize("name", ["trace.csv.gz", "trace.csv"])
def test_gzip_is_known_by_its_bytes(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(f"{HEADER}\n{GOOD}".encode()))
    assert len(read_trace(path, tree=TREE).jobs) == 1


BAD_FIELDS = [
    ("submit_s", "-5", "'-5' is negative; write seconds of 0 or more"),
    ("submit_s", "nan", "'nan' is not a number"),
    ("submit_s", "inf", "'inf' is not a number"),
    ("submit_s", "", "empty"),
    ("submit_s", "1_0", "'1_0' is not a number"),
    ("submit_s", "2024-01-01", "is not a number"),
    ("submit_s", "1700000000", "more than 10000 days; count seconds from the start of the trace, not from 1970"),
    ("submit_s", "1e999", "more than 10000 days"),
    ("runtime_s", "-0.001", "is negative"),
    ("runtime_s", "1h", "'1h' is not a number"),
    ("min_runtime_s", "-1", "is negative"),
    ("min_runtime_s", "x" * 1000, "is not a number"),
    ("replicas", "0", "'0' is out of range; write a whole number from 1 to 10000"),
    ("replicas", "1.5", "'1.5' is not whole; write a whole number from 1 to 10000"),
    ("replicas", "10001", "is out of range"),
    ("gpus_per_replica", "0", "'0' is out of range; write a whole number from 1 to 64"),
    ("gpus_per_replica", "0.5", "'0.5' is not whole"),
    ("gpus_per_replica", "-8", "is out of range"),
    ("gpus_per_replica", "65", "is out of range"),
    ("gpus_per_replica", "9" * 5000, "is out of range"),
    ("gpus_per_replica", "eight", "'eight' is not a number"),
    ("gpus_per_replica", "٨", "is not a number"),
    ("priority", "1001", "write a whole number from -1000 to 1000"),
    ("priority", "HIGH", "'HIGH' is not a number"),
    ("resumable", "maybe", "'maybe' is neither true nor false; write true or false"),
    ("resumable", "", "empty; write true or false"),
    ("budget", "science", "science is not a leaf, so it funds no jobs; use one of science/chem"),
    ("budget", "science/chme", "there is no budget 'science/chme'; did you mean science/chem?"),
    ("budget", "", "missing; use one of language, science/chem"),
    ("user", "  ", "empty; say whose job it is"),
    ("user", "a\x1b[31m", "control characters"),
    ("kind", "k" * 129, "129 characters; use at most 128"),
    ("job_id", "", "empty; give each job an id of its own"),
    ("job_id", "a\x00b", "control characters"),
]


@pytest.mark.parametrize(("column", "text", "said"), BAD_FIELDS)
def test_a_bad_field_is_named_with_line_and_column(tmp_path: Path, column: str, text: str, said: str) -> None:
    changed = row(**{"job_id": "j2", column: text})
    path = trace(tmp_path, GOOD, changed, row(job_id="j3"))
    message = refused(path)
    assert message.startswith(f"3, column {column}: "), message
    assert said in message
    assert len(message) < 300
    kept = read_trace(path, tree=TREE, skip_bad=True)
    assert [job.job for job in kept.jobs] == ["j1", "j3"]
    assert [(bad.line, message in bad.reason) for bad in kept.bad] == [(3, True)]


def test_a_gpu_type_no_host_could_have(tmp_path: Path) -> None:
    path = trace(tmp_path, f"{GOOD},a b", header=f"{HEADER},gpu_type")
    assert refused(path).startswith("2, column gpu_type: 'a b' is not a usable name")


def test_an_id_that_is_there_twice(tmp_path: Path) -> None:
    path = trace(tmp_path, GOOD, row(job_id="j2"), GOOD)
    assert refused(path) == "4, column job_id: 'j1' is also in line 2; give each job an id of its own"
    kept = read_trace(path, tree=TREE, skip_bad=True)
    assert ([job.job for job in kept.jobs], len(kept.bad)) == (["j1", "j2"], 1)


def test_the_id_of_a_row_that_was_skipped_is_free(tmp_path: Path) -> None:
    path = trace(tmp_path, row(submit_s="late"), GOOD)
    kept = read_trace(path, tree=TREE, skip_bad=True)
    assert ([job.job for job in kept.jobs], len(kept.bad)) == (["j1"], 1)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (GOOD + ",more", "12 fields, the first line names 11 columns"),
        (GOOD.rpartition(",")[0], "10 fields, the first line names 11 columns"),
        ("half a row", "1 fields, the first line names 11 columns"),
        (row(user='"ana'), "broken quotes"),
        (row(user='"a"na'), "broken quotes"),
    ],
)
def test_a_row_that_cannot_be_divided(tmp_path: Path, changed: str, said: str) -> None:
    path = trace(tmp_path, row(job_id="j0"), changed, row(job_id="j3"))
    assert refused(path).startswith(f"3: {said}")
    kept = read_trace(path, tree=TREE, skip_bad=True)
    assert ([job.job for job in kept.jobs], len(kept.bad)) == (["j0", "j3"], 1), "one line is one bad row"


def test_a_row_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(f"{HEADER}\n{GOOD}\n".encode() + b"j2,\xff\xfe\n" + row(job_id="j3").encode())
    assert refused(path) == "3: not UTF-8 at byte 4; save the file as UTF-8"
    assert [job.job for job in read_trace(path, tree=TREE, skip_bad=True).jobs] == ["j1", "j3"]


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("", ": empty; begin with a line of columns: job_id,submit_s,"),
        ("\n", "1: names none of the columns"),
        (GOOD, "1: names none of the columns; begin with the line job_id,submit_s,"),
        (HEADER.replace(",", ";"), "1: names none of the columns; separate columns by commas"),
        (HEADER.replace(",", "\t"), "1: names none of the columns; separate columns by commas"),
        (HEADER.replace("user", "usre"), "1: unknown column 'usre'; did you mean user? known: job_id,"),
        (HEADER + ",note", "1: unknown column 'note'"),
        (HEADER + ",", "1: unknown column ''"),
        (HEADER + ",user", "1: column user is there twice"),
        (HEADER.replace(",kind", "").replace(",priority", ""), "1: no column priority, kind; give job_id,"),
        (HEADER, ": no jobs below the columns"),
    ],
)
@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_file_without_jobs(tmp_path: Path, header: str, said: str, skip_bad: bool) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(header)
    assert refused(path, skip_bad=skip_bad).lstrip(":").startswith(said.lstrip(":"))


def test_a_file_of_bad_rows_only(tmp_path: Path) -> None:
    path = trace(tmp_path, row(submit_s=-1), row(submit_s=-2))
    said = refused(path, skip_bad=True)
    assert "none of its 2 rows can be used" in said
    assert ":2, column submit_s: '-1' is negative" in said


def _cut(packed: bytes) -> bytes:
    return packed[:-12]


def _spoiled(packed: bytes) -> bytes:
    return packed[:-8] + b"\0\0\0\0" + packed[-4:]


@pytest.mark.parametrize("spoil", [_cut, _spoiled])
@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_broken_gzip_is_refused_whole(tmp_path: Path, spoil, skip_bad: bool) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(spoil(gzip.compress(f"{HEADER}\n{GOOD}\n".encode())))
    assert "broken gzip" in refused(path, skip_bad=skip_bad)


def test_files_that_are_not_what_they_are_called(tmp_path: Path) -> None:
    assert refused(trace(tmp_path, GOOD, name="trace.csv.gz")).lstrip(": ").startswith("not gzip; compress it")
    (tmp_path / "empty.gz").touch()
    assert "empty" in refused(tmp_path / "empty.gz")
    assert "No such file" in refused(tmp_path / "absent.csv")
    assert "s a directory" in refused(tmp_path)
    assert "names none of the columns" in refused(Path("/dev/zero"))
    utf16 = tmp_path / "utf16.csv"
    utf16.write_bytes(f"{HEADER}\n{GOOD}\n".encode("utf-16"))
    assert "not UTF-8" in refused(utf16)


def test_jobs_alike_share_their_specification(tmp_path: Path) -> None:
    """What is cheap for half a million rows must not mix them up."""
    rows: Sequence[str] = [row(job_id=f"j{number}", replicas=1 + number % 3) for number in range(30)]
    jobs = read_trace(trace(tmp_path, *rows), tree=TREE).jobs
    assert {job.job: job.spec.replicas for job in jobs} == {f"j{number}": 1 + number % 3 for number in range(30)}
    assert len({id(job.spec) for job in jobs}) == 3
    assert all(job.spec.budget == BudgetPath("science/chem") for job in jobs)
