"""Leases: which of several processes of a role leads, in a NATS key-value bucket whose entries vanish by themselves.

A lease saves two processes from working in vain. It promises nothing: clocks drift and processes are suspended, so what
must be true rests on conditional appends (docs/decisions/0014). One bucket serves all logs of a NATS account; a lease's
key is `<cluster>.<role>`, so that each role can be given its own key and no other.
"""

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Awaitable, Sequence
from typing import TypeVar

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig, StorageType
from nats.js.errors import APIError, BucketNotFoundError, KeyWrongLastSequenceError, NotFoundError
from nats.js.kv import KeyValue

from tenure.domain.units import Millis
from tenure.log.access import Access, open_client
from tenure.log.port import Unavailable
from tenure.log.stream import NO_MESSAGE

logger = logging.getLogger(__name__)

BUCKET = "tenure-leases"
LED = ("budget", "ranker", "placer", "health", "journal")
"""The roles of which one process leads."""
TTL_S = 5.0
"""A lease that was not renewed for so long is gone. Longer than a decision or a snapshot holds a process up."""
ANSWER_S = 2.0
PATIENCE_S = 10.0
RETRY_S = 0.1

T = TypeVar("T")


class StoreAway(Exception):
    """The store does not answer: who leads is unknown, and whether what was asked has happened."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lease. `name` is for people, `process` one process, `instance` all on its data folder.

    Fields are only added, with a default: what cannot be read as this is nobody's.
    """

    name: str
    process: str
    instance: str
    since: Millis


def this_process(instance: str) -> Holder:
    """This process as a holder, from now on."""
    name = f"{socket.gethostname()}:{os.getpid()}"
    return Holder(name=name, process=f"{name}:{os.urandom(8).hex()}", instance=instance, since=_now())


class Lease:
    """One lease, as one process sees it. Not for several coroutines at once."""

    def __init__(self, connection: Client, store: KeyValue, *, key: str, holder: Holder, replicas: int) -> None:
        """Use `open`."""
        self.key, self.holder = key, holder
        self.seen: Holder | None = None
        """Who held it when it was looked at last."""
        self._connection, self._store, self._replicas = connection, store, replicas
        self._revision: int | None = None
        self._is_heir = True

    @classmethod
    async def open(cls, access: Access, *, cluster: str, role: str, instance: str, replicas: int = 1) -> "Lease":
        """The lease of a role, not held yet; its bucket is made if it does not exist. Raises `Unavailable`.

        `instance` names the data folder that this process owns: what an earlier process on it held is its own.
        """
        connection = await _connect(access)
        try:
            store = await open_store(connection, replicas=replicas)
        except BaseException:
            await connection.close()
            raise
        holder = this_process(instance)
        return cls(connection, store, key=f"{cluster}.{role}", holder=holder, replicas=replicas)

    @property
    def name(self) -> str:
        """As people read it: `cluster/role`."""
        return self.key.replace(".", "/", 1)

    @property
    def held(self) -> bool:
        """Whether it was ours when the store answered last."""
        return self._revision is not None

    async def claim(self) -> bool:
        """Take it if nobody holds it. Raises `StoreAway`."""
        holder, revision = await self._look()
        held = False
        if holder is None or self._is_ours(holder):
            held = await self._write(self._store.update(self.key, self._value(since=_now()), last=revision))
        self._is_heir = False  # a copy of our folder may run elsewhere: what it takes later is its own
        return held

    async def renew(self) -> bool:
        """Keep it; False if it is somebody else's or nobody's by now. Raises `StoreAway`."""
        if self._revision is None:
            return False
        value = self._value(since=self.holder.since)
        if await self._write(self._store.update(self.key, value, last=self._revision)):
            return True
        holder, revision = await self._look()
        if holder is None or holder.process != self.holder.process:
            return False
        return await self._write(self._store.update(self.key, value, last=revision))  # an answer was lost

    async def mend(self) -> None:
        """Make the bucket again if it is gone: the log was restored without it."""
        if self._connection.is_connected:
            with contextlib.suppress(NatsError, TimeoutError):
                await _find_or_create(self._connection.jetstream(timeout=ANSWER_S), replicas=self._replicas)

    async def release(self) -> None:
        """Give it up, so that another takes it at once. What the store does not hear ends with the lease's time."""
        revision, self._revision = self._revision, None
        if revision is None or not self._connection.is_connected:
            return
        try:
            await self._store.delete(self.key, last=revision)
        except (NatsError, TimeoutError) as trouble:
            logger.debug("the lease %s ends by itself: %s", self.name, trouble)

    async def close(self) -> None:
        """Disconnect; the lease is not given up by that."""
        await self._connection.close()

    def _is_ours(self, holder: Holder) -> bool:
        """Whether this process holds it (an answer was lost) or, at our first look, one that we come after."""
        ours = holder.process == self.holder.process
        return ours or (self._is_heir and bool(self.holder.instance) and holder.instance == self.holder.instance)

    async def _look(self) -> tuple[Holder | None, int]:
        self.seen, revision = await read_entry(self._connection, self.key)
        return self.seen, revision

    async def _write(self, writing: Awaitable[int]) -> bool:
        try:
            self._revision = await _answer(self._connection, writing)
        except KeyWrongLastSequenceError:
            self._revision = None
            return False
        self.seen = self.holder
        return True

    def _value(self, *, since: Millis) -> bytes:
        self.holder = msgspec.structs.replace(self.holder, since=since)
        return msgspec.json.encode(self.holder)


async def _connect(access: Access) -> Client:
    try:
        return await open_client(
            access,
            max_reconnect_attempts=-1,
            reconnect_time_wait=RETRY_S,
            connect_timeout=2,
            ping_interval=5,
            error_cb=_note,
        )
    except (NatsError, OSError) as error:
        raise Unavailable(f"the NATS server does not let us in: {error}") from error


async def make_store(access: Access, *, replicas: int) -> None:
    """Make the bucket where it does not exist, for roles that may not. Raises `Unavailable`."""
    connection = await _connect(access)
    try:
        await open_store(connection, replicas=replicas)
    finally:
        await connection.close()


async def read_leases(access: Access, *, cluster: str, roles: Sequence[str]) -> dict[str, Holder | None]:
    """Who holds the lease of each role now. Raises `Unavailable`."""
    connection = await _connect(access)
    try:
        return {role: (await read_entry(connection, f"{cluster}.{role}"))[0] for role in roles}
    except (NatsError, TimeoutError, StoreAway) as trouble:
        raise Unavailable(
            f"the store of leases {BUCKET} cannot be read: {trouble or type(trouble).__name__}"
        ) from trouble
    finally:
        await connection.close()


async def open_store(connection: Client, *, replicas: int) -> KeyValue:
    """The bucket of all leases, made if it does not exist. Raises `Unavailable`."""
    deadline = time.monotonic() + PATIENCE_S
    jetstream = connection.jetstream(timeout=ANSWER_S)
    while True:
        try:
            return await _find_or_create(jetstream, replicas=replicas)
        except (NatsError, TimeoutError) as trouble:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"the store of leases {BUCKET} cannot be used: {trouble or type(trouble).__name__}; "
                    "where roles may not make it, `python -m tenure.log.create` does"
                ) from trouble
        await asyncio.sleep(RETRY_S)


async def _find_or_create(jetstream: JetStreamContext, *, replicas: int) -> KeyValue:
    try:
        return await jetstream.key_value(BUCKET)
    except BucketNotFoundError:
        pass
    wanted = KeyValueConfig(bucket=BUCKET, ttl=TTL_S, history=1, storage=StorageType.FILE, replicas=replicas)
    try:
        return await jetstream.create_key_value(wanted)
    except APIError:
        return await jetstream.key_value(BUCKET)  # somebody else has made it meanwhile


async def read_entry(connection: Client, key: str) -> tuple[Holder | None, int]:
    """Who holds a lease, None if nobody does, and the revision that whoever takes it comes after (0: none).

    Raises `StoreAway`. What no holder has written (a delete marker, an answer of the server that somebody had sent
    there) holds nothing. Not through the key-value store, which asks by direct gets: nobody is given those.
    """
    last = connection.jetstream(timeout=ANSWER_S).get_last_msg(f"KV_{BUCKET}", f"$KV.{BUCKET}.{key}")
    try:
        message = await _answer(connection, last)
    except NotFoundError:
        return None, 0
    try:
        return msgspec.json.decode(message.data or b"", type=Holder), message.seq or 0
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None, message.seq or 0


async def _answer(connection: Client, asked: Awaitable[T]) -> T:
    """The store's answer. Raises `StoreAway`, and what the store refuses."""
    if not connection.is_connected:  # nats-py would keep the question and send it when the server is back
        asked.close()  # type: ignore[attr-defined]  # a coroutine
        raise StoreAway("not connected")
    try:
        return await asked
    except KeyWrongLastSequenceError:
        raise
    except NotFoundError as trouble:
        if trouble.err_code == NO_MESSAGE:
            raise
        raise StoreAway(str(trouble)) from trouble
    except (NatsError, TimeoutError, OSError) as trouble:
        raise StoreAway(str(trouble) or type(trouble).__name__) from trouble


async def _note(error: Exception) -> None:
    logger.debug("the store of leases: %s", error)


def _now() -> Millis:
    return time.time_ns() // 1_000_000
