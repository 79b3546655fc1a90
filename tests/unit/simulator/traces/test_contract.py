"""Contract rules: what they say, which one counts, and what is said of bad ones."""

import pytest

from simulator.traces.contract import DEFAULT_RULES, Contract, kind_of, parse_rules, sign
from simulator.traces.record import Record
from tenure.domain.refusal import Refusal


def job(number=1, *, gpus=1, runtime_s=7200, **rest):
    return Record(job=f"j{number}", line=number, submit_s=0, gpus=gpus, runtime_s=runtime_s, group="g", **rest)


def signed(record, *rules):
    return sign(record, parse_rules(rules))[1]


def test_the_first_rule_that_fits_counts():
    rules = parse_rules(
        ["gpus>8: min_runtime=4h, resumable", "gpus<=2, runtime>1h: min_runtime=15m", "all: unallocated"]
    )
    assert sign(job(gpus=16), rules) == (
        0,
        Contract(min_runtime_s=14_400, resumable=True, priority=0, kind="medium"),
    )
    assert sign(job(gpus=2), rules)[0] == 1
    assert sign(job(gpus=2, runtime_s=3600), rules)[0] == 2


def test_what_no_rule_fits_falls_to_the_default_ones():
    assert len(parse_rules([])) == len(DEFAULT_RULES)
    assert signed(job(gpus=64, runtime_s=40 * 3600), "gpus<=1: unallocated") == Contract(
        min_runtime_s=8 * 3600, resumable=True, priority=0, kind="medium"
    )
    contracts = [signed(job(number, runtime_s=600)) for number in range(1000)]
    assert {contract.kind for contract in contracts} == {"sweep", "debug"}
    assert 260 < sum(contract.min_runtime_s == 0 for contract in contracts) < 340


@pytest.mark.parametrize(
    ("runtime_s", "rule", "min_runtime_s"),
    [
        (7200, "all: min_runtime=50%", 3600),
        (7200, "all: min_runtime=12.5 %", 900),
        (200_000, "all: min_runtime=50%", 8 * 3600),
        (200_000, "all: min_runtime=100%, cap=2h", 7200),
        (60, "all: min_runtime=50%, floor=15m", 900),
        (1, "all: min_runtime=10%", 1),
        (7200, "all: min_runtime=90s", 90),
        (7200, "all: min_runtime=1500ms", 2),
        (7200, "all: unallocated", 0),
    ],
)
def test_minimum_runtimes(runtime_s, rule, min_runtime_s):
    assert signed(job(runtime_s=runtime_s), rule).min_runtime_s == min_runtime_s


@pytest.mark.parametrize(
    ("condition", "fits"),
    [
        ("gpus=4", True), ("gpus<4", False), ("gpus>=4", True), ("gpus > 3", True), ("gpus<=3", False),
        ("runtime=2h", True), ("runtime<2h", False), ("limit<=4h", True), ("limit>4h", False),
        ("budget=vc-*", True), ("budget=vc", False), ("user=an?", True), ("user=AN?", False),
        ("qos=high", True), ("partition=long", False), ("share=100%", True), ("all", True),
        ("gpus=4, user=ben", False), ("gpus=4, user=ana", True),
    ],
)  # fmt: skip
def test_conditions(condition, fits):
    record = job(gpus=4, user="ana", limit_s=4 * 3600, budget="vc-1", qos="high", partition="short")
    index, _ = sign(record, parse_rules([f"{condition}: unallocated"]))
    assert (index == 0) is fits


def test_a_limit_that_is_not_known_fits_nothing():
    assert sign(job(), parse_rules(["limit<=4h: unallocated"]))[0] > 0


def test_a_share_is_the_same_jobs_each_time_and_rules_choose_independently():
    rules = parse_rules(["share=50%: unallocated", "share=50%: min_runtime=1h", "all: min_runtime=2h"])
    chosen = [sign(job(number), rules)[0] for number in range(4000)]
    assert chosen == [sign(job(number), rules)[0] for number in range(4000)]
    first, second, rest = (chosen.count(index) / 4000 for index in range(3))
    assert abs(first - 0.5) < 0.05
    assert abs(second - 0.25) < 0.05, "half of what the first left, not none of it"
    assert first + second + rest == 1


def test_settings():
    contract = signed(job(), "all: min_runtime=1h, resumable=no, priority=-2, kind=nightly")
    assert contract == Contract(min_runtime_s=3600, resumable=False, priority=-2, kind="nightly")
    assert signed(job(), "all: unallocated, resumable").resumable


def test_kinds_are_named_by_what_a_job_is():
    sizes = [(1, 0), (8, 900), (8, 901), (9, 900), (64, 1), (65, 1)]
    assert [kind_of(gpus=gpus, min_runtime_s=seconds) for gpus, seconds in sizes] == [
        "sweep", "debug", "small", "medium", "medium", "large",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("gpus<=1 min_runtime=15m", "no ':'; write CONDITIONS: SETTINGS"),
        ("gpu<=1: unallocated", "unknown condition 'gpu'; did you mean gpus? known: all, gpus"),
        ("gpus: unallocated", "'gpus' compares nothing"),
        ("all=1: unallocated", "'all=1' compares nothing"),
        (": unallocated", "unknown condition ''"),
        ("gpus<=few: unallocated", "'few' is no number of GPUs"),
        ("runtime<=15: unallocated", "runtime: '15' is not a duration; write a duration such as 90s"),
        ("share=2: unallocated", "'2' is not a percentage; write such as share=30%"),
        ("share=200%: unallocated", "share of 200%; use more than 0 and at most 100 %"),
        ("share<3%: unallocated", "share has no order; write share=3%"),
        ("all: min_runtme=1h", "unknown setting 'min_runtme'; did you mean min_runtime?"),
        ("all:", "unknown setting ''"),
        ("all: resumable", "neither min_runtime nor unallocated; set one of them"),
        ("all: unallocated, min_runtime=1h", "both unallocated and min_runtime"),
        ("all: unallocated=yes", "unallocated takes no value"),
        ("all: min_runtime=1h, min_runtime=2h", "min_runtime is set twice"),
        ("all: min_runtime=", "min_runtime has no value; write min_runtime=VALUE"),
        ("all: min_runtime=0", "min_runtime of 0; write unallocated"),
        ("all: min_runtime=0%", "min_runtime of 0%; use more than 0"),
        ("all: min_runtime=1h, cap=2h", "cap bounds a percentage only"),
        ("all: min_runtime=50%, floor=3h, cap=2h", "the floor is above the cap"),
        ("all: unallocated, resumable=maybe", "resumable='maybe'; write resumable or resumable=no"),
        ("all: unallocated, priority=9999", "priority of '9999'; use a whole number from -1000 to 1000"),
        ("all: unallocated, kind=a b", "'a b' is not a usable name"),
    ],
)
def test_bad_rules_are_named(rule, message):
    with pytest.raises(Refusal) as caught:
        parse_rules(["all: unallocated", rule])
    assert f"rule {rule!r}: {message}" in str(caught.value)
