"""`host show`, `host list` and `host report`: health of hosts, drains with their timetable, and who ended incidents."""

import pytest

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


def test_a_draining_host_is_listed_with_when_it_is_empty_and_what_it_waits_for(
    tenure: Run, gateway: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    gateway.hosts = [
        hosts_pb2.Host(host="h000", state="draining", gpus=8, empty_at_ms=NOW, waits_for="j7.2", comment="new fans"),
        hosts_pb2.Host(host="h001", state="healthy", gpus=8),
    ]
    titles, draining, healthy = tenure("host", "list").out.splitlines()
    at, waits = titles.index("EMPTY AT") + len("EMPTY AT"), titles.index("WAITS FOR")
    assert draining[:at].endswith("2026-09-21 14:13") and draining[waits:].split()[0] == "j7.2"
    assert healthy[:at].endswith("-")
    assert draining.rstrip().endswith("new fans")
    (shown, _) = tenure("host", "list", "--json").json()["hosts"]
    assert (shown["empty_at_ms"], shown["waits_for"]) == (NOW, "j7.2")


def test_an_incident_that_needed_a_person_is_reported_with_who_and_why(tenure: Run, gateway: Canned) -> None:
    gateway.host_report = hosts_pb2.HostReportResponse(
        hosts=2,
        gpus=16,
        until_ms=NOW,
        incidents=[
            hosts_pb2.Incident(
                incident="i1",
                host="h000",
                reason="host_signal_fatal",
                ending="human",
                state="healthy",
                began_ms=NOW - 7_200_000,
                ended_ms=NOW,
                by="olga",
                comment="riser changed",
            ),
            hosts_pb2.Incident(incident="i2", host="h001", reason="host_silent", ending="automatic", ended_ms=NOW),
        ],
    )
    shown = tenure("host", "report").out
    (line,) = [line for line in shown.splitlines() if line.startswith("i1 ")]
    assert line.split() == ["i1", "olga", "2h", "host_signal_fatal", "riser", "changed"]
    assert "i2" not in shown, "automation ended that one"
    first = tenure("host", "report", "--json").json()["incidents"][0]
    assert (first["by"], first["comment"], first["ending"]) == ("olga", "riser changed", "human")
