"""What nvidia-smi prints when it cannot do its work at all."""

import re

from services.agent.signals.signal import HOST, pci_id, raise_signal
from tenure.domain.severity import Severity
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal

_DRAIN, _NOW = Severity.DRAIN, Severity.FATAL
_FAILURES = (
    (re.compile(r"Unable to determine the device handle for GPU.*GPU is lost"), "gpu_lost", _NOW, "the GPU is lost"),
    (
        re.compile(r"Unable to determine the device handle for GPU"),
        "gpu_unreachable",
        _DRAIN,
        "the driver cannot reach the GPU",
    ),
    (
        re.compile(r"couldn't communicate with the NVIDIA driver"),
        "driver_down",
        _DRAIN,
        "the NVIDIA driver does not answer",
    ),
    (
        re.compile(r"Failed to initialize NVML: Driver/library version mismatch"),
        "driver_mismatch",
        _DRAIN,
        "the NVIDIA driver and its library are of different versions",
    ),
    (re.compile(r"Failed to initialize NVML"), "driver_down", _DRAIN, "the NVIDIA driver does not answer"),
    (re.compile(r"^No devices were found", re.MULTILINE), "gpu_missing", _DRAIN, "the driver finds no GPU"),
)
_LINES_MAX = 200


def failures(text: str, *, source: str, at: Millis) -> list[HealthSignal]:
    """The complaints in an output of nvidia-smi, one a GPU or one for all."""
    found: list[HealthSignal] = []
    for line in text.splitlines()[:_LINES_MAX]:
        for pattern, code, severity, says in _FAILURES:
            if pattern.search(line):
                device = pci_id(line) or HOST
                found.append(raise_signal(code, severity, says, source=source, at=at, device=device, evidence=line))
                break
    return found
