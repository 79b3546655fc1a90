"""P2 in what heartbeats tell: no more of a host that was given up as lost than the books have, in the end.

A heartbeat that was made before its host was lost is cut where the books end. One that was in the log by then, or on
its way, has told too much: the next one takes that back, with segments of as many GPUs below zero.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from services.agent.state import Key
from tenure.domain.units import Millis
from tenure.events.reports import Heartbeat, HostBeat, Segment


def key_of(held: Segment) -> Key:
    """Whose occupancy it is."""
    return Key(held.run, held.replica or 0)


def cut(beat: Heartbeat, given_up: Mapping[Key, Millis]) -> Heartbeat:
    """The heartbeat, under its id, without occupancy after the instant at which the log gave a replica up."""
    return msgspec.structs.replace(beat, hosts=tuple(_cut_host(on, given_up) for on in beat.hosts))


def _cut_host(on: HostBeat, given_up: Mapping[Key, Millis]) -> HostBeat:
    left = []
    for held in on.segments:
        end = held.until if held.gpus < 0 else min(held.until, given_up.get(key_of(held), held.until))
        if end > held.since:
            left.append(msgspec.structs.replace(held, until=end))
    return msgspec.structs.replace(on, segments=tuple(left))


def told_by(made: Iterable[Heartbeat], sent: Iterable[Heartbeat]) -> dict[Key, Millis]:
    """Up to where the log has the occupancy of each replica in heartbeats as they were made, given what was sent."""
    told: dict[Key, Millis] = {}
    for held in _segments(made):  # of which nothing may have been sent
        key = key_of(held)
        told[key] = max(told.get(key, 0), held.until) if held.gpus < 0 else told.get(key, held.since)
    for held in _segments(sent):
        key = key_of(held)
        told[key] = min(told[key], held.since) if held.gpus < 0 else max(told[key], held.until)
    return told


def _segments(beats: Iterable[Heartbeat]) -> Sequence[Segment]:
    return [held for beat in beats for on in beat.hosts for held in on.segments]
