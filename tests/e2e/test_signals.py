"""What an agent says of its host's health, as a process of its own with a configuration file; and a clock hours off."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from tenure.domain.units import HOUR, MINUTE, SECOND
from tenure.events.reports import HealthSignal, Heartbeat, HostSignal
from tenure.v1.budgets_pb2 import Budget
from tenure.v1.jobs_pb2 import JobSpec
from tests.e2e.roles import Roles
from tests.e2e.system import FINAL, TENURE

COMPILER = shutil.which("cc") or shutil.which("gcc")
GRAVE = "NVRM: Xid (PCI:0000:0a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
CONFIG = """\
signals:
  kernel: 100ms
  kernel_log: {folder}/kmsg
  sysfs: {folder}
  proc: {folder}
  checks:
    - {{name: hangs, command: [{python}, -c, "import time; time.sleep(99)"], every: 100ms, limit: 300ms}}
    - {{name: floods, command: [{python}, -c, "while True: print('x' * 9999)"], every: 100ms}}
    - {{name: binary, command: [{python}, -c, "import os; os.write(1, bytes(range(256))); os._exit(2)"], every: 100ms}}
    - {{name: fans, command: [{python}, -c, "print('fan 3 stands still'); exit(2)"], every: 100ms}}
"""


@pytest.fixture
def roles(tmp_path: Path) -> Iterator[Roles]:
    with Roles(tmp_path, knobs=["heartbeat=500ms"]) as roles:
        roles.start_deciders()
        yield roles


def signals(roles: Roles) -> Sequence[HealthSignal]:
    """All that was said of hosts' health."""
    facts = [entry.fact for entry in roles.recorded()]
    return [signal for fact in facts if isinstance(fact, HostSignal) for signal in fact.signals]


def test_an_agent_of_its_own_says_what_its_sources_show(roles: Roles, tmp_path: Path) -> None:
    (tmp_path / "kmsg").write_text("nothing of note\n")
    config = tmp_path / "agent.yaml"
    config.write_text(CONFIG.format(folder=tmp_path, python=sys.executable))
    roles.start("agent", "--hosts", "1x2", "--config", str(config))
    roles.ready("agent")
    with (tmp_path / "kmsg").open("a") as log:
        log.write(GRAVE * 636)

    def all_said() -> dict[str, HealthSignal] | None:
        said = {signal.source: signal for signal in signals(roles)}
        return said if len(said) == 5 else None

    said = roles.until(all_said, what="a signal of each source")
    assert {source: (signal.code, signal.severity.value) for source, signal in said.items()} == {
        "kernel": ("xid_79", "fatal"),
        "check:hangs": ("check_broken", "watch"),
        "check:floods": ("check_broken", "watch"),
        "check:binary": ("check_broken", "watch"),
        "check:fans": ("check_failed", "drain"),
    }
    assert (said["kernel"].device, said["kernel"].count) == ("0000:0a:00.0", 636), "a storm is one incident"
    assert said["check:fans"].text == "fan 3 stands still"
    (host,) = roles.client().hosts().hosts
    assert [signal.code for signal in host.signals][:2] == ["xid_79", "check_failed"], "gravest first"
    beats = [entry.fact.at for entry in roles.recorded() if isinstance(entry.fact, Heartbeat)]
    assert max(after - before for before, after in pairwise(beats)) < 5 * SECOND


def test_up_refuses_an_option_that_it_does_not_know(tmp_path: Path) -> None:
    command = [str(TENURE), "up", "--data", str(tmp_path), "--set", "signals.kernal=1s"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "signals.kernal" in ended.stderr
    assert "kernel" in ended.stderr


@pytest.fixture
def ahead(tmp_path: Path) -> str:
    """A library that sets the clock of who loads it three hours ahead."""
    if COMPILER is None:
        pytest.skip("needs a C compiler to set a clock ahead")
    path = tmp_path / "ahead.so"
    source = Path(__file__).with_name("clock_ahead.c")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-Wall", "-Werror", "-o", path, source], check=True)
    return str(path)


def test_a_clock_three_hours_off_is_said_and_moves_nothing(roles: Roles, ahead: str) -> None:
    began = time.time_ns() // 1_000_000
    shifted = ["/usr/bin/env", f"LD_PRELOAD={ahead}", "date", "+%s"]
    assert int(subprocess.check_output(shifted)) * SECOND > began + 2 * HOUR, "the library works"
    roles.start("agent", "--hosts", "2x2", "--set", "signals.clock=100ms", environment={"LD_PRELOAD": ahead})
    client = roles.client()
    client.set_shares([Budget(path="lab", share_percent=100)], user="ana", merge=False)
    spec = JobSpec(budget="lab", gpus_per_replica=2, replicas=1, min_runtime_ms=MINUTE, command=["/bin/date", "+%s"])
    job_id = client.submit(spec)
    job = next(job for job in client.watch(job_id) if job.state in FINAL)
    assert job.state == "completed"
    (said,) = roles.until(lambda: signals(roles) or None, what="a word of the clock")
    assert (said.source, said.code, said.severity.value) == ("clock", "clock_apart", "drain")
    assert said.text == "the clock is 10800.0 s ahead of that of the log's server"
    ended = time.time_ns() // 1_000_000
    told = [entry.fact for entry in roles.recorded()]
    assert {type(fact).__name__ for fact in told} >= {"Heartbeat", "ReplicasStarted", "ReplicasExited"}
    off = {type(fact).__name__: fact.at - began for fact in told if not began <= fact.at <= ended}
    assert not off, "everything is told by the log's clock"
    (run,) = job.runs
    assert began <= run.started_at_ms <= run.ended_at_ms <= ended
