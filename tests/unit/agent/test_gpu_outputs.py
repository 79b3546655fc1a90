"""What nvidia-smi, dcgmi, gpu-burn and the fabric manager print, as signals."""

from pathlib import Path

import pytest

from services.agent.signals.burn import parse_gpu_burn
from services.agent.signals.dcgm import parse_dcgm_diag, parse_dcgm_policy
from services.agent.signals.fabric import parse_fabric_log, parse_fabric_unit
from services.agent.signals.nvlink import parse_nvlink
from services.agent.signals.smi_csv import parse_smi_csv
from services.agent.signals.smi_query import parse_smi_query
from services.agent.signals.smi_table import parse_smi_table
from tenure.events.reports import HealthSignal

READ_AT = 7_000
Told = list[tuple[str, str, str]]

BLOCK = """\
GPU 00000000:{bus}:00.0
    Product Name                          : Some GPU
    Addressing Mode                       : None
    MIG Mode
        Current                           : Disabled
        Pending                           : Disabled
    GPU Reset Status
        Reset Required                    : No
        Drain and Reset Recommended       : No
    GPU Recovery Action                   : None
    PCI
        GPU Link Info
            Link Width
                Max                       : 16x
                Current                   : 16x
    Clocks Event Reasons
        Idle                              : Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Not Active
            HW Power Brake Slowdown       : Not Active
        SW Thermal Slowdown               : Not Active
    ECC Errors
        Volatile
            SRAM Correctable              : 0
            SRAM Uncorrectable            : 0
            DRAM Correctable              : N/A
            DRAM Uncorrectable            : 0
        Aggregate
            SRAM Uncorrectable            : 9
            SRAM Threshold Exceeded       : No
    Remapped Rows
        Pending                           : No
        Remapping Failure Occurred        : No
    Fabric
        State                             : Completed
        Status                            : Success
    Processes                             : None
"""
HEAD = "==============NVSMI LOG==============\n\nAttached GPUs                             : {count}\n"
WHOLE = HEAD.format(count=2) + BLOCK.format(bus="0A") + "\n" + BLOCK.format(bus="0B")


def told(signals: list[HealthSignal]) -> Told:
    assert all(signal.first_at == signal.last_at and signal.count == 1 for signal in signals)
    return [(signal.device, signal.code, signal.severity.value) for signal in signals]


def query(text: str | bytes) -> Told:
    return told(parse_smi_query(text, read_at=READ_AT))


def recorded(shared: Path, pattern: str) -> dict[str, bytes]:
    found = {path.name: path.read_bytes() for path in sorted((shared / "health").glob(pattern))}
    assert found, pattern
    return found


def test_a_healthy_query_raises_nothing() -> None:
    assert query(WHOLE) == []


@pytest.mark.parametrize(
    ("line", "instead", "expected"),
    [
        ("Pending                           : No", "Pending : Yes", ("row_remap_pending", "drain")),
        ("Remapping Failure Occurred        : No", "Remapping Failure Occurred : Yes", ("row_remap_failed", "drain")),
        ("DRAM Uncorrectable            : 0", "DRAM Uncorrectable : 2", ("ecc_uncorrected", "drain")),
        ("SRAM Threshold Exceeded       : No", "SRAM Threshold Exceeded : Yes", ("sram_threshold", "drain")),
        ("HW Thermal Slowdown           : Not Active", "HW Thermal Slowdown : Active", ("thermal_slowdown", "watch")),
        ("SW Thermal Slowdown               : Not", "SW Thermal Slowdown :", ("thermal_slowdown", "watch")),
        ("HW Power Brake Slowdown       : Not Active", "HW Power Brake Slowdown : Active", ("power_brake", "watch")),
        ("Reset Required                    : No", "Reset Required : Yes", ("reset_required", "drain")),
        ("Drain and Reset Recommended       : No", "Drain and Reset Recommended : Yes", ("reset_required", "drain")),
        ("GPU Recovery Action                   : None", "GPU Recovery Action : Reset", ("recovery_needed", "drain")),
        ("Status                            : Success", "Status : Unknown Error", ("unreadable", "watch")),
        ("Status                            : Success", "Status : Failure", ("fabric_error", "drain")),
        ("State                             : Completed", "State : In Progress", ("fabric_not_joined", "watch")),
        ("Current                   : 16x", "Current : 8x", ("pcie_narrow", "watch")),
        ("Current                           : Disabled", "Current : Enabled", ("mig_enabled", "watch")),
        ("Addressing Mode                       : None", "Addressing Mode : ERR!", ("unreadable", "watch")),
        ("Product Name                          : Some GPU", "Product Name : [GPU is lost]", ("gpu_lost", "fatal")),
        (": Some GPU", ": GPU requires reset", ("reset_required", "drain")),
    ],
)  # fmt: skip
def test_each_field_that_tells_of_trouble(line: str, instead: str, expected: tuple[str, str]) -> None:
    first, second = BLOCK.format(bus="0A"), BLOCK.format(bus="0B")
    assert first.count(line) >= 1
    changed = second.replace(line, instead)
    found = query(HEAD.format(count=2) + first + "\n" + changed)
    assert [entry for entry in found if entry[1] != "mig_changing"] == [("0000:0b:00.0", *expected)]


def test_a_gpu_is_named_by_index_and_uuid() -> None:
    first, second = (
        BLOCK.format(bus="0A"),
        BLOCK.format(bus="0B").replace("Pending                           : No", "Pending : Yes"),
    )
    second = second.replace("    Addressing Mode", "    GPU UUID : GPU-1f2e\n    Addressing Mode")
    found = parse_smi_query(HEAD.format(count=2) + first + "\n" + second, read_at=READ_AT)
    (signal,) = [each for each in found if each.code == "row_remap_pending"]
    assert signal.text == "GPU 1, GPU-1f2e: a memory row waits for a reset of the GPU to be remapped"


@pytest.mark.parametrize("value", ["N/A", "[N/A]", "Requested functionality has been deprecated", "Not Supported"])
def test_what_a_gpu_does_not_support_is_no_trouble(value: str) -> None:
    names = [line.strip() for line in BLOCK.splitlines() if " : " in line]
    text = BLOCK.format(bus="0A")
    for name in names:
        key, _, old = name.partition(" : ")
        text = text.replace(f"{key} : {old}", f"{key} : {value}")
    assert query(HEAD.format(count=1) + text + "    Processes : None\n") == []


def test_a_cut_output_says_so_and_nothing_else() -> None:
    for end in range(len(HEAD) + 40, len(WHOLE) - 90, 17):
        assert query(WHOLE[:end]) == [("host", "smi_cut_off", "watch")], WHOLE[end - 40 : end]


def test_labels_that_only_look_alike_are_not_read() -> None:
    text = WHOLE.replace("HW Power Brake Slowdown       : Not Active", "Invalid HW Power Brake Slowdown : Active")
    assert query(text) == []


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            "Unable to determine the device handle for GPU 0000:5D:00.0: GPU is lost.  Reboot the system",
            ("0000:5d:00.0", "gpu_lost", "fatal"),
        ),
        (
            "Unable to determine the device handle for GPU0000:9B:00.0: Unknown Error",
            ("0000:9b:00.0", "gpu_unreachable", "drain"),
        ),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
            ("host", "driver_down", "drain"),
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", ("host", "driver_mismatch", "drain")),
        ("No devices were found", ("host", "gpu_missing", "drain")),
    ],
)
def test_an_output_that_is_a_complaint(output: str, expected: tuple[str, str, str]) -> None:
    for parse in (parse_smi_query, parse_smi_table, parse_smi_csv, parse_nvlink):
        assert told(parse(output, read_at=READ_AT)) == [expected]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("nvidia-smi-q/h100x8_driver535.161*", [("*", "power_brake", "watch")] * 8),
        (
            "nvidia-smi-q/h100x8_driver535.183_healthy*",
            [("0000:75:00.0", "thermal_slowdown", "watch"), ("0000:75:00.0", "power_brake", "watch")],
        ),
        ("nvidia-smi-q/*TRUNCATED*", [("host", "smi_cut_off", "watch")]),
        ("nvidia-smi-q/a10*", [("0000:07:00.0", "row_remap_pending", "drain")]),
        ("nvidia-smi-q/rtx4090*", [("*", "unreadable", "watch")] * 8),
        ("nvidia-smi-q/titanv*", []),
        ("nvidia-smi-captures/h?00_*/*__q.txt", []),
        ("nvidia-smi-captures/h100-mig*/*__q.txt", [("0000:00:09.0", "mig_enabled", "watch")]),
    ],
)
def test_recorded_queries(shared: Path, pattern: str, expected: Told) -> None:
    for name, output in recorded(shared, pattern).items():
        found = query(output)
        devices = [("*" if one[0] == "*" else each[0], *each[1:]) for each, one in zip(found, expected, strict=True)]
        assert devices == expected, name


def test_recorded_tables(shared: Path) -> None:
    tables = recorded(shared, "nvidia-smi-table/*") | recorded(shared, "nvidia-smi-captures/h?00_*/load__table.txt")
    found = {name: told(parse_smi_table(output, read_at=READ_AT)) for name, output in tables.items()}
    assert found.pop("driver525_fan-ERR.txt") == [("0000:01:00.0", "unreadable", "watch")]
    assert set(map(tuple, found.values())) == {()}


TABLE = """\
|   0  Some GPU                     On  |   00000000:0A:00.0 Off |                    {ecc} |
| {fan}   30C    P0             72W /  700W |       1MiB /  81559MiB |      0%      Default |
|                                         |                        |             Disabled |
"""


def test_a_table() -> None:
    def read(**values: str) -> list[HealthSignal]:
        return parse_smi_table(TABLE.format(**values), read_at=READ_AT)

    assert read(ecc="0", fan="N/A") == read(ecc="N/A", fan="30%") == []
    assert told(read(ecc="3", fan="30%")) == [("0000:0a:00.0", "ecc_uncorrected", "drain")]
    (signal,) = read(ecc="0", fan="ERR!")
    assert (signal.code, signal.text) == ("unreadable", "the driver could not tell: Fan")


def test_a_csv() -> None:
    head = "pci.bus_id, index, remapped_rows.pending, ecc.errors.uncorrected.volatile.total, temperature.gpu [C]\n"
    rows = (
        "00000000:0A:00.0, 0, No, 0, 30 C\n00000000:0B:00.0, 1, Yes, 2, ERR!\n00000000:0C:00.0, 2, [N/A], [N/A], N/A\n"
    )
    assert told(parse_smi_csv(head + rows, read_at=READ_AT)) == [
        ("0000:0b:00.0", "ecc_uncorrected", "drain"),
        ("0000:0b:00.0", "row_remap_pending", "drain"),
        ("0000:0b:00.0", "unreadable", "watch"),
    ]


def test_retired_pages_are_those_with_an_address() -> None:
    head = "gpu_bus_id, retired_pages.address, retired_pages.cause\n"
    none = "00000000:0A:00.0, [N/A], Single Bit ECC\n00000000:0A:00.0, [N/A], Double Bit ECC\n"
    page = "00000000:0A:00.0, 0x0000000000012345, Double Bit ECC\n"
    assert parse_smi_csv(head + none, read_at=READ_AT) == []
    assert told(parse_smi_csv(head + page, read_at=READ_AT)) == [("0000:0a:00.0", "page_retired", "watch")]


def test_recorded_csvs(shared: Path) -> None:
    for path in sorted((shared / "health").glob("nvidia-smi-captures/*/*.csv")):
        found = told(parse_smi_csv(path.read_bytes(), read_at=READ_AT))
        mig = "mig" in path.parent.name and "query-gpu" in path.name
        assert found == ([("0000:00:09.0", "mig_enabled", "watch")] if mig else []), path


def test_links() -> None:
    text = "GPU 0: Some GPU (UUID: GPU-1)\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\nGPU 1: Some GPU (UUID: GPU-2)\n"
    assert told(parse_nvlink(text, read_at=READ_AT)) == [("gpu0", "nvlink_down", "watch")]
    alone = "GPU 0: Some GPU (UUID: GPU-1)\n\t Link 0: <inactive>\n\t Link 1: <inactive>\n"
    assert parse_nvlink(alone, read_at=READ_AT) == []
    counts = "GPU 3: Some GPU (UUID: GPU-1)\n\t Link 0: Replay Errors: 0\n\t Link 0: Recovery Errors: 4\n"
    assert told(parse_nvlink(counts, read_at=READ_AT)) == [("gpu3", "nvlink_errors", "watch")]


def test_recorded_links_are_fine_or_no_links(shared: Path) -> None:
    files = recorded(shared, "fabric/nvlink-status*") | recorded(shared, "nvidia-smi-captures/*/*nvlink-s.txt")
    assert all(parse_nvlink(output, read_at=READ_AT) == [] for output in files.values())


DIAGNOSIS = """\
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Deployment  --------+------------------------------------------------|
| Persistence Mode          | Fail                                           |
| Error                     | Persistence mode is off on this machi          |
|                           | ne.                                            |
+-----  Hardware  ----------+------------------------------------------------+
| GPU Memory                | Fail - GPUs: 1, 3                              |
| memory                    | Fail                                           |
|                           | GPU0: Pass                                     |
|                           | GPU2: Fail                                     |
| Warning                   | GPU2 gave wrong answers                        |
| Diagnostic                | Skip                                           |
+-----  Integration  -------+------------------------------------------------+
| PCIe                      | Pass - All                                     |
"""


def test_a_diagnosis_names_test_and_gpu() -> None:
    found = parse_dcgm_diag(DIAGNOSIS, read_at=READ_AT)
    assert told(found) == [
        ("host", "dcgm_persistence_mode", "watch"),
        ("gpu1", "dcgm_gpu_memory", "drain"),
        ("gpu3", "dcgm_gpu_memory", "drain"),
        ("gpu2", "dcgm_memory", "drain"),
    ]
    assert "Persistence mode is off on this machine." in found[0].text


def test_recorded_diagnoses(shared: Path) -> None:
    files = recorded(shared, "dcgmi/diag*")
    found = {name: told(parse_dcgm_diag(output, read_at=READ_AT)) for name, output in files.items()}
    assert found.pop("diag-r1_dcgm3.1_persistence-FAIL.txt") == [("host", "dcgm_persistence_mode", "watch")]
    assert len(found) == 2
    assert not any(found.values())


def test_policy_violations() -> None:
    text = "A double-bit ECC error has violated policy manager values.\nCount: 1\n"
    assert told(parse_dcgm_policy(text, read_at=READ_AT)) == [("host", "dcgm_policy_double_bit_ecc", "drain")]
    assert parse_dcgm_policy("PCIe replay count: 9\n", read_at=READ_AT) == []


def test_recorded_policy_violation_and_burn(shared: Path) -> None:
    (output,) = recorded(shared, "dcgmi/policy*").values()
    assert told(parse_dcgm_policy(output, read_at=READ_AT)) == [("host", "dcgm_policy_pcie_replay", "watch")]
    (output,) = recorded(shared, "gpu-burn*").values()
    assert parse_gpu_burn(output, read_at=READ_AT) == []


def test_gpu_burn() -> None:
    assert told(parse_gpu_burn("\tGPU 0: OK\n\tGPU 1: FAULTY\n", read_at=READ_AT)) == [
        ("gpu1", "gpu_burn_faulty", "drain")
    ]


def test_the_fabric_managers_log() -> None:
    line = (
        "[Jan 01 1970 00:00:0{}] [ERROR] [tid 1] detected NVSwitch {} error {} on fid 0 on NVSwitch "
        "pci bus id 00000000:86:00.0 physical id 3 port 61\n"
    )
    text = line.format(2, "non-fatal", 12028) + line.format(4, "fatal", 20034) + line.format(5, "fatal", 20034)
    found = parse_fabric_log(text, read_at=READ_AT)
    assert [(each.device, each.code, each.severity, each.count, each.first_at) for each in found] == [
        ("0000:86:00.0", "sxid_12028", "watch", 1, 2000),
        ("0000:86:00.0", "sxid_20034", "drain", 2, 4000),
    ]


def test_the_recorded_log_of_a_fabric_manager(shared: Path) -> None:
    (output,) = recorded(shared, "fabric/fabricmanager.log").values()
    assert told(parse_fabric_log(output, read_at=READ_AT)) == [("0000:86:00.0", "sxid_12028", "watch")]


@pytest.mark.parametrize(
    ("load", "active", "expected"),
    [
        ("loaded", "active", []),
        ("loaded", "activating", []),
        ("loaded", "failed", [("fabric", "fabric_down", "drain")]),
        ("not-found", "inactive", []),
    ],
)
def test_the_fabric_managers_service(load: str, active: str, expected: Told) -> None:
    assert told(parse_fabric_unit(f"LoadState={load}\nActiveState={active}\n", read_at=READ_AT)) == expected
