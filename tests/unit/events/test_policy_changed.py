"""A policy that nobody could decide by is no fact, whoever wrote it."""

from dataclasses import replace

import pytest

from tenure.domain.ids import FactId, UserName
from tenure.domain.policy import KNOBS, Policy, check_policy, in_words, range_in_words
from tenure.domain.refusal import Refusal
from tenure.events.plausible import impossible
from tenure.events.policy import PolicyChanged
from tenure.log import codec


def fact(policy: Policy) -> PolicyChanged:
    return PolicyChanged(at=1, id=FactId("gateway-1"), policy=policy, by=UserName("ana"))


@pytest.mark.parametrize("name", KNOBS)
def test_every_knob_has_a_range_that_its_default_lies_in(name: str) -> None:
    check_policy(Policy())
    knob = KNOBS[name]
    for value in (knob.least, knob.most):
        at_the_end = replace(Policy(), **{name: value})
        assert impossible(fact(at_the_end)) == ""
        assert codec.decode(codec.encode(fact(at_the_end))) == fact(at_the_end)
    beyond = replace(Policy(), **{name: knob.most + 1})
    with pytest.raises(Refusal, match=r"out of range; give"):
        check_policy(beyond)
    assert range_in_words(name) in impossible(fact(beyond))
    assert in_words(name, knob.least) in range_in_words(name)


def test_a_knob_of_a_newer_version_is_ignored_and_one_of_an_older_has_its_default() -> None:
    written = codec.encode(fact(Policy(lookback_ms=86_400_000)))
    newer = written.replace(b'"ratio_margin":0.02', b'"tomorrow_ms":5')
    assert newer != written
    assert codec.decode(newer) == fact(Policy(lookback_ms=86_400_000))
