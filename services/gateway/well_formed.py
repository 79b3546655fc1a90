"""Bytes that are no message: a refusal in words, where gRPC would answer with an internal error and log a traceback."""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from services.gateway.answering import Context, Stream, refuse
from tenure.domain.refusal import Refusal

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


@dataclass(frozen=True, slots=True)
class _Malformed:
    """Stands for what could not be read."""

    size: int


def well_formed(inner: Handler) -> Handler:
    """The handler, for messages only: what is none is refused."""
    read, write = _reading(inner.request_deserializer), inner.response_serializer
    if inner.unary_unary is not None:
        return grpc.unary_unary_rpc_method_handler(_one_answer(inner.unary_unary), read, write)
    if inner.unary_stream is not None:
        return grpc.unary_stream_rpc_method_handler(_answers(inner.unary_stream), read, write)
    assert inner.stream_stream is not None, "no service has a stream of requests with one answer"
    return grpc.stream_stream_rpc_method_handler(_conversation(inner.stream_stream), read, write)


def _reading(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any]:
    assert deserialize is not None, "generated code has one"

    def read(data: bytes) -> Any:
        try:
            return deserialize(data)
        except (DecodeError, UnicodeDecodeError, RecursionError):
            return _Malformed(len(data))

    return read


async def _checked(request: Any, context: Context) -> Any:
    if isinstance(request, _Malformed):
        fix = "send what tenure.v1 describes, with a client of the same version"
        await refuse(context, Refusal(field="request", problem=f"its {request.size} bytes are no message", fix=fix))
    return request


def _one_answer(answer: Any) -> Any:
    async def checked(request: Any, context: Context) -> Any:
        return await answer(await _checked(request, context), context)

    return checked


def _answers(answer: Any) -> Any:
    if inspect.iscoroutinefunction(answer):  # it writes its answers itself
        return _one_answer(answer)

    async def checked(request: Any, context: Context) -> Stream[Any]:
        async with aclosing(answer(await _checked(request, context), context)) as answers:
            async for one in answers:
                yield one

    return checked


def _conversation(answer: Any) -> Any:
    async def requests(given: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        async for request in given:
            yield await _checked(request, context)

    async def checked(given: AsyncIterator[Any], context: Context) -> Stream[Any]:
        async with aclosing(answer(requests(given, context), context)) as answers:
            async for one in answers:
                yield one

    return checked
