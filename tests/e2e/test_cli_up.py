"""`tenure up` itself: one Ctrl-C stops all, a crash leaves the jobs, what cannot start says so in one line."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tenure.runtime.processes import identify
from tests.e2e.command_line import TENURE, CommandLine, is_running, until

ROLES = {
    "nats",
    "clickhouse",
    "gateway",
    "budget",
    "ranker",
    "placer",
    "health",
    "agent",
    "journal",
    "forecast",
    "console",
}


@pytest.fixture
def system(tmp_path: Path) -> Iterator[CommandLine]:
    system = CommandLine(tmp_path)
    try:
        yield system
    finally:
        system.close()


def test_ctrl_c_leaves_nothing_and_what_was_running_goes_on_later(system: CommandLine) -> None:
    system.start()
    pids = system.children()
    assert set(pids) == ROLES
    job = system.submit("--resumable", "--", "sh", "-c", "echo pid $$; exec sleep 1000")
    until(lambda: system.ask("logs", job), "the job's output")
    pid = int(system.ask("logs", job).split()[1])
    assert system.stop() == 0
    assert not [name for name, child in pids.items() if is_running(child)] and not is_running(pid)
    assert not (system.data / "endpoint.json").exists()
    refused = system.run("queue")
    assert refused.returncode == 1 and "tenure up" in refused.stderr and len(refused.stderr.splitlines()) == 1
    system.start()
    until(lambda: len(system.json("job", job)["runs"]) == 2, "the job to be started again")


def test_a_crash_leaves_the_jobs_to_the_next_up(system: CommandLine) -> None:
    system.start()
    address = system.address
    job = system.submit("--", "sh", "-c", "echo pid $$; exec sleep 1000")
    until(lambda: system.ask("logs", job), "the job's output")
    pid = int(system.ask("logs", job).split()[1])
    pids = system.children()
    assert system.process is not None
    system.process.kill()
    system.process.wait()
    until(lambda: not any(map(is_running, pids.values())), "the roles to end with their up", patience_s=15)
    assert is_running(pid)
    system.start(listen=None)
    assert system.address == address
    shown = system.json("job", job)
    assert (shown["state"], len(shown["runs"])) == ("running", 1) and is_running(pid)
    system.ask("cancel", job)
    until(lambda: system.state(job) == "cancelled", "the adopted job to be cancelled")
    assert not is_running(pid)


def test_leftovers_of_a_killed_up_are_replaced(system: CommandLine) -> None:
    system.data.mkdir()
    with subprocess.Popen(["sleep", "1000"]) as left:
        identity = identify(left.pid)
        assert identity is not None
        record = {"name": "placer", **msgspec.to_builtins(identity)}
        (system.data / "children.json").write_text(json.dumps([record]))
        system.start()
        assert "ended what a killed tenure up had left behind: placer" in system.said
        assert left.wait(5) == -signal.SIGKILL


def test_a_second_up_is_told_where_the_first_is(system: CommandLine) -> None:
    system.start()
    assert system.process is not None
    done = system.run("up", "--data", str(system.data))
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert f"pid {system.process.pid}, 127.0.0.1:" in done.stderr


def test_a_killed_role_comes_back(system: CommandLine) -> None:
    system.start()
    before = system.children()
    for role in ("placer", "gateway", "nats"):
        os.kill(before[role], signal.SIGKILL)
    until(lambda: system.said.count("was ended by SIGKILL; starting it again (log: ") == 3, "the deaths to be noticed")
    job = system.submit("--", "true")
    until(lambda: system.state(job) == "completed", "a job after the kills")
    after = system.children()
    assert after.keys() == ROLES and after["placer"] != before["placer"]


def test_a_tree_is_applied_once_and_never_takes_a_budget_from_its_jobs(system: CommandLine) -> None:
    file = system.root / "budgets.yaml"
    file.write_text("budgets: {default: {share: 70}, art: {share: 30, managers: [bo]}}")
    system.start("--budgets", str(file))
    assert len(system.json("budget", "history")["changes"]) == 2
    job = system.submit("--", "sleep", "1000")
    until(lambda: system.state(job) == "running", "the job to run")
    assert system.process is not None
    system.process.kill()
    system.process.wait()
    system.start("--budgets", str(file))
    assert len(system.json("budget", "history")["changes"]) == 2
    assert system.stop() == 0


def test_a_new_tree_without_a_budget_that_has_jobs_is_refused(system: CommandLine) -> None:
    system.start()
    job = system.submit("--", "sleep", "1000")
    until(lambda: system.state(job) == "running", "the job to run")
    assert system.process is not None
    system.process.kill()
    system.process.wait()
    file = system.root / "budgets.yaml"
    file.write_text("budgets: {art: {share: 30}}")
    system.start("--budgets", str(file))
    assert "the budget tree stays as it is" in system.said
    assert [one["path"] for one in system.json("budget", "show")["budgets"]] == ["default"]
    assert system.state(job) == "running"


def _refused(system: CommandLine, *options: str) -> str:
    done = system.run("up", "--data", str(system.data), *options)
    assert (done.returncode, done.stdout) == (1, "") and len(done.stderr.splitlines()) == 1
    return done.stderr


def test_a_busy_port_is_refused(system: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--listen 127.0.0.1:{port}" in _refused(system, "--listen", f"127.0.0.1:{port}")


def test_a_busy_port_for_metrics_names_who_was_to_have_it(system: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"(gateway, port {port})" in _refused(system, "--metrics-listen", f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("budgets", "budgets: {a: {share: 60}, b: {share: 50}}", "110"),
        ("budgets", "budgets: {a: {shore: 60}}", "shore"),
        ("budgets", "budgets:\n a: {share: 1}\n a: {share: 1}", "budgets.yaml:3"),
        ("cluster", "clusters: [{name: a, hosts: 0, gpus_per_host: 8, gpu_type: H100}]", "hosts"),
        ("config", "policy: {loockback: 7d}", "lookback"),
    ],
)
def test_a_bad_file_is_refused(system: CommandLine, name: str, text: str, named: str) -> None:
    file = system.root / f"{name}.yaml"
    file.write_text(text)
    assert named in _refused(system, f"--{name}", str(file))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--hosts", "16by8"), "--hosts"),
        (("--set", "ratio_margin=nan"), "ratio_margin"),
        (("--listen", "7733"), "--listen"),
        (("--metrics-listen", "9464"), "--metrics-listen"),
        (("--metrics-listen", "127.0.0.1:0"), "--metrics-listen"),
        (("--budgets", "/nowhere/budgets.yaml"), "/nowhere/budgets.yaml"),
        (("--data", "/proc/nowhere"), "/proc/nowhere"),
    ],
)
def test_a_bad_option_is_refused(system: CommandLine, options: tuple[str, ...], named: str) -> None:
    assert named in _refused(system, *options)


def test_without_nats_server_it_says_how_to_get_it(system: CommandLine) -> None:
    link = system.root / "bin" / "python"
    link.parent.mkdir()
    script = "import sys; sys.executable = sys.argv.pop(1); from tenure.cli.main import main; sys.exit(main())"
    python = str(Path(TENURE).parent / "python")
    environment = {**system.environment, "PATH": "/nowhere"}
    done = subprocess.run(
        [python, "-c", script, str(link), "up", "--data", str(system.data)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "nats-server" in done.stderr and len(done.stderr.splitlines()) == 1


def test_an_unknown_role_names_the_known_ones(system: CommandLine) -> None:
    done = system.run("serve", "nonsense")
    assert done.returncode == 2 and all(role in done.stderr for role in ROLES - {"nats"})
    assert system.run("serve", "placer", "--help").returncode == 0


def test_ctrl_c_waits_for_the_grace_period_and_a_second_one_does_not(system: CommandLine) -> None:
    system.start()
    script = "trap '' TERM; echo pid $$; while true; do sleep 0.1; done"
    job = system.submit("--grace", "9m", "--", "sh", "-c", script)
    until(lambda: system.ask("logs", job), "the job's output")
    pid = int(system.ask("logs", job).split()[1])
    process = system.process
    assert process is not None
    process.send_signal(signal.SIGINT)
    until(lambda: "waiting for the jobs, which have their grace periods" in system.said, "up to say what it waits for")
    assert is_running(pid) and process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert not is_running(pid)
