"""Making signals: clean texts of bounded length, and device names that agree between sources."""

import re

from tenure.domain.severity import Severity
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal

TEXT_MAX, EVIDENCE_MAX = 200, 300
"""Characters of a signal's text and of its evidence."""
HOST = "host"
"""The device of signals that are about no device."""

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_PCI = re.compile(r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?")


def raise_signal(
    code: str,
    severity: Severity,
    text: str,
    *,
    source: str,
    at: Millis,
    device: str = HOST,
    evidence: str | bytes = "",
) -> HealthSignal:
    """One sighting at `at`."""
    return HealthSignal(
        device=device or HOST,
        source=source,
        code=code,
        severity=severity,
        text=clean(text, TEXT_MAX),
        evidence=clean(evidence, EVIDENCE_MAX),
        first_at=at,
        last_at=at,
    )


def clean(text: str | bytes, length: int) -> str:
    """One line of printable text, cut to `length` characters; bytes that are no UTF-8 are replaced."""
    if isinstance(text, bytes):
        text = text[: 4 * length + 64].decode("utf-8", "replace")
    line = _CONTROLS.sub(" ", text[: 2 * length + 64]).strip()
    if not line.isprintable():
        line = "".join(character if character.isprintable() else "?" for character in line)
    return line if len(line) <= length else line[: length - 1] + "…"


def as_text(data: bytes | str) -> str:
    """Output of a tool as text; what is no UTF-8 is replaced, not refused."""
    return data.decode("utf-8", "replace") if isinstance(data, bytes) else data


def pci_id(text: str) -> str | None:
    """A PCI address as sysfs writes it: `00000000:9B:00.0`, `PCI:0000:9b:00` and `0000:9b:00.0` are one."""
    match = _PCI.search(text)
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    return f"{int(domain, 16):04x}:{bus.lower()}:{device.lower()}.{function or '0'}"
