"""Trouble as gRPC says it: a status, one line, and for a refusal the field in the standard error details."""

import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import wraps
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from services.gateway.refusals import (
    AlreadyExists,
    Away,
    Denied,
    Full,
    Limited,
    NotFound,
    Outdated,
    Unauthenticated,
    WrongState,
)
from tenure.domain.refusal import Refusal
from tenure.runtime.log_stream import LogsAway

Context = grpc.aio.ServicerContext[Any, Any]
Trouble = Refusal | Away | LogsAway
_LINE_MAX = 1_000
"""Longer lines do not fit into the headers that carry a status."""

_STATUS: tuple[tuple[type[Exception], grpc.StatusCode], ...] = (
    (Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (Denied, grpc.StatusCode.PERMISSION_DENIED),
    (NotFound, grpc.StatusCode.NOT_FOUND),
    (AlreadyExists, grpc.StatusCode.ALREADY_EXISTS),
    (WrongState, grpc.StatusCode.FAILED_PRECONDITION),
    (Outdated, grpc.StatusCode.ABORTED),
    (Full, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (Refusal, grpc.StatusCode.INVALID_ARGUMENT),
    (Exception, grpc.StatusCode.UNAVAILABLE),
)
"""The first that matches counts."""

S = TypeVar("S")
Q = TypeVar("Q")
A = TypeVar("A")


async def refuse(context: Context, trouble: Trouble) -> NoReturn:
    """End the call with the status of `trouble`."""
    status = next(status for kind, status in _STATUS if isinstance(trouble, kind))
    line = " ".join(str(trouble).split())[:_LINE_MAX]
    details = status_pb2.Status(code=status.value[0], message=line)
    if isinstance(trouble, Refusal):
        violation = error_details_pb2.BadRequest.FieldViolation(field=trouble.field[:200], description=line)
        details.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    more: tuple[tuple[str, str], ...] = ()
    if isinstance(trouble, Limited):
        delay = Duration()
        delay.FromMilliseconds(int(trouble.retry_after_s * 1000))
        details.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        more = (("retry-after", str(math.ceil(trouble.retry_after_s))),)
    await context.abort(status, line, (("grpc-status-details-bin", details.SerializeToString()), *more))


def answering(handler: Callable[[S, Q, Context], Awaitable[A]]) -> Callable[[S, Q, Context], Awaitable[A]]:
    """A handler of one answer whose refusals become statuses."""

    @wraps(handler)
    async def answer(self: S, request: Q, context: Context) -> A:
        try:
            return await handler(self, request, context)
        except (Refusal, Away, LogsAway) as trouble:
            await refuse(context, trouble)

    return answer


Stream = AsyncGenerator[A, None]


def streaming(handler: Callable[[S, Q, Context], Stream[A]]) -> Callable[[S, Q, Context], Stream[A]]:
    """A handler of a stream whose refusals become statuses, and that ends when its caller goes away."""

    @wraps(handler)
    async def stream(self: S, request: Q, context: Context) -> Stream[A]:
        try:
            async with aclosing(handler(self, request, context)) as answers:
                async for answer in answers:
                    yield answer
        except (Refusal, Away, LogsAway) as trouble:
            await refuse(context, trouble)

    return stream
