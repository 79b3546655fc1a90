"""How instants, lengths of time, GPU-time and reasons are written for people."""

import time
from collections.abc import Mapping

from tenure.domain.units import DAY, HOUR, MINUTE, SECOND, Millis, format_duration

_INSTANT_MIN = 10**12
"""Numbers of a reason from here on (September 2001 in epoch milliseconds) can only be instants."""
_ROOM = "asked {gpus_asked}, {gpus_free} free on {hosts_with_gpus_free} hosts, largest hole {largest_hole}"
_FAMILIES = ("start", "disrupt", "keep", "stop", "defer", "requeue", "reject", "charge", "host", "end")


def now_ms() -> Millis:
    """This machine's clock, for ages on the screen."""
    return time.time_ns() // 1_000_000


def clock(when: Millis, *, now: Millis) -> str:
    """An instant in local time: the time alone within half a day of `now`, else with the date. 0 is a dash."""
    if not when:
        return "-"
    shape = "%H:%M:%S" if abs(now - when) < 12 * HOUR else "%Y-%m-%d %H:%M"
    return time.strftime(shape, time.localtime(when / 1000))


def instant(when: Millis, *, now: Millis) -> str:
    """An instant in local time and how far away it is: `16:23:20 (in 2h10m)`. 0 is a dash."""
    return f"{clock(when, now=now)} (in {age(when - now)})" if when > now else clock(when, now=now)


def exact_clock(when: Millis) -> str:
    """An instant in local time to the millisecond."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when // 1000)) + f".{when % 1000:03d}"


def iso(when: Millis) -> str | None:
    """An instant in UTC as ISO 8601 with milliseconds; None for 0 (it has not happened)."""
    if not when:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when // 1000)) + f".{when % 1000:03d}Z"


def age(length: Millis) -> str:
    """A length of time in its two biggest units: `3d4h`, `12m5s`, `0s`."""
    if length < MINUTE:
        return f"{max(0, length) // SECOND}s"
    for size in (DAY, HOUR, MINUTE):
        if length >= size:
            below = {DAY: HOUR, HOUR: MINUTE, MINUTE: SECOND}[size]
            return format_duration(length // below * below)
    raise AssertionError("a minute or more")


def hours(gpu_ms: int) -> str:
    """GPU-time in GPU-hours."""
    value = gpu_ms / HOUR
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def ahead(gpu_ms: int) -> str:
    """How far a budget is ahead of its share, or behind it: what stands beside every ratio."""
    return f"{hours(abs(gpu_ms))} h {'behind' if gpu_ms < 0 else 'ahead'}"


def gpu_time(gpu_ms: int) -> str:
    """GPU-time in the unit that suits it."""
    for unit, size in (("GPU-h", HOUR), ("GPU-min", MINUTE)):
        if abs(gpu_ms) >= size:
            value = gpu_ms / size
            return f"{value:,.0f} {unit}" if abs(value) >= 1000 else f"{value:.1f} {unit}"
    return f"{gpu_ms / SECOND:.1f} GPU-s"


def percent(fraction: float) -> str:
    """A fraction as a percentage."""
    return f"{fraction * 100:.1f}%"


def contract(*, min_runtime_ms: Millis, resumable: bool) -> str:
    """A job's contract in few words."""
    length = format_duration(min_runtime_ms) if min_runtime_ms else "unallocated"
    return f"{length} resumable" if resumable else length


def gang(*, replicas: int, gpus_per_replica: int) -> str:
    """A gang's shape: `8`, or `4x8` for four replicas of eight GPUs."""
    return str(gpus_per_replica) if replicas == 1 else f"{replicas}x{gpus_per_replica}"


def reason(name: str) -> str:
    """A reason without its family and underscores: `defer_no_room` is `no room`."""
    family, _, rest = name.partition("_")
    return (rest if family in _FAMILIES and rest else name).replace("_", " ")


def room(values: Mapping[str, str]) -> str:
    """What a job that waits for room asked for and what is free; empty where the numbers do not say."""
    if values.get("gpus_free") == "0" and "gpus_asked" in values:
        return f"asked {values['gpus_asked']}, none free"
    try:
        return _ROOM.format_map(dict(values))  # a map of a message invents what it does not hold
    except KeyError:
        return ""


def numbers(values: Mapping[str, str]) -> str:
    """The numbers a decision compared, each with its unit made readable."""
    return ", ".join(f"{name} {_number(name, values[name])}" for name in sorted(values))


def _number(name: str, text: str) -> str:
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit():
        value = int(text)
        if name.endswith("gpu_ms"):
            return gpu_time(value)
        if value >= _INSTANT_MIN:
            return clock(value, now=now_ms())
        if name.endswith("_ms"):
            return format_duration(value)
    return text
