"""Facts to bytes and back, and bytes of other versions."""

import json

import msgspec
import pytest

from tenure.events.fact import Fact, Lane
from tenure.events.intake import JobCancelRequested
from tenure.log import codec
from tests.contract.log_facts import intake


def test_the_kind_is_the_type_in_the_bytes() -> None:
    assert json.loads(codec.encode(intake(1)))["type"] == "JobCancelRequested" == codec.kind_name(intake(1))


def test_bytes_of_an_older_version_take_the_defaults() -> None:
    old = b'{"type":"JobCancelRequested","at":1764450000000,"id":"i-1","job":"j1","by":"ana"}'
    fact = codec.decode(old)
    assert fact == JobCancelRequested(at=1764450000000, id="i-1", job="j1", by="ana")  # type: ignore[arg-type]
    assert (fact.cluster, fact.cause) == ("", None)


def test_fields_of_a_newer_version_are_ignored() -> None:
    newer = json.loads(codec.encode(intake(1))) | {"from_tomorrow": {"deep": [1, 2]}}
    assert codec.decode(json.dumps(newer).encode()) == intake(1)


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe\x00",
        b'{"at":1}',
        b'{"type":"FromTomorrow","at":1}',
        b'{"type":"JobCancelRequested","at":1}',
        b'{"type":"JobCancelRequested","at":"soon","job":"j","by":"ana"}',
        b'{"type":"JobCancelRequested","at":1,"job":"\xff","by":"ana"}',
    ],
)
def test_what_is_no_fact_is_undecodable(damage: bytes) -> None:
    with pytest.raises(codec.Undecodable):
        codec.decode(damage)


def test_a_kind_outside_the_catalogue_has_no_name() -> None:
    class Unlisted(Fact, frozen=True, kw_only=True, tag=True):
        lane = Lane.INTAKE

    with pytest.raises(codec.Undecodable, match="Unlisted"):
        codec.kind_name(Unlisted(at=1))


def test_a_fact_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        intake(1).at = 2  # type: ignore[misc]
    assert msgspec.structs.replace(intake(1), at=2).at == 2
