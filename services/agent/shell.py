"""The agent as a process: one for a real host, or one for many virtual hosts."""

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from services.agent.beats import Spool
from services.agent.decider import role
from services.agent.gpu.provider import Gpu, GpuProvider, GpuProviderError
from services.agent.gpu.virtual import CpuUsage, VirtualProvider
from services.agent.hands import Hands
from services.agent.log_clock import LogClock
from services.agent.log_server import LogServer
from services.agent.machine_file import machine_name
from services.agent.own_address import own_address
from services.agent.start_options import REAL, start_rules
from services.agent.state import State
from services.agent.watch.monitor import Monitor
from services.agent.watch.sources import sources_of
from tenure.domain.host import CPU, HostSpec
from tenure.domain.ids import HostId
from tenure.domain.names import check_block, check_word
from tenure.domain.refusal import Refusal
from tenure.domain.shape import GPUS_PER_HOST_MAX
from tenure.domain.units import SECOND, Millis
from tenure.events.reports import Heartbeat, HostSignal
from tenure.log.access import open_client
from tenure.log.jetstream import HEARTBEATS_KEPT_S, JetStreamLog
from tenure.log.permissions import GATEWAY, agent_of
from tenure.log.port import Log
from tenure.runtime.cluster_file import load_cluster, parse_hosts
from tenure.runtime.loop import Loop
from tenure.runtime.own_folder import OwnFolder
from tenure.runtime.service import (
    Service,
    announce_ready,
    argument_parser,
    make_loop,
    run_service,
    stop_on_signals,
)
from tenure.runtime.signal_options import SIGNALS, SignalOptions, build_signal_options
from tenure.runtime.tracing import trail

logger = logging.getLogger(__name__)

VIRTUAL_MEMORY_MIB = 80 * 1024
LOOK_EVERY_S = 15.0
"""How often an agent asks how far it is behind the log, where anybody is told: there are thousands of them."""
LEAVE_S = 10.0
"""How long a leaving agent waits for its replicas beyond their longest grace period; their keepers do without it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the agent until it is told to stop. Exit status 0, or 1 with one line on stderr."""
    parser = argument_parser("agent", "Runs processes on the hosts it speaks for, and says what they really hold.")
    return run_service(parser, "agent", argv or [], serve)


async def serve(service: Service) -> None:
    """Run the agent."""
    stop = stop_on_signals()
    arguments = service.arguments
    providers, specs = make_hosts(service)
    folder = own_folder(service)
    agent, machine = agent_name(specs), machine_name(service.connection.data)
    signals = signal_options(service, specs)
    rules = start_rules(service)
    speaker = specs[0].host if arguments.provider in REAL else None
    access = replace(service.connection.log, client=agent_of(speaker))
    log = await JetStreamLog.connect(access, cluster=service.connection.cluster, speaker=speaker, carrier=trail())
    logs = await open_client(access, max_reconnect_attempts=-1)
    clock = LogClock()
    await clock.look(logs, cluster=service.connection.cluster)
    hands = Hands(
        agent=agent,
        data=service.connection.data,
        checkpoints=(arguments.checkpoints or service.connection.data / "checkpoints").absolute(),
        providers=providers,
        clock=clock,
        policy=service.policy,
        rules=rules,
    )
    try:
        own = role(service.policy, agent=agent, hosts=specs, machine=machine)
        loop = await make_loop(service, own, log, perform=hands.perform, clock=clock, look_every_s=LOOK_EVERY_S)
        hands.poke, hands.look_back = loop.poke, loop.look_back
        server = LogServer(logs, hands.replicas, is_over=hands.is_over, asker=access.inbox_prefix_of(GATEWAY))

        async def restored(state: State) -> None:
            await take_over(hands, log, state, now=clock.now())
            await server.listen([spec.host for spec in specs], cluster=service.connection.cluster)

        async def returned(state: State) -> None:
            await compare(hands, log, state, now=clock.now())

        loop.on_restored, loop.on_return = restored, returned
        ready = asyncio.create_task(announce_ready(service, loop.caught_up, {"agent": agent, "hosts": len(specs)}))
        keeping = asyncio.create_task(clock.keep(logs, cluster=service.connection.cluster))
        health = asyncio.create_task(look_after(signals, hands, loop, clock=clock, data=service.connection.data))
        patience_s = service.policy.longest_grace_ms / 1000 + LEAVE_S if arguments.on_exit == "stop" else 0.0
        await _run(loop, hands, stop, patience_s=patience_s)
        ready.cancel()
        for watching in (keeping, health):
            await stop_watching(watching)
    finally:
        await logs.close()
        await hands.close()
        await log.close()
        folder.release()


def own_folder(service: Service) -> OwnFolder:
    """The agent's folder, until this process ends. Raises `Refusal` if another agent works on it."""
    folder = OwnFolder(service.connection.data / "lead" / service.role)
    if not folder.name:
        raise Refusal(
            field="--data",
            problem=f"another agent works on {service.connection.data}",
            fix="stop that one first, or give this one another --host and a --data of its own",
        )
    return folder


def signal_options(service: Service, specs: Sequence[HostSpec]) -> SignalOptions:
    """What is read for signals of health. Raises `Refusal`."""
    values = service.settings.section(SIGNALS)
    provider = service.arguments.provider
    options = build_signal_options(values, real_host=provider in REAL, has_gpus=provider == "nvidia")
    if options.host is not None and options.host not in [spec.host for spec in specs]:
        raise Refusal(field="signals.host", problem=f"{options.host} is no host of this agent", fix="name one of them")
    return options


async def look_after(options: SignalOptions, hands: Hands, loop: Loop[State], *, clock: LogClock, data: Path) -> None:
    """Read the machine's sources until it is cancelled; their signals are of one host.

    It begins when what the log has of them is known, so that nothing is said twice.
    """
    await loop.caught_up.wait()
    state = loop.state
    host = HostId(options.host or state.hosts[0].host)
    known = state.core.signals.get(host, ())
    last_read = {signal.source: signal.last_at for signal in sorted(known, key=lambda each: each.last_at)}
    monitor = Monitor(
        sources_of(options, host=host, data=data, clock=clock, last_read=last_read), host=host, clock=clock
    )

    def report(fact: HostSignal) -> None:
        state.pending_signals = fact
        loop.poke()

    monitor.report, hands.signals_said, hands.look_again = report, monitor.said, monitor.look_again
    monitor.start(known)
    try:
        await asyncio.Event().wait()
    finally:
        await monitor.close()


async def stop_watching(watching: "asyncio.Task[None]") -> None:
    """Cancel it and wait for its end. Raises what it raised."""
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


async def _run(loop: Loop[State], hands: Hands, stop: asyncio.Event, *, patience_s: float) -> None:
    """Run until told to stop; then end the replicas and say so before leaving, for up to `patience_s` (0: leave them).

    Told again, it does not grant them the rest of their grace periods.
    """
    left = asyncio.Event()

    async def leave() -> None:
        await stop.wait()
        told_again = stop_on_signals()
        await hands.leave(stop_runs=patience_s > 0)
        deadline = asyncio.get_running_loop().time() + patience_s
        while hands.busy and asyncio.get_running_loop().time() < deadline:
            if told_again.is_set():
                told_again.clear()
                hands.hurry()
            await asyncio.sleep(0.02)
        left.set()

    leaving = asyncio.create_task(leave())
    await loop.run(left)
    leaving.cancel()


async def take_over(hands: Hands, log: Log, state: State, *, now: Millis) -> None:
    """Go on where an earlier agent of these hosts stopped."""
    spool, running = await hands.take_over(state)
    if running:
        logger.info("found %d replicas that an earlier agent had started", running)
    if spool is None:
        return
    recorded = await in_log(log, spool, now=now)
    if recorded is not None:
        hands.known(spool, recorded)
        return
    logger.info("sending %d heartbeats again that an earlier agent had made", len(spool.beats))
    hands.send_again(spool)


async def compare(hands: Hands, log: Log, state: State, *, now: Millis) -> None:
    """After an outage: heartbeats that were not acknowledged may be in the log, for longer than it knows their ids."""
    spool = hands.spool
    if spool is None or not state.pending_beats:
        return
    recorded = await in_log(log, spool, now=now)
    if recorded is not None:
        hands.known(spool, recorded)


async def in_log(log: Log, spool: Spool, *, now: Millis) -> Sequence[Heartbeat] | None:
    """The heartbeats of the spool as they stand in the log; None if they do not, and it would still have them."""
    if not spool.beats or now - spool.beats[-1].at >= HEARTBEATS_KEPT_S * SECOND:
        return spool.beats
    made, found = {beat.id for beat in spool.beats}, list[Heartbeat]()
    head = await log.head([Heartbeat])
    feed = await log.follow([Heartbeat], after=spool.before)
    try:
        position = spool.before
        while position < head:
            for recorded in await feed.next(None):
                position = recorded.position
                if isinstance(recorded.fact, Heartbeat) and recorded.fact.id in made:
                    found.append(recorded.fact)
        return found if spool.beats[-1].id in {beat.id for beat in found} else None
    finally:
        await feed.close()


def make_hosts(service: Service) -> tuple[dict[HostId, GpuProvider], tuple[HostSpec, ...]]:
    """The hosts this agent speaks for and where their GPUs come from. Raises `Refusal`."""
    arguments = service.arguments
    if arguments.provider == "nvidia":
        from services.agent.gpu.nvidia import NvidiaProvider

        try:
            provider = NvidiaProvider()
        except GpuProviderError as error:
            raise Refusal(field="--provider nvidia", problem=str(error), fix="or use --provider virtual") from error
        gpus = provider.gpus()
        if not gpus:
            raise Refusal(field="--provider", problem="no NVIDIA GPU on this host", fix="use --provider virtual")
        spec = _this_machine(service, count=len(gpus), of_type=check_word(type_of(gpus), field="GPU type"))
        return {spec.host: provider}, (spec,)
    if arguments.provider == "cpus":
        count = arguments.cpus or min(GPUS_PER_HOST_MAX, os.cpu_count() or 1)
        specs: Sequence[HostSpec] = (_this_machine(service, count=count, of_type=CPU),)
    else:
        clusters = arguments.cluster_file
        specs = load_cluster(clusters) if clusters else parse_hosts(arguments.hosts or "1x8")
    usage = CpuUsage(now=lambda: time.monotonic_ns() // 1_000_000)
    virtual: dict[HostId, GpuProvider] = {
        spec.host: VirtualProvider(
            host=spec.host, count=spec.gpus, gpu_type=spec.gpu_type, memory_mib=VIRTUAL_MEMORY_MIB, usage=usage
        )
        for spec in specs
    }
    return virtual, tuple(specs)


def type_of(gpus: Sequence[Gpu]) -> str:
    """What the host's GPUs are called: as the first that answers is. Raises `Refusal` if none does.

    One that is lost has no name, and must not make another kind of host of this one.
    """
    for gpu in gpus:
        if gpu.uuid:
            return gpu.type
    problem = f"none of {len(gpus)} NVIDIA GPUs answers: {gpus[0].fault}"
    raise Refusal(field="--provider nvidia", problem=problem, fix="restart the driver, or the machine")


def _this_machine(service: Service, *, count: int, of_type: str) -> HostSpec:
    """This machine as a host, with so many GPUs of a type, or CPUs. Raises `Refusal`."""
    arguments = service.arguments
    return HostSpec(
        host=HostId(check_word(arguments.host or socket.gethostname(), field="--host")),
        gpus=count,
        gpu_type=of_type,
        block=check_block(arguments.block, field="--block"),
        cluster=check_word(arguments.host_cluster or of_type, field="--host-cluster"),
        address=own_address(arguments.address, service.connection.log),
    )


def agent_name(specs: Sequence[HostSpec]) -> str:
    """A name that stays the same while the agent speaks for the same hosts."""
    if len(specs) == 1:
        return specs[0].host
    digest = hashlib.sha256(",".join(sorted(spec.host for spec in specs)).encode()).hexdigest()
    return f"{len(specs)}-hosts-{digest[:8]}"
