"""What the shell offers after Tab, by typer's protocol."""

import os
import subprocess
import sys

import pytest

from tenure.v1 import budgets_pb2, hosts_pb2, jobs_pb2
from tests.unit.cli.canned import Canned

CODE = "import sys; from tenure.cli.main import main; sys.exit(main())"


def complete(words: str, server: str) -> list[str]:
    """The words offered for the last one of `words`."""
    typed = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1), "_TENURE_COMPLETE": "complete_bash"}
    environment = {**os.environ, **typed, "TENURE_SERVER": server}
    done = subprocess.run([sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("tenure budget s", ["show", "set"]),
        ("tenure why j", ["j1", "j2"]),
        ("tenure submit --budget science/", ["science/chem"]),
        ("tenure submit --budget s", ["science/chem"]),
        ("tenure budget report s", ["science", "science/chem"]),
        ("tenure host drain h00", ["h000"]),
    ],
)
def test_names_the_system_knows_are_offered(gateway: Canned, words: str, offered: list[str]) -> None:
    gateway.jobs = [jobs_pb2.Job(job_id="j1"), jobs_pb2.Job(job_id="j2")]
    gateway.budgets = [budgets_pb2.Budget(path="science"), budgets_pb2.Budget(path="science/chem", leaf=True)]
    gateway.hosts = [hosts_pb2.Host(host="h000"), hosts_pb2.Host(host="x1")]
    assert complete(words, gateway.address) == offered


def test_without_a_system_nothing_is_offered_and_nothing_said() -> None:
    assert complete("tenure why j", "127.0.0.1:1") == []
