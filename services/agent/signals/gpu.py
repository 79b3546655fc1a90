"""What a reading of one GPU says about its health, whichever tool it was read with: NVML, or nvidia-smi.

A tool fills in what it can tell and leaves the rest None; None raises nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from services.agent.signals.signal import raise_signal
from tenure.domain.severity import Severity
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal

CORRECTED_MANY = 10_000
"""Corrected ECC errors since the driver was loaded from which on they are worth watching."""
NO_RECOVERY = ("", "none")

UNREADABLE = ("unknown error", "[unknown error]", "err!", "[err!]", "error")
"""What nvidia-smi prints where it could not read a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One GPU at one instant. Counts are since the driver was loaded, widths in PCIe lanes."""

    device: str
    name: str = ""
    """What people know it by: its index and UUID, as far as the tool tells them."""
    lost: str | None = None
    """How the driver says that the GPU is gone."""
    ecc_uncorrected: int | None = None
    ecc_corrected: int | None = None
    sram_threshold_exceeded: bool | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    retired_pending: bool | None = None
    thermal_slowdown: bool | None = None
    power_brake: bool | None = None
    clocks_low: bool | None = None
    mig_enabled: bool | None = None
    mig_changing: bool | None = None
    reset_required: bool | None = None
    recovery: str | None = None
    fabric_state: str | None = None
    fabric_status: str | None = None
    pcie_lanes: int | None = None
    pcie_lanes_max: int | None = None
    links_down: tuple[int, ...] = ()
    link_errors: int | None = None
    unreadable: tuple[str, ...] = ()
    lines: Mapping[str, str] = field(default_factory=dict)
    """The line each field was read from, as far as the tool has lines."""


class _Condition(NamedTuple):
    code: str
    severity: Severity
    text: str
    field: str
    holds: Callable[[GpuReading], Any]


_WATCH, _DRAIN, _NOW = Severity.WATCH, Severity.DRAIN, Severity.FATAL

CONDITIONS = (
    _Condition("gpu_lost", _NOW, "the GPU is lost: {lost}", "lost", lambda gpu: gpu.lost),
    _Condition(
        "ecc_uncorrected",
        _DRAIN,
        "{ecc_uncorrected} uncorrected ECC errors since the driver was loaded",
        "ecc_uncorrected",
        lambda gpu: gpu.ecc_uncorrected,
    ),
    _Condition(
        "ecc_corrected",
        _WATCH,
        f"more than {CORRECTED_MANY} corrected ECC errors since the driver was loaded",
        "ecc_corrected",
        lambda gpu: (gpu.ecc_corrected or 0) > CORRECTED_MANY,
    ),
    _Condition(
        "sram_threshold",
        _DRAIN,
        "uncorrected SRAM errors beyond the threshold at which the GPU is to be replaced",
        "sram_threshold_exceeded",
        lambda gpu: gpu.sram_threshold_exceeded,
    ),
    _Condition(
        "row_remap_pending",
        _DRAIN,
        "a memory row waits for a reset of the GPU to be remapped",
        "remap_pending",
        lambda gpu: gpu.remap_pending,
    ),
    _Condition(
        "row_remap_failed", _DRAIN, "a memory row could not be remapped", "remap_failed", lambda gpu: gpu.remap_failed
    ),
    _Condition(
        "page_retire_pending",
        _DRAIN,
        "a memory page waits for a reset of the GPU to be retired",
        "retired_pending",
        lambda gpu: gpu.retired_pending,
    ),
    _Condition("reset_required", _DRAIN, "the GPU asks to be reset", "reset_required", lambda gpu: gpu.reset_required),
    _Condition(
        "recovery_needed",
        _DRAIN,
        "the GPU needs: {recovery}",
        "recovery",
        lambda gpu: gpu.recovery is not None and gpu.recovery.lower() not in NO_RECOVERY,
    ),
    _Condition(
        "fabric_error",
        _DRAIN,
        "joining the NVLink fabric ended with: {fabric_status}",
        "fabric_status",
        lambda gpu: gpu.fabric_status is not None and gpu.fabric_status.lower() != "success",
    ),
    _Condition(
        "fabric_not_joined",
        _WATCH,
        "the GPU has not joined the NVLink fabric: {fabric_state}",
        "fabric_state",
        lambda gpu: gpu.fabric_state is not None and gpu.fabric_state.lower() in ("not started", "in progress"),
    ),
    _Condition("thermal_slowdown", _WATCH, "slowed down by heat", "thermal_slowdown", lambda gpu: gpu.thermal_slowdown),
    _Condition("power_brake", _WATCH, "slowed down by the power brake", "power_brake", lambda gpu: gpu.power_brake),
    _Condition(
        "clocks_low", _WATCH, "busy, but its clock is low for no reason given", "clocks_low", lambda g: g.clocks_low
    ),
    _Condition(
        "pcie_narrow",
        _WATCH,
        "its PCIe link has {pcie_lanes} of {pcie_lanes_max} lanes",
        "pcie_lanes",
        lambda gpu: 0 < (gpu.pcie_lanes or 0) < (gpu.pcie_lanes_max or 0),
    ),
    _Condition(
        "nvlink_down", _WATCH, "NVLink {links_down} down while others are up", "links_down", lambda g: g.links_down
    ),
    _Condition(
        "nvlink_errors",
        _WATCH,
        "NVLink had to recover or replay: {link_errors} times",
        "link_errors",
        lambda gpu: gpu.link_errors,
    ),
    _Condition(
        "mig_enabled", _WATCH, "divided by MIG: cannot be held whole", "mig_enabled", lambda gpu: gpu.mig_enabled
    ),
    _Condition(
        "mig_changing", _WATCH, "its MIG mode waits for a reset to change", "mig_changing", lambda gpu: gpu.mig_changing
    ),
    _Condition(
        "unreadable", _WATCH, "the driver could not tell: {unreadable}", "unreadable", lambda gpu: gpu.unreadable
    ),
)
"""What is unwell about a GPU, and how grave it is: one row a code."""


def judge(gpu: GpuReading, *, source: str, at: Millis) -> list[HealthSignal]:
    """The signals of one reading, in the order of `CONDITIONS`."""
    found = [condition for condition in CONDITIONS if condition.holds(gpu)]
    return [
        raise_signal(
            condition.code,
            condition.severity,
            _words(condition, gpu),
            source=source,
            at=at,
            device=gpu.device,
            evidence=gpu.lines.get(condition.field) or f"{condition.field}={_shown(gpu, condition.field)}",
        )
        for condition in found
    ]


def _words(condition: _Condition, gpu: GpuReading) -> str:
    """The text with the reading's values; each is one placeholder of the table, never text of the reading."""
    text = condition.text
    if "{" in text:
        text = text.format_map({name: _shown(gpu, name) for name in GpuReading.__slots__})
    return f"{gpu.name}: {text}" if gpu.name else text


def name_of(index: int | None, uuid: str | None) -> str:
    """`GPU 3, GPU-1f2e...`, or what is known of it."""
    return ", ".join([*([] if index is None else [f"GPU {index}"]), *([uuid] if uuid else [])])


def _shown(gpu: GpuReading, name: str) -> str:
    value = getattr(gpu, name)
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
