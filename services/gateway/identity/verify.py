"""What all tokens have in common: a JWT (PyJWT's, never our own), its claims, and what is wrong with it in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt

from services.gateway.identity.source import checked_user
from services.gateway.refusals import Unauthenticated
from tenure.domain.ids import UserName

_NEW = "get a new one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The claims of a good token. `until`: epoch seconds when it expires, the leeway included."""

    claims: Mapping[str, Any]
    until: float

    def user(self, claim: str) -> UserName:
        """The user it names. Raises `Unauthenticated`."""
        return checked_user(self.claims.get(claim), field=f"token.{claim}")

    def names(self, claim: str) -> frozenset[str]:
        """The strings of a claim that is one, or a list of some; others are nothing. `a.b` may lie in `a`."""
        value = self.claims.get(claim)
        if value is None:
            value = self.claims
            for part in claim.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
        values = [value] if isinstance(value, str) else value if isinstance(value, list) else []
        return frozenset(name for name in values if isinstance(name, str) and name)


def issuer_of(token: str) -> tuple[str, dict[str, Any]]:
    """What an unverified token says of its issuer, and its header: only to know who has to judge it.

    Raises `Unauthenticated` for what is no JWT.
    """
    try:
        parts = jwt.decode_complete(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        fix = "send the token as it was given to you"
        raise Unauthenticated(field="token", problem="not a JWT", fix=fix) from error
    return str(parts["payload"].get("iss", "")), dict(parts["header"])


def verify(token: str, key: Any, *, algorithms: Sequence[str], issuer: str, audience: str, leeway_s: float) -> Verified:
    """The claims of a token that `key` has signed with one of `algorithms`. Raises `Unauthenticated`."""
    try:
        claims = jwt.decode(
            token,
            key,
            algorithms=list(algorithms),
            issuer=issuer,
            audience=audience,
            leeway=leeway_s,
            options={"require": ["exp", "iss", "aud"]},
        )
    except jwt.PyJWTError as error:
        raise Unauthenticated(field="token", problem=_problem(error), fix=_fix(error)) from error
    except TypeError as error:
        raise Unauthenticated(field="token", problem="names a key that does not fit its algorithm", fix=_NEW) from error
    except (ValueError, OverflowError) as error:
        raise Unauthenticated(field="token", problem="its claims cannot be read", fix=_NEW) from error
    return Verified(claims=claims, until=float(claims["exp"]) + leeway_s)


_PROBLEMS: tuple[tuple[type[Exception], str, str], ...] = (
    (jwt.ExpiredSignatureError, "has expired", _NEW),
    (jwt.ImmatureSignatureError, "is not valid yet", "wait, or set the clocks of the issuer and this gateway"),
    (jwt.InvalidIssuedAtError, "was issued in a form or at a time that cannot be", _NEW),
    (jwt.InvalidAudienceError, "is for another audience", "get one for the audience of this gateway"),
    (jwt.InvalidIssuerError, "is of another issuer", "get one from the issuer of this gateway"),
    (jwt.MissingRequiredClaimError, "lacks a claim that is needed: exp, iss or aud", _NEW),
    (jwt.InvalidAlgorithmError, "is signed by an algorithm that is not accepted", _NEW),
    (jwt.InvalidKeyError, "names a key that does not fit its algorithm", _NEW),
    (jwt.InvalidSignatureError, "has a signature that is not good", _NEW),
)


def _problem(error: Exception) -> str:
    return next((problem for kind, problem, _ in _PROBLEMS if isinstance(error, kind)), "is not good")


def _fix(error: Exception) -> str:
    return next((fix for kind, _, fix in _PROBLEMS if isinstance(error, kind)), _NEW)
