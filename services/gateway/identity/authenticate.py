"""Who calls: the sources in order, and what was verified once is not verified again until it would be over.

A token's entry is found by its digest: tokens are kept nowhere.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from urllib.parse import unquote

from services.gateway.identity.asking import Identity
from services.gateway.identity.source import Credentials, Known, Source
from services.gateway.refusals import Unauthenticated

KEPT_MAX = 10_000
KEPT_S = 300.0
"""A verified token is looked at again after this time at the latest, so that a withdrawn key is noticed."""


class Authenticator:
    """Asks one source after another. `clock` gives epoch seconds."""

    def __init__(self, sources: Sequence[Source], *, clock: Callable[[], float]) -> None:
        self._sources, self._clock = tuple(sources), clock
        self._verified: OrderedDict[bytes, tuple[float, Known]] = OrderedDict()

    async def identify(self, credentials: Credentials) -> Identity:
        """Who calls. Raises `Unauthenticated`, or `Away` when that cannot be found out now."""
        known = await self._known(credentials)
        return Identity(caller=known.caller, how=known.how, address=_address(credentials.peer))

    async def _known(self, credentials: Credentials) -> Known:
        digest = _digest(credentials)
        if digest:
            found = self._verified.get(digest)
            if found is not None and self._clock() < found[0]:
                return found[1]
        for source in self._sources:
            known = await source.identify(credentials)
            if known is not None:
                if digest and known.until is not None:
                    self._keep(digest, known, until=known.until)
                return known
        raise _nobody(credentials)

    def _keep(self, digest: bytes, known: Known, *, until: float) -> None:
        self._verified[digest] = (min(until, self._clock() + KEPT_S), known)
        self._verified.move_to_end(digest)
        if len(self._verified) > KEPT_MAX:
            self._verified.popitem(last=False)


def _digest(credentials: Credentials) -> bytes:
    """What stands for the proof, empty where none was sent: a token is never taken for the certificate it may quote."""
    if credentials.token:
        return hashlib.blake2b(credentials.token.encode(), digest_size=32, person=b"token").digest()
    if credentials.certificate:
        return hashlib.blake2b(credentials.certificate, digest_size=32, person=b"certificate").digest()
    return b""


def _nobody(credentials: Credentials) -> Unauthenticated:
    if credentials.token:
        return Unauthenticated(
            field="token",
            problem="nobody here knows its issuer",
            fix="get one from the issuer this gateway is configured with",
        )
    return Unauthenticated(
        field="credentials",
        problem="none were sent",
        fix="set TENURE_TOKEN or TENURE_TOKEN_FILE to a token, or TENURE_TLS_CERT and TENURE_TLS_KEY to a certificate",
    )


def _address(peer: str) -> str:
    """`127.0.0.1:41234` of `ipv4:127.0.0.1:41234`."""
    family, _, address = unquote(peer).partition(":")
    return address if family in ("ipv4", "ipv6") else unquote(peer)
