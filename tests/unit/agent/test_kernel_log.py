"""The kernel's log as signals: the forms of its lines, storms, and what must raise nothing."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent.signals.kernel import parse_kernel_log
from services.agent.signals.xids import XIDS
from tenure.domain.severity import Severity
from tenure.domain.units import HOUR, SECOND
from tenure.events.reports import HealthSignal

READ_AT, BOOTED_AT = 5_000_000, 1_000_000


def parse(text: str | bytes) -> list[HealthSignal]:
    data = text.encode() if isinstance(text, str) else text
    return parse_kernel_log(data, read_at=READ_AT, booted_at=BOOTED_AT)


def told(text: str | bytes) -> list[tuple[str, str, str, int]]:
    return [(signal.device, signal.code, signal.severity.value, signal.count) for signal in parse(text)]


def recorded(shared: Path, name: str) -> bytes:
    return (shared / "health" / "kernel" / name).read_bytes()


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("4,17,2500000,-;NVRM: Xid (PCI:0000:0a:00): 48, pid=7, x", BOOTED_AT + 2500),
        ("[    2.500000] NVRM: Xid (PCI:0000:0a:00): 48, pid=7, x", BOOTED_AT + 2500),
        ("[Thu Jan  1 00:01:00 1970] NVRM: Xid (PCI:0000:0a:00): 48, pid=7, x", 60 * SECOND),
        ("kern  :warn  : 1970-01-01T00:01:00,250000+00:00 NVRM: Xid (PCI:0000:0a:00): 48, pid=7, x", 60_250),
        ("1970-01-01T02:01:00.250000+02:00 h kernel: NVRM: Xid (PCI:0000:0a:00): 48, pid=7, x", 60_250),
        ("Okt 06 17:59:27 h kernel: NVRM: Xid (PCI:0000:0a:00): 48, pid=7, x", READ_AT),
    ],
)
def test_every_form_of_a_line_is_read_at_its_instant(line: str, at: int) -> None:
    (signal,) = parse(line)
    assert (signal.device, signal.code, signal.severity) == ("0000:0a:00.0", "xid_48", Severity.DRAIN)
    assert (signal.first_at, signal.last_at) == (at, at)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Xid (PCI:0000:0a:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", "fatal"),
        ("Xid (PCI:0000:0a:00): 13, pid=1, name=ray::Worker, Graphics Exception", "watch"),
        ("Xid (PCI:0000:0a:00): 149, NETIR Fatal XC0 i0 Link -1 (0x0000", "drain"),
        ("Xid (PCI:0000:0a:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 03", "watch"),
        ("Xid (PCI:0000:0a:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "watch"),
        ("Xid (PCI:0000:0a:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)", "drain"),
        ("Xid (0000:0a:00): 45, Ch 1 caused by previous Xid 149", "watch"),
        ("Xid (PCI:0000:0a:00): 999, new", "watch"),
        ("Xid (PCI:0000:0a:00): 69", "watch"),
    ],
)
def test_the_message_and_the_catalogue_say_how_grave_an_xid_is(message: str, expected: str) -> None:
    (signal,) = parse(f"NVRM: {message}")
    assert signal.severity == expected


def test_a_switch_error_is_as_fatal_as_its_line_says() -> None:
    fatal = "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
    mild = "nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 22013, Non-fatal, Link 57 Minion Link DLREQ interrupt"
    assert told(f"{fatal}\n{mild}") == [
        ("0000:05:00.0", "sxid_20034", "drain", 1),
        ("0000:06:00.0", "sxid_22013", "watch", 1),
    ]


def test_a_gpu_lost_without_an_xid_is_found_over_three_lines() -> None:
    log = (
        "[ 2.000000] NVRM: The NVIDIA GPU 0000:B3:00.0\n"
        "            NVRM: (PCI ID: 10de:1111) installed in this system has\n"
        "            NVRM: fallen off the bus and is not responding to commands.\n"
    )
    (signal,) = parse(log)
    assert (signal.device, signal.code, signal.severity) == ("0000:b3:00.0", "gpu_off_bus", Severity.FATAL)
    assert signal.first_at == BOOTED_AT + 2 * SECOND


def test_a_storm_is_one_incident_and_a_later_one_another() -> None:
    def line(second: int, code: int) -> str:
        return f"[{second:5}.000000] NVRM: Xid (PCI:0000:0a:00): {code}, pid=1, name=x, y"

    late = 300 + 2 * HOUR // SECOND
    log = "\n".join([*(line(second, 13) for second in range(300)), line(300, 43), line(late, 13)])
    first, second = parse(log)
    assert (first.code, first.count, first.first_at, first.last_at) == ("xid_13", 301, BOOTED_AT, BOOTED_AT + 300_000)
    assert (second.count, second.first_at) == (1, BOOTED_AT + late * SECOND)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0",
            ("0000:01:00.0", "pcie_corrected", "watch"),
        ),
        (
            "nvme 0000:01:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=x",
            ("0000:01:00.0", "pcie_uncorrected", "drain"),
        ),
        ("Out of memory: Killed process 9 (python)", ("memory", "oom_kill", "watch")),
        ("Memory cgroup out of memory: Killed process 9 (python)", ("memory", "oom_kill_cgroup", "watch")),
        ("EXT4-fs (nvme0n1p2): Remounting filesystem read-only", ("nvme0n1p2", "fs_read_only", "drain")),
        ("blk_update_request: I/O error, dev sdb, sector 12 op 0x0", ("sdb", "disk_error", "watch")),
    ],
)
def test_other_faults_name_their_device(line: str, expected: tuple[str, str, str]) -> None:
    assert told(line) == [(*expected, 1)]


def test_only_the_kernel_is_believed() -> None:
    assert told("user  :warn  : 1970-01-01T00:01:00,0+00:00 NVRM: Xid (PCI:0000:0a:00): 79, mine") == []
    assert told("12,1,5,-;NVRM: Xid (PCI:0000:0a:00): 79, mine") == []


def test_evidence_is_one_printable_line_and_bounded() -> None:
    (signal,) = parse(b"NVRM: Xid (PCI:0000:0a:00): 79, \xff\x1b[31m\x00" + b"x" * 100_000)
    assert len(signal.evidence) <= 300
    assert signal.evidence.isprintable()


def test_the_catalogue_names_every_action() -> None:
    assert XIDS[79].severity is Severity.FATAL
    assert all(row.meaning and row.action for row in XIDS.values())


@given(
    st.binary(max_size=300), st.sampled_from([b"NVRM: Xid (PCI:0000:0a:00): ", b"SXid (PCI:0000:0a:00.0): ", b"AER: "])
)
def test_no_bytes_raise(noise: bytes, token: bytes) -> None:
    parse(noise + token + noise)


LINES = (
    "[    2.500000] NVRM: Xid (PCI:0000:0a:00): 31, pid=7, x",
    "[    2.500000] NVRM: Xid (PCI:0000:0a:00): 45, pid=7, Ch 1 caused by previous Xid 149",
    "[    2.600000] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
    "[    2.700000] pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0",
    "[    2.700000] usb 1-1: new high-speed USB device number 3",
    "4,17,2500000,-;EXT4-fs (nvme0n1p2): Remounting filesystem read-only",
    "blk_update_request: I/O error, dev sdb, sector 12 op 0x0",
    "",
)


@given(st.lists(st.sampled_from(LINES), max_size=30))
def test_a_log_says_what_its_lines_say_one_by_one(lines: list[str]) -> None:
    together = Counter({(device, code): count for device, code, _, count in told("\n".join(lines))})
    apart = Counter((device, code) for line in lines for device, code, _, _ in told(line))
    assert together.total() == apart.total()
    assert {device for device, _ in together} == {device for device, _ in apart}
    assert {code for _, code in together} <= {code for _, code in apart}


@given(st.integers(0, 170))
def test_no_cut_log_raises(length: int) -> None:
    log = (
        b"[ 9.5] NVRM: The NVIDIA GPU 0000:b3:00.0\n NVRM: fallen off the bus\n"
        b"6,1,99,-;NVRM: Xid (PCI:0000:0a:00): 154, changed from 0x0 (None) to 0x1 (GPU Reset Required)"
    )
    parse(log[:length])


@pytest.mark.parametrize("name", ["dmesg_decode-iso_h100-node_boot_gpu-lines.log", "kmsg_raw.log"])
def test_recorded_healthy_hosts_raise_nothing(shared: Path, name: str) -> None:
    assert parse(recorded(shared, name)) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dmesg_decode-iso_h100_xid13-storm_xid43.log", [("0000:38:00.0", "xid_13", "watch", 636)]),
        ("dmesg_T_xid119_gsp-timeout.log", [("0000:9b:00.0", "xid_119", "drain", 6)]),
        (
            "dmesg_decode-iso_oom.log",
            [
                ("0000:38:00.0", "xid_13", "watch", 17),
                ("memory", "oom_kill", "watch", 5),
                ("memory", "oom_kill_cgroup", "watch", 2),
            ],
        ),
        (
            "xid_lines_from_issue_threads.log",
            [
                ("0000:b3:00.0", "gpu_off_bus", "fatal", 1),
                ("gpu", "gpu_probe_failed", "drain", 1),
                ("0000:dc:00.0", "xid_45", "watch", 1),
                ("0000:ed:00.0", "xid_45", "watch", 1),
                ("0000:ba:00.0", "xid_45", "watch", 1),
                ("0000:97:00.0", "xid_45", "watch", 1),
                ("0000:00:06.0", "xid_31", "watch", 1),
                ("0000:01:00.0", "xid_79", "fatal", 2),
            ],
        ),
    ],
)
def test_recorded_faults_are_told(shared: Path, name: str, expected: list[tuple[str, str, str, int]]) -> None:
    assert told(recorded(shared, name)) == expected


def test_every_recorded_message_is_understood(shared: Path) -> None:
    for line in recorded(shared, "xid_sxid_message_strings.txt").splitlines():
        assert len(parse(line)) == 1, line
