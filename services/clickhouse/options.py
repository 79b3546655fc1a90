"""What the clickhouse role can be told, read from the command line and checked before anything is opened."""

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tenure.domain.refusal import Refusal

HOST = "127.0.0.1"
"""Loopback only: the embedded engine knows one user, so whoever may connect and has the token may do everything."""
DATABASE = "tenure"

_MIB = 1 << 20
_GIB = 1 << 30
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB)", re.IGNORECASE)
_UNITS = {"b": 1, "kib": 1 << 10, "mib": _MIB, "gib": _GIB}
_MEMORY_BYTES_MIN = 512 * _MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The role's options. `port` 0 asks for a free one."""

    data: Path
    port: int
    token_file: Path
    ready_file: Path | None
    memory_bytes: int
    fsync: bool
    connections_max: int
    body_bytes_max: int
    statement_s_max: int
    drain_s: float


def parse_options(argv: Sequence[str] | None) -> Options:
    """The options in `argv`. Raises `Refusal` naming the option; argparse exits with 2 on an unknown one."""
    given = _parser().parse_args(argv)
    if not 0 <= given.port <= 65535:
        raise Refusal(field="--port", problem=f"{given.port} is no port", fix="give 1-65535, or 0 for a free one")
    if given.connections < 2:
        raise Refusal(field="--connections", problem=f"{given.connections} is too few", fix="give 2 or more")
    if given.statement_seconds < 1 or given.drain_seconds < 0:
        raise Refusal(field="--statement-seconds, --drain-seconds", problem="too short", fix="give 1 s and 0 s or more")
    memory_bytes = _size(given.memory, option="--memory") if given.memory else default_memory_bytes()
    if memory_bytes < _MEMORY_BYTES_MIN:
        raise Refusal(field="--memory", problem=f"{given.memory} is too little", fix="give 512MiB or more")
    return Options(
        data=given.data.absolute(),
        port=given.port,
        token_file=(given.token_file or given.data / "token").absolute(),
        ready_file=given.ready_file.absolute() if given.ready_file else None,
        memory_bytes=memory_bytes,
        fsync=given.fsync,
        connections_max=given.connections,
        body_bytes_max=_size(given.body_max, option="--body-max"),
        statement_s_max=given.statement_seconds,
        drain_s=given.drain_seconds,
    )


def default_memory_bytes() -> int:
    """4 GiB, or a quarter of the machine's memory where that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(_MEMORY_BYTES_MIN, min(4 * _GIB, machine // 4))


def _size(text: str, *, option: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise Refusal(field=option, problem=f"{text[:40]!r} is no size", fix="write 512MiB or 4GiB")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tenure serve clickhouse", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the database; one process owns it")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 (default): a free one")
    parser.add_argument("--token-file", type=Path, help="the password of every client; made if missing (DATA/token)")
    parser.add_argument("--ready-file", type=Path, help="JSON with host, port, pid, written when a query is answered")
    parser.add_argument("--memory", help="the engine's memory (default: 4GiB, at most a quarter of the machine's)")
    parser.add_argument(
        "--fsync",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="sync every insert to disk before it is acknowledged, so that it survives a power loss (default: on)",
    )
    parser.add_argument("--connections", type=int, default=64, help="open connections, one thread each")
    parser.add_argument("--body-max", default="1GiB", help="largest request body, uncompressed")
    parser.add_argument("--statement-seconds", type=int, default=600, help="longest statement unless it asks for more")
    parser.add_argument("--drain-seconds", type=float, default=10.0, help="how long a stop waits for statements")
    return parser
