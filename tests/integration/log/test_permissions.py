"""What the real nats-server lets each user do: the table of `tenure.log.permissions`, tried out fact by fact."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.errors import Error as NatsError

from tenure.domain.host import HostSpec
from tenure.domain.ids import LOG_START, FactId, HostId, Position
from tenure.events.catalogue import KINDS
from tenure.events.fact import Lane
from tenure.events.reports import CheckpointReported, HostRegistered
from tenure.log import codec
from tenure.log.access import Access, inbox_of, open_client
from tenure.log.create import create
from tenure.log.jetstream import JetStreamLog
from tenure.log.lease import BUCKET, Lease
from tenure.log.link import FORBIDDEN, Link, Refused
from tenure.log.permissions import OPERATOR, make_keys, render, seed_file, users
from tenure.log.port import Unavailable
from tenure.log.publish import NEVER, WRONG_LAST
from tenure.log.subjects import Subjects
from tenure.runtime.forecasts import subject as forecast_of
from tenure.runtime.log_stream import subject as output_of
from tenure.runtime.nats_server import NatsServer
from tests.contract.log_facts import CLUSTER, report, runs

H0, H1 = HostId("h0"), HostId("h1.lab")
NAMES = users((H0, H1))
ROOT = f"$JS.API.STREAM.{{}}.tenure-{CLUSTER}"
FORGED = f"tenure.{CLUSTER}.report.h0.CheckpointReported"


class Guarded:
    """A server with a key for each user, and a log on it."""

    def __init__(self, root: Path) -> None:
        self.keys = root / "keys"
        rendered = render(make_keys(self.keys, list(NAMES)), cluster=CLUSTER, hosts=(H0, H1))
        self.server = NatsServer(root, sync="default", also=rendered)

    def access(self, name: str) -> Access:
        return Access(url=self.server.url, client=name, seed_file=seed_file(self.keys, name))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path_factory.mktemp("guarded"))
    guarded.server.start()
    asyncio.run(create(server=guarded.access(OPERATOR), cluster=CLUSTER, replicas=1, max_gib=0))
    yield guarded
    guarded.server.stop()


async def may_write(link: Link, subject: str) -> bool:
    """Whether the server lets this user write there; nothing is written: the condition never holds."""
    try:
        await link.ask(subject, b"{}", headers={"Nats-Expected-Last-Sequence": NEVER}, timeout_s=5)
    except Refused as refused:
        if refused.code in WRONG_LAST or refused.status == FORBIDDEN:
            return refused.status != FORBIDDEN
        raise
    raise AssertionError("a condition that cannot hold did")


@pytest.mark.parametrize("name", NAMES)
def test_a_user_writes_the_facts_of_the_table_and_no_others(guarded: Guarded, name: str) -> None:
    grant = NAMES[name]

    async def scenario() -> None:
        link = await Link.open(guarded.access(name), patience_s=5)
        for kind in KINDS.values():
            for speaker in (None, H0, H1) if kind.lane is Lane.REPORT else (None,):
                subject = Subjects(CLUSTER, speaker=speaker).written(kind).replace("*", "~")
                allowed = grant is None or (kind in grant.writes and grant.host == speaker)
                assert await may_write(link, subject) == allowed, f"{name} on {subject}"
        await link.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("name", [name for name, grant in NAMES.items() if grant is not None])
def test_nobody_but_the_operator_touches_the_log_itself(guarded: Guarded, name: str) -> None:
    async def scenario() -> None:
        link = await Link.open(guarded.access(name), patience_s=5)
        for verb in ("CREATE", "UPDATE", "DELETE", "PURGE", "MSG.DELETE", "SNAPSHOT", "RESTORE"):
            with pytest.raises(Refused) as refused:
                await link.ask(ROOT.format(verb), b"{}", timeout_s=5)
            assert refused.value.status == FORBIDDEN
        await link.close()
        log = await JetStreamLog.connect(guarded.access(name), cluster=CLUSTER)
        await (await log.follow(list(KINDS.values()), after=LOG_START)).close()
        await log.close()

    asyncio.run(scenario())


def test_without_a_key_or_with_another_server_s_nobody_is_let_in(guarded: Guarded, tmp_path: Path) -> None:
    make_keys(tmp_path, ["placer"])
    stranger = replace(guarded.access("placer"), seed_file=seed_file(tmp_path, "placer"))
    for access in (stranger, Access(url=guarded.server.url)):
        with pytest.raises(Unavailable, match="no NATS server answers"):
            asyncio.run(JetStreamLog.connect(access, cluster=CLUSTER, patience_s=0.5))


def test_with_another_s_key_it_is_said_that_it_is_one(guarded: Guarded) -> None:
    wrong = replace(guarded.access("placer"), client="budget")
    with pytest.raises(Unavailable, match="--nats-key-file: not the key of budget; give the one that was made for it"):
        asyncio.run(JetStreamLog.connect(wrong, cluster=CLUSTER, patience_s=0.5))


def test_a_role_takes_its_own_lease_and_no_other(guarded: Guarded) -> None:
    """The first one makes the bucket."""

    async def scenario() -> None:
        for name, grant in NAMES.items():
            if grant is None or not grant.lease:
                continue
            lease = await Lease.open(guarded.access(name), cluster=CLUSTER, role=name, instance="here")
            assert await lease.claim()
            assert await lease.renew()
            await lease.close()
            link = await Link.open(guarded.access(name), patience_s=5)
            for other in ("budget", "ranker", "placer", "health", "journal"):
                assert await may_write(link, f"$KV.{BUCKET}.{CLUSTER}.{other}") == (other == name)
            await link.close()

    asyncio.run(scenario())


def test_who_may_keep_letters_and_who_may_have_facts_passed_over(guarded: Guarded) -> None:
    async def scenario() -> None:
        subjects = Subjects(CLUSTER)
        for name, keeps, condemns in (
            ("placer", True, True),
            ("forecast", True, False),
            ("reader", False, False),
            ("agent-h0", False, False),
        ):
            link = await Link.open(guarded.access(name), patience_s=5)
            for condemned, allowed in ((False, keeps), (True, condemns)):
                assert await may_write(link, subjects.dead(Position(7), condemned=condemned)) == allowed, name
            await link.close()

    asyncio.run(scenario())


def test_nobody_hears_the_answers_to_another_nor_another_host_s_questions(guarded: Guarded) -> None:
    async def scenario() -> None:
        for name, subject, allowed in (
            ("budget", f"{inbox_of('budget')}.>", True),
            ("budget", f"{inbox_of('placer')}.>", False),
            ("agent-h0", "_INBOX.>", False),
            ("agent-h0", f"{inbox_of('agent-h1.lab')}.>", False),
            ("agent-h0", f"tenure.{CLUSTER}.>", False),
            ("agent-h0", output_of(cluster=CLUSTER, host=H0), True),
            ("agent-h0", output_of(cluster=CLUSTER, host=H1), False),
            ("agent-h1.lab", output_of(cluster=CLUSTER, host=H1), True),
            ("gateway", output_of(cluster=CLUSTER, host=H0), False),
            ("forecast", forecast_of(cluster=CLUSTER), True),
            ("agent-h0", forecast_of(cluster=CLUSTER), False),
            ("placer", forecast_of(cluster=CLUSTER), False),
            ("gateway", forecast_of(cluster=CLUSTER), False),
        ):
            assert await may_listen(guarded.access(name), subject) == allowed, f"{name} to {subject}"

    asyncio.run(scenario())


def test_what_is_denied_is_one_line_and_a_server_that_is_away_is_none(
    tmp_path: Path, guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    server = NatsServer(tmp_path)

    async def scenario() -> None:
        denied = await open_client(guarded.access("budget"))
        await denied.subscribe(f"{inbox_of('placer')}.>")
        await settled(denied)
        server.start()
        waiting = await open_client(Access(url=server.url), max_reconnect_attempts=-1, reconnect_time_wait=0.01)
        server.stop()
        while not any("Connect call failed" in record.getMessage() for record in caplog.records):
            await asyncio.sleep(0.01)
        for client in (denied, waiting):
            await client.close()

    with caplog.at_level(logging.DEBUG, logger="tenure"):
        asyncio.run(asyncio.wait_for(scenario(), 30))
    said = [record for record in caplog.records if record.levelno > logging.DEBUG]
    assert [(record.levelname, record.exc_info) for record in said] == [("WARNING", None)]
    assert "permissions violation" in said[0].getMessage().lower()


async def may_listen(access: Access, subject: str) -> bool:
    said: list[Exception] = []

    async def hear(error: Exception) -> None:
        said.append(error)

    client: Client = await open_client(access, error_cb=hear)
    await client.subscribe(subject)
    await settled(client)
    await client.close()
    assert all("permissions violation" in str(error).lower() for error in said)
    return not said


@pytest.mark.parametrize(
    ("who", "asked"),
    [("agent-h1.lab", output_of(cluster=CLUSTER, host=H1)), ("forecast", forecast_of(cluster=CLUSTER))],
)
def test_who_answers_the_gateway_answers_nobody_unasked(guarded: Guarded, who: str, asked: str) -> None:
    async def scenario() -> None:
        agent = await open_client(guarded.access(who), error_cb=ignore)
        gateway = await open_client(guarded.access("gateway"))

        async def answer(message: object) -> None:
            await agent.publish(message.reply, b"output")  # type: ignore[attr-defined]

        await agent.subscribe(asked, queue="several", cb=answer)
        await settled(agent)
        reply = await gateway.request(asked, b"", timeout=5)
        assert reply.data == b"output"
        inbox = await gateway.subscribe(f"{inbox_of('gateway')}.mine")
        await settled(gateway)
        await agent.publish(f"{inbox_of('gateway')}.mine", b"unasked")
        await settled(agent)
        await settled(gateway)
        assert inbox.pending_msgs == 0
        await agent.close()
        await gateway.close()

    asyncio.run(scenario())


async def settled(client: Client) -> None:
    """The server has seen all that was sent, and we what it says of it. nats-py sends a ping before what waits."""
    for _ in range(2):
        await client.flush()


async def ignore(error: Exception) -> None:
    assert isinstance(error, NatsError)


def test_what_an_agent_forges_on_its_own_subjects_is_heard_by_nobody(guarded: Guarded) -> None:
    """The server looks at subjects only: that the fact is one that belongs there, every reader sees to."""

    async def scenario() -> None:
        operator = await JetStreamLog.connect(guarded.access(OPERATOR), cluster=CLUSTER)
        begin = await operator.head()
        link = await Link.open(guarded.access("agent-h0"), patience_s=5)
        spec = HostSpec(host=H1, gpus=8, gpu_type="H100", block="b0", cluster="c", address="127.0.0.1")
        other = CheckpointReported(at=1, id=FactId("forged"), run="j1.1", job="j1", host=H1)  # type: ignore[arg-type]
        for fact in (runs(1), other, HostRegistered(at=1, agent="h0", hosts=(spec,))):
            await link.ask(FORGED, codec.encode(fact), timeout_s=5)
        own = await JetStreamLog.connect(guarded.access("agent-h0"), cluster=CLUSTER, speaker=H0)
        await own.append([report(7)])
        head = await operator.head()
        assert head == begin + 4
        feed = await operator.follow(list(KINDS.values()), after=begin)
        heard = []
        while feed.passed < head:
            heard += await feed.next(5)
        assert [recorded.fact for recorded in heard] == [report(7)]
        assert feed.quarantined == 3
        await feed.close()
        assert [letter.by for letter in await operator.dead.read()] == ["operator"] * 3
        for opened in (own, operator):
            await opened.close()
        await link.close()

    asyncio.run(scenario())


def test_who_speaks_from_outside_may_have_nothing_passed_over(guarded: Guarded) -> None:
    """An agent that could condemn facts could unmake what others have said."""

    async def scenario() -> None:
        operator = await JetStreamLog.connect(guarded.access(OPERATOR), cluster=CLUSTER)
        at = (await operator.append([runs(99)])).last
        await operator.close()
        for name, may in (("agent-h0", False), ("reader", False), ("placer", True), ("journal", True)):
            log = await JetStreamLog.connect(guarded.access(name), cluster=CLUSTER, patience_s=5)
            if may:
                await log.condemn(at, reason="a test", by=name)
            else:
                with pytest.raises(Unavailable, match=r"[Pp]ermissions [Vv]iolation"):
                    await log.condemn(at, reason="a test", by=name)
            assert (at in await log.condemned()) == may, name
            await log.close()

    asyncio.run(scenario())
