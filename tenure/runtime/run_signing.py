"""What a host starts is signed: the placer signs each run that it assigns, agents start no other (decision 0015).

The log's servers keep others from writing in the placer's name; this holds where such a server is not to be trusted.
The signature is put on when a fact is appended and looked at before a process is started: deciding knows nothing of it.
"""

import os
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from tenure.domain.refusal import Refusal
from tenure.events.fact import Fact
from tenure.events.placing import RunAssigned
from tenure.log.access import check_secret

_FORM = "tenure-run-1"
"""What is signed, and in which order. Another form is another name: no signature fits two."""
_END = b"-----END PUBLIC KEY-----"


def signed_part(run: RunAssigned) -> bytes:
    """All of an assignment that decides what is started, where, for whom and for how long, in one way to write it."""
    return msgspec.json.encode(
        [
            _FORM,
            run.cluster,
            run.id,
            run.at,
            run.run,
            run.job,
            run.number,
            run.budget,
            run.user,
            [[place.replica, place.host, place.gpus] for place in run.placement],
            run.launch.command,
            run.launch.working_directory,
            sorted(run.launch.environment.items()),
            run.min_runtime_ms,
            run.resumable,
            run.grace_ms,
            run.resume_count,
            run.master_address,
            run.master_port,
        ]
    )


class Signer:
    """Has the placer's key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    def seal(self, fact: Fact) -> Fact:
        """The fact as it is written: an assignment with its signature, any other as it is."""
        if not isinstance(fact, RunAssigned):
            return fact
        return msgspec.structs.replace(fact, signature=b64encode(self._key.sign(signed_part(fact))).decode())


class Trust:
    """Whose signatures an agent believes: several keys while one takes the place of another."""

    def __init__(self, keys: Sequence[Ed25519PublicKey]) -> None:
        self._keys = tuple(keys)

    def trouble_with(self, run: RunAssigned) -> str:
        """Why nothing of this is started, in one line; "" if a trusted key signed exactly this."""
        if not run.signature:
            return "its assignment is not signed"
        try:
            signature, part = b64decode(run.signature, validate=True), signed_part(run)
        except ValueError:
            return "the signature of its assignment is damaged"
        for key in self._keys:
            try:
                key.verify(signature, part)
            except InvalidSignature:
                continue
            return ""
        return "its assignment is signed by no key that this host trusts, or was changed afterwards"


def load_signer(path: Path) -> Signer:
    """The key of a PEM file that is for its owner alone. Raises `Refusal`."""
    check_secret(path)
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _no_key(path, "private") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_key(path, "private")
    return Signer(key)


def load_trust(path: Path) -> Trust:
    """The public keys of a PEM file, one after the other. Raises `Refusal`."""
    keys = []
    try:
        for part in path.read_bytes().split(_END)[:-1]:
            key = load_pem_public_key(part.strip() + b"\n" + _END + b"\n")
            if not isinstance(key, Ed25519PublicKey):
                raise _no_key(path, "public")
            keys.append(key)
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        if isinstance(error, Refusal):
            raise
        raise _no_key(path, "public") from error
    if not keys:
        raise _no_key(path, "public")
    return Trust(keys)


def make_signing_keys(folder: Path) -> tuple[Path, Path]:
    """The files of a private key and of its public one in `folder`, made where there are none. Raises `Refusal`."""
    secret, public = folder / "runs.key", folder / "runs.pub"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not secret.exists():
            made = Ed25519PrivateKey.generate()
            fresh = os.open(secret.with_suffix(".new"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(fresh, "wb") as file:
                file.write(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
            public.write_bytes(made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
            secret.with_suffix(".new").replace(secret)
    except OSError as error:
        raise Refusal(
            field=str(folder), problem=f"keys cannot be kept there: {error.strerror}", fix="make it yours"
        ) from error
    return secret, public


def _no_key(path: Path, kind: str) -> Refusal:
    make = {"private": "genpkey -algorithm ed25519 -out runs.key", "public": "pkey -in runs.key -pubout -out runs.pub"}
    return Refusal(field=str(path), problem=f"holds no {kind} Ed25519 key", fix=f"make one: openssl {make[kind]}")
