"""What an agent listens to beside the log, live: whatever is asked there, the next honest question is answered.

A real nats-server, real output of a real process, questions that nobody in his right mind would ask.
"""

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from services.agent.log_server import LogServer
from tenure.domain.ids import HostId, RunId
from tenure.log.access import Access, open_client
from tenure.runtime.log_stream import (
    OFFSET_MAX,
    LogRequest,
    LogsAway,
    decode_piece,
    encode_request,
    read_piece,
    subject,
)
from tenure.runtime.nats_server import NatsServer
from tests.integration.agent.conftest import RealHost

HOST, CLUSTER = HostId("h0"), "c"
ASKED = subject(cluster=CLUSTER, host=HOST)
HONEST = LogRequest(run=RunId("j-1.1"), replica=0, stream="stdout")
GOOD = encode_request(HONEST)
SECRET = "not for other people"
SEED, SPOILED = 6, 400
ODD = (
    b"",
    b"null",
    b"[]",
    b"\xff\xfe\x00",
    b"[" * 100_000,
    GOOD[:-1] + b',"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    GOOD * 2,
    b"x" * 1_000_000,
    GOOD.replace(b"j-1.1", b"../.."),
    GOOD.replace(b"j-1.1", b"../../secret"),
    GOOD.replace(b"j-1.1", b"j-1.1/../../secret"),
    GOOD.replace(b"j-1.1", "j\u202e\u2028\u00001".encode()),
    GOOD.replace(b"j-1.1", b"a" * 100_000),
    GOOD.replace(b"j-1.1", b""),
    GOOD.replace(b"stdout", b"../launch.json"),
    GOOD.replace(b"stdout", b"launch.json"),
    GOOD.replace(b"stdout", b"\\r\\nNats-Msg-Id: x"),
    GOOD.replace(b'"replica":0', b'"replica":-1'),
    GOOD.replace(b'"replica":0', b'"replica":%d' % OFFSET_MAX),
    GOOD.replace(b'"offset":0', b'"offset":%d' % OFFSET_MAX),
    GOOD.replace(b'"offset":0', b'"offset":' + b"9" * 5_000),
    GOOD.replace(b'"tail_bytes":0', b'"tail_bytes":%d' % OFFSET_MAX),
    GOOD.replace(b'"limit":524288', b'"limit":%d' % OFFSET_MAX),
    GOOD.replace(b'"limit":524288', b'"limit":0'),
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path / "nats")
    server.start()
    yield server
    server.stop()


def spoiled(chance: random.Random) -> bytes:
    """A good question cut, changed or with something in it."""
    data = bytearray(GOOD)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(data))
        match chance.randrange(4):
            case 0:
                data[at] = chance.randrange(256)
            case 1:
                del data[at:]
                data += b" "
            case 2:
                data[at:at] = chance.randbytes(chance.randrange(1, 9))
            case _:
                data[at:at] = data[:at]
    return bytes(data)


async def answered(client: Client, question: bytes) -> Msg:
    """Whatever is asked, there is an answer: a piece of the output, or one line that says what is wrong."""
    answer = await client.request(ASKED, question, timeout=20)
    assert SECRET.encode() not in answer.data
    try:
        piece = decode_piece(answer.data, answer.headers)
        assert piece.data in b"output\n"
    except LogsAway as told:
        assert "makes no sense" not in str(told), question[:200]
        assert SECRET not in str(told)
    return answer


async def ignore(error: Exception) -> None:
    """Of the one that is sent away."""


def test_whatever_is_asked_the_next_question_is_answered(play, tmp_path, server, caplog):
    """Also without an answer's name, larger than any message, and by headers that are none of ours."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "stdout").write_text(SECRET)
    chance = random.Random(SEED)

    async def story(host: RealHost) -> None:
        await host.start("echo", "output")
        await host.exit_of()
        access = Access(url=server.url)
        agent, client = await open_client(access), await open_client(access)
        listening = LogServer(agent, host.replicas, is_over=lambda *_: True, asker=access.inbox_prefix_of("gateway"))
        await listening.listen([HOST], cluster=CLUSTER)
        await agent.flush()
        for question in (*ODD, *(spoiled(chance) for _ in range(SPOILED))):
            await answered(client, question)
            await client.publish(ASKED, question)
        await client.publish(ASKED, GOOD, headers={"Status": "503", "Nats-Msg-Id": "x"})
        rude = await open_client(access, allow_reconnect=False, error_cb=ignore)
        rude._max_payload = 1 << 30
        with suppress(Exception):  # the server sends it away
            await rude.publish(ASKED, bytes(100 << 20))
            await rude.flush(5)
        piece = await read_piece(client, cluster=CLUSTER, host=HOST, request=HONEST, timeout_s=20)
        assert (piece.data, piece.eof) == (b"output\n", True)
        for opened in (agent, client, rude):
            await opened.close()

    play(story)
    assert not [record for record in caplog.records if record.exc_info], "no question is an error of ours"
