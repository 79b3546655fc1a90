"""Calls of the gateway in the name of who looks at a page: their credential goes with each, so it decides their rights.

The console has no rights of its own: a call without a token is never made.
"""

import contextlib
import logging
from collections.abc import AsyncGenerator
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.console.options import Options
from tenure.sdk.client import CHANNEL_OPTIONS
from tenure.v1.budgets_pb2_grpc import BudgetsStub
from tenure.v1.hosts_pb2_grpc import HostsStub
from tenure.v1.identity_pb2_grpc import IdentityStub
from tenure.v1.jobs_pb2_grpc import JobsStub

logger = logging.getLogger(__name__)

A = TypeVar("A", bound=Message)
Q = TypeVar("Q", bound=Message)
ANSWER_S, HEALTH_S = 15.0, 2.0
_STATUS = {
    "INVALID_ARGUMENT": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "FAILED_PRECONDITION": 409,
    "RESOURCE_EXHAUSTED": 429,
    "DEADLINE_EXCEEDED": 504,
    "UNAVAILABLE": 503,
}


class NoAnswer(Exception):
    """The gateway refused, or could not be asked. `status` as HTTP has it."""

    def __init__(self, code: str, said: str) -> None:
        super().__init__(said)
        self.code, self.said = code, said
        self.status = _STATUS.get(code, 502)


class Gateway:
    """One channel to the gateway. Belongs to the running loop; close it."""

    def __init__(self, options: Options) -> None:
        self.address = options.gateway
        self._channel = _channel(options)
        self.jobs = JobsStub(self._channel)
        self.budgets = BudgetsStub(self._channel)
        self.hosts = HostsStub(self._channel)
        self.identity = IdentityStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    async def call(self, method: "grpc.aio.UnaryUnaryMultiCallable[Q, A]", request: Q, *, token: str) -> A:
        """The answer to who has the token. Raises `NoAnswer`."""
        try:
            return await method(request, timeout=ANSWER_S, metadata=_bearer(token))
        except grpc.aio.AioRpcError as error:
            raise self._translated(error) from error

    async def stream(
        self,
        method: "grpc.aio.UnaryStreamMultiCallable[Q, A]",
        request: Q,
        *,
        token: str,
        timeout_s: float,
    ) -> AsyncGenerator[A, None]:
        """The answers of a stream; close it to end the call. Raises `NoAnswer`, also when the time is up."""
        call = method(request, metadata=_bearer(token), timeout=timeout_s)
        try:
            async for answer in call:
                yield answer
        except grpc.aio.AioRpcError as error:
            raise self._translated(error) from error
        finally:
            call.cancel()

    async def is_there(self) -> bool:
        """Whether the gateway answers at all."""
        with contextlib.suppress(grpc.aio.AioRpcError):
            answer = await self._health.Check(health_pb2.HealthCheckRequest(), timeout=HEALTH_S)
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
        return False

    async def close(self) -> None:
        """Close the channel; calls under way end."""
        await self._channel.close(None)

    def _translated(self, error: grpc.aio.AioRpcError) -> NoAnswer:
        code = error.code().name
        said = " ".join((error.details() or "").split())[:500]
        if code == "UNAVAILABLE" and not said_by_gateway(error):
            return NoAnswer(code, f"the gateway at {self.address} does not answer; the page goes on when it does")
        if code in ("DEADLINE_EXCEEDED", "CANCELLED"):
            return NoAnswer("DEADLINE_EXCEEDED", f"the gateway did not answer within {ANSWER_S:g} s")
        if code not in _STATUS:
            logger.error("the gateway failed (%s): %s", code, said)
        return NoAnswer(code, said or code)


def said_by_gateway(error: grpc.aio.AioRpcError) -> bool:
    """Whether the gateway itself said it: its refusals carry details, no others do."""
    told: Any = error.trailing_metadata()  # grpc.aio's own Metadata, not the pairs that its types say
    return told is not None and told.get("grpc-status-details-bin") is not None


def _bearer(token: str) -> tuple[tuple[str, str], ...]:
    assert token, "without a token the call would be the console's own"
    return (("authorization", f"Bearer {token}"),)


def _channel(options: Options) -> grpc.aio.Channel:
    if not options.gateway_tls:
        return grpc.aio.insecure_channel(options.gateway, options=CHANNEL_OPTIONS)
    files = (options.gateway_ca, options.gateway_key, options.gateway_certificate)
    roots, key, certificate = (None if file is None else file.read_bytes() for file in files)
    named: tuple[tuple[str, str | int], ...] = CHANNEL_OPTIONS
    if options.gateway_name:
        named = (*named, ("grpc.ssl_target_name_override", options.gateway_name))
    return grpc.aio.secure_channel(
        options.gateway, grpc.ssl_channel_credentials(roots, key, certificate), options=named
    )
