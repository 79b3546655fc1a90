"""`nvidia-smi -q`: one block of indented `name : value` lines a GPU."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.agent.signals.gpu import GpuReading, judge, name_of
from services.agent.signals.signal import HOST, as_text, pci_id, raise_signal
from services.agent.signals.smi_failures import failures
from services.agent.signals.smi_values import differ, is_lost, is_unreadable, needs_reset, number, words, yes
from tenure.domain.severity import Severity
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal

SOURCE = "nvidia-smi"
LAST_SECTION = "Processes"
"""Every block, of every driver, has it near its end: one without it was cut off."""

_HEAD = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_ATTACHED = re.compile(r"Attached GPUs\s*:\s*(\d{1,4})\s*$")
_LINE = re.compile(r"( *)(\S.*?)(?:\s*:(?: (.*))?)?$")


@dataclass(slots=True)
class _Block:
    device: str
    values: dict[str, str] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)
    sections: set[str] = field(default_factory=set)


def parse_smi_query(output: bytes | str, *, read_at: Millis) -> list[HealthSignal]:
    """The signals of an output read at `read_at` (epoch ms).

    Nothing is concluded from what a cut-off output does not show; that it is cut off is a signal itself.
    """
    text = as_text(output)
    found = failures(text, source=SOURCE, at=read_at)
    attached, blocks = _blocks(text)
    for index, block in enumerate(blocks):
        found += judge(_reading(block, index), source=SOURCE, at=read_at)
    if (attached is not None and len(blocks) < attached) or any(LAST_SECTION not in each.sections for each in blocks):
        said = f"the output is cut off: {len(blocks)} of {attached or 'some'} GPUs begun"
        found.append(raise_signal("smi_cut_off", Severity.WATCH, said, source=SOURCE, at=read_at, device=HOST))
    return found


def _blocks(text: str) -> tuple[int | None, list[_Block]]:
    """How many GPUs the output announces, and the blocks it has. A last line without an end may be half: it is left."""
    attached: int | None = None
    blocks: list[_Block] = []
    path: list[tuple[int, str]] = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        announced = _ATTACHED.match(line)
        head = _HEAD.match(line)
        if announced is not None:
            attached = int(announced.group(1))
        elif head is not None:
            blocks.append(_Block(pci_id(head.group(1)) or head.group(1)))
            path = []
        elif blocks and line.startswith(" ") and (match := _LINE.match(line)) is not None:
            indent, name, value = len(match.group(1)), match.group(2), match.group(3)
            while path and path[-1][0] >= indent:
                path.pop()
            full = "/".join([*[above for _, above in path], name])
            path.append((indent, name))
            blocks[-1].sections.add(name)
            if value is not None:
                blocks[-1].values.setdefault(full, value.strip())
                blocks[-1].lines.setdefault(full, f"{full}: {value.strip()}")
    return attached, blocks


_REASONS = ("Clocks Event Reasons/", "Clocks Throttle Reasons/")
_VOLATILE = "ECC Errors/Volatile/"
_UNCORRECTED = (
    "SRAM Uncorrectable",
    "SRAM Uncorrectable Parity",
    "SRAM Uncorrectable SEC-DED",
    "DRAM Uncorrectable",
    "Double Bit/Total",
)
_CORRECTED = ("SRAM Correctable", "DRAM Correctable", "Single Bit/Total")


def _reading(block: _Block, index: int) -> GpuReading:
    """Blocks come in the order of the GPUs' indices."""
    values, lines = block.values, block.lines
    sources = {
        "sram_threshold_exceeded": "ECC Errors/Aggregate/SRAM Threshold Exceeded",
        "remap_pending": "Remapped Rows/Pending",
        "remap_failed": "Remapped Rows/Remapping Failure Occurred",
        "retired_pending": "Retired Pages/Pending Page Blacklist",
        "power_brake": _reason(values, "HW Power Brake Slowdown"),
        "thermal_slowdown": _reason(values, "HW Thermal Slowdown", "SW Thermal Slowdown"),
        "reset_required": _first_yes(
            values, "GPU Reset Status/Reset Required", "GPU Reset Status/Drain and Reset Recommended"
        ),
        "recovery": "GPU Recovery Action",
        "fabric_state": "Fabric/State",
        "fabric_status": "Fabric/Status",
        "mig_enabled": "MIG Mode/Current",
        "pcie_lanes": "PCI/GPU Link Info/Link Width/Current",
        "ecc_uncorrected": _largest(values, _UNCORRECTED),
        "lost": next((path for path, value in values.items() if is_lost(value)), ""),
    }
    unreadable = tuple(path.rpartition("/")[2] for path, value in values.items() if is_unreadable(value))
    resets = any(needs_reset(value) for value in values.values())
    return GpuReading(
        device=block.device,
        name=name_of(index, words(values.get("GPU UUID"))),
        lost=values.get(sources["lost"]),
        ecc_uncorrected=_sum(values, _UNCORRECTED),
        ecc_corrected=_sum(values, _CORRECTED),
        sram_threshold_exceeded=yes(values.get(sources["sram_threshold_exceeded"])),
        remap_pending=yes(values.get(sources["remap_pending"])),
        remap_failed=yes(values.get(sources["remap_failed"])),
        retired_pending=yes(values.get(sources["retired_pending"])),
        thermal_slowdown=yes(values.get(sources["thermal_slowdown"])),
        power_brake=yes(values.get(sources["power_brake"])),
        mig_enabled=yes(values.get(sources["mig_enabled"])),
        mig_changing=differ(values.get("MIG Mode/Current"), values.get("MIG Mode/Pending")),
        reset_required=resets or yes(values.get(sources["reset_required"])),
        recovery=words(values.get("GPU Recovery Action")),
        fabric_state=words(values.get("Fabric/State")),
        fabric_status=words(values.get("Fabric/Status")),
        pcie_lanes=number(values.get(sources["pcie_lanes"])),
        pcie_lanes_max=number(values.get("PCI/GPU Link Info/Link Width/Max")),
        unreadable=tuple(dict.fromkeys(unreadable)),
        lines={name: lines[path] for name, path in sources.items() if path in lines},
    )


def _reason(values: Mapping[str, str], *names: str) -> str:
    """Where in `values` one of these reasons for a slowdown is: one that is active, else the first there is."""
    paths = [path for path in values if path.startswith(_REASONS) and path.rpartition("/")[2] in names]
    return next((path for path in paths if yes(values[path])), paths[0] if paths else "")


def _first_yes(values: Mapping[str, str], *paths: str) -> str:
    return next((path for path in paths if yes(values.get(path))), paths[0])


def _sum(values: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    known = [count for count in (number(values.get(_VOLATILE + name)) for name in names) if count is not None]
    return sum(known) if known else None


def _largest(values: Mapping[str, str], names: tuple[str, ...]) -> str:
    """The line of the largest of these counts."""
    return max((_VOLATILE + name for name in names), key=lambda path: number(values.get(path)) or 0)
