"""A real OIDC issuer on loopback: discovery and JWKS over HTTP, keys that rotate, and tokens of every kind."""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

AUDIENCE = "tenure"
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


class Issuer:
    """Its keys by name. `asked` counts how often each path was fetched; `broken`: it answers 500."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.keys: dict[str, PrivateKey] = {}
        self.asked: dict[str, int] = {}
        self.broken = False
        self.claimed_issuer = address
        self.extra_keys: list[dict[str, Any]] = []
        self.rotate("k1")

    def rotate(self, name: str, *, keep: bool = False, curve: bool = False) -> None:
        """A new key; the old ones are published no longer unless they are kept."""
        if not keep:
            self.keys.clear()
        self.keys[name] = (
            ec.generate_private_key(ec.SECP256R1())
            if curve
            else rsa.generate_private_key(public_exponent=65537, key_size=2048)
        )

    def token(
        self, user: str = "ana", *, key: str = "", kid: str | None = None, lifetime_s: float = 300, **claims: Any
    ) -> str:
        """A token by the newest key, or by `key`. A claim that is None is left out."""
        name = key or next(reversed(self.keys))
        now = time.time()
        whole = {"iss": self.address, "aud": AUDIENCE, "sub": user, "iat": now, "exp": now + lifetime_s, **claims}
        private = self.keys[name]
        algorithm = "RS256" if isinstance(private, rsa.RSAPrivateKey) else "ES256"
        headers = {"kid": name if kid is None else kid}
        known = {claim: value for claim, value in whole.items() if value is not None}
        return jwt.encode(known, private, algorithm=algorithm, headers=headers)

    def public_pem(self, name: str) -> bytes:
        """The public key as a forger would find it."""
        public = self.keys[name].public_key()
        return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    def forged(self, algorithm: str, secret: bytes, user: str = "ana") -> str:
        """A token put together by hand: `none`, or HMAC with what everybody knows as the secret."""
        now = time.time()
        claims = {"iss": self.address, "aud": AUDIENCE, "sub": user, "iat": now, "exp": now + 300}
        parts = [{"alg": algorithm, "typ": "JWT", "kid": next(iter(self.keys))}, claims]
        text = ".".join(_packed(json.dumps(part).encode()) for part in parts)
        signature = b"" if algorithm == "none" else hmac.new(secret, text.encode(), hashlib.sha256).digest()
        return f"{text}.{_packed(signature)}"

    def document(self, path: str) -> dict[str, Any] | None:
        """What it answers."""
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.claimed_issuer, "jwks_uri": f"{self.address}/keys"}
        if path == "/keys":
            return {"keys": [_jwk(name, key) for name, key in self.keys.items()] + self.extra_keys}
        return None


def _packed(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _jwk(name: str, key: PrivateKey) -> dict[str, Any]:
    public: Any = key.public_key()
    algorithm: Any = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**algorithm.to_jwk(public, as_dict=True), "kid": name, "use": "sig"}


@contextmanager
def issuing() -> Iterator[Issuer]:
    """An issuer that answers on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked[self.path] = issuer.asked.get(self.path, 0) + 1
            document = issuer.document(self.path)
            self.send_response(500 if issuer.broken else 404 if document is None else 200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(document or {}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer = Issuer(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
