"""`tenure simulate` as its user runs it: a history in, report and log out; everything wrong is one line and a 2."""

import gzip
import json
import os
import pty
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tenure.cli.main import main
from tests.e2e.command_line import TENURE

HEADER = "job_id,submit_s,budget,user,replicas,gpus_per_replica,min_runtime_s,runtime_s,resumable,priority,kind"
DAY_S = 86_400
JOBS, APART_S = 120, 3_000
FILES = ("--cluster", "cluster.yaml", "--budgets", "budgets.yaml", "--trace", "trace.csv")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with four days of two budgets that want almost twice what four hosts have."""
    (tmp_path / "cluster.yaml").write_text("clusters: [{name: a, hosts: 4, gpus_per_host: 8, gpu_type: H100}]\n")
    (tmp_path / "budgets.yaml").write_text("budgets: {left: {share: 50}, right: {share: 50}}\n")
    (tmp_path / "faults.csv").write_text("host,down_s,up_s,kind\nh002,40000,50000,xid79\n")
    (tmp_path / "trace.csv").write_text("\n".join([HEADER, *rows(), ""]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows() -> Iterator[str]:
    for number in range(JOBS):
        budget, user = ("left", "ana") if number % 3 else ("right", "ben")
        gpus, min_runtime, kind = (8, 3600, "small") if number % 2 else (4, 0, "sweep")
        yield f"j{number:03},{number * APART_S},{budget},{user},1,{gpus},{min_runtime},27000,true,0,{kind}"


class Said(NamedTuple):
    out: str
    err: str


Simulate = Callable[..., Said]


@pytest.fixture
def simulate(folder: Path, capfd: pytest.CaptureFixture[str]) -> Simulate:
    """The command on the files in the working directory, which must succeed."""

    def run(*options: str) -> Said:
        capfd.readouterr()
        status = main(["simulate", *FILES, *options])
        said = Said(*capfd.readouterr())
        assert status == 0, said.err
        return said

    return run


def simulate_apart(*options: str) -> str:
    """The same in a process of its own; what it wrote on stdout."""
    done = subprocess.run(
        [TENURE, "simulate", *FILES, *options], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def report(path: str = "report.json") -> Any:
    return json.loads(Path(path).read_text())


def without_clock(path: str) -> Any:
    return {key: value for key, value in report(path).items() if key != "wall_seconds"}


def test_a_history_becomes_a_report_a_log_and_a_table(folder: Path) -> None:
    shown = simulate_apart(
        "--faults", "faults.csv", "--warmup", "6h", "--report", "report.json", "--log", "events.jsonl"
    )
    told = report()
    assert (told["policy"], told["simulated_days"], told["violations"]) == ("fair", 5, 0)
    assert told["window"] == {"start_s": 21_600, "end_s": 5 * DAY_S}
    assert told["jobs"] == sum(number * APART_S >= 21_600 for number in range(JOBS))
    assert {"all", "small", "sweep"} <= set(told["waits"])
    assert told["availability"] < 1, "h002 was down"
    lines = [json.loads(line) for line in Path("events.jsonl").read_text().splitlines()]
    assert [line["t"] for line in lines] == sorted(line["t"] for line in lines)
    assert lines[0] == {"t": 0, "type": "origin", "epoch_ms": 0}
    submitted = {line["job"]: line for line in lines if line["type"] == "job_submitted"}
    assert sorted(submitted) == [f"j{number:03}" for number in range(JOBS)]
    assert (submitted["j004"]["t"], submitted["j004"]["budget"]) == (4 * APART_S, "left")
    assert any(line["type"] == "run_ended" and line["cause"] == "host_lost" for line in lines)
    assert f"delivered of owed {told['delivered']['ratio'] * 100:.2f}%" in " ".join(shown.split())
    assert "WAITS OF" in shown


def test_the_same_inputs_give_the_same_bytes(folder: Path, simulate: Simulate) -> None:
    for name in ("first", "second"):
        simulate_apart("--faults", "faults.csv", "--report", f"{name}.json", "--log", f"{name}.jsonl.gz")
    assert Path("first.jsonl.gz").read_bytes() == Path("second.jsonl.gz").read_bytes()
    assert without_clock("first.json") == without_clock("second.json")
    assert gzip.decompress(Path("first.jsonl.gz").read_bytes()).count(b"\n") > 3 * JOBS
    trace = (folder / "trace.csv").read_bytes()
    (folder / "trace.csv").write_bytes(gzip.compress(trace))
    simulate("--faults", "faults.csv", "--report", "packed.json")
    assert without_clock("packed.json") == without_clock("first.json")


def test_the_report_on_stdout_is_the_one_in_the_file(simulate: Simulate) -> None:
    assert json.loads(simulate("--json", "--report", "report.json").out) == report()


def test_days_cut_the_run_and_a_short_one_is_measured_whole(simulate: Simulate) -> None:
    simulate("--days", "0.5", "--report", "report.json")
    told = report()
    assert (told["simulated_days"], told["window"]) == (0.5, {"start_s": 0, "end_s": 43_200})
    assert told["jobs"] == 15, "those submitted before noon"


def test_knobs_reach_the_policy_and_the_work(simulate: Simulate) -> None:
    simulate("--report", "as_it_is.json")
    simulate("--set", "restart_overhead=1h", "--report", "slow.json")
    simulate("--set", "lookback=1d", "--set", "ratio_margin=0.5", "--report", "margin.json")
    assert report("slow.json")["goodput"] < report("as_it_is.json")["goodput"]
    assert report("margin.json")["lookback_s"] == DAY_S


def test_a_knob_that_changes_nothing_is_told(simulate: Simulate) -> None:
    said = simulate("--days", "1", "--set", "heartbeat=1s", "--set", "lookback=1d").err
    assert said == "tenure simulate: heartbeat changes nothing here: hosts fail as --faults says, and at once\n"


def test_the_other_policy_and_both_side_by_side(simulate: Simulate, capfd: pytest.CaptureFixture[str]) -> None:
    simulate("--report", "fair.json")
    simulate("--policy", "priority", "--report", "priority.json")
    assert report("priority.json")["policy"] == "priority"
    assert main(["simulate", "--compare", "fair.json", "priority.json", "--html", "both.html"]) == 0
    assert capfd.readouterr().out.splitlines()[0].split() == ["FAIR", "PRIORITY"]
    page = Path("both.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert "priority" in page


def test_a_bar_on_a_terminal(folder: Path) -> None:
    """Days a second and the time left, on stderr; stdout has the table alone."""
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [TENURE, "simulate", *FILES], stdout=subprocess.PIPE, stderr=terminal, env={**os.environ, "TERM": "xterm"}
    )
    os.close(terminal)
    shown = b"".join(all_of(master)).decode()
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert re.search(r"day 5\.0 of 5, [0-9.e+]+ days/s, 0s left", shown), shown
    assert b"days/s" not in out


def all_of(terminal: int) -> Iterator[bytes]:
    """What is written to a terminal until nobody has it open any more."""
    try:
        while data := os.read(terminal, 4096):
            yield data
    except OSError:  # how Linux says so
        os.close(terminal)


def test_pictures_of_a_run(simulate: Simulate) -> None:
    simulate("--faults", "faults.csv", "--html", "run.html", "--png", "run.png", "--svg", "run.svg")
    page = Path("run.html").read_text()
    assert page.lower().startswith("<!doctype html>")
    assert "j004" in page
    assert Path("run.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert "<svg" in Path("run.svg").read_text()


def test_bad_rows_are_skipped_and_counted_when_asked(simulate: Simulate) -> None:
    with Path("trace.csv").open("a") as trace:
        trace.write(f"{GOOD_ROW.replace('9000', 'soon')}\nhalf,a,row\n")
    said = simulate("--skip-bad", "--report", "report.json").err
    assert f"tenure simulate: 2 of {JOBS + 2} rows are bad and left out:" in said
    assert "trace.csv:122, column runtime_s: 'soon' is not a number" in said
    assert "trace.csv:123: 3 fields" in said
    assert report()["jobs"] == JOBS


def test_jobs_that_are_not_admitted_are_told(simulate: Simulate) -> None:
    with Path("trace.csv").open("a") as trace:
        trace.write(f"{GOOD_ROW.replace(',1,8,', ',5,8,')}\n")
    said = simulate("--report", "report.json").err
    assert f"1 of {JOBS + 1} jobs are rejected" in said
    assert "new: replicas: 5 replicas x 8 GPUs do not fit the empty cluster" in " ".join(said.split())


GOOD_ROW = "new,7,left,ana,1,8,60,9000,true,0,x"
BAD_OPTIONS = [
    (("--policy", "fifo"), "--policy: 'fifo' is not known; choose fair or priority"),
    (("--set", "lookbak=1d"), "--set: unknown knob 'lookbak'; did you mean lookback? known: automation_share (0.1)"),
    (("--set", "lookback"), "--set: 'lookback' has no '='"),
    (("--set", "lookback=long"), "lookback: 'long' is not a duration"),
    (("--set", "ratio_margin=nan"), "ratio_margin: 'nan' is not a number"),
    (("--set", "checkpoint_interval=0"), "checkpoint_interval: 0 would checkpoint without end"),
    (("--days", "0"), "--days: 0 is out of range"),
    (("--days", "nan"), "--days: nan is out of range"),
    (("--days", "many"), "Invalid value for '--days'"),
    (("--warmup", "5d"), "--warmup: 5d leaves nothing of 5 days to report on"),
    (("--warmup", "soon"), "Invalid value for '--warmup'"),
    (("--cluster", "absent.yaml"), "absent.yaml: No such file or directory"),
    (("--budgets", "cluster.yaml"), "budgets"),
    (("--trace", "absent.csv"), "absent.csv: No such file or directory"),
    (("--faults", "trace.csv"), "trace.csv:1: "),
    (("--report", "absent/report.json"), "--report: "),
    (("--log", "."), "--log: . is a directory"),
    (("--png", "picture.jpg"), "--png: picture.jpg does not end in .png; name it picture.jpg.png"),
    (("--html", "absent/page.html"), "--html: "),
    (("--frobnicate",), "No such option"),
]


@pytest.mark.parametrize(("options", "said"), BAD_OPTIONS)
def test_a_bad_option_is_one_line_and_a_2(folder: Path, capfd, options: tuple[str, ...], said: str) -> None:
    assert said in refused(capfd, *options)


BAD_FILES = [
    ("trace.csv", "", "trace.csv: empty; begin with a line of columns"),
    ("trace.csv", f"{HEADER}\n", "trace.csv: no jobs below the columns"),
    (
        "trace.csv",
        f"{HEADER}\n{GOOD_ROW.replace('9000', 'soon')}\n",
        "trace.csv:2, column runtime_s: 'soon' is not a n",
    ),
    (
        "trace.csv",
        f"{HEADER}\n{GOOD_ROW.replace('left', 'middle')}\n",
        "trace.csv:2, column budget: there is no budget",
    ),
    ("trace.csv", f"{HEADER}\n{GOOD_ROW.replace(',7,', ',-7,')}\n", "trace.csv:2, column submit_s: '-7' is negative"),
    ("faults.csv", "", "faults.csv: empty"),
    ("faults.csv", "host,down_s,up_s,kind\nh009,1,2,x\n", "faults.csv:2, column host: the cluster has no host 'h009'"),
    ("cluster.yaml", "clusters: [\n", "cluster.yaml:"),
    ("cluster.yaml", "clusters: [{name: a}]\n", "clusters[0].hosts: missing"),
    ("budgets.yaml", "budgets: {left: {share: 160}}\n", "budgets.left"),
    ("budgets.yaml", "budgets: {}\n", "budgets"),
]


@pytest.mark.parametrize(("name", "text", "said"), BAD_FILES)
def test_a_bad_file_is_one_line_and_a_2(folder: Path, capfd, name: str, text: str, said: str) -> None:
    (folder / name).write_text(text)
    assert said in refused(capfd, "--faults", "faults.csv")


@pytest.mark.parametrize("missing", ["--cluster", "--budgets", "--trace"])
def test_what_is_needed_is_asked_for(folder: Path, capfd, missing: str) -> None:
    files = {"--cluster": "cluster.yaml", "--budgets": "budgets.yaml", "--trace": "trace.csv"}
    del files[missing]
    assert main(["simulate", *(word for pair in files.items() for word in pair)]) == 2
    assert f"tenure simulate: {missing}: missing; name the " in capfd.readouterr().err


def test_a_comparison_simulates_nothing(folder: Path, capfd) -> None:
    assert "--compare: beside what is to be simulated" in refused(capfd, "--compare", "a.json", "b.json")


def test_what_cannot_be_compared(folder: Path, capfd) -> None:
    (folder / "text.json").write_text("{")
    (folder / "other.json").write_text('{"policy": "fair"}')
    for name, said in [("text.json", "is not JSON"), ("other.json", "no report"), ("absent.json", "No such file")]:
        assert main(["simulate", "--compare", name, name]) == 2
        err = capfd.readouterr().err
        assert err.startswith(f"tenure simulate: {name}: ")
        assert said in err


def refused(capfd: pytest.CaptureFixture[str], *options: str) -> str:
    """What the command says when it refuses, having written nothing."""
    before = sorted(Path().iterdir())
    words = list(FILES)
    for option, value in zip(options[::2], options[1::2], strict=False):
        if option in words:
            words[words.index(option) + 1] = value
    given = [] if options[0] in words else [*options]
    assert main(["simulate", *words, "--report", "never.json", *given]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert sorted(Path().iterdir()) == before
    return err.removeprefix("tenure simulate: ")


# --- what really happened ------------------------------------------------------------------------------------------


def from_log(*options: str, status: int = 0) -> Callable[[pytest.CaptureFixture[str]], Said]:
    def run(capfd: pytest.CaptureFixture[str]) -> Said:
        capfd.readouterr()
        found = main(["simulate", "--from-log", *options])
        said = Said(*capfd.readouterr())
        assert found == status, said.err
        return said

    return run


def test_a_simulated_log_replayed_is_the_same_log(simulate: Simulate, capfd: pytest.CaptureFixture[str]) -> None:
    simulate("--log", "events.jsonl", "--faults", "faults.csv")
    from_log("events.jsonl", "--log", "again.jsonl", "--report", "again.json")(capfd)
    decided = ("run_assigned", "run_started", "run_ended", "job_finished")
    first, again = (
        [line for line in Path(name).read_text().splitlines() if json.loads(line)["type"] in decided]
        for name in ("events.jsonl", "again.jsonl")
    )
    until = json.loads(again[-1])["t"]
    assert len(again) > 2 * JOBS and [line for line in first if json.loads(line)["t"] <= until] == again
    assert report("again.json")["what_if"]["compared_with"] == "log"


def test_another_tree_shows_who_gains(simulate: Simulate, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    allocated = [row.replace(",4,0,", ",8,3600,") for row in rows()]
    (folder / "trace.csv").write_text("\n".join([HEADER, *allocated, ""]))
    simulate("--log", "events.jsonl.gz")
    (folder / "new.yaml").write_text("budgets: {left: {share: 95}, right: {share: 5}}\n")
    said = from_log("events.jsonl.gz", "--since", "2d", "--budgets", "new.yaml", "--html", "page.html")(capfd)
    assert "with budgets of new.yaml, beside the same time replayed unchanged" in said.out
    found = [line.split() for line in said.out.splitlines() if line.startswith(("left", "right"))]
    assert [row[0] for row in found] == ["left", "right"]
    assert found[0][3].startswith("+") and found[1][3].startswith("-")
    assert '"compared_with":"replay"' in Path("page.html").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("events.jsonl", "--trace", "trace.csv"), "--trace: does not go with --from-log"),
        (("events.jsonl", "--policy", "priority"), "--policy: does not go with --from-log"),
        (("events.jsonl", "--days", "2"), "--days: does not go with --from-log"),
        (("events.jsonl", "--since", "90d"), "--since: 90d is before the log began"),
        (("events.jsonl", "--budgets", "other.yaml"), "jobs of the log are funded by right"),
        (("trace.csv",), "trace.csv:1: no line of an export"),
        (("absent.jsonl",), "absent.jsonl: No such file"),
    ],
)
def test_what_cannot_be_asked_of_a_log_is_a_2_and_writes_nothing(
    simulate: Simulate, folder: Path, capfd: pytest.CaptureFixture[str], options: tuple[str, ...], words: str
) -> None:
    simulate("--log", "events.jsonl")
    (folder / "other.yaml").write_text("budgets: {left: {share: 50}}\n")
    said = from_log(*options, "--report", "none.json", status=2)(capfd)
    assert words in said.err and len(said.err.splitlines()) == 1 and not Path("none.json").exists()


def test_a_file_of_a_log_needs_the_option(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "events.jsonl"]) == 2
    assert "write --from-log before it" in capfd.readouterr().err
