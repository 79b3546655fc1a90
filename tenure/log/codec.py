"""Facts to bytes and back: JSON with the kind as `type`, so that ClickHouse and people can read it too."""

import msgspec

from tenure.events.catalogue import KINDS, AnyFact
from tenure.events.fact import Fact

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyFact] = msgspec.json.Decoder(AnyFact)


class Undecodable(ValueError):
    """Bytes that are not a fact of this version: a newer kind, or damage."""


def encode(fact: Fact) -> bytes:
    """The fact as one line of JSON."""
    return _encoder.encode(fact)


def decode(data: bytes) -> Fact:
    """The inverse of `encode`. Unknown fields are ignored; raises `Undecodable` for an unknown kind or damage."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Undecodable(str(error)) from error


def kind_name(fact: Fact) -> str:
    """The name of the fact's kind, as in its subject and in the `kind` column of ClickHouse."""
    name = type(fact).__name__
    if name not in KINDS:
        raise Undecodable(f"{name} is not in the catalogue")
    return name
