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
    from tenure.runtime.settings.given import Settings
    from tenure.runtime.telemetry_options import Address

DEFAULT_HOSTS = "16x8"
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
        str,
        typer.Option(
            "--hosts", metavar="NxG", help="N virtual hosts of G GPUs on this machine.", show_default=DEFAULT_HOSTS
        ),
    ] = "",
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
    console_listen: Annotated[
        str,
        typer.Option(
            "--console-listen", metavar="HOST:PORT", help="The web console, or off.", show_default="127.0.0.1:7734"
        ),
    ] = "",
    provider: Annotated[
        str,
        typer.Option("--provider", help="GPUs: virtual, nvidia for real ones; or cpus.", show_default="virtual"),
    ] = "",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KNOB=VALUE", help="A knob of the policy, or KEY=VALUE. Repeatable."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="A configuration file: see tenure config example."),
    ] = None,
    clickhouse: Annotated[
        str, typer.Option("--clickhouse", metavar="URL", help="A ClickHouse server.", show_default="embedded")
    ] = "",
    clickhouse_token_file: Annotated[
        Path | None, typer.Option("--clickhouse-token-file", metavar="FILE", help="Its password.")
    ] = None,
    metrics_listen: Annotated[
        str,
        typer.Option("--metrics-listen", metavar="HOST:PORT", help="Answer Prometheus: ten ports.", show_default="off"),
    ] = "",
) -> None:
    """Run everything on this machine until Ctrl-C, which stops it and its jobs."""
    flags: dict[str, object] = {
        "data": data,
        "agent.hosts": hosts or None,
        "agent.cluster_file": cluster,
        "gateway.listen": listen or None,
        "console.listen": console_listen or None,
        "agent.provider": provider or None,
        "clickhouse.url": clickhouse or None,
        "clickhouse.token_file": clickhouse_token_file,
        "telemetry.metrics_listen": metrics_listen or None,
    }
    _run({path: value for path, value in flags.items() if value is not None}, config, settings or [], budgets)


def _run(flags: dict[str, object], config: Path | None, sets: list[str], budgets: Path | None) -> None:
    """Refuse what can be refused, then run. Raises `Refusal`, and `typer.Exit` at the end."""
    from tenure.cli.machine import Machine
    from tenure.cli.running import run
    from tenure.runtime.budgets_file import load_budgets
    from tenure.runtime.cluster_file import load_cluster, parse_hosts
    from tenure.runtime.data_dir import DataDir, default_root
    from tenure.runtime.nats_server import find_nats_server
    from tenure.runtime.options import build_policy
    from tenure.runtime.settings.given import load_settings
    from tenure.runtime.settings.table import POLICY

    settings = load_settings(role="up", config=config, environment=os.environ, flags=flags, sets=sets)
    hosts, cluster = str(settings.value("agent.hosts") or DEFAULT_HOSTS), settings.value("agent.cluster_file")
    if isinstance(cluster, Path):
        load_cluster(cluster)
    else:
        parse_hosts(hosts)
    tree = None if budgets is None else load_budgets(budgets)
    find_nats_server()
    data, token_file = settings.value("data"), settings.value("clickhouse.token_file")
    directory = DataDir(data if isinstance(data, Path) else default_root())
    directory.prepare()
    directory.own()
    listen = str(settings.value("gateway.listen")) if settings.is_given("gateway.listen") else ""
    address = choose_address(listen, directory)
    identity = check_who_may_call(address, settings)
    console = check_console(settings, identity)
    machine = Machine(
        data=directory,
        listen=address,
        nats_port=free_port(),
        clickhouse_port=free_port(),
        clickhouse_url=str(settings.value("clickhouse.url") or ""),
        clickhouse_token_file=token_file if isinstance(token_file, Path) else None,
        hosts=hosts,
        cluster_file=cluster.absolute() if isinstance(cluster, Path) else None,
        provider=str(settings.value("agent.provider")),
        config=config and config.absolute(),
        settings=tuple(sets),
        policy=build_policy(settings.section(POLICY)),
        knobs=_knobs_set(settings),
        unread=tuple(
            flag
            for path, flag in (
                ("nats.ca", "--nats-ca"),
                ("nats.cert", "--nats-cert"),
                ("nats.cert_key", "--nats-cert-key"),
            )
            if settings.is_given(path)
        ),
        identity=identity,
        console=console,
        metrics=measured_from(settings),
    )
    raise typer.Exit(run(machine, tree=tree, tree_name=str(budgets)))


def _knobs_set(settings: "Settings") -> dict[str, str]:
    """The knobs of the policy that `--set` names. Those of a file are the log's business: `tenure config apply`."""
    from tenure.runtime.settings.given import Source
    from tenure.runtime.settings.table import POLICY

    said = {path: each.value for path, each in settings.given.items() if each.source is Source.FLAG}
    mark = f"{POLICY}."
    return {path.removeprefix(mark): str(value) for path, value in said.items() if path.startswith(mark)}


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


def measured_from(settings: "Settings") -> "Address | None":
    """Where the first process is to answer Prometheus. Raises `Refusal`."""
    from tenure.cli.machine import MEASURED
    from tenure.runtime.telemetry_options import telemetry_options

    first = telemetry_options(settings).metrics_listen
    if first is None:
        return None
    if first.port == 0:
        fix = "name the first of ten ports, such as 127.0.0.1:9464"
        raise Refusal(field="--metrics-listen", problem="port 0 says nothing of where they answer", fix=fix)
    for number, name in enumerate(MEASURED):
        trouble = trouble_with(first.host, first.port + number)
        if trouble:
            fix = "choose another first port: each process has one of its own, from there on"
            raise Refusal(field=f"--metrics-listen ({name}, port {first.port + number})", problem=trouble, fix=fix)
    return first


def check_who_may_call(address: str, settings: "Settings") -> "IdentityOptions":
    """The sources of identity. Raises `Refusal` for what is wrong with them, or too little for this address."""
    from tenure.runtime.identity_options import IDENTITY, build_identity_options, certificate_name, check_reach

    options = build_identity_options(settings.section(IDENTITY))
    check_reach(parse_address(address)[0], options, local_tokens=True)
    certificate_name(options)
    return options


def check_console(settings: "Settings", identity: "IdentityOptions") -> str:
    """Where the web console is to answer, or off. Raises `Refusal` for an address that it may not answer at."""
    from tenure.runtime.settings.console import OFF, check_console_reach

    wanted = str(settings.value("console.listen"))
    if wanted != OFF:
        encrypted = settings.is_given("console.cert") or identity.insecure_plaintext
        check_console_reach(wanted.rpartition(":")[0], encrypted=encrypted)
    return wanted


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
