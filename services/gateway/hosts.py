"""The gRPC service Hosts: what there is, what is on it, drains."""

# ruff: noqa: N802, ARG002 - gRPC names the methods and what they are given

import asyncio
from collections.abc import Callable

from services.gateway.answering import Context, answering
from services.gateway.convert import from_host, from_pool, from_prospect, to_host_states
from services.gateway.convert_report import from_host_report
from services.gateway.entries import HostEntry
from services.gateway.gateway import Gateway
from services.gateway.policy.fragmentation import fragmentation
from services.gateway.policy.host_orders import drain, find_host, repair, resume
from services.gateway.policy.host_report import host_report
from services.gateway.state import State
from tenure.domain.refusal import Refusal
from tenure.domain.units import DAY
from tenure.events.fact import Fact
from tenure.v1 import hosts_pb2, hosts_pb2_grpc

HEED_WAIT_S = 1.0
"""How long an answer waits for the health role to act on what was asked, so that it shows the host's new state."""

REPORT_MS = 7 * DAY

_TURN = 500
"""Instants turned into messages before other calls have their turn."""


class Hosts(hosts_pb2_grpc.HostsServicer):
    """See `proto/tenure/v1/hosts.proto`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    @answering
    async def List(self, request: hosts_pb2.ListHostsRequest, context: Context) -> hosts_pb2.ListHostsResponse:
        """The hosts in these states, in order of name."""
        states = to_host_states(request.states)
        state, now, seen = await self._gateway.read(), self._gateway.now(), self._gateway.sightings.at
        wanted = (state.hosts[name] for name in sorted(state.hosts))
        return hosts_pb2.ListHostsResponse(
            hosts=[
                from_host(entry, state, now=now, seen=seen) for entry in wanted if not states or entry.state in states
            ]
        )

    @answering
    async def Drain(self, request: hosts_pb2.DrainHostRequest, context: Context) -> hosts_pb2.DrainHostResponse:
        """Ask for the host to become empty."""
        order = self._gateway.order(user=request.user, comment=request.comment)
        if request.deadline_ms < 0:
            raise Refusal(field="deadline_ms", problem="negative", fix="give an instant to come, or 0 for none")
        deadline = request.deadline_ms or None
        host = await self._ask(
            request.host,
            lambda state: drain(
                state, request.host, order, fatal=request.fatal, deadline=deadline, accepts=request.accepts
            ),
        )
        return hosts_pb2.DrainHostResponse(host=host)

    @answering
    async def Resume(self, request: hosts_pb2.ResumeHostRequest, context: Context) -> hosts_pb2.ResumeHostResponse:
        """Ask for the host to take runs again."""
        order = self._gateway.order(user=request.user, comment=request.comment)
        host = await self._ask(request.host, lambda state: resume(state, request.host, order))
        return hosts_pb2.ResumeHostResponse(host=host)

    @answering
    async def CompleteRepair(
        self, request: hosts_pb2.CompleteRepairRequest, context: Context
    ) -> hosts_pb2.CompleteRepairResponse:
        """Say that the host is repaired."""
        order = self._gateway.order(user=request.user, comment=request.comment)
        host = await self._ask(request.host, lambda state: repair(state, request.host, order))
        return hosts_pb2.CompleteRepairResponse(host=host)

    @answering
    async def Fragmentation(
        self, request: hosts_pb2.FragmentationRequest, context: Context
    ) -> hosts_pb2.FragmentationResponse:
        """How large a gang could be placed, now and when protections end."""
        state, now = await self._gateway.read(), self._gateway.now()
        answer = hosts_pb2.FragmentationResponse(now_ms=now)
        for pool in fragmentation(state, now=now):
            message = answer.pools.add()
            message.CopyFrom(from_pool(pool))
            for begin in range(0, len(pool.prospects), _TURN):
                message.prospects.extend(map(from_prospect, pool.prospects[begin : begin + _TURN]))
                await asyncio.sleep(0)
        return answer

    @answering
    async def Report(self, request: hosts_pb2.HostReportRequest, context: Context) -> hosts_pb2.HostReportResponse:
        """The numbers of the hosts over a stretch of the past, or over the last seven days."""
        state, now = await self._gateway.read(), self._gateway.now()
        until = request.until_ms or now
        since = request.since_ms or until - REPORT_MS
        if not 0 < since < now:
            raise Refusal(field="since_ms", problem="not in the past", fix="give an instant before now, or 0")
        if not since < until <= now:
            fix = "give an instant after since_ms that is not to come, or 0 for now"
            raise Refusal(field="until_ms", problem="not between since_ms and now", fix=fix)
        return from_host_report(host_report(state, since=since, until=until))

    async def _ask(self, name: str, decide: Callable[[State], Fact]) -> hosts_pb2.Host:
        """Write what was decided, and show the host when health has heeded it, or soon after."""
        gateway = self._gateway
        state = await gateway.read()
        entry: HostEntry = find_host(state, name)
        fact, before = decide(state), entry.state
        with gateway.progress.watching(name) as changed:
            await gateway.folded((await gateway.append([fact])).last)
            try:
                async with asyncio.timeout(HEED_WAIT_S):
                    while entry.state is before and not gateway.progress.stopping:
                        changed.clear()
                        await changed.wait()
            except TimeoutError:
                pass  # health is slow or away: the host is shown as it is
        return from_host(entry, state, now=gateway.now(), seen=gateway.sightings.at)
