"""`tenure log restore`: the log made anew from the facts in ClickHouse, each at its position."""

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli import words
from tenure.cli.log import group
from tenure.cli.options import Json
from tenure.cli.serve import role_command
from tenure.cli.terminal import print_json
from tenure.domain.refusal import Refusal
from tenure.runtime.data_dir import DataDir
from tenure.sdk.errors import ServerUnreachable

if TYPE_CHECKING:
    from tenure.log.access import Access
    from tenure.log.restore import Restored

ENGINE_S = 60.0
POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the facts are and where the log is to be."""

    clickhouse: str
    token_file: Path | None
    log: "Access"
    cluster: str
    replicas: int = 1
    max_gib: int = 0


def register(_app: typer.Typer) -> None:
    """Add the command to those of `tenure log`."""
    group.command()(restore)


def restore(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="A data directory that has lost nats/. Not in use.")
    ] = None,
    clickhouse: Annotated[str, typer.Option("--clickhouse", metavar="URL", help="Or: the ClickHouse server.")] = "",
    token_file: Annotated[
        Path | None, typer.Option("--clickhouse-token-file", metavar="FILE", help="Its password.")
    ] = None,
    nats: Annotated[str, typer.Option("--nats", metavar="URL", help="The log's servers, where no log is.")] = "",
    cluster: Annotated[str, typer.Option("--cluster", help="Name of the log.")] = "tenure",
    key_file: Annotated[
        Path | None, typer.Option("--nats-key-file", metavar="FILE", help="The seed of the key `operator`.")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option("--nats-ca", metavar="FILE", help="Who signed the server's certificate.")
    ] = None,
    replicas: Annotated[int, typer.Option("--replicas", help="Servers that hold every fact: 1, 3 or 5.")] = 1,
    max_gib: Annotated[
        int, typer.Option("--max-gib", min=0, help="Size at which it refuses new facts. 0: what there is.")
    ] = 0,
    as_json: Json = False,
) -> None:
    """Make the log anew from ClickHouse when the log itself is lost: the same facts at the same positions.

    No role may run meanwhile. What ClickHouse did not have yet is lost, and so are heartbeats older than the log keeps
    them; docs/operations.md says what that means. Never start the old log again afterwards.
    """
    from tenure.log.access import Access, Tls
    from tenure.log.permissions import OPERATOR

    if (data is None) == (not clickhouse or not nats):
        raise Refusal(
            field="--data", problem="either that, or --clickhouse and --nats", fix="say where the facts are, once"
        )
    if replicas not in (1, 3, 5):
        raise Refusal(field="--replicas", problem=str(replicas), fix="use 1, 3 or 5")
    if data is not None:
        with _embedded(data, cluster) as place:
            restored = _restore(replace(place, max_gib=max_gib))
    else:
        tls = None if ca is None else Tls(ca=ca)
        access = Access(url=nats, client=OPERATOR, seed_file=key_file, tls=tls)
        place = Place(clickhouse=clickhouse, token_file=token_file, log=access, cluster=cluster)
        restored = _restore(replace(place, replicas=replicas, max_gib=max_gib))
    _tell(restored, as_json=as_json)


def _tell(restored: "Restored", *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "position": restored.last,
                "facts": restored.facts,
                "positions_without_a_fact": restored.gaps,
                "heartbeats_left_out": restored.heartbeats_left_out,
            }
        )
        return
    print(f"restored {restored.facts} facts up to position {restored.last}")
    if restored.gaps:
        print(f"{restored.gaps} positions have none: {restored.heartbeats_left_out} for heartbeats that are too old")


def _restore(place: Place) -> "Restored":
    """Raises `Refusal`, `ServerUnreachable`."""
    from clickhouse_connect.driver.exceptions import ClickHouseError

    from tenure.clickhouse.connect import brief, connect
    from tenure.clickhouse.story import export, log_identity, visible_position
    from tenure.log.port import Unavailable
    from tenure.log.restore import restore as make_anew

    try:
        client = connect(place.clickhouse, place.token_file)
        identity, last = log_identity(client), visible_position(client)
        if not identity or not last:
            raise Refusal(field="--clickhouse", problem="it holds no facts", fix="name the database of the journal")
        return asyncio.run(
            make_anew(
                export(client),
                place.log,
                cluster=place.cluster,
                copy_of=identity,
                last=last,
                now=words.now_ms(),
                replicas=place.replicas,
                max_bytes=place.max_gib << 30 if place.max_gib else None,
            )
        )
    except (ClickHouseError, ConnectionError) as error:
        raise ServerUnreachable(f"ClickHouse: {brief(error)}", code="UNAVAILABLE") from error
    except Unavailable as trouble:
        raise ServerUnreachable(str(trouble), code="UNAVAILABLE") from trouble


@contextlib.contextmanager
def _embedded(root: Path, cluster: str) -> Iterator[Place]:
    """The two servers of a data directory without anything else."""
    from tenure.log.access import Access
    from tenure.log.permissions import OPERATOR
    from tenure.runtime.nats_server import NatsServer

    data = DataDir(root)
    if not (data.root / "clickhouse").is_dir():
        raise Refusal(field="--data", problem=f"{root} has no clickhouse/", fix="name the data directory of tenure up")
    data.prepare()
    data.own()
    server = NatsServer(data.root / "nats")
    try:
        with _engine(data) as (url, token_file):
            server.start()
            access = Access(url=server.url, client=OPERATOR)
            yield Place(clickhouse=url, token_file=token_file, log=access, cluster=cluster)
    finally:
        server.stop()
        data.release()


@contextlib.contextmanager
def _engine(data: DataDir) -> Iterator[tuple[str, Path]]:
    """The embedded ClickHouse: its address and the file with its token."""
    from tenure.runtime.supervisor import ready_details

    token_file, ready = data.run / "clickhouse.token", data.run / "restore.ready.json"
    ready.unlink(missing_ok=True)
    own = ["--data", str(data.root / "clickhouse"), "--port", "0", "--token-file", str(token_file)]
    with data.log_file("clickhouse").open("ab") as said:
        process = subprocess.Popen(
            role_command("clickhouse", *own, "--ready-file", str(ready)), stdout=said, stderr=said
        )
    try:
        deadline = time.monotonic() + ENGINE_S
        while (details := ready_details(ready, process.pid)) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise ServerUnreachable(
                    f"the embedded ClickHouse does not start: see {data.log_file('clickhouse')}", code="UNAVAILABLE"
                )
            time.sleep(POLL_S)
        yield f"http://127.0.0.1:{details['port']}", token_file
    finally:
        process.terminate()
        process.wait(ENGINE_S)
        ready.unlink(missing_ok=True)
