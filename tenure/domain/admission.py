"""What a submission must be before it is written: every field checked, and a gang that fits at least the empty cluster.

The gateway calls `check_job` before anything reaches the log; the budget role calls it again against the tree and the
hosts of its own position. It costs O(kinds of hosts), not O(hosts).
"""

import re
from collections.abc import Mapping, Sequence
from itertools import islice

from tenure.domain.host import CPU
from tenure.domain.ids import BudgetPath, HostId
from tenure.domain.job import HostChoice, JobSpec, Launch, Topology
from tenure.domain.names import check_label
from tenure.domain.nearest import did_you_mean, listed, shown
from tenure.domain.policy import Policy
from tenure.domain.refusal import Refusal
from tenure.domain.shape import GPUS_PER_HOST_MAX, ClusterShape, HostKind, Pool
from tenure.domain.tree import BudgetTree
from tenure.domain.units import Millis, format_duration

REPLICAS_MAX = 10_000
"""One fact carries the whole placement of a gang; this many replicas keep it under a megabyte."""
COMMAND_BYTES_MAX = 64 * 1024
ENVIRONMENT_BYTES_MAX = 128 * 1024
DIRECTORY_BYTES_MAX = 4_096
PRIORITY_MAX = 1_000

_VARIABLE = re.compile(r"[^\s=]+")
_NO_HOSTS: Mapping[HostId, HostKind] = {}
_NEAR_AMONG = 2_000
"""Names compared to find what was meant: enough to help, too few to keep a gateway busy."""


def check_job(
    spec: JobSpec,
    *,
    tree: BudgetTree,
    hosts: ClusterShape,
    policy: Policy,
    named: Mapping[HostId, HostKind] = _NO_HOSTS,
) -> None:
    """Raise `Refusal` naming the field and the fix unless `spec` can be admitted.

    `tree` and `hosts` are what is known now; `hosts` counts every registered host, in use or not. `named` has each by
    name; it is asked only for a job that names hosts.
    """
    check_budget(spec.budget, tree=tree)
    _check_labels(spec)
    _check_contract(spec, hosts=hosts, policy=policy)
    check_launch(spec.launch)
    _check_sizes(spec)
    check_fit(spec, hosts=hosts if spec.choice is None else _chosen(spec.choice, hosts=hosts, named=named))


def _chosen(choice: HostChoice, *, hosts: ClusterShape, named: Mapping[HostId, HostKind]) -> ClusterShape:
    """The hosts that are left to a job that names some. Raises `Refusal` for one that there is not, or if none is."""
    for field, names in (("hosts", choice.only), ("hosts_excluded", choice.excluded)):
        for name in names:
            if name not in named:
                near = did_you_mean(name, islice(named, _NEAR_AMONG))
                raise Refusal(
                    field=field, problem=f"there is no host {shown(name)}", fix=f"{near}known: {listed(sorted(named))}"
                )
    gone = [named[name] for name in dict.fromkeys(choice.excluded)]
    if choice.only:
        left = [named[name] for name in choice.among(dict.fromkeys(choice.only))]
        hosts = ClusterShape().changed(gone=(), come=left)
    else:
        hosts = hosts.changed(gone=gone, come=())
    if not hosts.pools:
        raise Refusal(field="hosts_excluded", problem="no host is left", fix="exclude fewer hosts")
    return hosts


def check_budget(path: BudgetPath, *, tree: BudgetTree) -> None:
    """Raise `Refusal` unless `path` is a budget that funds jobs."""
    if tree.is_leaf(path):
        return
    if path in tree.by_path:
        children = listed(tree.children[path])
        raise Refusal(
            field="budget", problem=f"{path} is not a leaf, so it funds no jobs", fix=f"use one of {children}"
        )
    if not path:
        raise Refusal(field="budget", problem="missing", fix=f"use one of {listed(tree.leaves)}")
    if not tree.leaves:
        raise Refusal(field="budget", problem="there are no budgets yet", fix="set some with `tenure budget set`")
    near, known = _near_budgets(path, tree=tree)
    raise Refusal(field="budget", problem=f"there is no budget {shown(path)}", fix=f"{near}known: {listed(known)}")


def _near_budgets(path: BudgetPath, *, tree: BudgetTree) -> tuple[str, Sequence[str]]:
    """A hint at the budget that was meant, and the ones to list: those beside it if its parent exists, else all."""
    parent, _, name = path.rpartition("/")
    misplaced = next((leaf for leaf in tree.leaves if leaf.rpartition("/")[2] == name), None)
    if misplaced is not None:
        return f"did you mean {misplaced}? ", tree.leaves
    known = tree.children.get(BudgetPath(parent), ()) if parent else tree.leaves
    known = known or tree.leaves
    return did_you_mean(path, known[:_NEAR_AMONG]), known


def check_launch(launch: Launch) -> None:
    """Raise `Refusal` unless a process can be made of it: command, working directory, environment."""
    if not launch.command:
        raise Refusal(field="command", problem="empty", fix="give the program and its arguments")
    if not launch.command[0].strip():
        raise Refusal(field="command", problem="its first word is empty", fix="begin with the program to run")
    size = sum(_bytes(word, field="command") + 1 for word in launch.command)
    if size > COMMAND_BYTES_MAX:
        raise Refusal(
            field="command", problem=f"{size} bytes", fix=f"use at most {COMMAND_BYTES_MAX}, or put it in a script"
        )
    directory = launch.working_directory
    if directory is not None:
        if not directory.startswith("/"):
            raise Refusal(
                field="working_directory", problem=f"{shown(directory)} is not absolute", fix="begin it with '/'"
            )
        size = _bytes(directory, field="working_directory")
        if size > DIRECTORY_BYTES_MAX:
            raise Refusal(field="working_directory", problem=f"{size} bytes", fix=f"use at most {DIRECTORY_BYTES_MAX}")
    _check_environment(launch.environment)


def check_fit(spec: JobSpec, *, hosts: ClusterShape) -> None:
    """Raise `Refusal`, with the arithmetic, unless some pool holds the whole gang when it is empty."""
    if not hosts.pools:
        raise Refusal(field="replicas", problem="no hosts have registered yet", fix="submit again when they have")
    if spec.gpu_type is not None and spec.gpu_type not in hosts.gpu_types:
        near = did_you_mean(spec.gpu_type, hosts.gpu_types)
        raise Refusal(
            field="gpu_type",
            problem=f"no host has GPUs of type {shown(spec.gpu_type)}",
            fix=f"{near}known: {listed(hosts.gpu_types)}, or leave it out for any",
        )
    pools = _pools_for(spec, hosts)
    largest = max(pool.gpus_of_largest for pool in pools)
    kind, unit = (f" {spec.gpu_type}" if spec.gpu_type else ""), unit_of(spec)
    if spec.gpus_per_replica > largest:
        raise Refusal(
            field="gpus_per_replica",
            problem=f"{spec.gpus_per_replica} {unit} per replica, the largest{kind} host has {largest}",
            fix=f"use at most {largest} and more replicas",
        )
    roomiest = max(pools, key=lambda pool: pool.replicas(spec.gpus_per_replica))
    most = roomiest.replicas(spec.gpus_per_replica)
    if spec.replicas > most:
        room = "the empty cluster" if spec.choice is None else "the hosts that it may use when they are empty"
        where = f" in cluster {roomiest.cluster} ({roomiest.gpu_type})" if len(hosts.pools) > 1 else ""
        raise Refusal(
            field="replicas",
            problem=f"{spec.replicas} replicas x {spec.gpus_per_replica} {unit} do not fit {room}: "
            f"{_arithmetic(roomiest, spec.gpus_per_replica)} make {most} replicas{where}",
            fix=f"ask for at most {most} replicas, or for fewer {unit} each",
        )
    if spec.topology is Topology.ONE_BLOCK and spec.replicas > 1:
        _check_one_block(spec, pools)


def unit_of(spec: JobSpec) -> str:
    """What a job counts its size in."""
    return "CPUs" if spec.gpu_type == CPU else "GPUs"


def _pools_for(spec: JobSpec, hosts: ClusterShape) -> list[Pool]:
    """The pools that a job may lie in. Raises `Refusal` if there is none."""
    if spec.cluster is not None and spec.cluster not in hosts.clusters:
        near = did_you_mean(spec.cluster, hosts.clusters)
        raise Refusal(
            field="cluster",
            problem=f"there is no cluster {shown(spec.cluster)}",
            fix=f"{near}known: {listed(hosts.clusters)}, or leave it out for any",
        )
    pools = [pool for pool in hosts.pools if spec.wanted.accepts((pool.cluster, pool.gpu_type))]
    if pools:
        return pools
    here = [pool.gpu_type for pool in hosts.pools if spec.cluster in (None, pool.cluster)]
    where = f"cluster {spec.cluster}" if spec.cluster else "every cluster"
    if spec.gpu_type is not None:
        fix = f"{where} has {listed(here)}: ask for that, or for another cluster"
        raise Refusal(field="gpu_type", problem=f"{where} has no {spec.gpu_type}", fix=fix)
    fix = "ask for CPUs (--cpus N, or the type CPU), or for another cluster"
    raise Refusal(field="gpu_type", problem=f"{where} counts CPUs and has no GPUs", fix=fix)


def _check_one_block(spec: JobSpec, pools: Sequence[Pool]) -> None:
    """Raise `Refusal` unless some block holds the whole gang when it is empty."""
    gpus = spec.gpus_per_replica
    block = max((pool.largest_block(gpus) for pool in pools), key=lambda part: part.replicas(gpus))
    most = block.replicas(gpus)
    if spec.replicas > most:
        name = block.counts[0].kind.block.partition("/")[0]
        raise Refusal(
            field="topology",
            problem=f"asked {spec.replicas} replicas x {gpus} GPUs in one block; in the largest, {name}, "
            f"{_arithmetic(block, gpus)} make {most} replicas",
            fix=f"ask for at most {most} replicas, or for prefer-block",
        )


def _arithmetic(pool: Pool, gpus_per_replica: int) -> str:
    """`each host fits 1, 10 hosts`, or with several kinds `10 hosts fit 1 each, 2 hosts fit 3 each`."""
    fits = [(hosts, gpus // gpus_per_replica) for gpus, hosts in pool.hosts_by_size.items()]
    if len(fits) == 1:
        number, each = fits[0]
        return f"each host fits {each}, {number} hosts"
    return listed([f"{number} hosts fit {each} each" for number, each in fits])


def _check_labels(spec: JobSpec) -> None:
    if not spec.user.strip():
        raise Refusal(field="user", problem="empty", fix="say whose job it is")
    check_label(spec.user, field="user")
    check_label(spec.name, field="name")


def _check_contract(spec: JobSpec, *, hosts: ClusterShape, policy: Policy) -> None:
    own = _of_clusters(spec, hosts=hosts, policy=policy)
    where, there = min(own, key=lambda one: one[1].min_runtime_cap_ms)
    _check_length(spec.min_runtime_ms, field="min_runtime", most=there.min_runtime_cap_ms, what="cap", where=where)
    where, there = min(own, key=lambda one: one[1].grace_max_ms)
    _check_length(spec.grace_ms, field="grace", most=there.grace_max_ms, what="limit", where=where)
    if abs(_whole(spec.priority, field="priority")) > PRIORITY_MAX:
        raise Refusal(
            field="priority",
            problem=f"{shown(spec.priority)} is out of range",
            fix=f"use {-PRIORITY_MAX} to {PRIORITY_MAX}",
        )


def _of_clusters(spec: JobSpec, *, hosts: ClusterShape, policy: Policy) -> list[tuple[str, Policy]]:
    """What counts for the contract: that of each cluster in which the job may lie, with a name where it has its own."""
    if not policy.clusters:
        return [("", policy)]
    names = dict.fromkeys(pool.cluster for pool in hosts.pools if spec.wanted.accepts((pool.cluster, pool.gpu_type)))
    own = [(f" in cluster {name}" if name in policy.clusters else "", policy.of_cluster(name)) for name in names]
    return own or [("", policy)]


def _check_length(length_ms: Millis, *, field: str, most: Millis, what: str, where: str) -> None:
    if 0 <= _whole(length_ms, field=field) <= most:
        return
    problem = "is negative" if length_ms < 0 else f"is above the {what} of {format_duration(most)}{where}"
    fix = f"use 0 to {format_duration(most)}" + (", or name another cluster" if where else "")
    raise Refusal(field=field, problem=f"{_length(length_ms)} {problem}", fix=fix)


def _length(length_ms: Millis) -> str:
    """A length of time in words; one beyond any calendar as the number that came in."""
    return format_duration(length_ms) if abs(length_ms) < 2**63 else shown(length_ms)


def _check_sizes(spec: JobSpec) -> None:
    for value, field, most in (
        (spec.replicas, "replicas", REPLICAS_MAX),
        (spec.gpus_per_replica, "gpus_per_replica", GPUS_PER_HOST_MAX),
    ):
        if _whole(value, field=field) <= 0:
            raise Refusal(field=field, problem=f"{shown(value)} is not positive", fix=f"use 1 to {most}")
        if value > most:
            raise Refusal(field=field, problem=f"{shown(value)} is too many", fix=f"use 1 to {most}")


def _whole(value: object, *, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refusal(field=field, problem=f"{shown(value)} is not a whole number", fix="give a whole number")
    return value


def _check_environment(environment: Mapping[str, str]) -> None:
    size = 0
    for name, value in environment.items():
        if not _VARIABLE.fullmatch(name) or not name.isprintable():
            raise Refusal(
                field="environment",
                problem=f"{shown(name)} cannot name a variable",
                fix="use printable characters without spaces or '='",
            )
        size += len(name.encode()) + _bytes(value, field=f"environment.{name[:128]}") + 2
    if size > ENVIRONMENT_BYTES_MAX:
        raise Refusal(
            field="environment",
            problem=f"{size} bytes in {len(environment)} variables",
            fix=f"use at most {ENVIRONMENT_BYTES_MAX}",
        )


def _bytes(text: str, *, field: str) -> int:
    """The size of `text` as the operating system will get it. Raises `Refusal` for what it cannot get."""
    if "\0" in text:
        raise Refusal(field=field, problem="holds a NUL byte", fix="take it out")
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise Refusal(field=field, problem="not valid text", fix="write it as UTF-8") from error
