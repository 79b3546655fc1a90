"""The server sends its answers where the asker says, without looking whether the asker may write there.

So a stolen key that may only read can have an answer put on a subject of others. What stands there counts for nothing,
because an answer is neither a letter nor a holder, and because no user is given answers whose bytes are another's.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from nats.aio.client import Client

from services.agent.log_server import LogServer
from services.agent.process.logs import LogChunk
from tenure.domain.ids import Position, RunId
from tenure.events.catalogue import KINDS
from tenure.log.access import inbox_of, open_client
from tenure.log.jetstream import JetStreamLog
from tenure.log.lease import BUCKET, TTL_S, Lease
from tenure.log.link import API, FORBIDDEN, Link, Refused
from tenure.log.permissions import GATEWAY, OPERATOR
from tenure.log.subjects import Subjects
from tenure.runtime.log_stream import LogRequest, encode_request, read_piece
from tenure.runtime.log_stream import subject as output_of
from tests.contract.log_facts import CLUSTER, intake, report
from tests.integration.log.test_permissions import H1, NAMES, Guarded, guarded, ignore, settled

__all__ = ["guarded"]

KINDS_READ = tuple(KINDS.values())
QUESTION = f"{API}.STREAM.INFO.tenure-{CLUSTER}"
SOON_S = 10.0


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(bounded())


async def have_answered(client: Client, subject: str, *, question: str = QUESTION, data: bytes = b"") -> None:
    """Ask something that every user may, and have the answer sent there. Raises TimeoutError if it does not come."""
    await client.publish(question, data, reply=subject)
    await settled(client)


def own_question(user: str) -> tuple[str, bytes]:
    """What a user may ask the server whose answer has another form: its own report's acknowledgement, for an agent."""
    if user.startswith("agent"):
        return f"tenure.{CLUSTER}.report.h0.CheckpointReported", b"{}"
    return QUESTION, b""


@pytest.mark.parametrize("user", ["reader", "agent-h0"])
def test_an_answer_of_the_server_condemns_nothing(guarded: Guarded, user: str) -> None:
    async def scenario() -> None:
        operator = await JetStreamLog.connect(guarded.access(OPERATOR), cluster=CLUSTER)
        await operator.dead.ensure()
        at = (await operator.append([intake(1, by=user)])).last
        before = await operator.condemned()
        live = await operator.follow(KINDS_READ, after=Position(at - 1))
        assert [one.position for one in await live.next(SOON_S)] == [at]
        thief = await open_client(guarded.access(user), error_cb=ignore)
        letters = await operator.dead.count()
        question, data = own_question(user)
        await have_answered(thief, Subjects(CLUSTER).dead(at, condemned=True), question=question, data=data)
        while await operator.dead.count() == letters:  # the server has taken the answer for a letter
            await asyncio.sleep(0.01)
        assert await operator.condemned() == before
        last = (await operator.append([intake(2, by=user)])).last
        assert [one.position for one in await live.next(SOON_S)] == [last], "whoever reads already goes on"
        late = await operator.follow(KINDS_READ, after=Position(at - 1))
        assert at in [one.position for one in await late.next(SOON_S)], "and whoever begins anew reads it, too"
        assert await operator.condemn(at, reason="a test", by="test"), "what lies there is in nobody's way"
        assert await operator.condemned() == before | {at}
        assert not await operator.condemn(at, reason="a test", by="test")
        await have_answered(thief, Subjects(CLUSTER).dead(at, condemned=True))
        assert await operator.condemned() == before | {at}, "and takes nothing back"
        for opened in (thief, operator):
            await opened.close()

    play(scenario)


def test_an_answer_of_the_server_takes_nobody_s_lease(guarded: Guarded) -> None:
    async def scenario() -> None:
        lease = await Lease.open(guarded.access("placer"), cluster=CLUSTER, role="placer", instance="here")
        assert await lease.claim()
        thief = await open_client(guarded.access("reader"), error_cb=ignore)
        await have_answered(thief, f"$KV.{BUCKET}.{CLUSTER}.placer")
        began = asyncio.get_running_loop().time()
        while await lease.renew():  # until the answer is there
            await asyncio.sleep(0.01)
        assert await lease.claim(), "nobody holds what no holder has written"
        assert await lease.renew()
        assert asyncio.get_running_loop().time() - began < TTL_S / 2
        for opened in (thief, lease):
            await opened.close()

    play(scenario)


@pytest.mark.parametrize("name", [name for name, grant in NAMES.items() if grant is not None])
def test_nobody_is_given_answers_that_others_have_written(guarded: Guarded, name: str) -> None:
    """A direct get answers with the bytes that somebody stored: sent to a lane, they would be a fact there."""

    async def scenario() -> None:
        link = await Link.open(guarded.access(name), patience_s=5)
        for stream, subject in (
            (f"KV_{BUCKET}", f"$KV.{BUCKET}.{CLUSTER}.{name}"),
            (f"tenure-{CLUSTER}", f"tenure.{CLUSTER}.intake.JobSubmitted"),
        ):
            for question in (f"{API}.DIRECT.GET.{stream}", f"{API}.DIRECT.GET.{stream}.{subject}"):
                with pytest.raises(Refused) as refused:
                    await link.ask(question, b"{}", timeout_s=5)
                assert refused.value.status == FORBIDDEN
        await link.close()

    play(scenario)


class OneStream:
    """A replica whose output is a fact that no agent may say."""

    def read_log(self, *, run: RunId, replica: int, stream: str, offset: int, limit: int) -> LogChunk:
        data = b'{"type":"RunStopRequested"}'
        return LogChunk(data=data, start_offset=0, next_offset=len(data), oldest_offset=0, end_offset=len(data))


def test_an_agent_sends_output_to_the_gateway_s_own_names_and_nowhere_else(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    """The server lets it answer on any subject that a question names: it would write for a stolen key."""
    request = LogRequest(run=RunId("j1.1"), replica=0, stream="stdout")

    async def scenario() -> None:
        access = guarded.access("agent-h1.lab")
        agent = await open_client(access, error_cb=ignore)
        await LogServer(agent, OneStream(), is_over=lambda *_: True, asker=access.inbox_prefix_of(GATEWAY)).listen(
            [H1], cluster=CLUSTER
        )
        await settled(agent)
        operator = await JetStreamLog.connect(guarded.access(OPERATOR), cluster=CLUSTER)
        await operator.append([report(1, by="first")])
        head = await operator.head()
        gateway = await open_client(guarded.access(GATEWAY))
        elsewhere = [f"tenure.{CLUSTER}.place.runs.RunStopRequested", f"{inbox_of('placer')}.x", "_INBOX.x", ""]
        for reply in elsewhere:
            await gateway.publish(output_of(cluster=CLUSTER, host=H1), encode_request(request), reply=reply)
        piece = await read_piece(gateway, cluster=CLUSTER, host=H1, request=request)
        assert piece.data and piece.eof, "an honest question after them is answered"
        await settled(agent)
        assert await operator.head() == head
        for opened in (agent, gateway, operator):
            await opened.close()

    with caplog.at_level(logging.WARNING):
        play(scenario)
    assert sum("asked for output to be sent" in message for message in caplog.messages) == 4
