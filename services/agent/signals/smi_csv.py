"""`nvidia-smi --query-gpu=... --format=csv` and `--query-retired-pages`: a header of names, a row a GPU or page."""

import csv
import io
from collections.abc import Mapping

from services.agent.signals.gpu import GpuReading, judge
from services.agent.signals.signal import HOST, as_text, pci_id, raise_signal
from services.agent.signals.smi_failures import failures
from services.agent.signals.smi_values import differ, is_lost, is_unreadable, needs_reset, number, words, yes
from tenure.domain.severity import Severity
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal

SOURCE = "nvidia-smi"
_REASONS = ("clocks_event_reasons.", "clocks_throttle_reasons.")


def parse_smi_csv(output: bytes | str, *, read_at: Millis) -> list[HealthSignal]:
    """The signals of an output read at `read_at` (epoch ms). Columns that were not asked for raise nothing."""
    text = as_text(output)
    found = failures(text, source=SOURCE, at=read_at)
    for row in _rows(text):
        if "retired_pages.address" in row:
            found += _retired(row, read_at)
        else:
            found += judge(_reading(row), source=SOURCE, at=read_at)
    return found


def _rows(text: str) -> list[dict[str, str]]:
    """The complete rows by column; names without their units. A last line without an end may be half: it is left."""
    whole = text[: text.rfind("\n") + 1].replace("\0", "")
    try:
        lines = [line for line in csv.reader(io.StringIO(whole), skipinitialspace=True) if line]
    except csv.Error:
        return []
    if not lines or not any("." in name or name == "uuid" for name in lines[0]):
        return []
    names = [name.partition(" [")[0].strip() for name in lines[0]]
    return [dict(zip(names, line, strict=True)) for line in lines[1:] if len(line) == len(names)]


def _device(row: Mapping[str, str]) -> str:
    address = pci_id(row.get("pci.bus_id") or row.get("gpu_bus_id") or "")
    index = number(row.get("index"))
    return address or (HOST if index is None else f"gpu{index}")


def _retired(row: Mapping[str, str], at: Millis) -> list[HealthSignal]:
    """A page, if the row is one: without any, there is a row for each cause with no address in it."""
    address = words(row["retired_pages.address"])
    if address is None:
        return []
    text = f"a memory page was retired: {words(row.get('retired_pages.cause')) or 'no cause given'}"
    return [
        raise_signal(
            "page_retired",
            Severity.WATCH,
            text,
            source=SOURCE,
            at=at,
            device=_device(row),
            evidence=", ".join(row.values()),
        )
    ]


def _reading(row: Mapping[str, str]) -> GpuReading:
    fields = {
        "ecc_uncorrected": "ecc.errors.uncorrected.volatile.total",
        "ecc_corrected": "ecc.errors.corrected.volatile.total",
        "sram_threshold_exceeded": "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded",
        "remap_pending": "remapped_rows.pending",
        "remap_failed": "remapped_rows.failure",
        "retired_pending": "retired_pages.pending",
        "mig_enabled": "mig.mode.current",
        "recovery": "gpu_recovery_action",
        "fabric_state": "fabric.state",
        "fabric_status": "fabric.status",
        "pcie_lanes": "pcie.link.width.current",
    }
    unreadable = tuple(name for name, value in row.items() if is_unreadable(value))
    return GpuReading(
        device=_device(row),
        lost=next((value for value in row.values() if is_lost(value)), None),
        ecc_uncorrected=number(row.get(fields["ecc_uncorrected"])),
        ecc_corrected=number(row.get(fields["ecc_corrected"])),
        sram_threshold_exceeded=yes(row.get(fields["sram_threshold_exceeded"])),
        remap_pending=yes(row.get(fields["remap_pending"])),
        remap_failed=yes(row.get(fields["remap_failed"])),
        retired_pending=yes(row.get(fields["retired_pending"])),
        thermal_slowdown=_active(row, "hw_thermal_slowdown", "sw_thermal_slowdown"),
        power_brake=_active(row, "hw_power_brake_slowdown"),
        mig_enabled=yes(row.get(fields["mig_enabled"])),
        mig_changing=differ(row.get("mig.mode.current"), row.get("mig.mode.pending")),
        reset_required=any(needs_reset(value) for value in row.values()) or None,
        recovery=words(row.get(fields["recovery"])),
        fabric_state=words(row.get(fields["fabric_state"])),
        fabric_status=words(row.get(fields["fabric_status"])),
        pcie_lanes=number(row.get(fields["pcie_lanes"])),
        pcie_lanes_max=number(row.get("pcie.link.width.max")),
        unreadable=unreadable,
        lines={name: f"{column}: {row[column]}" for name, column in fields.items() if column in row},
    )


def _active(row: Mapping[str, str], *reasons: str) -> bool | None:
    told = [yes(row.get(group + reason)) for group in _REASONS for reason in reasons]
    known = [value for value in told if value is not None]
    return any(known) if known else None
