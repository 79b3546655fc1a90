"""`host show` and `host list`: what devices say of a host's health."""

from tenure.v1 import hosts_pb2
from tests.unit.cli.canned import NOW, Canned
from tests.unit.cli.conftest import Run

LOST = hosts_pb2.HostSignal(
    source="kernel",
    device="0000:0a:00.0",
    code="xid_79",
    severity="fatal",
    text="Xid 79: GPU has fallen off the bus",
    count=636,
    first_at_ms=NOW - 60_000,
    last_at_ms=NOW - 1_000,
    evidence="NVRM: Xid (PCI:0000:0a:00): 79",
)
HOT = hosts_pb2.HostSignal(
    source="nvml", device="0000:0b:00.0", code="power_brake", severity="watch", text="slowed down", count=1
)


def test_a_host_is_shown_with_its_signals(tenure: Run, gateway: Canned) -> None:
    gateway.hosts = [
        hosts_pb2.Host(host="h000", state="healthy", gpus=8),
        hosts_pb2.Host(host="h001", state="healthy", gpus=8, signals=[LOST, HOT]),
    ]
    shown = tenure("host", "show", "h001").out
    assert "h000" not in shown
    assert "Xid 79: GPU has fallen off the bus" in shown
    assert "636" in shown
    assert "power_brake" in shown
    assert "No signals." in tenure("host", "show", "h000").out
    listed = tenure("host", "list").out
    assert "xid_79 0000:0a:00.0 +1" in listed
    signals = tenure("host", "show", "h001", "--json").json()["signals"]
    assert [(one["code"], one["severity"], one["count"]) for one in signals] == [
        ("xid_79", "fatal", 636),
        ("power_brake", "watch", 1),
    ]
    assert (signals[0]["last_at_ms"], signals[0]["evidence"]) == (NOW - 1_000, "NVRM: Xid (PCI:0000:0a:00): 79")


def test_a_host_that_is_not_there_is_refused(tenure: Run, gateway: Canned) -> None:
    result = tenure("host", "show", "h9")
    assert result.status == 1
    assert "no host is named 'h9'" in result.err
