"""`cluster.yaml` and `--hosts 16x8`: the hosts of a virtual or real cluster as people write them, as `HostSpec`s.

    clusters:
      - {name: h100, hosts: 128, gpus_per_host: 8, gpu_type: H100, hosts_per_block: 32}
      - name: lab
        hosts:
          - {name: a1, gpus: 4, gpu_type: A100, block: row1/rack1, address: 10.0.0.1}
      - {name: dev, hosts: 4, cpus_per_host: 16}

Counted hosts are named `h000` ... in a file with one cluster, `h100-h000` ... in one with several, so that names are
unique; their blocks are `h100-b0` ... Host lists without blocks are cut into blocks the same way. A block may lie in a
larger one: the path `row1/rack1` says so. A cluster with `cpus_per_host` counts CPUs instead of GPUs: its hosts
have the type `CPU`, and `cpus` instead of `gpus` where they are listed.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tenure.domain.host import CPU, HostSpec
from tenure.domain.ids import HostId
from tenure.domain.job import ANY
from tenure.domain.names import check_block, check_word
from tenure.domain.nearest import shown, unknown_key
from tenure.domain.refusal import Refusal
from tenure.domain.shape import GPUS_PER_HOST_MAX, HOSTS_MAX
from tenure.runtime.yaml_file import load_yaml

HOSTS_PER_BLOCK = 32
VIRTUAL = "virtual"
CLUSTER_NAME_MAX = 48
"""Leaves room for `-h00000` in the name of a host."""
_CLUSTER_KEYS = ("name", "hosts", "gpus_per_host", "cpus_per_host", "gpu_type", "hosts_per_block")
_HOST_KEYS = ("name", "gpus", "cpus", "gpu_type", "block", "address")
_COUNTS = re.compile(r"([0-9]{1,9})x([0-9]{1,9})")
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,252}|::[A-Fa-f0-9:.]{0,39}")
_FIX = "write 'clusters:' and '- {name: h100, hosts: 128, gpus_per_host: 8, gpu_type: H100}' below it"


def load_cluster(path: Path) -> tuple[HostSpec, ...]:
    """The hosts of a cluster file in the order they are written. Raises `Refusal` naming the field."""
    return check_cluster(load_yaml(path))


def check_cluster(document: object) -> tuple[HostSpec, ...]:
    """The hosts of a parsed cluster file. Raises `Refusal`. A top-level `hosts:` list is one cluster named `main`."""
    if not isinstance(document, dict):
        raise Refusal(field="clusters", problem="missing", fix=_FIX)
    for key in document:
        if key not in ("clusters", "hosts"):
            raise unknown_key(key, known=["clusters", "hosts"], where="")
    if "hosts" in document:
        if "clusters" in document:
            raise Refusal(field="hosts", problem="beside 'clusters'", fix="put the list into one of the clusters")
        clusters: object = [{"name": "main", "hosts": document["hosts"]}]
    else:
        clusters = document.get("clusters")
    if not isinstance(clusters, list) or not clusters:
        raise Refusal(field="clusters", problem=f"{shown(clusters)} is not a list of clusters", fix=_FIX)
    hosts: dict[HostId, HostSpec] = {}
    names: set[str] = set()
    for number, entry in enumerate(clusters):
        field = f"clusters[{number}]"
        body = _mapping(entry, known=_CLUSTER_KEYS, field=field)
        name = _word(body.get("name"), field=f"{field}.name")
        if len(name) > CLUSTER_NAME_MAX:
            raise Refusal(
                field=f"{field}.name", problem=f"{len(name)} characters", fix=f"use at most {CLUSTER_NAME_MAX}"
            )
        if name == ANY:
            raise Refusal(field=f"{field}.name", problem="'any' stands for every cluster", fix="give another name")
        if name in names:
            raise Refusal(field=f"{field}.name", problem=f"{name} is given twice", fix="name each cluster once")
        names.add(name)
        for host in _hosts(body, name, prefix="" if len(clusters) == 1 else f"{name}-", field=field):
            if host.host in hosts:
                raise Refusal(
                    field=f"{field}.hosts", problem=f"host {host.host} is there twice", fix="name each host once"
                )
            hosts[host.host] = host
            if len(hosts) > HOSTS_MAX:
                raise Refusal(field=f"{field}.hosts", problem="too many hosts", fix=f"use at most {HOSTS_MAX} in all")
    return tuple(hosts.values())


def parse_hosts(text: str, *, field: str = "--hosts") -> tuple[HostSpec, ...]:
    """The virtual hosts of `16x8`: 16 hosts of 8 GPUs, in blocks of 32. Raises `Refusal` naming `field`."""
    match = _COUNTS.fullmatch(text.strip())
    if match is None:
        raise Refusal(field=field, problem=f"{shown(text)} is not a size", fix="write hosts x GPUs, such as 16x8")
    count, gpus = (int(part) for part in match.groups())
    _within(count, most=HOSTS_MAX, field=field, what="hosts")
    _within(gpus, most=GPUS_PER_HOST_MAX, field=field, what="GPUs per host")
    return tuple(_counted(VIRTUAL, count, gpus=gpus, gpu_type=VIRTUAL, per_block=HOSTS_PER_BLOCK, prefix=""))


def _hosts(body: Mapping[str, object], cluster: str, *, prefix: str, field: str) -> Iterator[HostSpec]:
    """The hosts of one entry, counted or listed."""
    hosts = body.get("hosts")
    per_block = body.get("hosts_per_block", HOSTS_PER_BLOCK)
    per_block = _number(per_block, most=HOSTS_MAX, field=f"{field}.hosts_per_block", what="hosts per block")
    if not isinstance(hosts, list):
        count = _number(hosts, most=HOSTS_MAX, field=f"{field}.hosts", what="hosts")
        gpus, gpu_type = _size(body, {}, keys=("gpus_per_host", "cpus_per_host"), field=field)
        yield from _counted(cluster, count, gpus=gpus, gpu_type=gpu_type, per_block=per_block, prefix=prefix)
        return
    if not hosts:
        raise Refusal(field=f"{field}.hosts", problem="no hosts", fix="give at least one")
    for index, entry in enumerate(hosts):
        where = f"{field}.hosts[{index}]"
        host = _mapping(entry, known=_HOST_KEYS, field=where)
        block = host.get("block", f"{cluster}-b{_padded(index // per_block, (len(hosts) - 1) // per_block, width=1)}")
        address = host.get("address", "127.0.0.1")
        if not isinstance(address, str) or not _ADDRESS.fullmatch(address):
            raise Refusal(
                field=f"{where}.address", problem=f"{shown(address)} is no address", fix="give a host name or an IP"
            )
        usual = {"gpus": body.get("gpus_per_host"), "cpus": body.get("cpus_per_host"), "type": body.get("gpu_type")}
        gpus, gpu_type = _size(host, usual, keys=("gpus", "cpus"), field=where)
        yield HostSpec(
            host=HostId(_word(host.get("name"), field=f"{where}.name")),
            gpus=gpus,
            gpu_type=gpu_type,
            block=_block(block, field=f"{where}.block"),
            cluster=cluster,
            address=address,
        )


def _counted(cluster: str, count: int, *, gpus: int, gpu_type: str, per_block: int, prefix: str) -> Iterator[HostSpec]:
    last = count - 1
    for index in range(count):
        yield HostSpec(
            host=HostId(f"{prefix}h{_padded(index, last, width=3)}"),
            gpus=gpus,
            gpu_type=gpu_type,
            block=f"{cluster}-b{_padded(index // per_block, last // per_block, width=1)}",
            cluster=cluster,
        )


def _padded(number: int, last: int, *, width: int) -> str:
    """`number` with as many digits as `last` has, at least `width`: names sort as they count."""
    return str(number).zfill(max(width, len(str(last))))


def _mapping(value: object, *, known: tuple[str, ...], field: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise Refusal(field=field, problem=f"{shown(value)} is not a mapping", fix=f"give {', '.join(known)}")
    for key in value:
        if key not in known:
            raise unknown_key(key, known=known, where=field)
    return value


def _word(value: object, *, field: str) -> str:
    if value is None:
        raise Refusal(field=field, problem="missing", fix="give a name")
    if not isinstance(value, str):
        raise Refusal(field=field, problem=f"{shown(value)} is not text", fix="put it in quotes")
    return check_word(value, field=field)


def _block(value: object, *, field: str) -> str:
    """The path of a block: `rack1`, or `row1/rack1` in a block of blocks."""
    return check_block(value, field=field) if isinstance(value, str) else _word(value, field=field)


def _size(
    own: Mapping[str, object], usual: Mapping[str, object], *, keys: tuple[str, str], field: str
) -> tuple[int, str]:
    """GPUs of a host and their type, or its CPUs. `usual`: what the cluster says of all its hosts."""
    of_gpus, of_cpus = keys
    cpus = own.get(of_cpus)
    if cpus is None and of_gpus not in own:
        cpus, own = usual.get("cpus"), {"gpu_type": usual.get("type"), **own}
    if cpus is None:
        word = _word(own.get("gpu_type", usual.get("type")), field=f"{field}.gpu_type")
        if word in (CPU, ANY):
            raise Refusal(field=f"{field}.gpu_type", problem=f"{word} is no GPU", fix=f"to count CPUs, {of_cpus}: 16")
        return _gpus(own.get(of_gpus, usual.get("gpus")), field=f"{field}.{of_gpus}"), word
    for key in (of_gpus, "gpu_type"):
        if own.get(key, CPU) not in (CPU, None):
            raise Refusal(field=f"{field}.{key}", problem=f"given beside {of_cpus}", fix="count one of the two")
    return _number(cpus, most=GPUS_PER_HOST_MAX, field=f"{field}.{of_cpus}", what="CPUs per host"), CPU


def _gpus(value: object, *, field: str) -> int:
    return _number(value, most=GPUS_PER_HOST_MAX, field=field, what="GPUs per host")


def _number(value: object, *, most: int, field: str, what: str) -> int:
    if value is None:
        raise Refusal(field=field, problem="missing", fix=f"give 1 to {most} {what}")
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refusal(field=field, problem=f"{shown(value)} is not a whole number", fix=f"give 1 to {most} {what}")
    return _within(value, most=most, field=field, what=what)


def _within(number: int, *, most: int, field: str, what: str) -> int:
    if not 1 <= number <= most:
        raise Refusal(field=field, problem=f"{shown(number)} {what}", fix=f"give 1 to {most}")
    return number
