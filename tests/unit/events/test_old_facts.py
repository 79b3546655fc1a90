"""What was once written can be read for good: facts as earlier versions wrote them, a file for each.

A line is never changed or taken out after the version was released. See docs/checklists/fact.md.
"""

import json
from pathlib import Path

import pytest

from tenure.events.catalogue import KINDS
from tenure.log import codec

FILES = sorted(Path(__file__).parent.glob("facts_of_*.jsonl"))
LINES = [line for path in FILES for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize("line", LINES, ids=lambda line: json.loads(line)["type"])
def test_an_old_fact_is_read(line: bytes) -> None:
    written = json.loads(line)
    fact = codec.decode(line)
    assert type(fact).__name__ == written.pop("type")
    forgotten = [name for name in written if not hasattr(fact, name)]
    assert not forgotten, "a field that was once written has lost its name"
    assert codec.decode(codec.encode(fact)) == fact


def test_there_is_an_old_fact_of_every_kind() -> None:
    known = {json.loads(line)["type"] for line in LINES}
    assert not set(KINDS) - known, "add a line of the new kind to the file of the coming version"
