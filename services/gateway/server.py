"""The gRPC server: its limits, its address, the services behind the guard, health and reflection."""

import asyncio
import contextlib
import logging
import time
from pathlib import Path
from typing import cast

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from services.gateway.answering import Context
from services.gateway.budgets import Budgets
from services.gateway.forecasts import Forecasts
from services.gateway.gateway import Gateway
from services.gateway.history import History
from services.gateway.hosts import Hosts
from services.gateway.identity.authenticate import Authenticator
from services.gateway.identity.guard import Guard
from services.gateway.identity.sources import listen_on, sources_of
from services.gateway.jobs import Jobs
from services.gateway.output import Output
from services.gateway.policies import Policies
from services.gateway.whoami import Identity
from tenure.domain.loopback import is_loopback
from tenure.domain.refusal import Refusal
from tenure.runtime.identity_options import IdentityOptions, check_reach
from tenure.v1 import (
    budgets_pb2,
    budgets_pb2_grpc,
    hosts_pb2,
    hosts_pb2_grpc,
    identity_pb2,
    identity_pb2_grpc,
    jobs_pb2,
    jobs_pb2_grpc,
    policy_pb2,
    policy_pb2_grpc,
)

logger = logging.getLogger(__name__)

EMBEDDED = IdentityOptions()
REQUEST_BYTES_MAX = 64 * 1024 * 1024
"""Far above what is ever accepted, so that a huge command gets a refusal in words instead of a broken call."""
ANSWER_BYTES_MAX = 512 * 1024 * 1024
CALLS_MAX = 1_000
"""Calls of one connection under way at a time. What a client sends beyond waits on its own side or is turned away."""
STOP_S = 1.0
HEALTH_EVERY_S, HEALTH_WAIT_S = 0.5, 1.0
SERVICES = tuple(
    file.services_by_name[name].full_name
    for file, name in (
        (jobs_pb2.DESCRIPTOR, "Jobs"),
        (budgets_pb2.DESCRIPTOR, "Budgets"),
        (hosts_pb2.DESCRIPTOR, "Hosts"),
        (identity_pb2.DESCRIPTOR, "Identity"),
        (policy_pb2.DESCRIPTOR, "Policy"),
    )
)
_OPTIONS = (
    ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
    ("grpc.max_send_message_length", ANSWER_BYTES_MAX),
    ("grpc.max_concurrent_streams", CALLS_MAX),
    ("grpc.so_reuseport", 0),  # two gateways on one port would each get half of the calls
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
)
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def _not_offered(_servicer: object, _request: object, context: Context) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not offered: ask Check for each service")


class _Health(health.aio.HealthServicer):  # type: ignore[name-defined,misc]
    """Health checking, with the one method that its library has no answer to."""

    List = _not_offered


class Server:
    """Listens from the beginning, so that a busy port is known at once; answers when `start` was called."""

    def __init__(
        self, listen: str, identity: IdentityOptions = EMBEDDED, *, local_key: Path = Path("identity/key.pem")
    ) -> None:
        """`listen` is host:port, port 0 for any free one; `local_key` signs development tokens, if it is there.

        Raises `Refusal` when the address cannot be had, or others reach it and could not be known or be overheard.
        """
        self._server = grpc.aio.server(options=_OPTIONS)
        host, _, port = listen.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65_535:
            raise Refusal(field="--listen", problem=f"{listen[:64]!r} is no address", fix="write 127.0.0.1:50051")
        check_reach(host, identity, local_tokens=local_key.exists())
        try:
            bound = listen_on(self._server, listen, identity)
        except RuntimeError:
            bound = 0
        if bound == 0:
            raise Refusal(
                field="--listen",
                problem=f"{listen} is in use or not an address of this machine",
                fix="stop what listens there, or choose another with --listen (port 0: any free one)",
            )
        self.address = f"{host}:{bound}"
        if identity.insecure_plaintext and not is_loopback(host):
            logger.warning("INSECURE: %s answers without TLS; whoever can listen in can take tokens", self.address)
        sources = sources_of(identity, listen=self.address, local_key=local_key)
        self._guard = Guard(self._server, Authenticator(sources, clock=time.time))
        self._health = _Health()

    async def start(self, gateway: Gateway, history: History, output: Output, forecasts: Forecasts) -> None:
        """Answer calls from now on."""
        server = cast(grpc.aio.Server, self._guard)  # all that generated code does with it
        jobs_pb2_grpc.add_JobsServicer_to_server(Jobs(gateway, history, output, forecasts), server)
        budgets_pb2_grpc.add_BudgetsServicer_to_server(Budgets(gateway, history), server)
        hosts_pb2_grpc.add_HostsServicer_to_server(Hosts(gateway), server)
        policy_pb2_grpc.add_PolicyServicer_to_server(Policies(gateway), server)
        identity_pb2_grpc.add_IdentityServicer_to_server(Identity(gateway), server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflecting = reflection.aio.ReflectionServicer(names)  # type: ignore[attr-defined]
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflecting, server)
        await self._set_health(serving=False)
        await self._server.start()

    async def watch_health(self, gateway: Gateway) -> None:
        """Say SERVING while the gateway has caught up and the log answers. Runs until it is cancelled."""
        said = False
        while True:
            serving = await gateway.is_well(timeout_s=HEALTH_WAIT_S)
            if serving is not said:
                logger.info("serving" if serving else "not serving: the log does not answer or is still being read")
                await self._set_health(serving=serving)
                said = serving
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(gateway.progress.stopped.wait(), HEALTH_EVERY_S if said else HEALTH_EVERY_S / 10)
                return

    async def stop(self) -> None:
        """End: no new calls, those under way have `STOP_S`."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(STOP_S)

    async def _set_health(self, *, serving: bool) -> None:
        for service in ("", *SERVICES):
            await self._health.set(service, _SERVING if serving else _NOT_SERVING)
