"""The kernel's log: Xid and SXid lines of NVIDIA's driver, PCIe errors, memory, disks and file systems.

Any text the kernel's messages are found in will do: /dev/kmsg, dmesg with any stamps, journalctl, syslog. Only lines
that contain one of a few words are looked at; the rest costs one search of memory for each word. Of a storm, each line
costs one look at its stamp: what is equal up to the code is counted.
"""

import re
from collections.abc import Callable
from datetime import UTC, tzinfo
from functools import partial

import msgspec

from services.agent.signals.kernel_rules import RULES
from services.agent.signals.signal import pci_id, raise_signal
from services.agent.signals.stamps import is_kernel, stamp
from services.agent.signals.storms import WINDOW_MS, gather
from services.agent.signals.sxids import describe_switch
from services.agent.signals.xids import describe
from tenure.domain.severity import Severity
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal

SOURCE = "kernel"
LINE_MAX = 2000
"""Bytes of a line that are looked at."""

_ADDRESS = rb"(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_XID = re.compile(rb"NVRM: Xid \(" + _ADDRESS + rb"\): (\d{1,6})(?!\d)(.*)")
_SXID = re.compile(rb"SXid \(" + _ADDRESS + rb"\): (\d{1,6})(?!\d)(.*)")
_LOST = b"fallen off the bus"
_LOST_AT = re.compile(rb"GPU " + _ADDRESS)
_LINKS = frozenset((b"144", b"145", b"146", b"147", b"148", b"149", b"150"))
_NOT_FATAL = re.compile(rb"non-?fatal", re.IGNORECASE)
_LOOK_BACK = 600
"""Bytes before `fallen off the bus` in which the address stands: the driver breaks that message over three lines."""
_When = Callable[[bytes], Millis | None]
_NUMBERED = (b"NVRM: Xid (", b"SXid (")
_TOKENS = tuple(dict.fromkeys([_LOST, *[token for rule in RULES for token in rule.tokens]]))


def parse_kernel_log(
    data: bytes,
    *,
    read_at: Millis,
    booted_at: Millis | None = None,
    zone: tzinfo = UTC,
    window_ms: Millis = WINDOW_MS,
    after: Millis | None = None,
) -> list[HealthSignal]:
    """The incidents in a piece of the kernel's log, by their first line.

    Lines without a stamp that can be placed are of `read_at` (epoch ms); `booted_at` is when the kernel started, `zone`
    that of stamps without one. Lines of `after` and before are left out: they were read earlier.
    """
    when = partial(stamp, booted_at=booted_at, zone=zone)
    open_sightings: dict[tuple[bytes, bytes, bytes], _Sighting] = {}
    sightings: list[_Sighting] = []
    for start, end in _lines(data):
        line = data[start : min(end, start + LINE_MAX)]
        if not is_kernel(line):
            continue
        match = _XID.search(line) or _SXID.search(line)
        if match is None and _LOST in line:
            lost = _lost(data, start, line, read_at, when)
            sightings += [_Sighting(lost)] if after is None or lost.last_at > after else []
            continue
        at = when(line) or read_at
        if after is not None and at <= after:
            continue
        if match is None:
            other = _by_rule(line, at)
            if other is not None:
                sightings.append(_Sighting(other))
            continue
        like = (match.group(1), match.group(2), _kind(match))
        known = open_sightings.get(like)
        if known is not None and 0 <= at - known.last_at <= window_ms:
            known.last_at = at
            known.count += 1
        else:
            sightings.append(_Sighting(_numbered(match, line, at)))
            open_sightings[like] = sightings[-1]
    return gather([sighting.told() for sighting in sightings], window_ms=window_ms)


class _Sighting:
    """A signal and its repetitions."""

    __slots__ = ("count", "last_at", "signal")

    def __init__(self, signal: HealthSignal) -> None:
        self.signal, self.last_at, self.count = signal, signal.last_at, 1

    def told(self) -> HealthSignal:
        if self.count == 1:
            return self.signal
        return msgspec.structs.replace(self.signal, last_at=self.last_at, count=self.count)


def _lines(data: bytes) -> list[tuple[int, int]]:
    """Where each line that may matter begins and ends, in order. Its simple form: every line that holds a token.

    The other words are looked for only between numbered lines, so that a storm of those is read once, not once a word.
    """
    found: dict[int, int] = {}
    for token in _NUMBERED:
        _find(data, token, 0, len(data), found)
    before = 0
    for start, end in [*sorted(found.items()), (len(data), len(data))]:
        if start > before:
            for token in _TOKENS:
                _find(data, token, before, start, found)
        before = max(before, end + 1)
    return sorted(found.items())


def _find(data: bytes, token: bytes, start: int, end: int, found: dict[int, int]) -> None:
    """Note the lines within [start, end) that hold `token`."""
    at = data.find(token, start, end)
    while at >= 0:
        line_end = data.find(b"\n", at)
        line_end = len(data) if line_end < 0 else line_end
        found[data.rfind(b"\n", 0, at) + 1] = line_end
        at = data.find(token, line_end, end)


def _kind(match: re.Match[bytes]) -> bytes:
    """What of an Xid's message matters for what is said of it: mostly nothing, so that a storm is counted quickly."""
    if match.re is _SXID or match.group(2) in _LINKS:
        message = match.group(3)
        return b"n" if b"on" in message and _NOT_FATAL.search(message) else b"f" if b"Fatal" in message else b""
    return match.group(3) if match.group(2) in (b"45", b"154") else b""


def _numbered(match: re.Match[bytes], line: bytes, at: Millis) -> HealthSignal:
    address, code, message = match.group(1).decode(), int(match.group(2)), match.group(3)
    of_switch = match.re is _SXID
    severity, text = describe_switch(code, message) if of_switch else describe(code, message)
    name = f"{'sxid' if of_switch else 'xid'}_{code}"
    device = pci_id(address) or address
    return raise_signal(name, severity, text, source=SOURCE, at=at, device=device, evidence=line)


def _lost(data: bytes, start: int, line: bytes, read_at: Millis, when: _When) -> HealthSignal:
    """A GPU that is gone, said without an Xid; its address, and the message's stamp, may stand two lines earlier."""
    before = data[max(0, start - _LOOK_BACK) : start]
    addresses = list(_LOST_AT.finditer(before + line))
    told = addresses[-1] if addresses else None
    device = None if told is None else pci_id(told.group(1).decode())
    first = line
    if told is not None and told.start() < len(before):
        first = before[before.rfind(b"\n", 0, told.start()) + 1 :].partition(b"\n")[0]
    at = when(first) or when(line) or read_at
    text = "the GPU has fallen off the bus"
    return raise_signal(
        "gpu_off_bus", Severity.FATAL, text, source=SOURCE, at=at, device=device or "gpu", evidence=line
    )


def _by_rule(line: bytes, at: Millis) -> HealthSignal | None:
    for rule in RULES:
        if any(token in line for token in rule.tokens) and rule.pattern.search(line) is not None:
            named = rule.names.findall(line) if rule.names is not None else []
            device = named[-1].decode("ascii", "replace") if named else rule.device
            return raise_signal(
                rule.code,
                rule.severity,
                rule.text,
                source=SOURCE,
                at=at,
                device=pci_id(device) or device,
                evidence=line,
            )
    return None
