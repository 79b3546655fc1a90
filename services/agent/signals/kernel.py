"""The kernel's log: Xid and SXid lines of NVIDIA's driver, PCIe errors, memory, disks and file systems.

Any text the kernel's messages are found in will do: /dev/kmsg, dmesg with any stamps, journalctl, syslog. Only lines
that contain one of a few words are looked at; the rest costs one search of memory for each word. Of a storm, each line
costs one look at its stamp: what is equal up to the code is counted.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from datetime import UTC, tzinfo
from functools import lru_cache, partial

import msgspec

from services.agent.signals.kernel_rules import RULES, Rule
from services.agent.signals.signal import pci_id, raise_signal
from services.agent.signals.stamps import is_kernel, stamp
from services.agent.signals.storms import WINDOW_MS, gather
from services.agent.signals.sxids import describe_switch
from services.agent.signals.xids import describe, variant
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
_Like = tuple[bytes, bytes, bytes] | tuple[bytes, Rule]
"""What lines share that are told as one: address, code and kind of the message, or device and rule."""
_NUMBER = b"Xid ("
_NUMBERED = (b"NVRM: Xid (", b"SXid (")
_RULE_OF_TOKEN = tuple((token, rule) for rule in RULES for token in rule.tokens)
_TOKENS = tuple(dict.fromkeys([_LOST, *[token for token, _ in _RULE_OF_TOKEN]]))


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
    open_sightings: dict[_Like, _Sighting] = {}
    sightings: list[_Sighting] = []
    for start, end in _lines(data):
        line = data[start : min(end, start + LINE_MAX)]
        if not is_kernel(line):
            continue
        match = (_XID.search(line) or _SXID.search(line)) if _NUMBER in line else None
        if match is None and _LOST in line:
            lost = _lost(data, start, line, read_at, when)
            sightings += [_Sighting(lost)] if after is None or lost.last_at > after else []
            continue
        at = when(line) or read_at
        if after is not None and at <= after:
            continue
        like = _by_rule(_message(line)) if match is None else (match.group(1), match.group(2), _kind(match))
        if like is None:
            continue
        known = open_sightings.get(like)
        if known is not None and 0 <= at - known.last_at <= window_ms:
            known.last_at = at
            known.count += 1
        else:
            told = _numbered(match, line, at) if match is not None else _of_rule(like, line, at)
            sightings.append(_Sighting(told))
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

    The other words are looked for only in what is left without the numbered lines, so that a storm of those is read
    once, not once a word.
    """
    numbered = _find(data, _NUMBERED)
    pieces: list[bytes] = []
    begins, moved_by = [0], [0]
    before = length = 0
    for start, end in [*sorted(numbered.items()), (len(data), len(data))]:
        if start > before:
            begins.append(length)
            moved_by.append(before - length)
            pieces.append(data[before:start])
            length += start - before
        before = max(before, end + 1)
    for start, end in _find(b"".join(pieces), _TOKENS).items():
        moved = moved_by[bisect_right(begins, start) - 1]
        numbered[start + moved] = end + moved
    return sorted(numbered.items())


def _find(data: bytes, tokens: Iterable[bytes]) -> dict[int, int]:
    """Where each line that holds a token begins and ends."""
    found: dict[int, int] = {}
    for token in tokens:
        _find_one(data, token, found)
    return found


def _find_one(data: bytes, token: bytes, found: dict[int, int]) -> None:
    at = data.find(token)
    while at >= 0:
        line_end = data.find(b"\n", at)
        line_end = len(data) if line_end < 0 else line_end
        found[data.rfind(b"\n", 0, at) + 1] = line_end
        at = data.find(token, line_end)


def _kind(match: re.Match[bytes]) -> bytes:
    """What of an Xid's message matters for what is said of it: mostly nothing, so that a storm is counted quickly."""
    if match.re is _SXID or match.group(2) in _LINKS:
        message = match.group(3)
        return b"n" if b"on" in message and _NOT_FATAL.search(message) else b"f" if b"Fatal" in message else b""
    return variant(match.group(2), match.group(3))


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


def _message(line: bytes) -> bytes:
    """The line without a stamp in brackets, so that a message that repeats looks the same."""
    return line.partition(b"] ")[2] if line[:1] == b"[" else line


@lru_cache(maxsize=256)
def _by_rule(message: bytes) -> _Like | None:
    """The device that the message names, empty if none, and the first rule that it matches. A flood repeats itself."""
    for token, rule in _RULE_OF_TOKEN:
        if token in message and rule.pattern.search(message) is not None:
            named = rule.names.findall(message) if rule.names is not None else []
            return (named[-1] if named else b"", rule)
    return None


def _of_rule(like: _Like, line: bytes, at: Millis) -> HealthSignal:
    rule = like[1]
    assert isinstance(rule, Rule)
    device = like[0].decode("ascii", "replace") or rule.device
    device = pci_id(device) or device
    return raise_signal(rule.code, rule.severity, rule.text, source=SOURCE, at=at, device=device, evidence=line)
