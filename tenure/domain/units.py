"""Time and GPU-time. Instants are epoch milliseconds, GPU-time is GPU-milliseconds, both integers."""

import re

from tenure.domain.refusal import Refusal

Millis = int
"""An instant (milliseconds since the Unix epoch) or a length of time in milliseconds."""
GpuMillis = int
"""GPU-time: GPUs times milliseconds."""

SECOND: Millis = 1_000
MINUTE: Millis = 60 * SECOND
HOUR: Millis = 60 * MINUTE
DAY: Millis = 24 * HOUR

_UNITS = {"ms": 1, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY}
_DURATION = re.compile(r"(\d{1,15})(?:\.(\d{1,9}))?(ms|s|m|h|d)?")
_LONGEST: Millis = 10_000 * DAY
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,9})?) ?(?:([KMGT])(?:i?B)?|B)", re.IGNORECASE | re.ASCII)
_POWERS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def parse_duration(text: str, *, field: str) -> Millis:
    """Milliseconds of `90s`, `15m`, `8h`, `7d`, `1h30m` or `0`. Raises `Refusal` naming `field`."""
    fix = "write a duration such as 90s, 15m, 8h or 7d"
    stripped = text.strip()
    if stripped == "0":
        return 0
    total, end = 0, 0
    for match in _DURATION.finditer(stripped):
        whole, fraction, unit = match.groups()
        if match.start() != end or unit is None:
            break
        end = match.end()
        total += int(whole) * _UNITS[unit]
        if fraction:
            total += int(fraction) * _UNITS[unit] // 10 ** len(fraction)
    if not stripped or end != len(stripped):
        raise Refusal(field=field, problem=f"{text[:40]!r} is not a duration", fix=fix)
    if total > _LONGEST:
        raise Refusal(field=field, problem=f"{text[:40]!r} is longer than 10000d", fix=fix)
    return total


def format_duration(length_ms: Millis) -> str:
    """The shortest exact way to write a length of time: `15m`, `1h30m`, `1.5s`, `0s`."""
    if length_ms < 0:
        return "-" + format_duration(-length_ms)
    parts: list[str] = []
    rest = length_ms
    for unit, size in (("d", DAY), ("h", HOUR), ("m", MINUTE)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    if rest or not parts:
        parts.append(f"{rest / SECOND:.3f}".rstrip("0").rstrip(".") + "s")
    return "".join(parts)


def parse_size(text: str, *, field: str) -> int:
    """Bytes of `120G`, `512MiB`, `1.5GiB`: powers of 1024; 0 of nothing. Raises `Refusal` naming `field`."""
    stripped = text.strip()
    if not stripped:
        return 0
    found = _SIZE.fullmatch(stripped)
    size = 0 if found is None else int(float(found[1]) * (1 << _POWERS[(found[2] or "").upper()]))
    if not size:
        raise Refusal(
            field=field, problem=f"{text[:40]!r} is no size", fix="write a number and K, M, G or T: 120G, or 512MiB"
        )
    return size


def gpu_hours(gpu_ms: GpuMillis) -> float:
    """GPU-hours, for people; decisions keep to integer GPU-milliseconds."""
    return gpu_ms / HOUR
