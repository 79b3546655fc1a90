"""Storms: the same thing of the same device again and again is one incident with a count, not many.

The family of a code is what it counts as: an application's fault raises Xid 13, then 43, then 45; a GPU that is gone is
said in several lines.
"""

from collections.abc import Iterable

import msgspec

from services.agent.signals.xids import APPLICATION
from tenure.domain.units import HOUR, Millis
from tenure.events.reports import HealthSignal

WINDOW_MS: Millis = HOUR
"""An event that comes again within this time after the last belongs to the same incident."""

_FAMILIES = {**{f"xid_{code}": "application" for code in APPLICATION}, "xid_79": "gpu_lost", "gpu_off_bus": "gpu_lost"}

Key = tuple[str, str, str]
"""Source, device, family."""


def key_of(signal: HealthSignal) -> Key:
    """What must be equal for two signals to be one incident."""
    return (signal.source, signal.device, _FAMILIES.get(signal.code, signal.code))


def join(before: HealthSignal, after: HealthSignal) -> HealthSignal:
    """Both as one: the graver one's words, the earlier one's where they are as grave."""
    grave = after if after.severity.rank > before.severity.rank else before
    return msgspec.structs.replace(
        grave,
        first_at=min(before.first_at, after.first_at),
        last_at=max(before.last_at, after.last_at),
        count=before.count + after.count,
        over=after.over,
    )


def gather(signals: Iterable[HealthSignal], *, window_ms: Millis = WINDOW_MS) -> list[HealthSignal]:
    """The incidents of these sightings, which are in the order of time, by their first sighting."""
    last: dict[Key, int] = {}
    incidents: list[HealthSignal] = []
    for signal in signals:
        key = key_of(signal)
        index = last.get(key)
        if index is not None and signal.first_at - incidents[index].last_at <= window_ms:
            incidents[index] = join(incidents[index], signal)
        else:
            last[key] = len(incidents)
            incidents.append(signal)
    return incidents
