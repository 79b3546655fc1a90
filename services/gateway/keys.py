"""What idempotency keys stand for: the newest `KEYS_KEPT`, packed, since nothing else is kept in such numbers."""

from collections import deque
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from tenure.domain.ids import JobId, UserName

KEYS_KEPT = 100_000
NAME_BYTES = 16
Packed = tuple[bytes, bytes]
"""A key's name and what it stands for, as they are kept and saved."""


class KeyEntry(msgspec.Struct, kw_only=True, array_like=True, gc=False):
    """What an idempotency key stands for: `count` jobs from `first` on, and a digest of all they ask for.

    `seen` of them are in the log. Fewer than `count`: the batch was cut short, and is completed when it is sent again.
    """

    first: JobId
    count: int
    body: str
    seen: int = 1


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(KeyEntry)


class Keys:
    """The keys of all users, each in the scope of its user, some 200 bytes each. The oldest is forgotten first.

    A key is known by a digest of 128 bits: two of a hundred thousand are the same one in 10^28 times.
    """

    def __init__(self, packed: Iterable[Packed] = ()) -> None:
        self._kept: dict[bytes, bytes] = {}
        self._order: deque[bytes] = deque()
        for name, value in packed:
            _decoder.decode(value)
            self._keep(name, value)

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, user: UserName, key: str) -> KeyEntry | None:
        """What the key stands for, None if it is not known."""
        value = self._kept.get(_name(user, key))
        return None if value is None else _decoder.decode(value)

    def count(self, user: UserName, key: str) -> bool:
        """One more of the key's jobs is in the log; False if the key is not known."""
        name = _name(user, key)
        value = self._kept.get(name)
        if value is None:
            return False
        entry = _decoder.decode(value)
        entry.seen += 1
        self._kept[name] = _encoder.encode(entry)
        return True

    def remember(self, user: UserName, key: str, entry: KeyEntry) -> None:
        """What a new key stands for."""
        self._keep(_name(user, key), _encoder.encode(entry))

    def packed(self) -> list[Packed]:
        """All of them, the oldest first, for `Keys`."""
        return [(name, self._kept[name]) for name in self._order]

    def _keep(self, name: bytes, value: bytes) -> None:
        self._kept[name] = value
        self._order.append(name)
        if len(self._order) > KEYS_KEPT:
            del self._kept[self._order.popleft()]


def _name(user: UserName, key: str) -> bytes:
    """User and key as one word; neither has a zero byte."""
    return blake2b(f"{user}\0{key}".encode(), digest_size=NAME_BYTES).digest()
