"""Development tokens: JWTs signed by a key in the data directory (Ed25519, mode 0600), for where no issuer is at hand.

Whoever can read the key can be anybody. `tenure token create` signs, the gateway verifies.
"""

import os
import secrets
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.domain.ids import UserName
from tenure.domain.refusal import Refusal
from tenure.domain.rights import Role
from tenure.domain.units import DAY, SECOND, Millis

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ISSUER, AUDIENCE, ALGORITHM = "tenure:local", "tenure", "EdDSA"
LIFETIME_MAX: Millis = 365 * DAY


def key_file(data: Path) -> Path:
    """Where the key of a data directory lies."""
    return data / "identity" / "key.pem"


@dataclass(frozen=True, slots=True)
class LocalKey:
    """A private key and its name, which tokens carry: a token of another key is told apart before it is verified."""

    private: "Ed25519PrivateKey"
    name: str

    def sign(self, *, user: UserName, roles: Iterable[Role], now: Millis, lifetime_ms: Millis) -> str:
        """A token for `user` with these roles, from `now` (epoch ms) on."""
        import jwt

        issued = now // SECOND
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": user,
            "roles": sorted(roles),
            "iat": issued,
            "exp": issued + lifetime_ms // SECOND,
            "jti": os.urandom(12).hex(),
        }
        return jwt.encode(claims, self.private, algorithm=ALGORITHM, headers={"kid": self.name})


def make_key(path: Path) -> None:
    """Make a key where there is none; its folder is made for its owner alone. Raises OSError."""
    if path.exists():
        return
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    fresh.touch(mode=0o600)
    fresh.write_bytes(pem)
    try:
        os.link(fresh, path)  # the first of two that make it at once wins
    except FileExistsError:
        pass
    finally:
        fresh.unlink()


def load_key(path: Path) -> LocalKey:
    """The key in a file. Raises `Refusal` for what is missing, no such key, or can be read by others."""
    import hashlib

    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    pem = read_secret(path, what="the key of local tokens")
    try:
        private = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise Refusal(field=str(path), problem="not a private key in PEM format", fix=_AGAIN) from error
    if not isinstance(private, Ed25519PrivateKey):
        raise Refusal(field=str(path), problem="not an Ed25519 key", fix=_AGAIN)
    public = private.public_key().public_bytes_raw()
    return LocalKey(private, hashlib.blake2b(public, digest_size=8).hexdigest())


def read_secret(path: Path, *, what: str) -> bytes:
    """A file that only its owner may read. Raises `Refusal` where it cannot be read, or others could."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise Refusal(
                    field=str(path), problem=f"{what} can be read by others (mode {mode:o})", fix=f"chmod 600 {path}"
                )
            return file.read(1 << 20)
    except OSError as error:
        raise Refusal(
            field=str(path), problem=f"{what} cannot be read: {error.strerror}", fix="name a file that you may read"
        ) from error


_AGAIN = "remove it, and a new one is made; tokens of the old one end with it"
