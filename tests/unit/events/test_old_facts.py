"""What was once written can be read for good: facts as earlier versions wrote them, and what a newer one might write.

A line is never changed or taken out after the version was released. See docs/checklists/fact.md.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from services.agent.decider import role as agent
from services.budget.decider import role as budget
from services.gateway.shell import ROLE as GATEWAY
from services.health.decider import role as health
from services.placer.decider import role as placer
from services.ranker.decider import role as ranker
from tenure.domain.host import HostSpec
from tenure.domain.ids import HostId, Position
from tenure.domain.policy import Policy
from tenure.events.catalogue import KINDS
from tenure.events.fact import Recorded
from tenure.log import codec
from tenure.runtime.role import Decision, Role
from tests.unit.events.record import FOLDER

FACTS = [line for path in sorted(FOLDER.glob("facts_of_*.jsonl")) for line in path.read_bytes().splitlines()]
LOGS = sorted(FOLDER.glob("log_of_*.jsonl"))
POLICY = Policy()
HOSTS = (HostSpec(host=HostId("h000"), gpus=8, gpu_type="virtual", block="b", cluster="c"),)
ROLES: dict[str, Callable[[], Role[Any]]] = {
    "agent": lambda: agent(POLICY, agent="h000", hosts=HOSTS),
    "budget": lambda: budget(POLICY),
    "gateway": lambda: GATEWAY,
    "health": lambda: health(POLICY),
    "placer": lambda: placer(POLICY),
    "ranker": lambda: ranker(POLICY),
}


@pytest.mark.parametrize("line", FACTS, ids=lambda line: json.loads(line)["type"])
def test_an_old_fact_is_read_and_nothing_of_it_is_lost(line: bytes) -> None:
    written = json.loads(line)
    fact = codec.decode(line)
    assert type(fact).__name__ == written.pop("type")
    assert lost(written, fact) == []
    assert codec.decode(codec.encode(fact)) == fact


def lost(written: Any, read: Any, where: str = "") -> list[str]:
    """What stands in the bytes and not in the value, by its name."""
    if isinstance(written, dict):
        named = read if isinstance(read, Mapping) else {key: getattr(read, key, None) for key in written}
        return [each for key, value in written.items() for each in lost(value, named.get(key), f"{where}.{key}")]
    if isinstance(written, list):
        if not isinstance(read, Sequence) or len(read) != len(written):
            return [where]
        pairs = zip(written, read, strict=True)
        return [each for number, pair in enumerate(pairs) for each in lost(*pair, f"{where}[{number}]")]
    return [] if written == (read.value if isinstance(read, Enum) else read) else [where]


def test_there_is_an_old_fact_of_every_kind() -> None:
    known = {json.loads(line)["type"] for line in FACTS}
    assert not set(KINDS) - known, "add a line of the new kind to the file of the coming version"


def test_a_loss_is_found() -> None:
    fact = codec.decode(b'{"type":"DrainRequested","at":1,"host":"h0","by":"ana","comment":"c"}')
    assert lost({"host": "h0", "by": "bob", "reason": 1, "at": 1}, fact) == [".by", ".reason"]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
@pytest.mark.parametrize("name", ROLES)
def test_an_old_log_is_folded_whatever_a_newer_version_has_put_between(name: str, path: Path) -> None:
    """Fields that nobody knows change nothing, kinds that nobody knows are passed over."""
    lines = path.read_bytes().splitlines()
    newer = [json.dumps(json.loads(line) | {"from_tomorrow": {"deep": [1]}}).encode() for line in lines]
    between = [
        line for pair in zip(newer, [b'{"type":"FromTomorrow","at":1}'] * len(newer), strict=True) for line in pair
    ]
    as_it_was, mixed = folded(ROLES[name](), lines), folded(ROLES[name](), between)
    assert facts_of(as_it_was) == facts_of(mixed)


def folded(role: Role[Any], lines: Sequence[bytes]) -> Decision:
    """What a role decides at the end of a log, folded as its loop does. Unreadable facts take no position here."""
    state, position, at = role.initial(), 0, 0
    for line in lines:
        try:
            fact = codec.decode(line)
        except codec.Undecodable:
            continue
        position, at = position + 1, max(at, fact.at)
        if type(fact) in role.reads:
            role.evolve(state, Recorded(Position(position), fact))
    return role.decide(state, at)


def facts_of(decision: Decision) -> tuple[Any, ...]:
    return decision.assumes, tuple(decision.facts), decision.wake_at
