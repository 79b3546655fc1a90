"""How instants, lengths of time, GPU-time and reasons are written on a page. The browser makes instants local."""

from datetime import UTC, datetime

from tenure.domain.reasons import Number, Reason, Why
from tenure.domain.reasons_in_words import GPU, say_why
from tenure.domain.units import DAY, HOUR, MINUTE, SECOND, Millis, format_duration
from tenure.v1 import jobs_pb2

CPU = "CPU"
"""The GPU type that stands for CPUs."""


def iso(when: Millis) -> str:
    """An instant in UTC as ISO 8601 with milliseconds; empty for 0."""
    return datetime.fromtimestamp(when / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z" if when else ""


def instant(when: Millis) -> str:
    """An instant in UTC for people; a dash for 0."""
    return datetime.fromtimestamp(when / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC") if when else "–"


def age(length: Millis) -> str:
    """A length of time in its two biggest units: `3d4h`, `12m5s`, `0s`."""
    if length < MINUTE:
        return f"{max(0, length) // SECOND}s"
    for size, below in ((DAY, HOUR), (HOUR, MINUTE), (MINUTE, SECOND)):
        if length >= size:
            return format_duration(length // below * below)
    raise AssertionError("a minute or more")


def gpu_hours(gpu_ms: float) -> str:
    """GPU-time as a number of GPU-hours."""
    value = gpu_ms / HOUR
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def ahead(gpu_ms: float) -> str:
    """How far ahead of its share, or behind it."""
    if abs(gpu_ms) < HOUR / 200:
        return "even"
    return f"{gpu_hours(abs(gpu_ms))} h {'ahead' if gpu_ms > 0 else 'behind'}"


def contract(spec: jobs_pb2.JobSpec) -> str:
    """A job's contract in few words."""
    length = format_duration(spec.min_runtime_ms) if spec.min_runtime_ms else "unallocated"
    return f"{length}, resumable" if spec.resumable else length


def shape(spec: jobs_pb2.JobSpec) -> str:
    """A gang's shape: `8`, or `4 × 8` for four replicas of eight GPUs."""
    return str(spec.gpus_per_replica) if spec.replicas == 1 else f"{spec.replicas} × {spec.gpus_per_replica}"


def why(told: jobs_pb2.Why, *, gpu_type: str = "") -> str:
    """The reason as a sentence; a reason that this version does not know by its name."""
    if not told.reason:
        return ""
    try:
        reason = Reason(told.reason)
    except ValueError:
        return told.reason.replace("_", " ")
    numbers = {name: number(told.numbers[name]) for name in told.numbers}
    unit = CPU if gpu_type == CPU else GPU
    said = say_why(Why(rule=told.rule, reason=reason, numbers=numbers), unit=unit)
    begins_with_a_name = any(said.startswith(text) for text in told.numbers.values() if text)
    return said if begins_with_a_name else f"{said[:1].upper()}{said[1:]}"


def number(text: str) -> Number:
    """A number of a reason as it was before the gateway wrote it as text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
