"""`tenure host`: what there is, what is on it, and taking hosts out of use and back."""

from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli import completion, parsing, words
from tenure.cli.connection import caller, connect
from tenure.cli.options import HOSTS, Json
from tenure.cli.terminal import Cell, Column, Table, cell, print_json, print_table, say
from tenure.domain.refusal import Refusal
from tenure.domain.units import DAY

if TYPE_CHECKING:
    from tenure.v1 import hosts_pb2

STATE_STYLES = {"healthy": "green", "suspect": "yellow", "draining": "magenta", "drained": "magenta", "lost": "red"}
STATE_STYLES |= {"repairing": "cyan", "probation": "cyan", "failed": "red"}
COLUMNS = (
    Column(title="HOST"),
    Column(title="STATE"),
    Column(title="HELD", right=True),
    Column(title="GPUS", right=True),
    Column(title="TYPE", drop=4, least=6),
    Column(title="BLOCK", drop=6, least=6),
    Column(title="SEEN", right=True, drop=5),
    Column(title="EMPTY AT", right=True, drop=3),
    Column(title="SIGNALS", drop=3, least=10),
    Column(title="WAITS FOR", drop=3),
    Column(title="RUNS", drop=1, least=18),
    Column(title="COMMENT", drop=2, least=10),
)

SEVERITY_STYLES = {"watch": "", "drain": "yellow", "fatal": "red"}
SIGNAL_COLUMNS = (
    Column(title="SEVERITY"),
    Column(title="DEVICE"),
    Column(title="CODE"),
    Column(title="COUNT", right=True, drop=3),
    Column(title="LAST", right=True, drop=4),
    Column(title="SOURCE", drop=2),
    Column(title="TEXT", drop=1, least=20),
)

group = typer.Typer(no_args_is_help=True, help="Hosts: list them, drain them, take them back.")
HostArgument = Annotated[
    str, typer.Argument(metavar="HOST", help="Name of the host.", show_default=False, autocompletion=completion.hosts)
]


def register(app: typer.Typer) -> None:
    """Add the group to the tree."""
    app.add_typer(group, name="host", rich_help_panel=HOSTS)


@group.command("list")
def list_hosts(
    state: Annotated[
        list[str] | None, typer.Option("--state", "-s", metavar="STATE", help="Only hosts in this state. Repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the hosts, what is on them, and when a draining one will be empty."""
    with connect() as client:
        answer = client.hosts(states=state or [])
    if as_json:
        from tenure.cli import documents

        print_json({"hosts": [documents.host(one) for one in answer.hosts]})
        return
    now = words.now_ms()
    rows = [_row(one, now=now) for one in answer.hosts]
    print_table(Table(columns=COLUMNS, rows=rows), empty="No hosts.")


@group.command()
def show(host: HostArgument, as_json: Json = False) -> None:
    """Show one host, and what its devices and its system say of its health."""
    with connect() as client:
        found = next((one for one in client.hosts().hosts if one.host == host), None)
    if found is None:
        raise Refusal(field="host", problem=f"no host is named {host!r}", fix="tenure host list shows their names")
    if as_json:
        from tenure.cli import documents

        print_json(documents.host(found))
        return
    now = words.now_ms()
    print_table(Table(columns=COLUMNS, rows=[_row(found, now=now)]), empty="")
    say("")
    rows = [_signal_row(signal, now=now) for signal in found.signals]
    print_table(Table(columns=SIGNAL_COLUMNS, rows=rows), empty="No signals.")


@group.command()
def drain(
    host: HostArgument,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; everybody sees it.")],
    deadline: Annotated[
        int,
        typer.Option(parser=parsing.duration, metavar="TIME", help="Must be empty in this time.", show_default="none"),
    ] = 0,
    empty_at: Annotated[
        int,
        typer.Option(
            parser=parsing.instant,
            metavar="WHEN",
            help="Maintenance then: until then take what ends before. '8h' from now, or 2026-12-01T22:00.",
            show_default="none",
        ),
    ] = 0,
    fatal: Annotated[bool, typer.Option("--fatal", help="The host is broken: end its runs now.")] = False,
    as_json: Json = False,
) -> None:
    """Take no new runs on a host; unallocated runs stop now, allocated ones when their minimum is reached."""
    if deadline and empty_at:
        raise typer.BadParameter("--deadline stops new runs now, --empty-at later; give one of them")
    until = empty_at or (words.now_ms() + deadline if deadline else 0)
    with connect() as client:
        drained = client.drain(
            host, user=caller(), comment=reason, fatal=fatal, deadline_ms=until, accepts=bool(empty_at)
        )
    _show(drained, as_json=as_json)


@group.command()
def resume(
    host: HostArgument,
    comment: Annotated[str, typer.Option("--reason", "-r", "--comment", "-m", help="Why; kept in the log.")] = "",
    as_json: Json = False,
) -> None:
    """Take runs on a host again."""
    with connect() as client:
        _show(client.resume(host, user=caller(), comment=comment), as_json=as_json)


def _worst(host: "hosts_pb2.Host") -> Cell:
    """The gravest signal, and how many more there are."""
    if not host.signals:
        return cell(None)
    first, more = host.signals[0], len(host.signals) - 1
    return cell(f"{first.code} {first.device}{f' +{more}' if more else ''}", SEVERITY_STYLES.get(first.severity, ""))


def _signal_row(signal: "hosts_pb2.HostSignal", *, now: int) -> list[Cell]:
    return [
        cell(signal.severity, SEVERITY_STYLES.get(signal.severity, "")),
        cell(signal.device),
        cell(signal.code),
        cell(signal.count),
        cell(f"{words.age(max(0, now - signal.last_at_ms))} ago"),
        cell(signal.source),
        cell(signal.text),
    ]


@group.command()
def report(
    since: Annotated[
        int, typer.Option(parser=parsing.duration, metavar="TIME", help="So far back.", show_default="7d")
    ] = 7 * DAY,
    as_json: Json = False,
) -> None:
    """Availability, how soon trouble is seen, drained and mended, incidents by cause, and who ended them."""
    with connect() as client:
        answer = client.host_report(since_ms=words.now_ms() - since)
    if as_json:
        from tenure.cli import documents

        print_json(documents.host_report(answer))
        return
    from tenure.cli import host_report

    host_report.show(answer)


def _row(host: "hosts_pb2.Host", *, now: int) -> list[Cell]:
    return [
        cell(host.host),
        cell(host.state, STATE_STYLES.get(host.state, "")),
        cell(host.gpus_held),
        cell(host.gpus),
        cell(host.gpu_type),
        cell(host.block),
        cell(f"{words.age(now - host.last_seen_ms)} ago" if host.last_seen_ms else None),
        cell(words.clock(host.empty_at_ms, now=now)),
        _worst(host),
        cell(host.waits_for),
        cell(" ".join(host.runs)),
        cell(host.comment),
    ]


def _show(host: "hosts_pb2.Host", *, as_json: bool) -> None:
    """What a request made of the host."""
    if as_json:
        from tenure.cli import documents

        print_json(documents.host(host))
        return
    parts: list[str | Cell] = [cell(host.host), " ", cell(host.state, STATE_STYLES.get(host.state, ""))]
    if host.empty_at_ms:
        waits = f" (waits for {host.waits_for})" if host.waits_for else ""
        parts.append(cell(f", empty at {words.clock(host.empty_at_ms, now=words.now_ms())} at the latest{waits}"))
    if host.deadline_ms and host.empty_at_ms > host.deadline_ms:
        late = words.age(host.empty_at_ms - host.deadline_ms)
        parts.append(cell(f"; that is {late} after its deadline, by contracts made before", "yellow"))
    say(*parts)
