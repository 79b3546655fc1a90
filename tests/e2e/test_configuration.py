"""One file, the environment and flags for real processes; and a policy that is changed while they run."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tenure.events.policy import PolicyChanged
from tenure.runtime.nats_server import NatsServer
from tenure.sdk.client import Client
from tenure.v1.budgets_pb2 import Budget
from tenure.v1.jobs_pb2 import JobSpec
from tests.checks.invariants import check_log
from tests.e2e.roles import end
from tests.e2e.system import FINAL, TENURE, System

FILE = """\
gateway: {{listen: '127.0.0.1:{port}'}}
agent: {{hosts: 2x4}}
nats: {{ca: /nowhere/ca.pem}}
policy:
  lookback: 10m
  min_runtime_cap: 1h
  ratio_margin: 0.1
  grace_max: 5m
  heartbeat: 500ms
  escrow_slack: 5s
"""


class Configured(System):
    """A `tenure up` that has a file, variables and a flag."""

    def start(self, *, timeout_s: float = 40) -> "Configured":
        """Start, and wait until it says that it is up."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.file = self.data.parent / "tenure.yaml"
        if not self.file.exists():
            self.file.write_text(FILE.format(port=self.port))
        command = [str(TENURE), "up", "--data", str(self.data), "--config", str(self.file)]
        command += ["--budgets", str(self.budgets), *[word for knob in self.knobs for word in ("--set", knob)]]
        with self.output.open("wb") as output:
            environment = {**os.environ, "TENURE_POLICY_RATIO_MARGIN": "0.2", "TENURE_POLICY_GRACE_MAX": "4m"}
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        self.until(lambda: b"tenure is up" in self.output.read_bytes() or None, timeout_s=timeout_s, what="up")
        self.client = Client(self.address)
        return self

    def cli(self, *arguments: str, status: int = 0) -> str:
        """What a command says."""
        done = subprocess.run(
            [str(TENURE), *arguments],
            env={**os.environ, "TENURE_SERVER": self.address},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stderr + done.stdout
        return done.stdout if status == 0 else done.stderr + done.stdout

    def knobs_in_force(self) -> dict[str, str]:
        """As `tenure config policy` shows them."""
        knobs: dict[str, str] = json.loads(self.cli("config", "policy", "--json"))["knobs"]
        return knobs

    def log_of(self, role: str) -> str:
        """What a role has said."""
        return (self.data / "log" / f"{role}.log").read_text(errors="replace")


@pytest.fixture
def system(tmp_path: Path) -> Iterator[Configured]:
    system = Configured(tmp_path, knobs=["grace_max=3m"])
    system.start()
    yield system
    system.stop()


def history(system: Configured) -> list[dict[str, Any]]:
    changes: list[dict[str, Any]] = json.loads(system.cli("config", "history", "--json"))
    return changes


def tells(system: Configured, role: str) -> bool | None:
    """Whether a role has said that the log's policy is another one than it was started with."""
    words = "lookback is 40m in the log, and 20m as this process was started: the log's counts"
    return words in system.log_of(role) or None


def change_the_file_in_place(system: Configured) -> None:
    """SIGHUP makes it the policy, less what a flag or a variable says; a file with a mistake changes nothing."""
    system.file.write_text(system.file.read_text().replace("lookback: 10m", "lookback: 20m"))
    os.kill(system.children()["gateway"], signal.SIGHUP)
    system.until(lambda: system.knobs_in_force()["lookback"] == "20m" or None, what="the policy of the file")
    assert history(system)[-1]["asked_how"] == "SIGHUP"
    assert history(system)[-1]["asked_from"] == str(system.file)
    assert system.knobs_in_force()["min_runtime_cap"] == "1h"
    system.file.write_text(system.file.read_text() + "polcy: {lookback: 1h}\n")
    os.kill(system.children()["gateway"], signal.SIGHUP)
    system.until(lambda: "SIGHUP: nothing is changed: polcy: unknown key" in system.log_of("gateway") or None)
    assert system.knobs_in_force()["lookback"] == "20m"
    system.file.write_text(system.file.read_text().replace("polcy: {lookback: 1h}\n", ""))


def test_a_policy_is_changed_while_everything_runs(system: Configured) -> None:
    # a flag wins over the environment, that over the file, that over the default; the file said where and on what
    assert system.address == f"127.0.0.1:{system.port}"
    assert len(json.loads(system.cli("host", "list", "--json"))["hosts"]) == 2
    knobs = system.until(
        lambda: found if (found := system.knobs_in_force())["lookback"] == "10m" and history(system) else None
    )
    assert (knobs["min_runtime_cap"], knobs["ratio_margin"], knobs["grace_max"]) == ("1h", "0.2", "3m")
    assert (knobs["promise_horizon"], history(system)[0]["by"]) == ("12h", "gateway")

    # a decision of before keeps its promise, one of after goes by the new policy
    submit = ("submit", "--budget", "a", "--gpus", "1", "--min-runtime", "50m", "--", "sleep", "600")
    signed = system.cli(*submit).strip()
    system.until(lambda: json.loads(system.cli("job", signed, "--json"))["state"] == "running" or None)
    said = system.cli("config", "apply", "--set", "min_runtime_cap=30m", "--comment", "exam week")
    assert said == "min_runtime_cap: 1h -> 30m\n"
    assert "30m" in system.cli(*submit, status=1)
    job = json.loads(system.cli("job", signed, "--json"))
    assert (job["state"], job["min_runtime_ms"]) == ("running", 50 * 60_000)

    # a mistake changes nothing, and a knob that is read at a start says so
    before = history(system)
    assert "did you mean lookback?" in system.cli("config", "apply", "--set", "lokback=1d", status=1)
    assert "out of range" in system.cli("config", "apply", "--set", "ratio_margin=1000", status=1)
    fixed = system.cli("config", "apply", "--set", "lookback=3d", "--set", "heartbeat=9s", status=1)
    assert "heartbeat: cannot change from 0.5s while the system runs; agents read it when they start" in fixed
    assert history(system) == before
    assert (before[-1]["comment"], before[-1]["changes"]) == (
        "exam week",
        [{"knob": "min_runtime_cap", "before": "1h", "after": "30m"}],
    )
    assert before[-1]["asked_how"].startswith("uid ")

    change_the_file_in_place(system)

    # a role that is started again has the policy of the log, not the file's, and says where they differ
    system.cli("config", "apply", "--set", "lookback=40m", "--set", "escrow_slack=7s")
    for role in ("placer", "gateway"):
        system.kill_role(role)
        system.until(partial(tells, system, role), what=f"{role} to tell")
    system.until(lambda: "40m" in system.cli("config", "policy") or None)
    assert system.knobs_in_force()["escrow_slack"] == "7s"

    recorded = system.recorded()
    check_log(recorded)
    assert [entry.fact.policy.lookback_ms for entry in recorded if isinstance(entry.fact, PolicyChanged)] == [
        600_000,
        600_000,
        1_200_000,
        2_400_000,
    ]
    system.cli("cancel", signed)


def test_the_next_start_has_the_policy_of_the_log_and_applies_what_a_flag_says(tmp_path: Path) -> None:
    system = Configured(tmp_path, knobs=["grace_max=3m"]).start()
    system.until(lambda: history(system) or None)
    system.cli("config", "apply", "--set", "lookback=30m")
    assert system.stop() == 0
    system.knobs = ["grace_max=2m"]
    system.start()
    try:
        system.until(lambda: system.knobs_in_force()["grace_max"] == "2m" or None)
        assert system.knobs_in_force()["lookback"] == "30m"
        said = system.output.read_text()
        assert "policy: grace_max 3m -> 2m" in said
        assert "policy: the log's counts: lookback is 30m and not 10m (tenure config apply changes it)" in said
    finally:
        assert system.stop() == 0


def test_every_role_needs_the_one_file_and_nothing_else(tmp_path: Path) -> None:
    nats = NatsServer(tmp_path / "nats")
    file = tmp_path / "tenure.yaml"
    with ExitStack() as stack:
        nats.start()
        stack.callback(nats.stop)
        file.write_text(
            f"cluster: lab\nnats: {{url: '{nats.url}'}}\ndata: {tmp_path}/{{role}}\n"
            "gateway: {listen: '127.0.0.1:0'}\nagent: {hosts: 2x4, on_exit: stop}\npolicy: {heartbeat: 500ms}\n"
        )
        started = {}
        for role in ("gateway", "budget", "ranker", "placer", "health", "agent"):
            ready = tmp_path / f"{role}.json"
            command = [str(TENURE), "serve", role, "--config", str(file), "--ready-file", str(ready)]
            with (tmp_path / f"{role}.log").open("wb") as log:
                started[role] = subprocess.Popen(command, stdout=log, stderr=log)
            stack.callback(end, started[role])
        wait_for(lambda: all((tmp_path / f"{role}.json").exists() for role in started))
        assert all((tmp_path / role / "lead").is_dir() for role in ("placer", "agent")), "each has its own folder"
        client = stack.enter_context(Client(json.loads((tmp_path / "gateway.json").read_text())["address"]))
        client.set_shares([Budget(path="lab", share_percent=100)], user="ana", merge=False)
        spec = JobSpec(budget="lab", replicas=1, gpus_per_replica=2, min_runtime_ms=60_000, command=["true"])
        job_id = client.submit(spec)
        assert next(job for job in client.watch(job_id) if job.state in FINAL).state == "completed"


def wait_for(holds: Callable[[], bool], *, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("polcy: {lookback: 1d}\n", "polcy: unknown key; did you mean policy?"),
        ("clickhouse: {token: hunter2}\n", "clickhouse.token: a secret does not belong here"),
    ],
)
def test_nothing_starts_with_a_mistake_in_the_file(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "tenure.yaml").write_text(text)
    for command in (["up"], ["serve", "placer"], ["serve", "clickhouse"]):
        arguments = [*command, "--data", str(tmp_path / "data"), "--config", str(tmp_path / "tenure.yaml")]
        done = subprocess.run([str(TENURE), *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert said in done.stderr
        assert "hunter2" not in done.stderr


def test_the_commands_about_a_file(tmp_path: Path) -> None:
    def run(*arguments: str, status: int, **more: str) -> str:
        environment = {**os.environ, **more}
        command = [str(TENURE), "config", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == status, done.stderr
        return done.stdout

    file = tmp_path / "tenure.yaml"
    file.write_text(run("example", status=0))
    assert run("check", str(file), status=0) == f"{file}: good, 0 settings\n"
    file.write_text("policy: {lookback: 2d}\nrepair: {webhook: 'https://hooks.example.org/hunter2'}\nlisten: x\n")
    answer = json.loads(run("check", str(file), "--json", status=1))
    assert [(each["field"], each["fix"]) for each in answer["errors"]] == [
        ("listen", "did you mean gateway.listen or console.listen?"),
        ("repair.secret_file", "name a file with the secret that signs what is sent"),
    ]
    (tmp_path / "secret").write_text("hunter3")
    file.write_text(
        f"policy: {{lookback: 2d}}\nrepair: {{webhook: 'https://a.example/hunter2', secret_file: {tmp_path}/secret}}\n"
    )
    shown = run("show", "--config", str(file), "--set", "ratio_margin=0.5", "--json", status=0, TENURE_CLUSTER="east")
    assert "hunter" not in shown
    found = {each["key"]: (each["value"], each["from"]) for each in json.loads(shown)}
    assert found["policy.lookback"] == ("2d", str(file))
    assert found["policy.ratio_margin"] == ("0.5", "--set")
    assert found["cluster"] == ("east", "TENURE_CLUSTER")
    assert found["nats.url"] == ("nats://127.0.0.1:4222", "default")
    assert found["repair.webhook"] == ("https://a.example/...", str(file))
    assert "policy.lookback" in run("show", "--config", str(file), "--role", "placer", status=0)
    assert run("check", str(tmp_path / "missing"), status=1)
