"""The stream behind a cluster's log: made once by whoever comes first, the same for all who come later."""

import asyncio
import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tenure.domain.ids import LOG_START, Position
from tenure.log.link import FORBIDDEN, Link, Lost, Refused
from tenure.log.port import IDS_REMEMBERED_S, Unavailable
from tenure.log.subjects import Subjects

logger = logging.getLogger(__name__)

SECOND_NS = 1_000_000_000
GIB = 1 << 30
BYTES_MAX, BYTES_MIN = 64 * GIB, 1 << 26
"""A log without a limit of its own takes the first power of two, from the larger down, that its server has room for."""
ANSWER_S = 5.0
LOOKS, LOOK_AGAIN_S = 5, 0.2
"""The server reserves the room of a stream shortly before it can be found."""

READERS_MAX = 100_000
"""Who may read at once: every agent is one. Servers from 2.15 on let 1,000 read a stream that does not say it."""

NOT_FOUND, NAME_TAKEN, NO_ROOM, NO_PEERS = 10059, 10058, 10047, 10005
NO_MESSAGE = 10037
ID_KEY = "tenure-log-id"

REQUIRED: Mapping[str, Any] = {
    "storage": "file",
    "retention": "limits",
    "discard": "new",
    "allow_atomic": True,
    "allow_msg_ttl": True,
}
"""What an existing stream must have to be a log: nothing is dropped, nothing half-written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """How the stream is made when it does not exist yet. `max_bytes` None: as much as the server has room for.

    `identity` empty: a new one.
    """

    replicas: int = 1
    max_bytes: int | None = None
    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """Which log this is, how far it reaches, and on how many servers it lies."""

    identity: str
    last: Position
    replicas: int


async def read_state(link: Link, subjects: Subjects) -> StreamState:
    """The stream as it is now. Raises `Lost` and `Refused` (with `NOT_FOUND`), `Unavailable` if it cannot be a log."""
    return _checked(await link.api(f"STREAM.INFO.{subjects.stream}", timeout_s=ANSWER_S), subjects)


async def last_of(link: Link, subjects: Subjects, pattern: str) -> Position:
    """The position of the last fact on a subject or pattern, as the leader knows it. Raises `Lost`, `Refused`."""
    try:
        answer = await link.api(f"STREAM.MSG.GET.{subjects.stream}", {"last_by_subj": pattern}, timeout_s=ANSWER_S)
    except Refused as refused:
        if refused.code == NO_MESSAGE:
            return LOG_START
        raise
    return Position(answer["message"]["seq"])


async def ensure_stream(link: Link, subjects: Subjects, sizing: Sizing, *, patience_s: float) -> StreamState:
    """Find the stream or make it. Any number of processes may do so at once. Raises `Unavailable`, also for the log
    of a version whose facts would be passed over.
    """

    async def attempt() -> StreamState:
        state = await _find_or_create(link, subjects, sizing)
        old = await asyncio.gather(*(last_of(link, subjects, subject) for subject in subjects.undistricted))
        _check_age(max(old), subjects)
        return state

    return await link.patiently(
        attempt,
        what=f"the log {subjects.stream} at {link.access.shown}",
        patience_s=patience_s,
    )


async def _find_or_create(link: Link, subjects: Subjects, sizing: Sizing) -> StreamState:
    try:
        return await read_state(link, subjects)
    except Refused as refused:
        if refused.code != NOT_FOUND:
            raise
    try:
        return await _create(link, subjects, sizing)
    except Refused as refused:
        if refused.status == FORBIDDEN:
            raise Lost(f"{subjects.stream} is not there yet: whoever has the key `operator` makes it") from refused
        if refused.code != NAME_TAKEN:
            raise
    return await read_state(link, subjects)


async def _create(link: Link, subjects: Subjects, sizing: Sizing) -> StreamState:
    max_bytes = sizing.max_bytes or BYTES_MAX
    while True:
        identity = sizing.identity or uuid.uuid4().hex
        wanted = _config(subjects, max_bytes=max_bytes, replicas=sizing.replicas, identity=identity)
        try:
            made = await link.api(f"STREAM.CREATE.{subjects.stream}", wanted, timeout_s=ANSWER_S)
            logger.info("made the log %s with room for %d MiB", subjects.stream, max_bytes >> 20)
            return _checked(made, subjects)
        except Refused as refused:
            if refused.code != NO_ROOM and not (refused.code == NO_PEERS and "storage" in refused.description):
                raise
            if sizing.max_bytes is not None or max_bytes // 2 < BYTES_MIN:
                if (made_meanwhile := await _look_again(link, subjects)) is not None:
                    return made_meanwhile
                raise Unavailable(
                    f"the server at {link.access.shown} has no room for a log of {max_bytes >> 20} MiB: "
                    "free disk space or lower the log's size"
                ) from refused
            max_bytes //= 2


async def _look_again(link: Link, subjects: Subjects) -> StreamState | None:
    """The stream, if another process made it meanwhile: the room it reserved is refused to us before its name is."""
    for _ in range(LOOKS):
        try:
            return await read_state(link, subjects)
        except Refused as refused:
            if refused.code != NOT_FOUND:
                raise
        await asyncio.sleep(LOOK_AGAIN_S)
    return None


async def let_all_read(link: Link, subjects: Subjects) -> None:
    """Bring a log of an earlier version to `READERS_MAX`. For its operator. Raises `Lost`, `Refused`."""
    config = (await link.api(f"STREAM.INFO.{subjects.stream}", timeout_s=ANSWER_S))["config"]
    if config.get("max_consumers", -1) >= READERS_MAX:
        return
    try:
        wanted = {**config, "max_consumers": READERS_MAX}
        await link.api(f"STREAM.UPDATE.{subjects.stream}", wanted, timeout_s=ANSWER_S)
    except Refused as refused:  # a server that cannot change it has no limit of its own
        logger.debug("the number of readers of %s stays: %s", subjects.stream, refused)


def _check_age(undistricted: Position, subjects: Subjects) -> None:
    """Who read on would take every job that runs for queued, and start it again, and every host for a new one."""
    if undistricted:
        raise Unavailable(
            f"the log {subjects.stream} is of an earlier version, which wrote of runs and hosts (last at "
            f"{undistricted}) where this one does not read: nothing is done with it; go on with that version, or make "
            "the log anew from ClickHouse with `tenure log restore` (docs/operations.md, rolling upgrade)"
        )


def _config(subjects: Subjects, *, max_bytes: int, replicas: int, identity: str) -> dict[str, Any]:
    return {
        **REQUIRED,
        "name": subjects.stream,
        "subjects": [subjects.every],
        "num_replicas": replicas,
        "max_consumers": READERS_MAX,
        "max_bytes": max_bytes,
        "compression": "s2",
        "allow_direct": True,
        "duplicate_window": IDS_REMEMBERED_S * SECOND_NS,
        "metadata": {ID_KEY: identity},
    }


def _checked(info: Mapping[str, Any], subjects: Subjects) -> StreamState:
    config = info["config"]
    wrong = [f"{key} is {config.get(key)!r}" for key, value in REQUIRED.items() if config.get(key) != value]
    if config.get("subjects") != [subjects.every]:
        wrong.append(f"subjects are {config.get('subjects')}")
    if wrong:
        raise Unavailable(
            f"the stream {subjects.stream} cannot be a log: {', '.join(wrong)}; "
            "remove it, or use nats-server 2.12 or newer if that is what is missing"
        )
    identity = (config.get("metadata") or {}).get(ID_KEY) or info["created"]
    return StreamState(
        identity=identity, last=Position(info["state"]["last_seq"]), replicas=config.get("num_replicas", 1)
    )
