"""Where identities come from: the one interface, and what a source is given of a call."""

from dataclasses import dataclass, field
from typing import Protocol

from services.gateway.refusals import Unauthenticated
from tenure.domain.ids import UserName
from tenure.domain.names import check_label
from tenure.domain.refusal import Refusal
from tenure.domain.rights import GROUP, Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a call brings. `token` is a secret: it is in no message and no repr."""

    peer: str
    """The address of the caller as gRPC writes it: `ipv4:127.0.0.1:41234`."""
    token: str = field(default="", repr=False)
    certificate: bytes = b""
    """The client's certificate (PEM), which the handshake has verified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Somebody who was identified. `until` (epoch seconds): the proof is good for so long; None: look each time."""

    caller: Caller
    how: str
    until: float | None = None


class Source(Protocol):
    """One way to know who calls."""

    async def identify(self, credentials: Credentials) -> Known | None:
        """Who calls; None: nothing that this source can judge. Raises `Unauthenticated`, or `Away`."""


def checked_user(text: object, *, field: str) -> UserName:
    """`text` as the name of a user. Raises `Unauthenticated` for what no user can be called."""
    if not isinstance(text, str) or not text or text != text.strip() or text.startswith(GROUP):
        raise Unauthenticated(field=field, problem="holds no usable name of a user", fix="name a user in it")
    try:
        return UserName(check_label(text, field=field))
    except Refusal as refusal:
        raise Unauthenticated(field=field, problem=refusal.problem, fix=refusal.fix) from refusal
