"""A job names a cluster, a type, or any: what is refused, and with which words. Caps of a cluster, and cpus."""

import dataclasses
from typing import Any

import pytest

from tenure.domain.job import JobSpec
from tenure.domain.policy import Policy, changes, check_policy, in_words, mapping_in_words, value_in_words, value_of
from tenure.domain.rates import Rates, counts_from, weighed
from tenure.domain.refusal import Refusal
from tenure.domain.shape import shape_of
from tenure.domain.units import HOUR, MINUTE
from tests.unit.domain.test_admission import SPEC, check, hosts

SHAPE = shape_of(
    [
        *hosts(4, 8, cluster="east"),
        *hosts(2, 8, cluster="west", gpu_type="B200"),
        *hosts(2, 16, cluster="dev", gpu_type="CPU"),
    ]
)


def spec(**fields: Any) -> JobSpec:
    return dataclasses.replace(SPEC, gpus_per_replica=8, **fields)


def words(policy: Policy | None = None, **fields: Any) -> str:
    with pytest.raises(Refusal) as caught:
        check(spec(**fields), shape=SHAPE, policy=policy)
    return str(caught.value)


def test_any_a_type_or_a_cluster_may_be_named() -> None:
    for named in ({}, {"cluster": "west"}, {"gpu_type": "B200"}, {"cluster": "west", "gpu_type": "B200"}):
        check(spec(**named), shape=SHAPE)
    check(spec(gpu_type="CPU", cluster="dev", replicas=4), shape=SHAPE)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"cluster": "wst"}, "cluster: there is no cluster 'wst'; did you mean west? known: dev, east, west"),
        ({"gpu_type": "B20"}, "gpu_type: no host has GPUs of type 'B20'; did you mean B200?"),
        ({"cluster": "east", "gpu_type": "B200"}, "gpu_type: cluster east has no B200; cluster east has H100: ask"),
        ({"cluster": "dev"}, "gpu_type: cluster dev counts CPUs and has no GPUs; ask for CPUs"),
        ({"cluster": "west", "replicas": 3}, "replicas: 3 replicas x 8 GPUs do not fit the empty cluster"),
        ({"replicas": 5}, "each host fits 1, 4 hosts make 4 replicas in cluster east (H100)"),
        ({"gpu_type": "CPU", "replicas": 5}, "5 replicas x 8 CPUs do not fit the empty cluster: each host fits 2"),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(named: dict[str, Any], said: str) -> None:
    """A gang lies in one cluster and on one type: 5 replicas fit no single one, although there are 6 hosts."""
    assert said in words(**named)


def test_the_cap_of_the_cluster_counts_and_of_any_the_strictest() -> None:
    policy = Policy(clusters={"west": {"min_runtime_cap_ms": HOUR, "grace_max_ms": 0}})
    long = {"min_runtime_ms": 2 * HOUR, "grace_ms": 0}
    check(spec(cluster="east", **long), shape=SHAPE, policy=policy)
    check(spec(cluster="west", min_runtime_ms=HOUR, grace_ms=0), shape=SHAPE, policy=policy)
    for named in ({"cluster": "west"}, {"gpu_type": "B200"}, {}):
        said = words(policy, **long, **named)
        assert said == "min_runtime: 2h is above the cap of 1h in cluster west; use 0 to 1h, or name another cluster"
    assert "grace: 1m is above the limit of 0s in cluster west" in words(policy, cluster="west", grace_ms=MINUTE)
    check(spec(gpu_type="CPU", **long), shape=SHAPE, policy=policy)


def test_differences_between_policies_are_named_entry_by_entry() -> None:
    before = Policy(rates_milli={"B200": 2_500, "A100": 500}, clusters={"dev": {"min_runtime_cap_ms": 2 * HOUR}})
    after = Policy(rates_milli={"B200": 3_000, "A100": 500}, clusters={"dev": {"job_failures": 7}})
    names = changes(before, after)
    assert names == ("rates.B200", "clusters.dev.job_failures", "clusters.dev.min_runtime_cap_ms")
    told = [(in_words(name, value_of(before, name)), in_words(name, value_of(after, name))) for name in names]
    assert told == [("2.5", "3"), ("3", "7"), ("2h", "8h")]
    assert changes(before, before) == ()
    assert [value_of(policy, "rates.CPU") for policy in (before, Policy(rates_milli={"CPU": 1_000}))] == [20, 1_000]
    assert [value_in_words(policy, names[1]) for policy in (before, after)] == ["3 (as everywhere)", "7"]
    assert mapping_in_words("rates", before) == "{A100: 0.5, B200: 2.5}"
    assert mapping_in_words("clusters", before) == "{dev: {min_runtime_cap: 2h}}"


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (Policy(rates_milli={"B200": 0}), "rates.B200: 0 is out of range; give 0.001 to 1000"),
        (Policy(rates_milli={"B 200": 1}), "rates: 'B 200' is not a usable name"),
        (Policy(clusters={"dev": {"ratio_margin": 1}}), "clusters.dev.ratio_margin: unknown key"),
        (Policy(clusters={"dev": {"job_failures": 0}}), "job_failures: 0 is out of range"),
        (Policy(clusters={"dev": {"host_clear_ms": 1.5}}), "clusters.dev.host_clear: 1.5 is not whole"),
        (Policy(clusters={"d v": {}}), "clusters: 'd v' is not a usable name"),
    ],
)
def test_values_out_of_range_are_refused(policy: Policy, said: str) -> None:
    with pytest.raises(Refusal) as caught:
        check_policy(policy)
    assert said in str(caught.value)


def test_rates_over_time() -> None:
    rates = Rates({"B200": 2_000})
    rates.change({"B200": 3_000}, at=HOUR + 1)
    rates.change({"B200": 4_000}, at=HOUR + 2)  # within the same hour: the last word counts
    assert [rates.milli_at("B200", at) for at in (0, 2 * HOUR - 1, 2 * HOUR)] == [2_000, 2_000, 4_000]
    assert (rates.milli_at("H100", HOUR), rates.newest_milli("B200")) == (1_000, 4_000)
    assert [rates.milli_at("CPU", at) for at in (0, 2 * HOUR)] == [20, 20], "its own while none is given"
    rates.change({"B200": 4_000}, at=5 * HOUR)  # says nothing new
    assert (rates.next_change(HOUR), rates.next_change(2 * HOUR)) == (2 * HOUR, None)
    rates.forget(2 * HOUR)
    assert rates.of_type("B200") == ((2 * HOUR, 4_000),)
    assert [counts_from(at) for at in (0, 1, HOUR, HOUR + 1)] == [0, HOUR, HOUR, 2 * HOUR]
    assert [weighed(3, milli=milli) for milli in (1_000, 500, 2_500)] == [3, 2, 8], "to the nearest, halves up"
