"""The one place where every call of every service passes: who is it, and may they? Then the servicer has its turn.

The handlers are wrapped once, when a service is added, so that a call costs no search. What has no entry in `METHODS`
cannot be added.
"""

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc

from services.gateway.answering import Context, Stream, refuse
from services.gateway.identity.asking import Asking, asking, require
from services.gateway.identity.authenticate import Authenticator
from services.gateway.identity.methods import METHODS, Needs
from services.gateway.identity.source import Credentials
from services.gateway.limits import ORDERS_MAX, Rate, Streams
from services.gateway.refusals import Away, Limited
from services.gateway.well_formed import well_formed
from tenure.domain.refusal import Refusal
from tenure.domain.tree import BudgetTree

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_AUTHORIZATION, _BEARER = "authorization", "bearer "
_CERTIFICATE = "x509_pem_cert"
_NO_TREE = BudgetTree()


class Guard:
    """Stands before the handlers of a server: generated `add_..._to_server` functions are given it as the server."""

    def __init__(self, server: grpc.aio.Server, authenticator: Authenticator) -> None:
        self._server, self._authenticator = server, authenticator
        self._streams = Streams()
        self._orders = Rate(what="orders", fix="ask more slowly")

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """The first of two things that generated code says of a service; the second has the names of its methods."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Serve this service, each method behind the guard. Raises KeyError for a method that is not in `METHODS`."""
        guarded = {
            name: self._guarded(well_formed(handler), METHODS[f"/{service}/{name}"])
            for name, handler in handlers.items()
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, guarded),))

    def _guarded(self, inner: Handler, needs: Needs) -> Handler:
        if needs.right is None:
            return inner
        if inner.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                self._one_answer(inner.unary_unary, needs), inner.request_deserializer, inner.response_serializer
            )
        if inner.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                self._answers(inner.unary_stream, needs), inner.request_deserializer, inner.response_serializer
            )
        assert inner.stream_stream is not None, "no service has a stream of requests with one answer"
        return grpc.stream_stream_rpc_method_handler(
            self._answers(inner.stream_stream, needs), inner.request_deserializer, inner.response_serializer
        )

    def _one_answer(self, answer: Any, needs: Needs) -> Any:
        async def guarded(request: Any, context: Context) -> Any:
            present = await self._admit(needs, context)
            answered = await answer(request, context)
            assert present.judged, "the servicer is to ask whether the caller may"
            return answered

        return guarded

    def _answers(self, answer: Any, needs: Needs) -> Any:
        async def guarded(request: Any, context: Context) -> Stream[Any]:
            present = await self._admit(needs, context)
            try:
                with self._streams.one_of(present.identity.caller.user):
                    async with aclosing(answer(request, context)) as answers:
                        async for one in answers:
                            assert present.judged, "the servicer is to ask whether the caller may"
                            yield one
            except Limited as limited:
                await refuse(context, limited)

        return guarded

    async def _admit(self, needs: Needs, context: Context) -> Asking:
        """Identify the caller, and judge a right that is over nothing in particular. Ends the call where refused.

        What is asked without the right counts among the orders, too.
        """
        assert needs.right is not None
        try:
            present = Asking(identity=await self._authenticator.identify(credentials_of(context)))
            asking.set(present)
            if needs.is_order:
                await self._orders.count(present.identity.caller.user, most=ORDERS_MAX)
            if not needs.about:
                require(needs.right, tree=_NO_TREE)
        except (Refusal, Away) as trouble:
            await refuse(context, trouble)
        return present


def credentials_of(context: Context) -> Credentials:
    """What the call brings."""
    token = ""
    for key, value in context.invocation_metadata() or ():
        if key == _AUTHORIZATION and isinstance(value, str):  # of another scheme: a token that is no good
            token = value[len(_BEARER) :].strip() if value[: len(_BEARER)].lower() == _BEARER else value
            token = token or "empty"  # it was meant to be one: none at all would be the user of this machine
    certificate = b"".join(context.auth_context().get(_CERTIFICATE, ()))
    return Credentials(peer=context.peer(), token=token, certificate=certificate)
