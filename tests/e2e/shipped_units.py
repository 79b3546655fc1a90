"""The units of deploy/systemd as processes: what their commands and environment files say."""

import re
import shlex
from pathlib import Path

from services.__main__ import SERVED
from tests.e2e.deployed import ROOT, Process

UNITS = ROOT / "deploy" / "systemd"
AGENT, TEMPLATE = UNITS / "tenure-agent.service", UNITS / "tenure@.service"
HOST = "gpu-017"
KEYS = {
    "gateway": ("clickhouse-password", "gateway.crt", "gateway.key"),
    "console": ("clickhouse-password", "console.crt", "console.key"),
    "ranker": ("clickhouse-password",),
    "placer": ("runs.key",),
    "journal": ("clickhouse-password",),
    "agent": ("runs.pub",),
}
"""What docs/operations.md says that each role's machine gets, beside ca.crt and the role's own seed."""
NO_LOG = ("console",)
"""Roles without a seed."""


def unit_of(role: str) -> Path:
    """The unit that starts a role."""
    return AGENT if role == "agent" else TEMPLATE


def common(role: str) -> list[str]:
    """What every role gets: who signs certificates, and its own seed where it knows the log."""
    return ["ca.crt", *([] if role in NO_LOG else [f"nats-{role}.seed"])]


def value(text: str, name: str) -> str:
    """The one value of a setting in a unit."""
    (found,) = re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)
    return str(found)


def processes(secrets: Path) -> list[Process]:
    """Every role but the embedded ClickHouse. Hosts have no GPUs here: the agent's are virtual."""
    return [_process(role, secrets) for role in SERVED if role != "clickhouse"]


def _process(role: str, secrets: Path) -> Process:
    text = unit_of(role).read_text().replace("%i", role).replace("%H", HOST)
    settings = (UNITS / "tenure.yaml").read_text()
    for shipped, ours in (
        ("provider: nvidia", "hosts: 2x8"),
        ("/srv/tenure/checkpoints", "/var/lib/tenure/checkpoints"),
        ("tls://nats-0:4222,tls://nats-1:4222,tls://nats-2:4222", "tls://nats:4222"),
    ):
        assert shipped in settings, f"{shipped} is no longer in the shipped settings"
        settings = settings.replace(shipped, ours)
    file = Path(value(text, "EnvironmentFile"))
    environment = dict(line.split("=", 1) for line in (UNITS / "env" / file.name).read_text().split())
    command = shlex.split(value(text, "ExecStart"))
    assert command.pop(0) == "/opt/tenure/bin/tenure"
    ready = command[command.index("--ready-file") + 1]
    assert Path(ready).parent == Path("/run") / value(text, "RuntimeDirectory")
    asked = f"import urllib.request as u; u.urlopen('http://{environment['TENURE_METRICS_LISTEN']}/metrics', timeout=3)"
    names = (*common(role), *KEYS.get(role, ()))
    return Process(
        name=role,
        command=["tenure", *command],
        environment=environment,
        files={
            "/etc/tenure/tenure.yaml": settings.encode(),
            **{f"/etc/tenure/keys/{name}": (secrets / name).read_bytes() for name in names},
        },
        health=[["test", "-s", ready], ["python", "-c", asked]],
    )
