"""NVIDIA's fabric manager: what systemd says of it, and what it writes into its log."""

import re
from datetime import UTC, tzinfo

from services.agent.signals.signal import as_text, pci_id, raise_signal
from services.agent.signals.stamps import parse_classic
from services.agent.signals.storms import gather
from services.agent.signals.sxids import describe_switch
from tenure.domain.severity import Severity
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal

SOURCE, UNIT_SOURCE = "fabric", "fabric-manager"
"""Of what its log tells, and of the state its service is in."""

_LINE = re.compile(r"\[(\w{3} \d\d \d{4} \d\d:\d\d:\d\d)\] \[(\w+)\] (?:\[tid \d+\] )?(.*)")
_LAYOUT = "%b %d %Y %H:%M:%S"
_SWITCH = re.compile(r"detected NVSwitch ((?:non-)?fatal) error (\d{1,6})\b")
_GRAVE = ("ERROR", "CRITICAL", "FATAL")


def parse_fabric_log(output: bytes | str, *, read_at: Millis, zone: tzinfo = UTC) -> list[HealthSignal]:
    """The errors in a piece of fabricmanager.log. Its stamps are local time: `zone`."""
    found = []
    for line in as_text(output).splitlines():
        match = _LINE.match(line)
        if match is None or match.group(2) not in _GRAVE:
            continue
        at = parse_classic(match.group(1), zone=zone, layout=_LAYOUT) or read_at
        message = match.group(3)
        switch = _SWITCH.search(message)
        device = pci_id(message) or "fabric"
        if switch is None:
            code, severity, text = "fabric_log_error", Severity.WATCH, f"the fabric manager reports: {message}"
        else:
            code = f"sxid_{int(switch.group(2))}"
            severity, text = describe_switch(int(switch.group(2)), switch.group(1).encode())
        found.append(raise_signal(code, severity, text, source=SOURCE, at=at, device=device, evidence=line))
    return gather(sorted(found, key=lambda signal: signal.first_at))


def parse_fabric_unit(output: bytes | str, *, read_at: Millis) -> list[HealthSignal]:
    """The state of the service as `systemctl show nvidia-fabricmanager` prints it; nothing if not installed."""
    values = dict(line.split("=", 1) for line in as_text(output).splitlines() if "=" in line)
    state = values.get("ActiveState")
    if values.get("LoadState") != "loaded" or values.get("UnitFileState", "enabled") in ("disabled", "masked"):
        return []
    if state not in ("failed", "inactive"):
        return []
    text = f"the fabric manager is {state}: GPUs cannot use NVLink"
    told = " ".join(f"{name}={value}" for name, value in values.items())
    return [
        raise_signal(
            "fabric_down", Severity.DRAIN, text, source=UNIT_SOURCE, at=read_at, device="fabric", evidence=told
        )
    ]
