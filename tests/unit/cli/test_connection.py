"""Which system a command talks to, and what it says when there is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.cli.connection import Found, find
from tenure.cli.main import main
from tenure.runtime.data_dir import DataDir, Endpoint
from tenure.sdk.errors import ServerUnreachable


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TENURE_SERVER", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def run_in(root: Path, port: int, *, pid: int = 0) -> Endpoint:
    data = DataDir(root)
    data.prepare()
    endpoint = Endpoint(address=f"127.0.0.1:{port}", pid=pid or os.getpid(), data=str(root))
    data.write_endpoint(endpoint)
    return endpoint


def test_the_variable_wins(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_in(home / "share" / "tenure", 7001)
    monkeypatch.setenv("TENURE_SERVER", "head.example:7000")
    assert find() == Found(address="head.example:7000")


def test_the_variable_may_name_the_system_of_this_machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = run_in(home / "elsewhere", 7001)
    monkeypatch.setenv("TENURE_SERVER", "127.0.0.1:7001")
    assert find().endpoint == endpoint


def test_the_default_directory_comes_before_the_last_up(home: Path) -> None:
    default = run_in(home / "share" / "tenure", 7001)
    run_in(home / "elsewhere", 7002)
    assert find().endpoint == default


def test_the_last_up_is_found(home: Path) -> None:
    run_in(home / "first", 7001)
    last = run_in(home / "second", 7002)
    assert find() == Found(address="127.0.0.1:7002", endpoint=last)


def test_an_up_that_was_killed_does_not_count(home: Path) -> None:
    run_in(home / "elsewhere", 7001, pid=2**22 + 1)
    with pytest.raises(ServerUnreachable, match=r"no running system: none in .*share/tenure or .*elsewhere; start one"):
        find()


@pytest.mark.parametrize("text", ["7733", ":7733", "host:", "host:x", "host:0", "host:70000", "host:٣"])
def test_what_is_no_address_is_refused(
    text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TENURE_SERVER", text)
    assert main(["queue"]) == 1
    assert capsys.readouterr().err == f"tenure: TENURE_SERVER: {text!r} is not an address; write host:port\n"


def test_nobody_answering_is_one_line_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TENURE_SERVER", "127.0.0.1:1")
    assert main(["queue"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("tenure: no answer from 127.0.0.1:1; start it with `tenure up`") and said.count("\n") == 1


def test_help_groups_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    said = capsys.readouterr().out
    assert all(f"─ {panel} ─" in said for panel in ("Jobs", "Budgets", "Hosts", "The system"))


def test_the_command_line_needs_no_role_and_no_engine() -> None:
    code = (
        "import sys, tenure.cli.commands, tenure.sdk.client; "
        "print([m for m in sys.modules if m.split('.')[0] in ('services', 'chdb', 'nats', 'rich', 'psutil', 'pandas')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
