"""Tokens that `tenure token create` has signed with the key of this data directory."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from services.gateway.identity.source import Credentials, Known
from services.gateway.identity.verify import issuer_of, verify
from services.gateway.refusals import Unauthenticated
from tenure.domain.refusal import Refusal
from tenure.domain.rights import Caller, Role
from tenure.runtime.local_tokens import ALGORITHM, AUDIENCE, ISSUER, LocalKey, load_key

_KNOWN_ROLES = frozenset(role.value for role in Role)


class LocalTokens:
    """Judges tokens whose issuer is this installation. The key is read again when its file has changed."""

    def __init__(self, path: Path, *, roles_of: Callable[[Caller], frozenset[Role]]) -> None:
        self._path, self._roles_of = path, roles_of
        self._key: LocalKey | None = None
        self._stamp: tuple[int, int] | None = None

    async def identify(self, credentials: Credentials) -> Known | None:
        """The user a good token names; None for a token of another issuer."""
        if not credentials.token:
            return None
        issuer, header = issuer_of(credentials.token)
        if issuer != ISSUER:
            return None
        key = self._load()
        if header.get("kid") != key.name:
            raise Unauthenticated(
                field="token",
                problem="is signed by a key of another data directory, or by an older one",
                fix="make one here: `tenure token create`",
            )
        token = verify(
            credentials.token,
            key.private.public_key(),
            algorithms=[ALGORITHM],
            issuer=ISSUER,
            audience=AUDIENCE,
            leeway_s=0,
        )
        caller = Caller(user=token.user("sub"))
        own = frozenset(Role(name) for name in token.names("roles") if name in _KNOWN_ROLES)
        roles = own | (frozenset() if own else self._roles_of(caller))
        return Known(caller=replace(caller, roles=roles), how="local token", until=token.until)

    def _load(self) -> LocalKey:
        try:
            found = self._path.stat()
            stamp = (found.st_ino, found.st_mtime_ns)
            if self._key is None or stamp != self._stamp:
                self._key, self._stamp = load_key(self._path), stamp
        except (OSError, Refusal) as trouble:
            raise Unauthenticated(
                field="token",
                problem="local tokens are not accepted here: there is no usable key",
                fix="make one with `tenure token create` beside the gateway",
            ) from trouble
        return self._key
