"""`tenure log export`: the log as `events.jsonl`, read from the log itself up to where it is now."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli.connection import find
from tenure.cli.files import writable, write_blocks
from tenure.cli.options import SYSTEM
from tenure.cli.terminal import is_terminal
from tenure.domain.refusal import Refusal
from tenure.sdk.errors import ServerUnreachable

if TYPE_CHECKING:
    from tenure.events.catalogue import Kind
    from tenure.events.fact import Recorded
    from tenure.log.access import Access
    from tenure.log.port import Log

    Show = Callable[[int, int], None]

group = typer.Typer(no_args_is_help=True, help="The log of everything that happened.")


def register(app: typer.Typer) -> None:
    """Add the group to the tree."""
    app.add_typer(group, name="log", rich_help_panel=SYSTEM)


@group.command()
def export(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="F[.gz]", help="Where to; compressed if so named.", show_default="stdout"
        ),
    ] = None,
    nats: Annotated[
        str, typer.Option("--nats", metavar="URL", help="The log's server.", show_default="this machine's")
    ] = "",
    cluster: Annotated[str, typer.Option("--cluster", help="Name of the log.", show_default="tenure")] = "",
    key_file: Annotated[
        Path | None, typer.Option("--nats-key-file", metavar="FILE", help="The seed of the key `reader`.")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option("--nats-ca", metavar="FILE", help="Who signed the server's certificate.")
    ] = None,
) -> None:
    """Write the log as JSON lines: capacity, submissions, runs and their ends, each with its reason."""
    from tenure.export.jsonl import EXPORTED, blocks

    place = None if output is None else writable(output, field="--output")
    access, name = where(nats, cluster, key_file=key_file, ca=ca)
    facts = read_log(access, name, EXPORTED)
    written = _write(place, blocks(facts))
    if output is not None:
        print(f"{written} lines of {len(facts)} facts in {output}", file=sys.stderr)


def where(nats: str, cluster: str, *, key_file: Path | None, ca: Path | None) -> "tuple[Access, str]":
    """The log's server and name: as given, else those of the system on this machine. Raises `Refusal`."""
    from tenure.log.access import Access, Tls
    from tenure.log.permissions import READER
    from tenure.runtime.reader import reader_access

    if nats:
        tls = None if ca is None else Tls(ca=ca)
        return Access(url=nats, client=READER, seed_file=key_file, tls=tls), cluster or "tenure"
    endpoint = find().endpoint
    if endpoint is None:
        raise Refusal(
            field="--nats",
            problem="the system is not on this machine",
            fix="name the log's server with --nats nats://host:4222",
        )
    return reader_access(endpoint), cluster or endpoint.cluster


def read_log(access: "Access", cluster: str, kinds: "Sequence[Kind]") -> "list[Recorded]":
    """All facts of these kinds, up to the last one that the log has now. Raises `ServerUnreachable`."""
    from tenure.log.port import Unavailable

    with progress() as show:
        try:
            return asyncio.run(_read(access, cluster, kinds, show))
        except Unavailable as away:
            raise ServerUnreachable(str(away), code="UNAVAILABLE") from away


async def _read(access: "Access", cluster: str, kinds: "Sequence[Kind]", show: "Show") -> "list[Recorded]":
    from tenure.log.jetstream import JetStreamLog

    log = await JetStreamLog.connect(access, cluster=cluster)
    try:
        return [recorded async for some in pieces(log, kinds, show) for recorded in some]
    finally:
        await log.close()


async def pieces(log: "Log", kinds: "Sequence[Kind]", show: "Show") -> "AsyncIterator[list[Recorded]]":
    """The facts of these kinds up to where the log is now, in order, piece by piece. Raises `Unavailable`."""
    from tenure.domain.ids import LOG_START

    head = await log.head(kinds)
    feed = await log.follow(kinds, after=LOG_START)
    try:
        while feed.passed < head:
            yield [recorded for recorded in await feed.next(None) if recorded.position <= head]
            show(feed.passed, head)
    finally:
        await feed.close()


def _write(output: Path | None, blocks: Iterable[bytes]) -> int:
    """Write the lines; how many there were."""
    if output is not None:
        return write_blocks(output, blocks)
    written = 0
    for block in blocks:
        sys.stdout.buffer.write(block)
        written += block.count(b"\n")
    sys.stdout.buffer.flush()
    return written


@contextlib.contextmanager
def progress() -> "Iterator[Show]":
    """How far the reading is, on a terminal."""
    if not is_terminal(sys.stderr):
        yield lambda _, __: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        reading = bar.add_task("reading the log", total=None)
        yield lambda done, total: bar.update(reading, completed=done, total=total)
