"""The clock: how far off it is, by chrony and by the clock of the log's server."""

import re

from services.agent.signals.signal import as_text, raise_signal
from tenure.domain.severity import Severity
from tenure.domain.units import SECOND, Millis
from tenure.events.reports import HealthSignal

SOURCE = "clock"

OFF_S, FAR_S = 1.0, 10.0
"""Offsets in seconds from which on the clock is watched, and from which on heartbeats are of little use."""
_CHRONY_FIELDS = 14
_CHRONY_OFFSET, _CHRONY_LEAP = 4, 13
_DECIMAL = re.compile(r"[+-]?\d{1,12}(?:\.\d{1,12})?$")


def parse_chrony(output: bytes | str, *, read_at: Millis) -> list[HealthSignal]:
    """The signals of `chronyc -c tracking` (one line of comma-separated values) read at `read_at` (epoch ms)."""
    for line in as_text(output).splitlines():
        fields = line.strip().split(",")
        if len(fields) != _CHRONY_FIELDS or not _DECIMAL.match(fields[_CHRONY_OFFSET]):
            continue
        synchronized = fields[_CHRONY_LEAP] != "Not synchronised"
        return judge_clock(float(fields[_CHRONY_OFFSET]), synchronized=synchronized, read_at=read_at, evidence=line)
    return []


def judge_clock(
    offset_s: float | None, *, synchronized: bool, read_at: Millis, evidence: str = ""
) -> list[HealthSignal]:
    """The signals of a clock that is `offset_s` seconds off (either way; None: unknown)."""
    found = []
    if offset_s is not None and abs(offset_s) >= OFF_S:
        far = abs(offset_s) >= FAR_S
        text = f"the clock is {abs(offset_s):.1f} s off"
        severity = Severity.DRAIN if far else Severity.WATCH
        found.append(_signal("clock_off", severity, text, evidence or text, read_at))
    if not synchronized:
        text = "the clock is not synchronized with any other"
        found.append(_signal("clock_unsynchronized", Severity.WATCH, text, evidence or text, read_at))
    return found


def judge_log_clock(offset_ms: Millis | None, *, read_at: Millis) -> list[HealthSignal]:
    """The signal of a clock that is `offset_ms` ahead of the log's server (behind if negative; None: unknown)."""
    if offset_ms is None or abs(offset_ms) < OFF_S * SECOND:
        return []
    severity = Severity.DRAIN if abs(offset_ms) >= FAR_S * SECOND else Severity.WATCH
    side = "ahead of" if offset_ms > 0 else "behind"
    text = f"the clock is {abs(offset_ms) / SECOND:.1f} s {side} that of the log's server"
    return [_signal("clock_apart", severity, text, text, read_at)]


def _signal(code: str, severity: Severity, text: str, line: str, at: Millis) -> HealthSignal:
    return raise_signal(code, severity, text, source=SOURCE, at=at, device="clock", evidence=line)
