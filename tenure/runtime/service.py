"""How a role becomes a process: arguments, signals, the log, the loop, a ready file. `tenure serve ROLE` is this."""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from tenure.domain.policy import Policy, changes, is_fixed, spoken, value_in_words
from tenure.domain.refusal import Refusal
from tenure.events.fact import Fact
from tenure.log.jetstream import JetStreamLog
from tenure.log.lease import Lease
from tenure.log.options import log_access
from tenure.log.port import Log, Unavailable
from tenure.runtime.clock import Clock, WallClock
from tenure.runtime.lag import EVERY_S
from tenure.runtime.leadership import Leadership
from tenure.runtime.log_lines import set_up_logging
from tenure.runtime.loop import Loop
from tenure.runtime.options import Connection, build_policy
from tenure.runtime.own_folder import OwnFolder
from tenure.runtime.role import Role, S
from tenure.runtime.settings.flags import add_flags, flags_given, tell_arguments
from tenure.runtime.settings.given import Settings, load_settings
from tenure.runtime.settings.table import POLICY
from tenure.runtime.snapshot import SnapshotStore
from tenure.runtime.telemetry import tell_of
from tenure.runtime.telemetry_options import telemetry_options
from tenure.runtime.tracing import trail

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What a role's process was started with. `arguments` holds what has a flag, `settings` everything."""

    role: str
    connection: Connection
    policy: Policy
    ready_file: Path | None
    arguments: argparse.Namespace
    settings: Settings = field(default_factory=lambda: Settings({}))
    read_policy: Callable[[], Policy] = Policy
    """Reads again what the policy was read from. Raises `Refusal` for whatever is wrong there."""


def argument_parser(role: str, description: str) -> argparse.ArgumentParser:
    """The options every role has; a role adds its own."""
    parser = argparse.ArgumentParser(prog=f"tenure serve {role}", description=description)
    add_flags(parser, role)
    parser.add_argument("--ready-file", type=Path, help="written when the role has caught up with the log")
    return parser


def run_service(
    parser: argparse.ArgumentParser,
    role: str,
    argv: Sequence[str],
    serve: Callable[[Service], Coroutine[Any, Any, None]],
) -> int:
    """Parse, run until SIGTERM or SIGINT, and turn trouble into one line and an exit status."""
    arguments = parser.parse_args(argv)
    try:
        service = make_service(role, arguments)
        telemetry = telemetry_options(service.settings)
        set_up_logging(role, telemetry)
        tell_of(role, log=service.connection.cluster, listen=telemetry.metrics_listen)
        if service.ready_file is not None:
            service.ready_file.unlink(missing_ok=True)  # of a process before this one
        uvloop.run(serve(service))
    except (Refusal, Unavailable, OSError) as trouble:
        print(f"tenure serve {role}: {trouble}", file=sys.stderr)
        return 1
    return 0


def make_service(role: str, arguments: argparse.Namespace) -> Service:
    """What the arguments, the environment and the file say. Raises `Refusal`."""
    load = partial(
        load_settings,
        role=role,
        config=arguments.config,
        environment=os.environ,
        flags=flags_given(arguments, role),
        sets=arguments.set,
    )
    settings = load()
    tell_arguments(settings, arguments)
    if arguments.data is None:
        fix = "give the folder for snapshots and other local files: --data DIR, or data: DIR in the file"
        raise Refusal(field="--data", problem="not given", fix=fix)
    return Service(
        role=role,
        connection=Connection(
            log=log_access(settings.values("nats"), client=role),
            cluster=arguments.cluster,
            data=arguments.data,
            clickhouse_url=arguments.clickhouse,
            clickhouse_token_file=arguments.clickhouse_token_file,
        ),
        policy=build_policy(settings.section(POLICY)),
        ready_file=arguments.ready_file,
        arguments=arguments,
        settings=settings,
        read_policy=lambda: build_policy(load().section(POLICY)),
    )


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def connect_log(service: Service, *, seal: Callable[[Fact], Fact] = lambda fact: fact) -> JetStreamLog:
    """The log of the service, connected; `seal` is given each fact before it is written. Raises `Unavailable`."""
    connection = service.connection
    return await JetStreamLog.connect(connection.log, cluster=connection.cluster, seal=seal, carrier=trail())


async def make_loop(
    service: Service,
    role: Role[S],
    log: JetStreamLog,
    *,
    perform: Callable[[Sequence[Any]], Awaitable[None]] | None = None,
    clock: Clock | None = None,
    rest_factor: float = 0.0,
    look_every_s: float = EVERY_S,
    sources: Sequence[str] = (),
) -> Loop[S]:
    """The loop of `role` on `log` with a snapshot file under the service's data folder. `clock`: the wall's if None.

    `sources`: folders with the code that made the snapshot, where that is not the role's own under `services`.
    """
    condemned = sorted(await log.condemned())  # a state that was folded with one of them is of no use
    snapshots = SnapshotStore(
        service.connection.data / "snapshots" / f"{role.name}.snapshot",
        packages=sources or (f"services/{service.role}",),
        log_identity="-".join([await log.identity(), *map(str, condemned)]),
    )
    optional = {} if perform is None else {"perform": perform}
    loop = Loop(
        role,
        log,
        clock or WallClock(),
        cluster=service.connection.cluster,
        snapshots=snapshots,
        rest_factor=rest_factor,
        look_every_s=look_every_s,
        **optional,
    )
    loop.on_caught_up = lambda state: tell_policy(role.policy and role.policy(state), service)
    return loop


def tell_policy(of_log: Policy | None, service: Service) -> None:
    """Say so where the log has another policy than this process was started with: the log's counts."""
    if of_log is None:
        return
    for name in (each for each in changes(service.policy, of_log) if not is_fixed(each)):
        logger.warning(
            "%s is %s in the log, and %s as this process was started: the log's counts (see tenure config apply)",
            spoken(name),
            value_in_words(of_log, name),
            value_in_words(service.policy, name),
        )


async def run_decider(
    service: Service, role: Role[S], *, rest_factor: float = 0.0, seal: Callable[[Fact], Fact] = lambda fact: fact
) -> None:
    """Run a role that has no hands: only facts in and facts out."""
    stop = stop_on_signals()
    log = await connect_log(service, seal=seal)
    try:
        loop = await make_loop(service, role, log, rest_factor=rest_factor)
        async with taking_part(service, log, loop.caught_up) as loop.leadership:
            loop.leadership.on_change.append(loop.poke)
            await loop.run(stop)
    finally:
        await log.close()


@contextlib.asynccontextmanager
async def taking_part(
    service: Service,
    log: JetStreamLog,
    ready: asyncio.Event,
    details: Mapping[str, object] | None = None,
    *,
    at_once: bool = False,
) -> AsyncIterator[Leadership]:
    """Take part in leading the service's role for the length of a block: from when `ready` is set, or `at_once`.

    The ready file is written then, and again whenever another process leads. Raises `Unavailable`.
    """
    folder = OwnFolder(service.connection.data / "lead" / service.role)
    if not folder.name:
        logger.warning("another %s works on %s: give each a --data of its own", service.role, service.connection.data)
    lease = await Lease.open(
        service.connection.log,
        cluster=service.connection.cluster,
        role=service.role,
        instance=folder.name,
        replicas=log.replicas,
    )
    leadership = Leadership(lease)

    def tell() -> None:
        if ready.is_set():
            write_ready(service, {**(details or {}), "lead": msgspec.to_builtins(leadership.standing)})

    async def take_part() -> None:
        if not at_once:
            await ready.wait()
        leadership.on_change.append(tell)
        await leadership.run()

    async def announce() -> None:
        await ready.wait()
        logger.info("ready")
        tell()

    try:
        async with asyncio.TaskGroup() as group:
            parts = [group.create_task(work()) for work in (take_part, announce)]
            yield leadership
            leadership.retire()
            for part in parts:
                part.cancel()
    except BaseExceptionGroup as group_of_one:
        raise _alone(group_of_one) from None
    finally:
        await leadership.leave()
        await leadership.close()
        folder.release()


def _alone(error: BaseException) -> BaseException:
    """What a task group wraps: whoever waits for a refusal, or reads its one line, is to have it as it was raised."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def announce_ready(service: Service, ready: asyncio.Event, details: dict[str, object]) -> None:
    """Write the ready file once `ready` is set."""
    await ready.wait()
    logger.info("ready")
    write_ready(service, details)


def write_ready(service: Service, details: Mapping[str, object]) -> None:
    """Write the ready file: JSON with the pid and `details`."""
    if service.ready_file is not None:
        service.ready_file.parent.mkdir(parents=True, exist_ok=True)
        fresh = service.ready_file.with_suffix(".new")
        fresh.write_text(json.dumps({"pid": os.getpid(), **details}))
        os.replace(fresh, service.ready_file)


__all__ = [
    "Log",
    "Service",
    "announce_ready",
    "argument_parser",
    "connect_log",
    "make_loop",
    "run_decider",
    "run_service",
    "taking_part",
]
