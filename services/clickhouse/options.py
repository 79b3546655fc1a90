"""What the clickhouse role can be told, read from the command line and checked before anything is opened."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tenure.domain.refusal import Refusal
from tenure.runtime.settings.flags import add_flags, flags_given, tell_arguments
from tenure.runtime.settings.given import load_settings
from tenure.runtime.settings.table import ENGINE
from tenure.runtime.telemetry_options import TelemetryOptions, telemetry_options

HOST = "127.0.0.1"
"""Loopback only: the embedded engine knows one user, so whoever may connect and has the token may do everything."""
DATABASE = "tenure"

_MIB = 1 << 20
_GIB = 1 << 30
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
    telemetry: TelemetryOptions


def parse_options(argv: Sequence[str] | None) -> Options:
    """The options in `argv`. Raises `Refusal` naming the option; argparse exits with 2 on an unknown one."""
    given = _parser().parse_args(argv)
    settings = load_settings(
        role=ENGINE, config=given.config, environment=os.environ, flags=flags_given(given, ENGINE), sets=given.set
    )
    tell_arguments(settings, given)
    if given.data is None:
        raise Refusal(field="--data", problem="not given", fix="give the folder of the database")
    if given.memory is not None and given.memory < _MEMORY_BYTES_MIN:
        raise Refusal(field="--memory", problem=f"{given.memory} bytes are too little", fix="give 512MiB or more")
    return Options(
        data=given.data.absolute(),
        port=given.port,
        token_file=(given.token_file or given.data / "token").absolute(),
        ready_file=given.ready_file.absolute() if given.ready_file else None,
        memory_bytes=given.memory or default_memory_bytes(),
        fsync=given.fsync,
        connections_max=given.connections,
        body_bytes_max=given.body_max,
        statement_s_max=given.statement_seconds,
        drain_s=given.drain_seconds,
        telemetry=telemetry_options(settings),
    )


def default_memory_bytes() -> int:
    """4 GiB, or a quarter of the machine's memory where that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(_MEMORY_BYTES_MIN, min(4 * _GIB, machine // 4))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tenure serve clickhouse", description=__doc__)
    add_flags(parser, ENGINE)
    parser.add_argument("--ready-file", type=Path, help="JSON with host, port, pid, written when a query is answered")
    return parser
