"""Ports, disks, the clock and custom checks as signals."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from services.agent.signals.check import Outcome, judge_check
from services.agent.signals.disks import judge_errors, judge_mounts, judge_room, read_errors
from services.agent.signals.ports import judge_ports, read_ports
from services.agent.signals.time_sync import judge_clock, parse_chrony
from tenure.events.reports import HealthSignal

Told = list[tuple[str, str, str]]


def told(signals: list[HealthSignal]) -> Told:
    return [(signal.device, signal.code, signal.severity.value) for signal in signals]


def make_port(root: Path, name: str, *, state: str = "4: ACTIVE", physical: str = "5: LinkUp", **counters: int) -> None:
    device, number = name.split("/")
    folder = root / "class/infiniband" / device / "ports" / number
    (folder / "counters").mkdir(parents=True, exist_ok=True)
    for file, text in (
        ("state", state),
        ("phys_state", physical),
        ("link_layer", "InfiniBand"),
        ("rate", f"{counters.pop('rate', 400)} Gb/sec (4X NDR)"),
    ):
        (folder / file).write_text(text + "\n")
    for counter in ("link_downed", "symbol_error"):
        (folder / "counters" / counter).write_text(f"{counters.get(counter, 0)}\n")


def test_ports_without_a_cable_raise_nothing_until_they_should_be_up(tmp_path) -> None:
    make_port(tmp_path, "mlx5_0/1")
    make_port(tmp_path, "mlx5_1/1", state="1: DOWN", physical="2: Polling")
    make_port(tmp_path, "mlx5_2/1", state="2: INIT")
    ports = read_ports(tmp_path)
    assert told(judge_ports(ports, read_at=1)) == [("mlx5_2/1", "port_not_active", "watch")]
    wanted = judge_ports(ports, read_at=1, must_be_up=["mlx5_1/1", "mlx5_9/1"])
    assert ("mlx5_1/1", "port_down", "drain") in told(wanted)
    assert ("mlx5_9/1", "port_missing", "drain") in told(wanted)


def test_a_port_that_was_up_must_stay_up_and_as_fast(tmp_path) -> None:
    make_port(tmp_path, "mlx5_0/1")
    before = read_ports(tmp_path)
    make_port(tmp_path, "mlx5_0/1", rate=100)
    assert told(judge_ports(read_ports(tmp_path), read_at=1, before=before)) == [("mlx5_0/1", "port_slow", "watch")]
    make_port(tmp_path, "mlx5_0/1", state="1: DOWN", physical="3: Disabled")
    assert told(judge_ports(read_ports(tmp_path), read_at=1, before=before)) == [("mlx5_0/1", "port_down", "drain")]


def test_errors_of_a_port_count_from_the_last_look(tmp_path) -> None:
    make_port(tmp_path, "mlx5_0/1", link_downed=7, symbol_error=1000)
    before = read_ports(tmp_path)
    assert judge_ports(before, read_at=1) == judge_ports(before, read_at=1, before=before) == []
    make_port(tmp_path, "mlx5_0/1", link_downed=8, symbol_error=1050)
    (signal,) = judge_ports(read_ports(tmp_path), read_at=1, before=before)
    assert (signal.code, signal.text) == ("port_errors", "errors on the port: link_downed +1")


def test_no_ports_are_no_signals(tmp_path) -> None:
    assert judge_ports(read_ports(tmp_path), read_at=1) == []


def room(*, free: int = 50, files: int = 50, flags: int = 0) -> SimpleNamespace:
    return SimpleNamespace(f_bavail=free, f_frsize=1, f_blocks=100, f_favail=files, f_files=100, f_flag=flags)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (room(), []),
        (room(free=4), [("disk_low", "watch")]),
        (room(free=0), [("disk_full", "drain")]),
        (room(files=0), [("inodes_full", "drain")]),
        (room(flags=os.ST_RDONLY), [("fs_read_only", "drain")]),
        (SimpleNamespace(f_bavail=0, f_frsize=1, f_blocks=0, f_favail=0, f_files=0, f_flag=0), []),
        (FileNotFoundError(2, "no"), []),
        (OSError(5, "Input/output error"), [("disk_unreachable", "watch")]),
    ],
)
def test_room(measured, expected) -> None:
    def measure(path: Path):
        if isinstance(measured, OSError):
            raise measured
        return measured

    found = told(judge_room([Path("/x")], read_at=1, measure=measure))
    assert found == [("/x", *each) for each in expected]


def test_mounts_made_read_only_after_errors(tmp_path) -> None:
    (tmp_path / "mounts").write_text(
        "/dev/a / ext4 rw,errors=remount-ro 0 0\n/dev/b /b ext4 ro,errors=remount-ro 0 0\n"
        "/dev/c /c squashfs ro 0 0\nx\n"
    )
    assert told(judge_mounts(tmp_path, read_at=1)) == [("/b", "fs_read_only", "drain")]
    assert judge_mounts(tmp_path / "none", read_at=1) == []


def test_errors_the_kernel_counts(tmp_path) -> None:
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    write("fs/ext4/sda1/errors_count", "0\n")
    write("block/sdb/device/ioerr_cnt", "0x1f\n")
    write("block/sdc/device/ioerr_cnt", "what\n")
    before = read_errors(tmp_path)
    assert before == {"sda1": 0, "sdb": 31}
    write("block/sdb/device/ioerr_cnt", "0x21\n")
    (signal,) = judge_errors(read_errors(tmp_path), read_at=1, before=before)
    assert (signal.device, signal.code, signal.text) == ("sdb", "disk_error", "2 new errors")


def chrony(offset: str, leap: str = "Normal") -> str:
    return (
        f"A9FEA97B,169.254.169.123,4,1700000000.1,{offset},0.000001,0.000002,-1.2,0.0,0.01,0.0003,0.0001,16.2,{leap}\n"
    )


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (chrony("0.000002"), []),
        (chrony("-1.5"), [("clock_off", "watch")]),
        (chrony("10800.0"), [("clock_off", "drain")]),
        (chrony("0.0", leap="Not synchronised"), [("clock_unsynchronized", "watch")]),
        (chrony("nan"), []),
        ("506 Cannot talk to daemon\n", []),
    ],
)
def test_the_clock(output: str, expected: list[tuple[str, str]]) -> None:
    assert told(parse_chrony(output, read_at=1)) == [("clock", *each) for each in expected]


def test_a_clock_of_unknown_offset() -> None:
    assert judge_clock(None, synchronized=True, read_at=1) == []


@pytest.mark.parametrize(
    ("outcome", "code", "severity", "words"),
    [
        (Outcome(code=1, output=b"warm\nmore"), "check_failed", "watch", "warm"),
        (Outcome(code=2, output=b"nccl is slow\n"), "check_failed", "drain", "nccl is slow"),
        (Outcome(code=7, output="weg\u00e4".encode()), "check_failed", "fatal", "weg\u00e4"),
        (Outcome(code=2), "check_failed", "drain", "exit code 2, no words"),
        (Outcome(code=3, output=b"unknown"), "check_broken", "watch", "exit code 3, which is no verdict"),
        (Outcome(code=-11), "check_broken", "watch", "ended by signal 11"),
        (Outcome(code=None, late=True, limit_ms=1500), "check_broken", "watch", "did not end within 1.5 s"),
        (Outcome(code=None, flooded=True, output=b"x" * 99), "check_broken", "watch", "wrote more than 99 bytes"),
        (Outcome(code=None, problem="no such file"), "check_broken", "watch", "cannot be run: no such file"),
        (Outcome(code=2, output=b"\x7fELF\x00\xff\xfe\n"), "check_broken", "watch", "wrote no text"),
    ],
)
def test_what_the_end_of_a_check_says(outcome: Outcome, code: str, severity: str, words: str) -> None:
    (signal,) = judge_check("nccl", outcome, read_at=1)
    assert (signal.source, signal.code, signal.severity) == ("check:nccl", code, severity)
    assert words in signal.text


def test_a_check_that_is_content_is_silent() -> None:
    assert judge_check("nccl", Outcome(code=0, output=b"\xff\x00 all is well"), read_at=1) == []
