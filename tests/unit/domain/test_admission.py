"""Admission: each field's refusal with its name and fix, and whether a gang could ever fit. S48, too."""

import dataclasses
import time
from typing import Any

import pytest

from tenure.domain.admission import COMMAND_BYTES_MAX, ENVIRONMENT_BYTES_MAX, REPLICAS_MAX, check_job
from tenure.domain.host import HostSpec
from tenure.domain.ids import BudgetPath, HostId, UserName
from tenure.domain.job import JobSpec, Launch, Topology
from tenure.domain.policy import Policy
from tenure.domain.refusal import Refusal
from tenure.domain.shape import ClusterShape, kind_of, shape_of
from tenure.domain.tree import BudgetTree
from tenure.domain.tree_check import check_tree
from tenure.domain.units import HOUR, MINUTE

TREE = check_tree(
    {
        "budgets": {
            "science": {"share": 50, "children": {"chem": {"share": 50}, "bio": {"share": 50}}},
            "art": {"share": 9},
        }
    }
)
SPEC = JobSpec(
    budget=BudgetPath("science/chem"),
    user=UserName("ana"),
    gpus_per_replica=4,
    replicas=2,
    min_runtime_ms=15 * MINUTE,
    launch=Launch(command=("python", "train.py"), working_directory="/home/ana", environment={"SEED": "1"}),
)


def hosts(count: int, gpus: int, *, gpu_type: str = "H100", cluster: str = "main") -> list[HostSpec]:
    return [
        HostSpec(host=HostId(f"{cluster}-{gpus}-{n}"), gpus=gpus, gpu_type=gpu_type, block="b0", cluster=cluster)
        for n in range(count)
    ]


VAST = pytest.param(10**5000, id="5000 digits")
SHAPE = shape_of(hosts(16, 8))


def check(spec: JobSpec, *, tree: BudgetTree = TREE, shape: ClusterShape = SHAPE, policy: Policy | None = None) -> None:
    check_job(spec, tree=tree, hosts=shape, policy=policy or Policy())


def refused(*, tree: BudgetTree = TREE, shape: ClusterShape = SHAPE, **fields: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        check(dataclasses.replace(SPEC, **fields), tree=tree, shape=shape)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400
    return caught.value


def refused_launch(**fields: Any) -> Refusal:
    return refused(launch=dataclasses.replace(SPEC.launch, **fields))


def test_a_good_job_passes() -> None:
    check(SPEC)
    check(dataclasses.replace(SPEC, min_runtime_ms=0, priority=-1000, grace_ms=0, name="näm", gpu_type="H100"))
    check(dataclasses.replace(SPEC, min_runtime_ms=8 * HOUR, priority=1000, launch=Launch(command=("true",))))


def test_an_unknown_budget_names_the_nearest() -> None:
    refusal = refused(budget="science/chen")
    assert (refusal.field, refusal.fix) == ("budget", "did you mean science/chem? known: science/bio, science/chem")


def test_a_budget_without_its_parent_is_found() -> None:
    assert "did you mean science/chem?" in refused(budget="chem").fix


@pytest.mark.parametrize(
    "budget", ["", "zzz", "science/", pytest.param("x" * 1_000_000, id="long"), "\x1b[31m", "science/chem/deep"]
)
def test_no_such_budget(budget: str) -> None:
    assert refused(budget=budget).field == "budget"


def test_a_budget_that_is_no_leaf_lists_its_children() -> None:
    refusal = refused(budget="science")
    assert refusal.field == "budget"
    assert refusal.fix == "use one of science/bio, science/chem"


def test_without_a_tree_there_are_no_budgets() -> None:
    assert refused(tree=BudgetTree()).field == "budget"


@pytest.mark.parametrize(
    ("min_runtime_ms", "problem"),
    [(-1_000, "-1s is negative"), (9 * HOUR, "9h is above the cap of 8h"), (2**62, "above the cap of 8h")],
)
def test_min_runtime_is_between_0_and_the_cap(min_runtime_ms: int, problem: str) -> None:
    refusal = refused(min_runtime_ms=min_runtime_ms)
    assert refusal.field == "min_runtime"
    assert problem in refusal.problem
    assert refusal.fix == "use 0 to 8h"


def test_the_cap_is_the_policys() -> None:
    with pytest.raises(Refusal, match="15m is above the cap of 10m"):
        check(SPEC, policy=Policy(min_runtime_cap_ms=10 * MINUTE))


@pytest.mark.parametrize("grace_ms", [-1, 10 * MINUTE + 1, 2**62, VAST])
def test_grace_is_between_0_and_the_limit(grace_ms: int) -> None:
    refusal = refused(grace_ms=grace_ms)
    assert (refusal.field, refusal.fix) == ("grace", "use 0 to 10m")


@pytest.mark.parametrize("field", ["replicas", "gpus_per_replica"])
@pytest.mark.parametrize("value", [0, -1, -(2**62), 2**62, 2**64, VAST, 100_000])
def test_replicas_and_gpus_are_positive_and_not_huge(field: str, value: int) -> None:
    fields: dict[str, Any] = {field: value}
    refusal = refused(**fields)
    assert refusal.field == field
    assert refusal.fix.startswith("use 1 to")


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("replicas", "replicas"),
        ("gpus_per_replica", "gpus_per_replica"),
        ("priority", "priority"),
        ("min_runtime_ms", "min_runtime"),
        ("grace_ms", "grace"),
    ],
)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1.5, 1.0, "1", None, True])
def test_numbers_are_whole(name: str, field: str, value: object) -> None:
    fields: dict[str, Any] = {name: value}
    refusal = refused(**fields)
    assert refusal.field == field
    assert "not a whole number" in refusal.problem


@pytest.mark.parametrize("priority", [1_001, -1_001, 2**62])
def test_priority_is_between_minus_and_plus_1000(priority: int) -> None:
    assert refused(priority=priority).field == "priority"


@pytest.mark.parametrize("user", ["", "  ", "a\nb", "\x1b[31m", "x" * 129])
def test_user_is_a_label(user: str) -> None:
    assert refused(user=user).field == "user"


@pytest.mark.parametrize("name", ["a\tb", "\x00", "\u202eabc", "x" * 129, "\udcff"])
def test_name_is_a_label(name: str) -> None:
    assert refused(name=name).field == "name"


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("",),
        (" ", "x"),
        ("echo", "a\0b"),
        ("echo", "\udcff"),
        ("echo", "x" * COMMAND_BYTES_MAX),
        ("x" * 10_000_000,),
        ("echo", *[""] * COMMAND_BYTES_MAX),
        ("é" * (COMMAND_BYTES_MAX // 2),),
    ],
)
def test_the_command_is_a_program_and_its_arguments(command: tuple[str, ...]) -> None:
    assert refused_launch(command=command).field == "command"


def test_the_longest_command_passes() -> None:
    check(dataclasses.replace(SPEC, launch=Launch(command=("x" * (COMMAND_BYTES_MAX - 1),))))


@pytest.mark.parametrize(
    "directory", ["", "home", "./x", "~/x", "/a\0b", "/\udcff", pytest.param("/" + "x" * 5_000, id="long")]
)
def test_the_working_directory_is_an_absolute_path(directory: str) -> None:
    assert refused_launch(working_directory=directory).field == "working_directory"


@pytest.mark.parametrize("name", ["", "A=B", "A B", "A\nB", "A\0", "\x1b", "\udcff"])
def test_a_variable_has_a_usable_name(name: str) -> None:
    assert refused_launch(environment={name: "1"}).field == "environment"


@pytest.mark.parametrize("value", ["a\0b", "\udcff"])
def test_a_variable_has_a_usable_value(value: str) -> None:
    assert refused_launch(environment={"SEED": value}).field == "environment.SEED"


@pytest.mark.parametrize(
    "environment",
    [
        {"X": "x" * ENVIRONMENT_BYTES_MAX},
        {f"V{number}": "x" * 100 for number in range(2_000)},
        {"x" * ENVIRONMENT_BYTES_MAX: ""},
    ],
)
def test_the_environment_has_a_limit(environment: dict[str, str]) -> None:
    assert refused_launch(environment=environment).field == "environment"


def test_without_hosts_the_job_is_refused_for_now() -> None:
    refusal = refused(shape=ClusterShape())
    assert "no hosts have registered yet" in refusal.problem


def test_an_unknown_gpu_type_lists_the_known() -> None:
    mixed = shape_of(hosts(2, 8) + hosts(2, 8, gpu_type="B200", cluster="b"))
    refusal = refused(shape=mixed, gpu_type="H10O")
    assert refusal.field == "gpu_type"
    assert refusal.fix == "did you mean H100? known: B200, H100, or leave it out for any"


def test_a_replica_larger_than_any_host_is_refused() -> None:
    mixed = shape_of(hosts(2, 16, gpu_type="B200") + hosts(2, 8))
    refusal = refused(shape=mixed, gpus_per_replica=12, replicas=1, gpu_type="H100")
    assert refusal.field == "gpus_per_replica"
    assert refusal.problem == "12 GPUs per replica, the largest H100 host has 8"
    check(dataclasses.replace(SPEC, gpus_per_replica=12, replicas=1), shape=mixed)


def test_s04_a_gang_that_fits_in_total_but_on_no_placement_is_refused_with_the_arithmetic() -> None:
    refusal = refused(shape=shape_of(hosts(10, 6)), replicas=12, gpus_per_replica=4)
    assert refusal.field == "replicas"
    assert refusal.problem == (
        "12 replicas x 4 GPUs do not fit the empty cluster: each host fits 1, 10 hosts make 10 replicas"
    )
    assert refusal.fix == "ask for at most 10 replicas, or for fewer GPUs each"


def test_hosts_of_several_sizes_are_counted_each() -> None:
    mixed = shape_of(hosts(10, 6) + hosts(2, 12))
    check(dataclasses.replace(SPEC, replicas=16, gpus_per_replica=4), shape=mixed)
    refusal = refused(shape=mixed, replicas=17, gpus_per_replica=4)
    assert "10 hosts fit 1 each, 2 hosts fit 3 each make 16 replicas" in refusal.problem


def test_a_gang_stays_inside_one_cluster_and_one_type() -> None:
    mixed = shape_of(hosts(4, 8, cluster="a") + hosts(3, 8, cluster="b") + hosts(4, 8, gpu_type="B200", cluster="b"))
    check(dataclasses.replace(SPEC, replicas=4, gpus_per_replica=8), shape=mixed)
    refusal = refused(shape=mixed, replicas=5, gpus_per_replica=8)
    assert "make 4 replicas in cluster a (H100)" in refusal.problem
    b200 = refused(shape=mixed, replicas=5, gpus_per_replica=8, gpu_type="B200")
    assert "make 4 replicas in cluster b (B200)" in b200.problem


def test_more_replicas_than_one_fact_carries_are_refused() -> None:
    vast = shape_of(hosts(2_000, 64))
    check(dataclasses.replace(SPEC, replicas=REPLICAS_MAX, gpus_per_replica=1), shape=vast)
    assert refused(shape=vast, replicas=REPLICAS_MAX + 1, gpus_per_replica=1).field == "replicas"


def test_a_shape_changes_as_hosts_come_and_go() -> None:
    shape = shape_of(hosts(2, 8))
    (eight,) = [count.kind for count in shape.counts]
    (four,) = [count.kind for count in shape_of(hosts(1, 4)).counts]
    assert shape.changed(gone=[eight], come=[four]) == shape_of(hosts(1, 8) + hosts(1, 4))
    assert shape.changed(gone=[eight, eight], come=[]) == ClusterShape()


def test_the_cost_of_a_check_does_not_grow_with_the_hosts() -> None:
    vast, rounds = shape_of(hosts(50_000, 8)), 500
    began = time.perf_counter()
    for _ in range(rounds):
        check(SPEC, shape=vast)
    assert rounds / (time.perf_counter() - began) > 500  # some 50,000 a second on a quiet machine


def blocks(**counts: int) -> list[HostSpec]:
    """Hosts of eight GPUs in blocks; `row1__a` is the block `row1/a`."""
    return [
        HostSpec(host=HostId(f"{name}-{n}"), gpus=8, gpu_type="H100", block=name.replace("__", "/"), cluster="main")
        for name, count in counts.items()
        for n in range(count)
    ]


def test_a_gang_that_no_block_holds_is_refused_with_the_arithmetic() -> None:
    shape = shape_of(blocks(b0=32, b1=32))
    refusal = refused(shape=shape, replicas=40, gpus_per_replica=8, topology=Topology.ONE_BLOCK)
    assert refusal.field == "topology"
    assert "asked 40 replicas x 8 GPUs in one block; in the largest, b0, each host fits 1, 32 hosts" in refusal.problem
    assert refusal.fix == "ask for at most 32 replicas, or for prefer-block"
    fitting = dataclasses.replace(SPEC, replicas=40, gpus_per_replica=8)
    for topology in (Topology.ANY, Topology.PREFER_BLOCK):
        check(dataclasses.replace(fitting, topology=topology), shape=shape)
    check(dataclasses.replace(fitting, replicas=32, topology=Topology.ONE_BLOCK), shape=shape)


def test_a_block_of_blocks_holds_what_those_in_it_hold() -> None:
    shape = shape_of(blocks(row1__a=20, row1__b=20, row2=30))
    wanted = dataclasses.replace(SPEC, gpus_per_replica=8, topology=Topology.ONE_BLOCK)
    check(dataclasses.replace(wanted, replicas=40), shape=shape)
    refusal = refused(shape=shape, replicas=41, gpus_per_replica=8, topology=Topology.ONE_BLOCK)
    assert "in the largest, row1, each host fits 1, 40 hosts make 40 replicas" in refusal.problem


NAMED = {host.host: kind_of(host) for host in blocks(b0=3, b1=2)}
FIVE = shape_of(blocks(b0=3, b1=2))


def refused_on(**fields: Any) -> Refusal:
    """What is said of a job that names hosts, of five."""
    with pytest.raises(Refusal) as caught:
        check_job(dataclasses.replace(SPEC, **fields), tree=TREE, hosts=FIVE, policy=Policy(), named=NAMED)
    return caught.value


@pytest.mark.parametrize("field", ["hosts", "hosts_excluded"])
def test_a_host_that_there_is_not_is_refused_with_the_nearest(field: str) -> None:
    known = sorted(NAMED)
    refusal = refused_on(**{field: (known[0], HostId(f"{known[0]}x"))})
    assert (refusal.field, refusal.problem) == (field, f"there is no host '{known[0]}x'")
    assert refusal.fix == f"did you mean {known[0]}? known: {', '.join(known)}"


def test_a_gang_is_counted_on_the_hosts_that_it_may_use() -> None:
    known = sorted(NAMED)
    refusal = refused_on(hosts=tuple(known[:2]), replicas=3, gpus_per_replica=8)
    assert refusal.field == "replicas"
    assert "the hosts that it may use when they are empty: each host fits 1, 2 hosts make 2" in refusal.problem
    refusal = refused_on(hosts_excluded=tuple(known[:2]), replicas=4, gpus_per_replica=8)
    assert "each host fits 1, 3 hosts make 3 replicas" in refusal.problem
    for choice in ({"hosts": tuple(known[:3])}, {"hosts_excluded": tuple(known[:2])}):
        fitting = dataclasses.replace(SPEC, replicas=3, gpus_per_replica=8, **choice)
        check_job(fitting, tree=TREE, hosts=FIVE, policy=Policy(), named=NAMED)


def test_blocks_are_counted_without_excluded_hosts() -> None:
    in_b0 = min(host for host, kind in NAMED.items() if kind.block == "b0")
    check_job(
        dataclasses.replace(SPEC, replicas=3, gpus_per_replica=8, topology=Topology.ONE_BLOCK),
        tree=TREE,
        hosts=FIVE,
        policy=Policy(),
    )
    refusal = refused_on(replicas=3, gpus_per_replica=8, topology=Topology.ONE_BLOCK, hosts_excluded=(in_b0,))
    assert refusal.field == "topology" and "2 hosts make 2 replicas" in refusal.problem


@pytest.mark.parametrize("chosen", [{"hosts_excluded": 5}, {"hosts": 2, "hosts_excluded": 3}])
def test_a_job_to_which_no_host_is_left_is_refused(chosen: dict[str, int]) -> None:
    known = sorted(NAMED)
    refusal = refused_on(**{field: tuple(known[:count]) for field, count in chosen.items()})
    assert (refusal.field, refusal.problem) == ("hosts_excluded", "no host is left")


def test_hosts_that_move_are_counted_where_they_are() -> None:
    before, after = blocks(b0=2, b1=2), blocks(b0=4)
    shape = shape_of(before).changed(gone=map(kind_of, before), come=map(kind_of, after))
    assert shape == shape_of(after)
    assert shape.changed(gone=[kind_of(after[0])], come=[kind_of(after[0])]) is shape
