"""The `signals:` section of a configuration."""

from pathlib import Path

import pytest

from services.agent.signals.check import PARSERS
from tenure.domain.refusal import Refusal
from tenure.domain.units import MINUTE, SECOND
from tenure.runtime.options import build_policy
from tenure.runtime.settings.given import load_settings
from tenure.runtime.signal_options import INTERVALS, READABLE, CheckOption, build_signal_options


def test_a_real_host_reads_what_costs_little_and_a_made_up_one_nothing() -> None:
    real = build_signal_options({}, real_host=True).every_ms
    assert real == {name: length for name, length in INTERVALS.items() if length is not None}
    assert "dcgm" not in real
    assert build_signal_options({}, real_host=False).every_ms == {}


def test_keys() -> None:
    options = build_signal_options(
        {
            "nvml": "off",
            "clock": False,
            "dcgm": "1h",
            "kernel_log": "/tmp/k",
            "paths": ["/data", "/"],
            "ports_up": "mlx5_0/1 mlx5_1/1",
            "gpus": 8,
            "checks": [{"name": "nccl", "command": ["/opt/nccl", "-q"], "every": "1m", "limit": "5s"}],
        },
        real_host=True,
    )
    assert set(options.every_ms) == {"kernel", "fabric", "ports", "disks", "dcgm"}
    assert options.kernel_log == Path("/tmp/k")
    assert options.paths == (Path("/data"), Path("/"))
    assert options.ports_up == ("mlx5_0/1", "mlx5_1/1")
    assert options.gpus == 8
    assert options.checks == (
        CheckOption(name="nccl", command=("/opt/nccl", "-q"), every_ms=MINUTE, limit_ms=5 * SECOND),
    )


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"kernle": "5s"}, "signals.kernle"),
        ({"kernel": "soon"}, "signals.kernel"),
        ({"kernel": "0"}, "signals.kernel"),
        ({"gpus": -1}, "signals.gpus"),
        ({"paths": 7}, "signals.paths"),
        ({"checks": "x"}, "signals.checks"),
        ({"checks": [{"name": "x"}]}, "signals.checks"),
        ({"checks": [{"name": "a b", "command": "x"}]}, "signals.checks.name"),
        ({"checks": [{"name": "x", "command": []}]}, "signals.checks.x.command"),
        ({"checks": [{"name": "x", "command": "y", "evry": "5s"}]}, "signals.checks.evry"),
        ({"checks": [{"name": "x", "command": "y", "reads": "nvlnk"}]}, "signals.checks.x.reads"),
        ({"checks": [{"name": "x", "command": "y"}, {"name": "x", "command": "z"}]}, "signals.checks"),
    ],
)
def test_what_is_refused(values: dict[str, object], field: str) -> None:
    with pytest.raises(Refusal) as refusal:
        build_signal_options(values, real_host=True)
    assert refusal.value.field == field


def test_one_file_serves_all_roles(tmp_path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("policy:\n  heartbeat: 2s\nsignals:\n  kernel: 1s\n  checks:\n  - {name: a, command: [b]}\n")
    settings = ["signals.kernel=2s", "lookback=8d"]
    agent = load_settings(role="agent", config=file, environment={}, sets=settings)
    assert build_policy(agent.section("policy")).heartbeat_ms == 2 * SECOND
    values = agent.section("signals")
    assert build_signal_options(values, real_host=False).every_ms == {"kernel": 2 * SECOND}


def test_every_tool_that_can_be_named_is_read() -> None:
    assert tuple(PARSERS) == READABLE
