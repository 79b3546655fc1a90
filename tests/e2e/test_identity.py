"""Who one is to a running `tenure up`: tokens, another user of the machine, an address that others reach."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.checks.certificates import Authority
from tests.e2e.command_line import TENURE, CommandLine

NOBODY_UID = 65534
SUBMIT = ("submit", "--budget", "default", "--gpus", "1", "--min-runtime", "1m", "--", "true")


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    system = CommandLine(tmp_path_factory.mktemp("up"))
    try:
        system.start()
        yield system
    finally:
        system.close()


def run_as(system: CommandLine, token: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """One command with a token."""
    environment = {**system.environment, "TENURE_TOKEN": token}
    return subprocess.run([TENURE, *arguments], env=environment, capture_output=True, text=True, check=False)


def test_a_token_says_who_calls(system: CommandLine) -> None:
    token = system.ask("token", "create", "--user", "ana", "--expires", "10m").strip()
    assert token.count(".") == 2 and " " not in token
    who = json.loads(run_as(system, token, "whoami", "--json").stdout)
    assert (who["user"], who["roles"], who["how"]) == ("ana", [], "local token")
    assert who["budgets"] == [{"path": "default", "rights": ["submit"]}]
    assert "ana" in run_as(system, token, "whoami").stdout
    submitted = run_as(system, token, *SUBMIT)
    assert submitted.returncode == 0, submitted.stderr
    job = submitted.stdout.strip()
    assert system.json("job", job)["user"] == "ana"
    steps = system.json("why", job)["steps"]
    fact = steps[0]["fact"]
    assert (fact["origin"]["user"], fact["origin"]["how"]) == ("ana", "local token")
    for arguments in (("budget", "set", "default=50"), ("host", "drain", "h000", "--reason", "x")):
        denied = run_as(system, token, *arguments)
        assert denied.returncode == 1 and "ana may not" in denied.stderr and "an admin" in denied.stderr
    assert run_as(system, token, "cancel", system.submit("--", "sleep", "60")).returncode == 1


def test_a_viewers_token_only_looks(system: CommandLine) -> None:
    token = system.ask("token", "create", "--user", "ana", "--role", "viewer").strip()
    assert run_as(system, token, "queue").returncode == 0
    denied = run_as(system, token, *SUBMIT)
    assert denied.returncode == 1 and "role viewer" in denied.stderr


def test_a_bad_token_is_said_and_never_shown(system: CommandLine) -> None:
    refused = run_as(system, "abc.def.ghi", "queue")
    assert refused.returncode == 1 and "not a JWT" in refused.stderr and "abc" not in refused.stderr


def test_tokens_are_nowhere_to_be_found(system: CommandLine, tmp_path: Path) -> None:
    token = system.ask("token", "create", "--user", "ana").strip()
    assert run_as(system, token, "budget", "show").returncode == 0
    assert run_as(system, token[:-6] + "AAAAAA", "budget", "show").returncode == 1
    assert run_as(system, token, *SUBMIT)
    exported = tmp_path / "events.jsonl"
    system.ask("log", "export", "--output", str(exported))
    secret = token.split(".")[2][:20]
    for path in [*(system.data / "log").iterdir(), system.output, exported]:
        assert secret not in path.read_text(errors="replace"), path
    for process in psutil.process_iter(["cmdline"]):
        assert secret not in " ".join(process.info["cmdline"] or ())


def test_who_may_submit_is_named_and_taken_back(system: CommandLine) -> None:
    eve = system.ask("token", "create", "--user", "eve").strip()
    assert system.ask("budget", "members", "default", "--add", "ana", "--add", "group:lab") == "ana\ngroup:lab\n"
    denied = run_as(system, eve, *SUBMIT)
    assert denied.returncode == 1 and "eve may not submit to default" in denied.stderr
    assert system.json("budget", "show")["budgets"][0]["members"] == ["ana", "group:lab"]
    assert system.ask("budget", "managers", "default", "--add", "eve") == "eve\n"
    assert run_as(system, eve, *SUBMIT).returncode == 0
    assert run_as(system, eve, "budget", "managers", "default", "--add", "tim").returncode == 1
    opened = run_as(system, eve, "budget", "members", "default", "--remove", "ana", "--remove", "group:lab")
    assert (opened.returncode, opened.stdout) == (0, "default names no members.\n")
    assert system.ask("budget", "managers", "default", "--remove", "eve") == "default names no managers.\n"


CALLER = """
import os, sys
from tenure.sdk.client import Client
from tenure.sdk.errors import ServerRefused
from tenure.v1 import hosts_pb2, hosts_pb2_grpc, identity_pb2, identity_pb2_grpc, jobs_pb2_grpc, jobs_pb2
os.setgroups([])  # only now: the interpreter itself may lie where that user may not read
os.setgid(int(sys.argv[2])), os.setuid(int(sys.argv[2]))
with Client(sys.argv[1]) as client:
    who = client.whoami()
    print(who.how, list(who.roles))
    spec = jobs_pb2.JobSpec(budget="default", replicas=1, gpus_per_replica=1, command=["true"])
    print(client.job(client.submit(spec)).spec.user == who.user)
    for attempt in (
        lambda: client.drain("h000", user="", comment="x"),
        lambda: client.submit(jobs_pb2.JobSpec(budget="default", user="root", gpus_per_replica=1, command=["true"])),
    ):
        try:
            attempt()
        except ServerRefused as refusal:
            print(refusal.code)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process as another user")
def test_another_user_of_the_machine_is_that_user(system: CommandLine) -> None:
    command = [sys.executable, "-c", CALLER, system.address, str(NOBODY_UID)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == [f"uid {NOBODY_UID} []", "True", "PERMISSION_DENIED", "PERMISSION_DENIED"]


def test_an_address_that_others_reach_needs_tls(tmp_path: Path) -> None:
    command = [TENURE, "up", "--data", str(tmp_path / "data"), "--listen", "0.0.0.0:0"]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert refused.returncode == 1
    assert "identity.tls_certificate" in refused.stderr and refused.stderr.count("\n") == 1


def test_with_tls_its_own_command_line_finds_the_way(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.server("gateway.lab.example")
    system = CommandLine(tmp_path)
    settings = {"tls_certificate": server.certificate, "tls_key": server.key, "tls_ca": authority.certificate}
    try:
        options = [word for key, path in settings.items() for word in ("--set", f"identity.{key}={path}")]
        system.start(*options, listen="0.0.0.0:0")
        assert "default" in system.ask("budget", "show")
        assert system.json("whoami")["how"] == "local token"
        port = system.address.rpartition(":")[2]
        stranger = {"TENURE_SERVER": f"127.0.0.1:{port}", "XDG_STATE_HOME": str(tmp_path / "other")}
        environment = {**system.environment, **stranger, "TENURE_TLS_CA": str(authority.certificate)}
        told = subprocess.run([TENURE, "queue"], env=environment, capture_output=True, text=True, check=False)
        assert told.returncode == 1 and "TENURE_TOKEN" in told.stderr
        environment["TENURE_TOKEN"] = system.ask("token", "create", "--user", "ana").strip()
        told = subprocess.run([TENURE, "queue"], env=environment, capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stderr
    finally:
        system.close()
