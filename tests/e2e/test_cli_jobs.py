"""A researcher's day on the command line, against everything running for real."""

import gzip
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.command_line import TENURE, CommandLine, until


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    system = CommandLine(tmp_path_factory.mktemp("up"))
    try:
        system.start()
        yield system
    finally:
        system.close()


def test_a_job_runs_and_its_story_is_told(system: CommandLine, tmp_path: Path) -> None:
    script = "echo out $RANK $WORLD_SIZE $PWD; echo err >&2"
    job = system.submit("--replicas", "2", "--workdir", str(tmp_path), "--name", "hello", "--", "sh", "-c", script)
    assert system.run("job", job, "--wait").returncode == 0
    assert system.ask("logs", job) == f"out 0 2 {tmp_path}\n"
    assert system.ask("logs", job, "--replica", "1", "--run", "1") == f"out 1 2 {tmp_path}\n"
    assert system.ask("logs", job, "--stderr") == "err\n"
    shown = system.json("job", job)
    assert (shown["state"], shown["name"], shown["runs"][0]["exit_code"]) == ("completed", "hello", 0)
    kinds = [step["kind"] for step in system.json("why", job)["steps"]]
    wanted = ["JobSubmitted", "JobAdmitted", "RunAssigned", "RunStarted", "RunEnded", "JobFinished"]
    assert [kind for kind in kinds if kind in wanted] == wanted
    assert "P10" in system.ask("why", job)


def test_a_failing_command_fails_the_waiting_submission(system: CommandLine) -> None:
    done = system.run("submit", *_options(), "--wait", "--", "sh", "-c", "exit 7")
    job = done.stdout.strip()
    assert done.returncode == 1 and f"{job} ended as failed" in done.stderr
    assert system.json("job", job)["runs"][0]["exit_code"] == 7


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--gpus", "5"), "gpus_per_replica: 5 GPUs per replica, the largest host has 4"),
        (("--gpus", "4", "--replicas", "3"), "do not fit the empty cluster: each host fits 1, 2 hosts make 2 replicas"),
        (("--gpus", "4", "--replicas", "3", "--topology", "one-block"), "each host fits 1, 2 hosts make 2 replicas"),
        (("--gpus", "4", "--replicas", "2", "--exclude-host", "h000"), "each host fits 1, 1 hosts make 1 replicas"),
        (("--gpus", "1", "--host", "h01"), "hosts: there is no host 'h01'; did you mean h001? known: h000, h001"),
    ],
)
def test_what_no_host_could_ever_hold_is_refused_with_the_arithmetic(
    system: CommandLine, options: tuple[str, ...], words: str
) -> None:
    """S04, and other things that would wait for ever."""
    refused = system.run("submit", "--budget", "default", "--min-runtime", "1m", *options, "--", "true")
    assert (refused.returncode, refused.stdout) == (1, "") and words in refused.stderr


def test_a_job_keeps_to_the_hosts_it_names(system: CommandLine) -> None:
    for option, host in (("--host", "h001"), ("--exclude-host", "h000")):
        job = system.submit(option, host, "--", "true")
        assert system.run("job", job, "--wait").returncode == 0
        assert list(system.json("job", job)["runs"][0]["hosts"]) == ["h001"]
        assert f"on {host}" in system.ask("why", job)


def test_the_queue_holds_what_runs_until_it_is_cancelled(system: CommandLine) -> None:
    job = system.submit("--", "sleep", "1000", gpus=3)
    until(lambda: system.json("job", job)["state"] == "running", "the job to run")
    listed = system.json("queue")
    assert [one["job"] for one in listed["jobs"]] == [job] and listed["cluster"]["gpus_allocated"] == 3
    assert sum(host["gpus_held"] for host in system.json("host", "list")["hosts"]) == 3
    system.ask("cancel", job)
    assert system.run("job", job, "--wait").returncode == 1
    assert system.json("job", job)["state"] == "cancelled"


def test_many_are_submitted_at_once(system: CommandLine) -> None:
    ids = system.ask("submit", *_options(), "--count", "20", "--wait", "--", "true").split()
    assert len(set(ids)) == 20
    over = {one["job"] for one in system.json("queue", "--state", "completed")["jobs"]}
    assert over.issuperset(ids)


def test_the_same_key_submits_once_and_another_body_is_refused(system: CommandLine) -> None:
    first = system.submit("--idempotency-key", "k7", "--", "true")
    assert system.submit("--idempotency-key", "k7", "--", "true") == first
    done = system.run("submit", *_options(), "--idempotency-key", "k7", "--", "false")
    assert (done.returncode, done.stdout) == (1, "") and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--budget", "nowhere", "--gpus", "1", "--min-runtime", "5m"), "nowhere"),
        (("--budget", "default", "--gpus=-1", "--min-runtime", "5m"), "gpus"),
        (("--budget", "default", f"--gpus={2**62}", "--min-runtime", "5m"), "gpus"),
        (("--budget", "default", "--gpus", "1", "--min-runtime", "9h"), "min_runtime"),
        (("--budget", "default", "--gpus", "4", "--replicas", "3", "--min-runtime", "5m"), "GPUs"),
        (("--budget", "default", "--gpus", "1", "--min-runtime", "5m", "--gpu-type", "B300"), "B300"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(system: CommandLine, options: tuple[str, ...], named: str) -> None:
    done = system.run("submit", *options, "--", "true")
    assert (done.returncode, done.stdout) == (1, "")
    assert named in done.stderr and len(done.stderr.splitlines()) == 1


def test_shares_change_with_history_and_the_report_adds_up(system: CommandLine) -> None:
    system.ask("budget", "set", "default=60", "other=40", "--comment", "room for others")
    tree = {one["path"]: one["share_percent"] for one in system.json("budget", "show")["budgets"]}
    assert tree == {"default": 60, "other": 40}
    changes = system.json("budget", "history", "other")["changes"]
    assert [(one["share_percent_before"], one["comment"]) for one in changes] == [(None, "room for others")]

    def report() -> dict[str, int]:
        rows = system.json("budget", "report", "--since", "1h")["budgets"]
        return next(row for row in rows if row["path"] == "default")

    until(lambda: report()["delivered_gpu_ms"] > 0, "delivered GPU-time in ClickHouse")
    refused = system.run("budget", "set", "default=61")
    assert refused.returncode == 1 and "100" in refused.stderr


def test_a_host_is_drained_and_taken_back(system: CommandLine) -> None:
    system.ask("host", "drain", "h001", "--reason", "fan")
    state = lambda: {one["host"]: one["state"] for one in system.json("host", "list")["hosts"]}["h001"]  # noqa: E731
    until(lambda: state() == "drained", "the empty host to be drained")
    system.ask("host", "resume", "h001")
    until(lambda: state() == "healthy", "the host to be back")


def test_the_log_is_exported_as_json_lines(system: CommandLine, tmp_path: Path) -> None:
    job = system.submit("--", "true")
    until(lambda: system.state(job) == "completed", "the job to complete")
    lines = [json.loads(line) for line in system.ask("log", "export").splitlines()]
    assert [line["type"] for line in lines if line.get("job") == job] == [
        *("job_submitted", "run_assigned", "run_started", "run_ended", "job_finished"),
    ]
    assert lines == sorted(lines, key=lambda line: line["t"])
    system.ask("log", "export", "--output", str(tmp_path / "events.jsonl.gz"))
    with gzip.open(tmp_path / "events.jsonl.gz", "rt") as file:
        assert [json.loads(line) for line in file][: len(lines)] == lines
    assert [file.name for file in tmp_path.iterdir()] == ["events.jsonl.gz"]


def test_the_doctor_finds_everything_well_and_then_not(system: CommandLine) -> None:
    checks = {check["subject"]: check for check in system.json("doctor")["checks"]}
    assert checks.keys() >= {"python", "nats-server", "disk", "gateway", "clock", "hosts", "log", "leaders", "database"}
    assert all(
        f"{role} " in checks["leaders"]["detail"] for role in ("budget", "ranker", "placer", "health", "journal")
    )
    assert "leads since" in checks["placer"]["detail"]
    (system.data / "run" / "ranker.ready.json").rename(system.data / "run" / "aside")
    try:
        done = system.run("doctor")
        problem = next(line for line in done.stdout.splitlines() if line.startswith("problem"))
        assert done.returncode == 1 and "ranker" in problem and "log/ranker.log" in problem
    finally:
        (system.data / "run" / "aside").rename(system.data / "run" / "ranker.ready.json")


def test_a_blocked_gang_shows_its_latest_start_and_what_it_waits_for(system: CommandLine) -> None:
    until(lambda: system.json("queue")["cluster"]["gpus_free"] == 8, "all GPUs to be free")
    holders = [system.submit("--", "sleep", "1000", gpus=3, min_runtime="1h") for _ in range(2)]
    until(lambda: all(system.state(job) == "running" for job in holders), "the holders to run")
    gang = system.submit("--replicas", "2", "--priority", "1", "--", "true", gpus=4)

    def shown() -> dict[str, Any]:
        return next(one for one in system.json("queue")["jobs"] if one["job"] == gang)

    until(lambda: shown()["reservation"] is not None, "the gang to have a reservation")
    kept = shown()["reservation"]
    assert {run["run"] for run in kept["waits_for"]} == {f"{job}.1" for job in holders}
    assert {run["budget"] for run in kept["waits_for"]} == {"default"} and list(kept["hosts"]) == ["h000", "h001"]
    assert shown()["latest_start_ms"] >= max(run["protected_until_ms"] for run in kept["waits_for"])
    assert "(in " in next(line for line in system.ask("queue").splitlines() if line.startswith(gang))
    told = system.ask("why", gang)
    assert "It starts at the latest at" in told and all(f"{job}.1" in told for job in holders)
    (pool,) = system.json("queue", "--fragmentation")["pools"]
    assert (pool["gpus_free"], pool["hosts_with_gpus_free"], pool["largest_hole"]) == (2, 2, 1)
    assert pool["gpus_reserved"] == 8
    first, *_, last = pool["prospects"]
    assert (first["placeable"]["whole_hosts"], last["placeable"]["replicas"]) == (0, {"1": 8, "2": 4, "4": 2})
    assert "2 of 8 GPUs free on 2 of 2 hosts, largest hole 1" in system.ask("queue", "--fragmentation")
    assert system.run("queue", "--fragmentation", "--all").returncode == 2
    system.ask("cancel", gang, *holders)
    until(lambda: system.json("queue")["cluster"]["gpus_free"] == 8, "all GPUs to be free")


def test_a_reader_that_leaves_makes_no_noise(system: CommandLine) -> None:
    with subprocess.Popen(
        [TENURE, "queue", "--all", "--json", "--limit", "1000"],
        env=system.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.wait(30) == 141 and process.stderr.read() == b""


def _options() -> tuple[str, ...]:
    return ("--budget", "default", "--gpus", "1", "--min-runtime", "5m")
