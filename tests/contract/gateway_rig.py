"""A gateway in this process, on any log, answering on a real port; and the facts of other roles written by hand."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from services.gateway.forecasts import Forecasts
from services.gateway.gateway import Gateway
from services.gateway.history import History
from services.gateway.output import Output
from services.gateway.progress import Progress
from services.gateway.refusals import Away
from services.gateway.server import EMBEDDED, REQUEST_BYTES_MAX, Server
from services.gateway.shell import ROLE
from services.gateway.state import State
from tenure.clickhouse.report import BudgetRow
from tenure.clickhouse.window import Usage
from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import BudgetPath, FactId, HostId, JobId, Position, UserName
from tenure.domain.job import Placement, ReplicaPlace
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason, Why
from tenure.domain.tree import PPM, BudgetNode, BudgetTree
from tenure.events.budgets import BudgetTreeChanged
from tenure.events.fact import Fact, Recorded
from tenure.events.hosts import CapacityChanged, HostStateChanged
from tenure.events.placing import RunAssigned
from tenure.events.reports import HostRegistered
from tenure.log.port import Log
from tenure.runtime.clock import WallClock
from tenure.runtime.identity_options import IdentityOptions
from tenure.runtime.log_stream import LogsAway, Requester
from tenure.runtime.loop import Loop
from tenure.v1 import budgets_pb2_grpc, hosts_pb2_grpc, jobs_pb2, jobs_pb2_grpc
from tests.contract.conftest import LogUnderTest

NOW = 1_700_000_000_000
WHY = Why(rule="P4", reason=Reason.START_IN_ORDER, numbers={"rank": 1, "ratio": 0.5, "waited_ms": 1500})
_numbers = count()


@dataclass(kw_only=True)
class Rig:
    """What a test holds."""

    address: str
    log: Log
    loop: Loop[State]
    gateway: Gateway
    channel: grpc.aio.Channel
    jobs: "jobs_pb2_grpc.JobsAsyncStub"
    budgets: "budgets_pb2_grpc.BudgetsAsyncStub"
    hosts: "hosts_pb2_grpc.HostsAsyncStub"

    async def write(self, *facts: Fact) -> Position:
        """Append facts of other roles, and wait until the gateway has folded them."""
        named = [
            msgspec.structs.replace(fact, id=fact.id or FactId(f"rig-{next(_numbers)}"), cluster="test")
            for fact in facts
        ]
        position = (await self.log.append(named)).last
        await self.gateway.folded(position)
        return position

    async def recorded(self) -> list[Recorded]:
        """The whole log."""
        return await read_all(self.log)

    async def submit(self, **fields: object) -> str:
        """Submit a good job; returns its id when the gateway has folded it."""
        request = jobs_pb2.SubmitRequest(job=good_job(**fields))
        job: str = (await self.jobs.Submit(request)).job_id
        await self.gateway.read()
        return job


class NoHistory:
    """A database that is away."""

    def __init__(self, log: Log) -> None:
        pass

    async def visible(self) -> Position:
        raise Away("ClickHouse is away")

    async def story(self, job: JobId) -> Sequence[Recorded]:
        raise Away("ClickHouse is away")

    async def report(self, *, since: int, until: int, path: str) -> Sequence[BudgetRow]:
        raise Away("ClickHouse is away")

    async def users(self, *, since: int, until: int, path: str) -> Sequence[Usage]:
        raise Away("ClickHouse is away")


class LogHistory:
    """The same answers as the database gives, from the log itself: which facts name the job."""

    def __init__(self, log: Log) -> None:
        self.log = log

    async def visible(self) -> Position:
        return await self.log.head()

    async def story(self, job: JobId) -> Sequence[Recorded]:
        return [recorded for recorded in await read_all(self.log) if getattr(recorded.fact, "job", None) == job]

    async def report(self, *, since: int, until: int, path: str) -> Sequence[BudgetRow]:
        return []

    async def users(self, *, since: int, until: int, path: str) -> Sequence[Usage]:
        return []


async def read_all(log: Log) -> list[Recorded]:
    """The whole log, as it is now."""
    head, found = await log.head(ROLE.reads), []
    feed = await log.follow(ROLE.reads, after=Position(0))
    while feed.passed < head:
        found.extend(await feed.next(5.0))
    await feed.close()
    return found


@asynccontextmanager
async def running(
    log: Log,
    *,
    history_of: Callable[[Log], History] = NoHistory,
    agents: Requester | None = None,
    policy: Policy | None = None,
    identity: IdentityOptions = EMBEDDED,
    local_key: Path = Path("no such key"),
    credentials: grpc.ChannelCredentials | None = None,
) -> AsyncIterator[Rig]:
    """A gateway that has caught up with `log`, with a channel to it."""
    progress = Progress()
    loop = Loop(ROLE, log, WallClock(), cluster="test", perform=progress.perform)
    gateway = Gateway(loop, log, WallClock(), progress, cluster="test", policy=policy or Policy())
    server, stop = Server("127.0.0.1:0", identity, local_key=local_key), asyncio.Event()

    async def connect() -> Requester:
        assert agents is not None, "the test reads no output"
        return agents

    async def connect_forecast() -> Requester:
        if agents is None:
            raise LogsAway("there is none in this test")
        return agents

    output = Output(progress, cluster="test", connect=connect)
    forecasts = Forecasts(cluster="test", connect=connect_forecast)
    await server.start(gateway, history_of(log), output, forecasts)
    folding = asyncio.create_task(loop.run(stop))
    checking = asyncio.create_task(server.watch_health(gateway))
    sightings = asyncio.create_task(gateway.sightings.run())
    options = (("grpc.max_send_message_length", REQUEST_BYTES_MAX), ("grpc.max_receive_message_length", -1))
    try:
        await asyncio.wait_for(loop.caught_up.wait(), 10)
        async with channel_to(server.address, credentials, options) as channel:
            yield Rig(
                address=server.address,
                log=log,
                loop=loop,
                gateway=gateway,
                channel=channel,
                jobs=jobs_pb2_grpc.JobsStub(channel),
                budgets=budgets_pb2_grpc.BudgetsStub(channel),
                hosts=hosts_pb2_grpc.HostsStub(channel),
            )
    finally:
        progress.stop()
        sightings.cancel()
        stop.set()
        await folding
        await server.stop()
        await checking


def channel_to(
    address: str, credentials: grpc.ChannelCredentials | None, options: Sequence[tuple[str, int]]
) -> grpc.aio.Channel:
    """A channel with TLS if there are credentials for it."""
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=options)


def good_job(**fields: object) -> jobs_pb2.JobSpec:
    """A job that is accepted, with some fields set otherwise."""
    usual = {
        "budget": "science/chem",
        "user": "ana",
        "replicas": 1,
        "gpus_per_replica": 8,
        "min_runtime_ms": 900_000,
        "command": ["true"],
    }
    return jobs_pb2.JobSpec(**{**usual, **fields})


def tree(**percents: int) -> BudgetTree:
    """A tree from paths (with `__` for `/`) and percentages."""
    paths = {path.replace("__", "/"): percent for path, percent in percents.items()}
    return BudgetTree(
        nodes=tuple(
            BudgetNode(path=BudgetPath(path), share_ppm=paths[path] * PPM // 100, managers=("mia",))
            for path in sorted(paths)
        )
    )


def a_cluster(hosts: int = 4) -> list[Fact]:
    """Healthy hosts h000 ... of eight H100 each, and a tree with the leaves science/bio, science/chem and robotics."""
    names = [HostId(f"h{number:03}") for number in range(hosts)]
    specs = tuple(HostSpec(host=name, gpus=8, gpu_type="H100", block="b0", cluster="test") for name in names)
    why = Why(rule="P1", reason=Reason.HOST_REGISTERED, numbers={"gpus": 8})
    facts: list[Fact] = [HostRegistered(at=NOW, agent="agent-1", hosts=specs)]
    for name in names:
        facts.append(
            HostStateChanged(at=NOW, host=name, state=HostState.HEALTHY, previous=None, last_seen=NOW, why=why)
        )
        facts.append(CapacityChanged(at=NOW, host=name, gpus=8, gpu_type="H100"))
    shares = tree(science=60, science__bio=50, science__chem=50, robotics=40)
    facts.append(BudgetTreeChanged(at=NOW, tree=shares, by=UserName("mia"), comment="first"))
    return facts


def place(*hosts: str, gpus: int = 8) -> Placement:
    """One replica of the first `gpus` GPUs on each host."""
    return tuple(
        ReplicaPlace(replica=number, host=HostId(host), gpus=tuple(range(gpus))) for number, host in enumerate(hosts)
    )


def assigned(state: State, job: str, placement: Placement, *, at: int = NOW, number: int = 1) -> RunAssigned:
    """The fact that starts a run of a known job."""
    spec = state.jobs[JobId(job)].spec
    return RunAssigned(
        at=at,
        run=f"{job}.{number}",
        job=job,
        number=number,
        budget=spec.budget,
        user=spec.user,
        placement=placement,
        launch=spec.launch,
        min_runtime_ms=spec.min_runtime_ms,
        resumable=spec.resumable,
        grace_ms=spec.grace_ms,
        resume_count=number - 1,
        master_address="127.0.0.1",
        master_port=29500,
        why=WHY,
    )


def play(
    log_under_test: LogUnderTest, scenario: Callable[[Rig], Awaitable[None]], *, hosts: int = 4, **options: Any
) -> None:
    """Play a scenario on a gateway that knows `a_cluster` of so many hosts."""

    async def on(log: Log) -> None:
        async with running(log, **options) as rig:
            await rig.write(*a_cluster(hosts))
            await scenario(rig)

    log_under_test.run(on)


async def refused(call: Awaitable[object], code: str, *words: str) -> grpc.aio.AioRpcError:
    """The error of a call that must be refused with a status and a line that holds these words."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    error = caught.value
    assert error.code().name == code, error.details()
    line = error.details() or ""
    assert "\n" not in line
    for word in words:
        assert word in line, line
    return error
