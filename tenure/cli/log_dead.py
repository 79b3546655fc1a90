"""`tenure log dead`, `tenure log quarantine`: what every role passes over in the log, and having it pass over more."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from tenure.cli import words
from tenure.cli.log import group, where
from tenure.cli.options import Json
from tenure.cli.terminal import Column, Table, cell, print_json, print_table
from tenure.domain.ids import Position
from tenure.domain.refusal import Refusal
from tenure.sdk.errors import ServerUnreachable

if TYPE_CHECKING:
    from tenure.log.access import Access
    from tenure.log.dead import DeadLetter
    from tenure.log.jetstream import JetStreamLog

COLUMNS = (
    Column(title="POSITION", right=True),
    Column(title="KEPT"),
    Column(title="SUBJECT", least=12),
    Column(title="BYTES", right=True, drop=2),
    Column(title="BY", drop=1, least=6),
    Column(title="WHY", least=20),
)
Nats = Annotated[str, typer.Option("--nats", metavar="URL", help="The log's server.", show_default="this machine's")]
Cluster = Annotated[str, typer.Option("--cluster", help="Name of the log.", show_default="tenure")]
KeyFile = Annotated[Path | None, typer.Option("--nats-key-file", metavar="FILE", help="The seed of your key there.")]
Ca = Annotated[Path | None, typer.Option("--nats-ca", metavar="FILE", help="Who signed the server's certificate.")]
T = TypeVar("T")


def register(_app: typer.Typer) -> None:
    """Add the commands to those of `tenure log`."""
    group.command()(dead)
    group.command()(quarantine)


def dead(
    limit: Annotated[int, typer.Option("--limit", min=1, help="So many of the latest.")] = 100,
    nats: Nats = "",
    cluster: Cluster = "",
    key_file: KeyFile = None,
    ca: Ca = None,
    as_json: Json = False,
) -> None:
    """List what stands in the log and is passed over: what is no fact, and facts that are condemned."""
    server, name = where(nats, cluster, key_file=key_file, ca=ca)
    letters = _with_log(server, name, lambda log: log.dead.read(limit=limit))
    if as_json:
        print_json([_document(letter) for letter in letters])
        return
    now = words.now_ms()
    rows = [
        (
            cell(letter.position),
            cell(words.clock(letter.at, now=now)),
            cell(letter.subject),
            cell(letter.size),
            cell(letter.by),
            cell(f"condemned: {letter.reason}" if letter.condemned else letter.reason),
        )
        for letter in letters
    ]
    print_table(Table(columns=COLUMNS, rows=rows), empty="Nothing is quarantined.")


def quarantine(
    position: Annotated[int, typer.Argument(min=1, metavar="POSITION", help="Of the fact, as the role's log says.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with it.")],
    nats: Nats = "",
    cluster: Cluster = "",
    key_file: KeyFile = None,
    ca: Ca = None,
) -> None:
    """Have every role pass over one fact from now on. The last resort when a role fails on it again and again.

    The fact stays in the log, and what others did because of it stays done: a start that is passed over leaves GPUs
    held that nobody knows of. Roles end once and fold the log again without it. There is no way back. It takes the
    operator's key.
    """
    from tenure.log.permissions import OPERATOR, seed_file

    if not reason.strip() or not reason.isprintable():
        raise Refusal(field="--reason", problem="empty or not printable", fix="say why in one line")
    at = Position(position)
    server, name = where(nats, cluster, key_file=key_file, ca=ca)
    if not nats and server.seed_file is not None:  # on this machine whoever runs it has the operator's key
        server = replace(server, client=OPERATOR, seed_file=seed_file(server.seed_file.parent, OPERATOR))
    fresh = _with_log(server, name, lambda log: log.condemn(at, reason=reason.strip(), by="a person", at_most=None))
    print(f"{position} is quarantined" if fresh else f"{position} was quarantined before")


def _with_log(server: "Access", cluster: str, ask: "Callable[[JetStreamLog], Awaitable[T]]") -> T:
    """What the log answers. Raises `ServerUnreachable`."""
    from tenure.log.jetstream import JetStreamLog
    from tenure.log.link import Lost, Refused
    from tenure.log.port import Unavailable

    async def run() -> T:
        log = await JetStreamLog.connect(server, cluster=cluster)
        try:
            return await ask(log)
        finally:
            await log.close()

    try:
        return asyncio.run(run())
    except (Unavailable, Lost, Refused) as away:
        raise ServerUnreachable(str(away), code="UNAVAILABLE") from away


def _document(letter: "DeadLetter") -> dict[str, object]:
    return {
        "position": letter.position,
        "subject": letter.subject,
        "condemned": letter.condemned,
        "reason": letter.reason,
        "by": letter.by or None,
        "kept_at": words.iso(letter.at),
        "bytes": letter.size,
        "data": letter.data.decode("utf-8", "backslashreplace"),
    }
