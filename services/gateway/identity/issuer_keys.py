"""The public keys of an OIDC issuer: found by discovery, read again when they grow old or a new one is named.

Fetching is PyJWKClient's. While the issuer is away the keys that are known go on, for a day.
"""

import asyncio
import json
import logging
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import jwt

from services.gateway.refusals import Away, Unauthenticated
from tenure.domain.loopback import is_loopback

logger = logging.getLogger(__name__)

DISCOVERY = "/.well-known/openid-configuration"
FETCH_TIMEOUT_S = 5.0
FRESH_S = 300.0
"""So long keys are taken for the issuer's present ones."""
AGAIN_S = 5.0
"""The issuer is asked at most this often, whatever tokens name."""
KEPT_S = 86_400.0
"""While the issuer is away, its keys are believed for so long after they were last seen."""
_DOCUMENT_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerKey:
    """One key. `algorithm`: the only one it may be used with; None: any of its kind."""

    key: Any
    algorithm: str | None


Fetch = Callable[[str], Mapping[str, IssuerKey]]


class IssuerKeys:
    """The keys of one issuer by name (`kid`). `clock` gives seconds; `fetch` blocks, and raises as `fetch_keys`."""

    def __init__(self, issuer: str, *, clock: Callable[[], float], fetch: "Fetch | None" = None) -> None:
        self._issuer, self._clock, self._fetch = issuer, clock, fetch or fetch_keys
        self._keys: Mapping[str, IssuerKey] = {}
        self._seen_at = self._asked_at = float("-inf")
        self._trouble = ""
        self._fetching = asyncio.Lock()

    async def key(self, name: str) -> IssuerKey:
        """The key of that name; the only one there is for an empty name.

        Raises `Unauthenticated` where the issuer has no such key, `Away` where that cannot be found out now.
        """
        if self._find(name) is None or self._clock() > self._seen_at + FRESH_S:
            await self._refresh(name)
        found = self._find(name)
        if found is not None and self._clock() <= self._seen_at + KEPT_S:
            return found
        if self._trouble:
            raise Away(f"the issuer of the token cannot be asked for its keys ({self._trouble}); try again in a moment")
        raise Unauthenticated(
            field="token", problem="is signed by a key that its issuer does not publish", fix="get a new one"
        )

    def _find(self, name: str) -> IssuerKey | None:
        if not name and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(name)

    async def _refresh(self, name: str) -> None:
        """Ask the issuer, one call at a time and not too often."""
        async with self._fetching:
            now = self._clock()
            fresh = self._find(name) is not None and now <= self._seen_at + FRESH_S
            if fresh or now < self._asked_at + AGAIN_S:
                return
            self._asked_at = now
            try:
                self._keys = await asyncio.to_thread(self._fetch, self._issuer)
                self._seen_at, self._trouble = now, ""
            except (OSError, ValueError, jwt.PyJWTError) as trouble:
                self._trouble = " ".join(str(trouble).split())[:200] or type(trouble).__name__
                logger.warning("the keys of %s cannot be read: %s", self._issuer, self._trouble)


def fetch_keys(issuer: str) -> Mapping[str, IssuerKey]:
    """The signing keys that an issuer publishes now. Raises OSError, ValueError or PyJWTError."""
    address = issuer.rstrip("/") + DISCOVERY
    with urllib.request.urlopen(address, timeout=FETCH_TIMEOUT_S) as answer:
        document = json.loads(answer.read(_DOCUMENT_BYTES_MAX))
    if not isinstance(document, dict) or document.get("issuer") != issuer:
        raise ValueError(f"{address} is not about the issuer {issuer}")
    place = str(document.get("jwks_uri", ""))
    if urlsplit(place).scheme != "https" and not is_loopback(urlsplit(place).hostname or ""):
        raise ValueError("its jwks_uri is no https address")
    published = jwt.PyJWKClient(place, cache_jwk_set=False, timeout=int(FETCH_TIMEOUT_S)).fetch_data()
    keys: dict[str, IssuerKey] = {}
    for one in published.get("keys", []) if isinstance(published, dict) else []:
        if not isinstance(one, dict) or one.get("use", "sig") != "sig" or one.get("kty") == "oct":
            continue
        try:
            key = jwt.PyJWK(one).key
        except jwt.PyJWTError as trouble:
            logger.warning("a key of %s cannot be used: %s", issuer, trouble)
            continue
        keys[str(one.get("kid", ""))] = IssuerKey(key=key, algorithm=one.get("alg"))
    if not keys:
        raise ValueError("it publishes no usable signing key")
    return keys
