"""What a client shows to a gateway: a token, a certificate, both or neither; and how it checks whom it talks to.

From the environment, where the caller gives none:

TENURE_TOKEN         the token itself                  TENURE_TLS_CA     PEM file: who signs the gateway's certificate
TENURE_TOKEN_FILE    a file with it, mode 0600         TENURE_TLS=yes    TLS, checked against what the system trusts
TENURE_TLS_CERT, TENURE_TLS_KEY: PEM files, a certificate of one's own and its key
TENURE_TLS_NAME      the name in the gateway's certificate, where it is not that of its address
TENURE_INSECURE=yes  send a token without TLS to another machine all the same
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tenure.domain.loopback import is_loopback
from tenure.domain.refusal import Refusal
from tenure.runtime.local_tokens import read_secret

_YES, _NO = ("yes", "true", "1"), ("no", "false", "0", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What to show. A token file is read again at each call, so that it may be renewed."""

    token: str = field(default="", repr=False)
    token_file: Path | None = None
    tls: bool = False
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str = ""
    insecure: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> "Credentials":
        """What the environment says. Raises `Refusal`."""
        given = os.environ if environment is None else environment
        certificate, key = _path(given, "TENURE_TLS_CERT"), _path(given, "TENURE_TLS_KEY")
        if (certificate is None) != (key is None):
            missing = "TENURE_TLS_KEY" if key is None else "TENURE_TLS_CERT"
            raise Refusal(field=missing, problem="not set", fix="give a certificate and its key, or neither")
        ca = _path(given, "TENURE_TLS_CA")
        return cls(
            token=given.get("TENURE_TOKEN", "").strip(),
            token_file=_path(given, "TENURE_TOKEN_FILE"),
            tls=_truth(given, "TENURE_TLS") or ca is not None or certificate is not None,
            ca=ca,
            certificate=certificate,
            key=key,
            server_name=given.get("TENURE_TLS_NAME", "").strip(),
            insecure=_truth(given, "TENURE_INSECURE"),
        )

    @property
    def names_somebody(self) -> bool:
        """Whether they say who calls; if not, only the operating system can."""
        return bool(self.token or self.token_file or self.certificate)

    def metadata(self, address: str) -> tuple[tuple[str, str], ...]:
        """What each call to `address` carries. Raises `Refusal` for a token file that is no good, or an open line."""
        token = self.token
        if not token and self.token_file is not None:
            token = read_secret(self.token_file, what="the token").decode("ascii", "replace").strip()
        if not token:
            return ()
        if not token.isascii() or not token.isprintable() or " " in token:
            raise Refusal(field="token", problem="holds what no token has", fix="give the token alone, on one line")
        if not (self.tls or self.insecure or is_loopback(address.rpartition(":")[0])):
            raise Refusal(
                field="token",
                problem=f"would go to {address} for everybody to read",
                fix="set TENURE_TLS_CA (or TENURE_TLS=yes); where the way is encrypted otherwise, TENURE_INSECURE=yes",
            )
        return (("authorization", f"Bearer {token}"),)

    def pem(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """CA, key and certificate, as gRPC wants them. Raises `Refusal`."""
        key = None if self.key is None else read_secret(self.key, what="the key of the certificate")
        return _read(self.ca, "TENURE_TLS_CA"), key, _read(self.certificate, "TENURE_TLS_CERT")


def _path(given: Mapping[str, str], name: str) -> Path | None:
    text = given.get(name, "").strip()
    return Path(text).expanduser() if text else None


def _truth(given: Mapping[str, str], name: str) -> bool:
    text = given.get(name, "").strip().lower()
    if text not in (*_YES, *_NO):
        raise Refusal(field=name, problem=f"{text[:20]!r} is no yes or no", fix="write yes or no")
    return text in _YES


def _read(path: Path | None, name: str) -> bytes | None:
    try:
        return None if path is None else path.read_bytes()
    except OSError as error:
        raise Refusal(
            field=name, problem=f"{path} cannot be read: {error.strerror}", fix="name a readable PEM file"
        ) from error
