"""The gRPC service Identity: who calls, and what they may do."""

# ruff: noqa: N802, ARG002 - gRPC names the methods and what they are given

import asyncio

from services.gateway.answering import Context, answering
from services.gateway.gateway import Gateway
from services.gateway.identity.asking import who
from tenure.domain.rights import rights_of, standings
from tenure.v1 import identity_pb2, identity_pb2_grpc

_TURN = 500
"""Budgets looked at before other calls have their turn."""


class Identity(identity_pb2_grpc.IdentityServicer):
    """See `proto/tenure/v1/identity.proto`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @answering
    async def WhoAmI(self, request: identity_pb2.WhoAmIRequest, context: Context) -> identity_pb2.WhoAmIResponse:
        """The caller, how they are known, and their rights."""
        tree = (await self._gateway.read()).tree
        identity = who()
        caller = identity.caller
        everywhere = rights_of(standings(caller, tree=tree))
        answer = identity_pb2.WhoAmIResponse(
            user=caller.user,
            roles=sorted(caller.roles),
            groups=sorted(caller.groups),
            how=identity.how,
            address=identity.address,
            rights=everywhere,
        )
        for number, node in enumerate(tree.nodes):
            here = rights_of(standings(caller, tree=tree, budget=node.path))
            beyond = [right for right in here if right not in everywhere]
            if beyond:
                answer.budgets.add(path=node.path, rights=beyond)
            if number % _TURN == _TURN - 1:
                await asyncio.sleep(0)
        return answer
