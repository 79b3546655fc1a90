"""`tenure up`: the options, and everything that can be refused before a process is started."""

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli.options import SYSTEM
from tenure.domain.refusal import Refusal

if TYPE_CHECKING:
    from tenure.runtime.data_dir import DataDir
    from tenure.runtime.identity_options import IdentityOptions

DEFAULT_PORT = 7733
LOOPBACK = "127.0.0.1"


def register(app: typer.Typer) -> None:
    """Add the command to the tree."""
    app.command(rich_help_panel=SYSTEM)(up)


def up(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Where everything is kept.", show_default="yours")
    ] = None,
    hosts: Annotated[
        str, typer.Option("--hosts", metavar="NxG", help="N virtual hosts of G GPUs on this machine.")
    ] = "16x8",
    cluster: Annotated[
        Path | None, typer.Option("--cluster", metavar="FILE", help="The hosts, instead: a cluster.yaml.")
    ] = None,
    budgets: Annotated[
        Path | None,
        typer.Option("--budgets", metavar="FILE", help="The tree: a budgets.yaml.", show_default="as it is"),
    ] = None,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where it answers.", show_default="127.0.0.1:7733")
    ] = "",
    provider: Annotated[str, typer.Option("--provider", help="GPUs: virtual, or nvidia for real ones.")] = "virtual",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KNOB=VALUE", help="A knob of the policy. Repeatable.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="YAML: policy:, signals:, repair:, identity: sections."),
    ] = None,
    clickhouse: Annotated[
        str, typer.Option("--clickhouse", metavar="URL", help="A ClickHouse server.", show_default="embedded")
    ] = "",
    clickhouse_token_file: Annotated[
        Path | None, typer.Option("--clickhouse-token-file", metavar="FILE", help="Its password.")
    ] = None,
) -> None:
    """Run everything on this machine until Ctrl-C, which stops it and its jobs."""
    from tenure.cli.machine import Machine
    from tenure.cli.running import run
    from tenure.runtime.budgets_file import load_budgets
    from tenure.runtime.cluster_file import load_cluster, parse_hosts
    from tenure.runtime.data_dir import DataDir, default_root
    from tenure.runtime.nats_server import find_nats_server
    from tenure.runtime.options import REPAIR, SIGNALS, load_policy, load_section
    from tenure.runtime.repair_options import build_repair_options
    from tenure.runtime.signal_options import build_signal_options

    load_policy(config, settings or [])
    build_repair_options(load_section(REPAIR, config, settings or []))
    build_signal_options(load_section(SIGNALS, config, settings or []), real_host=False)
    if cluster is None:
        parse_hosts(hosts)
    else:
        load_cluster(cluster)
    tree = None if budgets is None else load_budgets(budgets)
    if provider not in ("virtual", "nvidia"):
        raise Refusal(field="--provider", problem=f"{provider[:40]!r} is not known", fix="choose virtual or nvidia")
    find_nats_server()
    directory = DataDir(data or default_root())
    directory.prepare()
    directory.own()
    address = choose_address(listen, directory)
    identity = check_who_may_call(address, config, settings or [])
    machine = Machine(
        data=directory,
        listen=address,
        nats_port=free_port(),
        clickhouse_port=free_port(),
        clickhouse_url=clickhouse,
        clickhouse_token_file=clickhouse_token_file,
        hosts=hosts,
        cluster_file=cluster and cluster.absolute(),
        provider=provider,
        config=config and config.absolute(),
        settings=tuple(settings or ()),
        identity=identity,
    )
    raise typer.Exit(run(machine, tree=tree, tree_name=str(budgets)))


def choose_address(listen: str, directory: "DataDir") -> str:
    """Where the gateway is to listen: `listen` if given, else as last time, else the usual port or a free one.

    Raises `Refusal` when `listen` is not an address or is taken.
    """
    if listen:
        host, port = parse_address(listen)
        trouble = trouble_with(host, port)
        if trouble:
            fix = "stop what listens there, or choose another port with --listen"
            raise Refusal(field=f"--listen {listen}", problem=trouble, fix=fix)
        return f"{host}:{port or free_port()}"
    last = directory.endpoint()
    wanted = [last.address] if last is not None else []
    for address in (*wanted, f"{LOOPBACK}:{DEFAULT_PORT}"):
        host, port = parse_address(address)
        if not trouble_with(host, port):
            return address
    return f"{LOOPBACK}:{free_port()}"


def check_who_may_call(address: str, config: Path | None, settings: list[str]) -> "IdentityOptions":
    """The sources of identity. Raises `Refusal` for what is wrong with them, or too little for this address."""
    from tenure.runtime.identity_options import certificate_name, check_reach, load_identity_options

    options = load_identity_options(config, settings, environment=os.environ)
    check_reach(parse_address(address)[0], options, local_tokens=True)
    certificate_name(options)
    return options


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:7733`. Raises `Refusal`."""
    host, colon, port = text.rpartition(":")
    if not host or not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        fix = f"write host:port such as {LOOPBACK}:{DEFAULT_PORT}"
        raise Refusal(field="--listen", problem=f"{text[:80]!r} is not an address", fix=fix)
    return host, int(port)


def trouble_with(host: str, port: int) -> str:
    """Why nothing can listen there; empty if it can."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return ""


def free_port() -> int:
    """A port of the loopback address that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port
