"""Heartbeats: what the hosts hold, and occupancy that was not reported before, written to disk before it is sent.

A heartbeat that was sent but never acknowledged is sent again as it was, under the same ids, also by the agent's
successor: the log keeps it once, so no GPU-millisecond is counted twice and none is lost.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from services.agent.state import Key, Replica, State
from tenure.domain.host import HostSpec
from tenure.domain.ids import FactId, HostId, Position, RunId
from tenure.domain.units import HOUR, Millis
from tenure.events.reports import Heartbeat, HostBeat, Segment

SEGMENTS_MAX = 2_000
"""Segments in one fact: keeps it well below the log's limit for one message."""

Busy = Callable[[Replica], int | None]
"""Mean utilisation of a replica's GPUs in thousandths, or None where it cannot be measured."""


class Spool(msgspec.Struct, frozen=True, kw_only=True):
    """The last heartbeats that were made. `before` is a position of the log that lies before them."""

    before: Position
    beats: tuple[Heartbeat, ...]
    occupied_until: dict[str, Millis]
    """By replica (`<run>/<number>`): its occupancy is reported up to here once the beats are in the log."""


def make_beats(
    state: State, now: Millis, *, agent: str, busy: Busy, gpus_working: Callable[[HostSpec], int]
) -> tuple[tuple[Heartbeat, ...], dict[Key, Millis]]:
    """The heartbeats of `now` and how far they report each replica's occupancy."""
    runs: dict[HostId, dict[RunId, None]] = {}
    segments: dict[HostId, list[Segment]] = {}
    until: dict[Key, Millis] = {}
    for key in sorted(state.replicas):
        replica = state.replicas[key]
        if replica.exit is None:
            runs.setdefault(replica.host, {})[key.run] = None
        fresh = list(_segments(replica, now, busy))
        if fresh:
            until[key] = fresh[-1].until if replica.told_too_much is None else replica.told_too_much
            segments.setdefault(replica.host, []).extend(fresh)
    beats = [
        HostBeat(
            host=spec.host,
            gpus=gpus_working(spec),
            runs=tuple(runs.get(spec.host, ())),
            segments=tuple(segments.get(spec.host, ())),
        )
        for spec in state.hosts
    ]
    facts = [
        Heartbeat(at=now, id=FactId(f"{agent}-beat-{now}-{number}"), agent=agent, hosts=hosts, machine=state.machine)
        for number, hosts in enumerate(_parts(beats))
    ]
    return tuple(facts), until


def _segments(replica: Replica, now: Millis, busy: Busy) -> Iterator[Segment]:
    """What the replica held since it was last reported, or what is taken back of that; cut at full hours."""
    if replica.started_at is None:
        return
    since = replica.started_at if replica.occupied_until is None else replica.occupied_until
    end, gpus, taken_back = replica.held_until(now), len(replica.place.gpus), replica.told_too_much
    if taken_back is not None:
        since, end, gpus = taken_back, since, -gpus
    assigned = replica.assigned
    while since < end:
        until = min(end, (since // HOUR + 1) * HOUR)
        yield Segment(
            run=assigned.run,
            job=assigned.job,
            budget=assigned.budget,
            user=assigned.user,
            charged=assigned.allocated,
            gpus=gpus,
            since=since,
            until=until,
            busy_milli=busy(replica) if taken_back is None else None,
            replica=replica.key.replica,
        )
        since = until


def _parts(beats: Iterable[HostBeat]) -> Iterator[tuple[HostBeat, ...]]:
    """The hosts in as few facts as fit."""
    part: list[HostBeat] = []
    size = 0
    for beat in beats:
        if part and size + len(beat.segments) + 1 > SEGMENTS_MAX:
            yield tuple(part)
            part, size = [], 0
        part.append(beat)
        size += len(beat.segments) + 1
    yield tuple(part)


def spool_key(key: Key) -> str:
    """A replica's name in the spool."""
    return f"{key.run}/{key.replica}"


def write_spool(path: Path, spool: Spool) -> None:
    """Replace the spool durably. Raises OSError."""
    fresh = path.with_suffix(".new")
    with fresh.open("wb") as file:
        file.write(msgspec.json.encode(spool))
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)


def read_spool(path: Path) -> Spool | None:
    """The last spool, or None if there is none (a torn one cannot be: it is replaced whole)."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Spool)
    except FileNotFoundError:
        return None


def occupied(spool: Spool | None) -> Mapping[str, Millis]:
    """How far each replica's occupancy is reported once the spool is in the log."""
    return spool.occupied_until if spool is not None else {}
