"""Tokens of an OIDC issuer: signed by one of its published keys, for our audience, by an asymmetric algorithm."""

from collections.abc import Callable
from dataclasses import replace

from services.gateway.identity.issuer_keys import IssuerKeys
from services.gateway.identity.source import Credentials, Known
from services.gateway.identity.verify import Verified, issuer_of, verify
from services.gateway.refusals import Unauthenticated
from tenure.domain.rights import Caller, Role
from tenure.domain.units import SECOND
from tenure.runtime.identity_options import IdentityOptions

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Public keys only: a secret shared with the issuer could sign as well, and `none` is no signature."""


class OidcTokens:
    """Judges tokens of the configured issuer."""

    def __init__(self, options: IdentityOptions, *, clock: Callable[[], float], keys: IssuerKeys | None = None) -> None:
        self._options = options
        self._keys = keys or IssuerKeys(options.issuer, clock=clock)

    async def identify(self, credentials: Credentials) -> Known | None:
        """The user a good token names; None for a token of another issuer."""
        if not credentials.token:
            return None
        issuer, header = issuer_of(credentials.token)
        if issuer != self._options.issuer:
            return None
        algorithm = str(header.get("alg", ""))
        if algorithm not in ALGORITHMS:
            raise Unauthenticated(
                field="token", problem="is signed by an algorithm that is not accepted", fix="get a new one"
            )
        published = await self._keys.key(str(header.get("kid", "")))
        if published.algorithm not in (None, algorithm):
            raise Unauthenticated(
                field="token", problem="names a key that is for another algorithm", fix="get a new one"
            )
        token = verify(
            credentials.token,
            published.key,
            algorithms=[algorithm],
            issuer=issuer,
            audience=self._options.audience,
            leeway_s=self._options.leeway_ms / SECOND,
        )
        caller = Caller(user=token.user(self._options.user_claim), groups=token.names(self._options.groups_claim))
        roles = self._roles(token) | self._options.roles_of(caller)
        return Known(caller=replace(caller, roles=roles), how=f"token of {issuer}", until=token.until)

    def _roles(self, token: Verified) -> frozenset[Role]:
        named = token.names(self._options.roles_claim)
        return frozenset(role for name, role in self._options.roles.items() if name in named)
