"""Facts to bytes and back: JSON with the kind as `type`, so that ClickHouse and people can read it too."""

import re

import msgspec

from tenure.events.catalogue import KINDS, AnyFact
from tenure.events.fact import Fact

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyFact] = msgspec.json.Decoder(AnyFact)

DEPTH_MAX = 64
"""Facts nest a handful deep. Deeper ones would be read or not as the stack of their reader happens to be."""
_BRACKETS = b"[]{}"
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in _BRACKETS)
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)


class Undecodable(ValueError):
    """Bytes that are not a fact of this version: a newer kind, or damage."""


def encode(fact: Fact) -> bytes:
    """The fact as one line of JSON."""
    return _encoder.encode(fact)


def decode(data: bytes) -> Fact:
    """The inverse of `encode`. Unknown fields are ignored; raises `Undecodable` for an unknown kind or damage."""
    if _is_too_deep(data):
        raise Undecodable(f"nested more than {DEPTH_MAX} deep")
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Undecodable(str(error)) from error


class _Tagged(msgspec.Struct):
    type: str
    at: int


_tag_decoder = msgspec.json.Decoder(_Tagged)


def tag_of(data: bytes) -> str:
    """The kind that bytes claim to be a fact of, known or not; empty if they are no fact of any version."""
    try:
        return "" if _is_too_deep(data) else _tag_decoder.decode(data).type
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def kind_name(fact: Fact) -> str:
    """The name of the fact's kind, as in its subject and in the `kind` column of ClickHouse."""
    name = type(fact).__name__
    if name not in KINDS:
        raise Undecodable(f"{name} is not in the catalogue")
    return name


def _is_too_deep(data: bytes) -> bool:
    """Whether lists and objects nest deeper than `DEPTH_MAX`; nearly always answered without looking at each byte."""
    left = data.translate(None, _NO_BRACKETS)
    for taken_off in range(DEPTH_MAX):
        if len(left) + taken_off <= DEPTH_MAX:
            return False
        shorter = left.replace(b"[]", b"").replace(b"{}", b"")
        if len(shorter) == len(left):
            break
        left = shorter
    depth = 0
    for token in _TOKEN.finditer(data):  # brackets in texts are none
        if token[0] in (b"[", b"{"):
            depth += 1
            if depth > DEPTH_MAX:
                return True
        elif token[0] in (b"]", b"}"):
            depth -= 1
    return False
