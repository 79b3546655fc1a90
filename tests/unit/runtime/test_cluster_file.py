"""`cluster.yaml` and `--hosts`: the hosts that are made, and the exact place of every refusal."""

from pathlib import Path
from typing import Any

import pytest

from tenure.domain.host import HostSpec
from tenure.domain.refusal import Refusal
from tenure.domain.shape import HOSTS_MAX
from tenure.runtime.cluster_file import check_cluster, load_cluster, parse_hosts

COUNTED = {"name": "h100", "hosts": 128, "gpus_per_host": 8, "gpu_type": "H100", "hosts_per_block": 32}
LISTED = {"name": "lab", "hosts": [{"name": "a1", "gpus": 4, "gpu_type": "A100", "block": "rack1"}]}


def refused(*clusters: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        check_cluster({"clusters": list(clusters)})
    assert str(caught.value).isprintable()
    return caught.value


def test_counted_hosts_of_one_cluster(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("clusters:\n  - {name: h100, hosts: 128, gpus_per_host: 8, gpu_type: H100, hosts_per_block: 32}\n")
    hosts = load_cluster(file)
    assert len(hosts) == 128
    assert hosts[0] == HostSpec(host="h000", gpus=8, gpu_type="H100", block="h100-b0", cluster="h100")  # type: ignore[arg-type]
    assert (hosts[127].host, hosts[127].block, hosts[32].block) == ("h127", "h100-b3", "h100-b1")


def test_counted_hosts_of_several_clusters_carry_its_name() -> None:
    hosts = check_cluster({"clusters": [COUNTED, {**COUNTED, "name": "b200"}]})
    assert (hosts[0].host, hosts[128].host) == ("h100-h000", "b200-h000")
    assert len({host.host for host in hosts}) == 256


def test_names_sort_as_they_count() -> None:
    hosts = check_cluster({"clusters": [{**COUNTED, "hosts": 1_500, "hosts_per_block": 8}]})
    names = [host.host for host in hosts]
    assert names[0] == "h0000"
    assert names == sorted(names)
    assert [host.block for host in hosts] == sorted(host.block for host in hosts)


def test_blocks_are_of_32_unless_said() -> None:
    entry = {key: value for key, value in COUNTED.items() if key != "hosts_per_block"}
    assert [host.block for host in check_cluster({"clusters": [entry]})].count("h100-b0") == 32


def test_listed_hosts() -> None:
    entry = {
        "name": "lab",
        "gpu_type": "A100",
        "gpus_per_host": 8,
        "hosts_per_block": 1,
        "hosts": [
            {"name": "a1", "gpus": 4, "gpu_type": "H100", "block": "rack1", "address": "10.0.0.1"},
            {"name": "a2", "address": "::1"},
        ],
    }
    first, second = check_cluster({"clusters": [entry]})
    assert (first.host, first.gpus, first.gpu_type, first.block, first.address) == (
        "a1",
        4,
        "H100",
        "rack1",
        "10.0.0.1",
    )
    assert (second.gpus, second.gpu_type, second.block, second.cluster) == (8, "A100", "lab-b1", "lab")


def test_a_list_of_hosts_alone_is_one_cluster() -> None:
    (host,) = check_cluster({"hosts": LISTED["hosts"]})
    assert (host.host, host.cluster) == ("a1", "main")


@pytest.mark.parametrize("document", [None, [], "x", {}, {"clusters": None}, {"clusters": []}, {"clusters": {}}])
def test_a_document_without_clusters_is_refused(document: object) -> None:
    with pytest.raises(Refusal) as caught:
        check_cluster(document)
    assert caught.value.field == "clusters"


def test_both_forms_at_once_are_refused() -> None:
    with pytest.raises(Refusal) as caught:
        check_cluster({"clusters": [COUNTED], "hosts": LISTED["hosts"]})
    assert caught.value.field == "hosts"


def test_unknown_keys_are_refused_with_the_nearest_known() -> None:
    refusal = refused({**COUNTED, "gpu_per_host": 8})
    assert refusal.field == "clusters[0].gpu_per_host"
    assert "did you mean gpus_per_host?" in refusal.fix
    listed = refused({"name": "lab", "hosts": [{"name": "a", "gpu": 8}]})
    assert listed.field == "clusters[0].hosts[0].gpu"
    with pytest.raises(Refusal) as caught:
        check_cluster({"cluster": [COUNTED]})
    assert (caught.value.field, "clusters" in caught.value.fix) == ("cluster", True)


@pytest.mark.parametrize("key", ["hosts", "gpus_per_host", "hosts_per_block"])
@pytest.mark.parametrize(
    "value", [0, -1, 2**62, pytest.param(10**5000, id="5000 digits"), 1.5, 8.0, float("nan"), "8", True, {}]
)
def test_numbers_are_whole_positive_and_not_huge(key: str, value: object) -> None:
    assert refused({**COUNTED, key: value}).field == f"clusters[0].{key}"


@pytest.mark.parametrize("key", ["name", "hosts", "gpus_per_host", "gpu_type"])
def test_what_is_missing_is_named(key: str) -> None:
    assert refused({name: value for name, value in COUNTED.items() if name != key}).field == f"clusters[0].{key}"


@pytest.mark.parametrize("key", ["name", "gpu_type"])
@pytest.mark.parametrize("value", ["", "a b", "\x1b[31m", 100, None, ["a"], "x" * 64])
def test_names_are_words(key: str, value: object) -> None:
    assert refused({**COUNTED, key: value}).field == f"clusters[0].{key}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "a b"),
        ("name", None),
        ("gpus", 0),
        ("gpus", 65),
        ("gpus", None),
        ("gpu_type", None),
        ("gpu_type", 100),
        ("block", ""),
        ("block", 7),
        ("address", "a b"),
        ("address", ""),
        ("address", 10),
        ("address", "x" * 300),
    ],
)
def test_each_field_of_a_listed_host_is_checked(key: str, value: object) -> None:
    host = {"name": "a1", "gpus": 4, "gpu_type": "A100", "block": "rack1", key: value}
    assert refused({"name": "lab", "hosts": [host]}).field == f"clusters[0].hosts[0].{key}"


def test_entries_that_are_no_mappings_are_refused() -> None:
    assert refused("h100").field == "clusters[0]"
    assert refused({"name": "lab", "hosts": ["a1"]}).field == "clusters[0].hosts[0]"
    assert refused({"name": "lab", "hosts": []}).field == "clusters[0].hosts"


def test_duplicates_are_refused() -> None:
    assert refused(COUNTED, COUNTED).field == "clusters[1].name"
    twice = {**LISTED, "hosts": LISTED["hosts"] * 2}  # type: ignore[operator]
    assert refused(twice).field == "clusters[0].hosts"
    assert refused(LISTED, {**LISTED, "name": "other"}).field == "clusters[1].hosts"


def test_a_long_cluster_name_leaves_room_for_its_hosts() -> None:
    assert refused({**COUNTED, "name": "x" * 49}).field == "clusters[0].name"


def test_all_clusters_together_have_a_limit() -> None:
    most = {**COUNTED, "hosts": HOSTS_MAX}
    assert len(check_cluster({"clusters": [most]})) == HOSTS_MAX
    assert refused(most, {**LISTED}).field == "clusters[1].hosts"


def test_hosts_in_short() -> None:
    hosts = parse_hosts("40x4")
    assert len(hosts) == 40
    assert hosts[39] == HostSpec(host="h039", gpus=4, gpu_type="virtual", block="virtual-b1", cluster="virtual")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "16",
        "16x",
        "x8",
        "0x8",
        "8x0",
        "-1x8",
        "1.5x8",
        "100001x8",
        "8x65",
        "16x8x2",
        "१६x8\n",
        pytest.param("9" * 5_000, id="long"),
    ],
)
def test_hosts_in_short_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse_hosts(text)
    assert caught.value.field == "--hosts"


def test_a_block_may_lie_in_a_larger_one() -> None:
    host = {"name": "a1", "gpus": 4, "gpu_type": "A100"}
    (one,) = check_cluster({"hosts": [{**host, "block": "hall/row1/rack1"}]})
    assert one.block == "hall/row1/rack1"
    for block, problem in (("row1/", "not a usable name"), ("/rack1", "not a usable name"), ("a/b/c/d/e", "5 levels")):
        with pytest.raises(Refusal, match=problem) as caught:
            check_cluster({"hosts": [{**host, "block": block}]})
        assert caught.value.field == "clusters[0].hosts[0].block"


def test_a_cluster_may_count_slots() -> None:
    mixed = [{"name": "a"}, {"name": "s", "cpus": 4}]
    found = check_cluster(
        {
            "clusters": [
                {"name": "dev", "hosts": 2, "cpus_per_host": 16},
                {"name": "lab", "gpus_per_host": 8, "gpu_type": "H100", "hosts": mixed},
            ]
        }
    )
    assert [(host.host, host.gpus, host.gpu_type) for host in found] == [
        ("dev-h000", 16, "CPU"),
        ("dev-h001", 16, "CPU"),
        ("a", 8, "H100"),
        ("s", 4, "CPU"),
    ]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"cpus_per_host": 16, "gpus_per_host": 8}, "clusters[0].gpus_per_host: given beside cpus_per_host"),
        ({"cpus_per_host": 16, "gpu_type": "H100"}, "clusters[0].gpu_type: given beside cpus_per_host"),
        ({"cpus_per_host": 65}, "clusters[0].cpus_per_host: 65 CPUs per host; give 1 to 64"),
        (
            {"gpus_per_host": 8, "gpu_type": "CPU"},
            "gpu_type: CPU is no GPU; to count CPUs, cpus_per_host: 16",
        ),
        ({"gpus_per_host": 8, "gpu_type": "any"}, "clusters[0].gpu_type: any is no GPU"),
        ({"name": "any", "cpus_per_host": 8}, "clusters[0].name: 'any' stands for every cluster"),
    ],
)
def test_slots_and_gpus_are_told_apart(body: dict[str, object], said: str) -> None:
    with pytest.raises(Refusal) as caught:
        check_cluster({"clusters": [{"name": "dev", "hosts": 2, **body}]})
    assert said in str(caught.value)
