"""Whatever agents and people may say: no role fails on it, and what is said of things nobody knows changes nothing.

The facts are plausible (`tenure.events.plausible`): what is not comes to no role. They tell of runs, jobs and hosts
that there are or never were, of replicas that no run has, of instants long ago and to come, in any order.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from services.agent import decider as agent
from services.gateway.shell import ROLE as GATEWAY
from tenure.domain.host import HostSpec
from tenure.domain.ids import FactId, HostId, JobId
from tenure.domain.policy import Policy
from tenure.domain.units import DAY, HOUR
from tenure.events.catalogue import KINDS
from tenure.events.fact import Fact, Recorded
from tenure.events.intake import JobSubmitted
from tenure.events.plausible import AT_MAX, COUNT_MAX, impossible
from tenure.events.reports import HostRegistered
from tenure.export.jsonl import lines
from tenure.log.memory import MemoryLog
from tenure.runtime.poison import OUTSIDE
from tests.checks.invariants import check_log
from tests.property.test_codec import FACTS
from tests.property.test_world import QUICK, scripts
from tests.scenario.script import build, script_to_world

SAID = tuple(kind for kind in KINDS.values() if kind.lane in OUTSIDE)
HOSTS, STRANGE_HOSTS = ("h000", "h001", "h002"), ("h999", "h\u00e9 llo", "-")
JOBS, STRANGE_JOBS = tuple(f"j{number:02}" for number in range(8)), ("j99", "nobody", "j00.1")
INSTANTS = st.sampled_from((0, 1, 60_000, HOUR, 2 * HOUR, 2 * HOUR + 1, DAY, AT_MAX)) | st.integers(0, 3 * HOUR)
NUMBERS = st.sampled_from((0, 1, 2, 7, 8, 9, 64, 1_000, COUNT_MAX)) | st.integers(0, 12)
WORDS = st.sampled_from(("a/x", "b", "ana", "H100", "b0", "xid_79", "kernel", "gpu0", "", "x" * 200, "\u202e", "-1"))


def values(kind: inspect.Type, name: str, *, hosts: Sequence[str], jobs: Sequence[str]) -> st.SearchStrategy[Any]:
    """Values of a field, such that some of them mean something."""
    again = partial(values, name=name, hosts=hosts, jobs=jobs)
    runs = [f"{job}.{number}" for job in jobs for number in (1, 2)]
    match kind:
        case inspect.StrType():
            named = {"host": hosts, "hosts": hosts, "job": jobs, "first": jobs, "run": runs, "runs": runs}
            return st.sampled_from(named[name]) if name in named else WORDS
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            is_time = name in ("at", "since", "until", "started_at", "first_at", "last_at", "deadline")
            return INSTANTS if is_time else NUMBERS
        case inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case inspect.NoneType():
            return st.none()
        case inspect.EnumType():
            return st.sampled_from(list(kind.cls))
        case inspect.VarTupleType():
            return st.lists(again(kind.item_type), max_size=3).map(tuple)
        case inspect.DictType():
            return st.dictionaries(again(kind.key_type), again(kind.value_type), max_size=2)
        case inspect.UnionType():
            return st.one_of(*(again(each) for each in kind.types))
        case inspect.StructType() | inspect.DataclassType():
            fields = {each.name: values(each.type, each.name, hosts=hosts, jobs=jobs) for each in kind.fields}
            return st.fixed_dictionaries(fields).map(lambda given: kind.cls(**given))
    raise AssertionError(f"facts have a new sort of field: {kind}")


def said(*, hosts: Sequence[str], jobs: Sequence[str]) -> st.SearchStrategy[list[tuple[int, Fact]]]:
    """Seconds at which something is said, and what."""
    facts = [values(inspect.type_info(kind), "", hosts=hosts, jobs=jobs) for kind in SAID]
    return st.lists(st.tuples(st.integers(0, 3 * 3600), st.one_of(*facts)), min_size=1, max_size=12)


def world_with(script: dict[str, Any], lies: Sequence[tuple[int, Fact]]) -> list[Recorded]:
    """The log of a world in which these things were said, too. Fails if one of its roles does."""
    world = build(script)
    for number, (second, fact) in enumerate(lies):
        fact = msgspec.structs.replace(fact, id=FactId(f"lie-{number}"), cluster="sim", cause=None)
        if isinstance(fact, JobSubmitted):  # who may submit makes ids of its own, each once
            fact = msgspec.structs.replace(fact, job=JobId(f"lie-{number}"))
        if not impossible(fact):
            world.at(second * 1000, partial(say, world.log, fact))
    script_to_world(script, world=world)
    return list(world.log.recorded)


def say(log: MemoryLog, fact: Fact) -> None:
    log.append_now([fact])


def read_by_the_others(recorded: Sequence[Recorded]) -> None:
    """The roles that no simulated world has, and the export, read all of it."""
    state = GATEWAY.initial()
    specs = tuple(HostSpec(host=HostId(host), gpus=8, gpu_type="H100", block="b0", cluster="sim") for host in HOSTS)
    role = agent.role(Policy(), agent="agent", hosts=specs)
    holding = role.initial()
    for entry in recorded:
        if type(entry.fact) in GATEWAY.reads:
            GATEWAY.evolve(state, entry)
        if type(entry.fact) in role.reads:
            role.evolve(holding, entry)
    read = [entry.position for entry in recorded if type(entry.fact) in GATEWAY.reads]
    assert state.position == max(read, default=0)
    assert all(line.endswith(b"}") for line in lines(recorded))


@settings(max_examples=60, deadline=None, phases=QUICK)
@given(scripts(), said(hosts=HOSTS + STRANGE_HOSTS, jobs=JOBS + STRANGE_JOBS))
def test_no_role_fails_on_anything_that_is_said(script: dict[str, Any], lies: list[tuple[int, Fact]]) -> None:
    read_by_the_others(world_with(script, lies))


@settings(max_examples=40, deadline=None, phases=QUICK)
@given(scripts(), said(hosts=STRANGE_HOSTS, jobs=STRANGE_JOBS))
def test_what_is_said_of_things_that_nobody_knows_breaks_nothing(
    script: dict[str, Any], lies: list[tuple[int, Fact]]
) -> None:
    harmless = [(second, fact) for second, fact in lies if not isinstance(fact, HostRegistered | JobSubmitted)]
    recorded = world_with(script, harmless)
    check_log([entry for entry in recorded if not entry.fact.id.startswith("lie-")])


@given(FACTS)
@settings(max_examples=300, deadline=None)
def test_of_any_fact_it_is_said_whether_it_can_be(fact: Fact) -> None:
    """Numbers of 64 bits, texts of any letters: an answer, and in the end one line."""
    why = impossible(fact)
    assert isinstance(why, str)
    assert "\n" not in why
    assert len(why) < 400
