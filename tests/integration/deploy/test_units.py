"""The shipped units are such as systemd takes them."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from services.__main__ import ROLES
from tests.integration.deploy.conftest import ROOT

UNITS = ROOT / "deploy" / "systemd"
BIN = Path(sys.executable).parent


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze, of the package systemd")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for program in ("tenure", "nats-server"):
        (tmp_path / program).symlink_to(BIN / program)
    for unit in UNITS.glob("*.service"):
        text = unit.read_text()
        assert re.search(r"^ExecStart=/opt/tenure/bin/(tenure|nats-server) ", text, re.MULTILINE)
        (tmp_path / unit.name).write_text(text.replace("/opt/tenure/bin", str(tmp_path)))
    units = ("tenure-agent", "tenure-nats", "tenure-leaf", "tenure@placer")
    names = [str(tmp_path / f"{unit}.service") for unit in units]
    (tmp_path / "tenure@placer.service").symlink_to(tmp_path / "tenure@.service")
    environment = {**os.environ, "SYSTEMD_LOG_LEVEL": "warning"}
    command = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    broken = tmp_path / "tenure-agent.service"
    broken.write_text(broken.read_text().replace("KillMode=process", "KilMode=process"))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert "KilMode" in done.stderr


def test_every_role_has_a_port_of_its_own() -> None:
    files = {path.stem: path.read_text() for path in (UNITS / "env").glob("*.env")}
    assert set(files) == set(ROLES) - {"clickhouse"} | {"forecast"}
    ports = [re.fullmatch(r"TENURE_METRICS_LISTEN=127\.0\.0\.1:(\d+)\n", text) for text in files.values()]
    assert None not in ports and len({match[1] for match in ports if match}) == len(files)


def test_jobs_outlive_the_agent_and_have_control_groups_of_their_own() -> None:
    agent = (UNITS / "tenure-agent.service").read_text()
    assert "\nKillMode=process\n" in agent and "\nDelegate=yes\n" in agent and "\nUser=" not in agent


def test_the_server_of_a_site_runs_as_those_of_the_log_but_keeps_nothing() -> None:
    log, leaf = (
        (UNITS / f"tenure-{name}.service").read_text().partition("[Service]\n")[2] for name in ("nats", "leaf")
    )
    own = set(leaf.splitlines()) - set(log.splitlines())
    assert own == {
        "ExecStart=/opt/tenure/bin/nats-server --config /etc/tenure/nats/leaf.conf",
        "EnvironmentFile=/etc/tenure/nats/leaf.env",
        "TimeoutStopSec=30s",
    }
    assert "StateDirectory" not in leaf
