"""The ranker's books and ClickHouse, on a real engine: no drift while jobs and hosts come and go; away is said."""

import asyncio
import json
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from clickhouse_connect.driver import Client

from services.journal.batch import begin
from services.journal.writer import Writer
from services.ranker.decider import role
from services.ranker.drift import DriftCheck
from services.ranker.window import Away, Database
from tenure.clickhouse.migrate import migrate
from tenure.domain.host import HostState
from tenure.domain.ids import BudgetPath, HostId, JobId, RunId, UserName
from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause
from tenure.domain.units import HOUR, MINUTE, SECOND, Millis
from tenure.events.fact import Recorded
from tenure.events.reports import Heartbeat, HostBeat, Segment
from tenure.runtime.clock import Clock
from tenure.runtime.loop import Loop
from tests.contract.own_clickhouse import Server, clickhouse, client
from tests.unit.journal.facts import T0
from tests.unit.ranker.scene import Scene

__all__ = ["clickhouse", "client"]

HOSTS = ("h0", "h1", "h2")
BEAT = 5 * SECOND
ROUNDS = 14
LOST_IN_ROUND, BACK_IN_ROUND = 6, 9


class Lab:
    """Jobs on three hosts that beat every five seconds, each run's occupancy in segments as an agent cuts them."""

    def __init__(self, policy: Policy) -> None:
        self.scene = Scene({"a": 50, "b": 50}, policy=policy)
        self.scene.now = T0 + 17 * MINUTE
        self.silent: set[str] = set()
        self.running: dict[RunId, Millis] = {}
        self._reported: dict[tuple[RunId, str], Millis] = {}
        self._last: dict[RunId, Millis] = {}
        self._given_up: set[tuple[RunId, str]] = set()
        self._beat_at: Millis = self.scene.now

    def start(self, name: str, budget: str, *, gpus: int) -> RunId:
        """A gang of three, one replica on each host, starts now."""
        self.scene.job(name, budget, gpus=gpus, replicas=3, user=f"u{gpus}")
        run = self.scene.run(name, hosts=HOSTS)
        self.running[run] = self.scene.now
        return run

    def end(self, run: RunId, cause: EndCause = EndCause.COMPLETED) -> None:
        """All its replicas that can be heard of are gone now."""
        self._last[run] = self.scene.now
        for number, host in enumerate(HOSTS):
            if host in self.silent:
                self._given_up.add((run, host))
            else:
                self.scene.exit(run, only=number)
        self.scene.end(run, cause)

    def refund(self, run: RunId, *, since: Millis) -> None:
        """The budget role gives back what it held since then, by the ranker's own account of it."""
        self.scene.actor.fold()
        replicas = self.scene.actor.state.runs[run].replicas.values()
        ends = [held.charged_to for held in replicas if held.charged_to is not None]
        gpu_ms = sum(held.gpus * max(0, (held.charged_to or 0) - since) for held in replicas)
        self.scene.charge(run, charged=0, refunded=gpu_ms, since=since, until=max(ends))

    def beat(self) -> None:
        """Five seconds pass, and every host that is not silent tells what it held."""
        scene = self.scene
        scene.now += BEAT
        self._beat_at = scene.now
        hosts = []
        for host in HOSTS:
            if host not in self.silent:
                segments = [part for run in list(self.running) for part in self._segments(run, host)]
                hosts.append(HostBeat(host=HostId(host), gpus=40, segments=tuple(segments)))
        scene.say(Heartbeat(at=scene.now, agent="a", hosts=tuple(hosts)))

    def _segments(self, run: RunId, host: str) -> Iterable[Segment]:
        spec = self.scene.jobs[JobId(run.rpartition(".")[0])]
        if (run, host) in self._given_up:  # what it held unseen is nobody's (P2)
            return
        since = self._reported.get((run, host), self.running[run])
        until = self._last.get(run, self.scene.now)
        while since < until:
            end = min(until, (since // HOUR + 1) * HOUR)
            yield Segment(
                run=run,
                job=JobId(run.rpartition(".")[0]),
                budget=spec.budget,
                user=spec.user,
                charged=True,
                gpus=spec.gpus_per_replica,
                since=since,
                until=end,
            )
            since = self._reported[run, host] = end

    def live(self, number: int) -> None:
        """A round: two gangs start, some time passes, about half of all gangs end; a host is lost and comes back."""
        chance = random.Random(number)
        for budget in "ab":
            self.scene.now += chance.randrange(900)
            self.start(f"j{number}-{budget}", budget, gpus=1 + chance.randrange(5))
        for _ in range(chance.randrange(3, 12)):
            self.beat()
        self.scene.now += chance.randrange(4000)
        if number == LOST_IN_ROUND:
            self.lose("h1")
        elif number == BACK_IN_ROUND:
            self.silent.clear()
            self.scene.host("h1", HostState.HEALTHY, last_seen=self.scene.now)
        for run in [run for run in self.running if run not in self._last and chance.random() < 0.5]:
            self.end(run)
        self.beat()

    def lose(self, host: str) -> None:
        """The host is not heard again after its last beat, is suspected, and given up with all it had."""
        seen = self._beat_at
        self.silent.add(host)
        for _ in range(4):
            self.beat()
        self.scene.host(host, HostState.SUSPECT, last_seen=seen)
        for _ in range(10):
            self.beat()
        self.scene.host(host, HostState.LOST, last_seen=seen)
        for run in [run for run in self.running if run not in self._last]:
            self.end(run, EndCause.HOST_LOST)
            self.refund(run, since=seen - 2 * MINUTE)


class At(Clock):
    """A clock that stands at a scene's instant."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def now(self) -> Millis:
        """See `Clock.now`."""
        return self._scene.now


def journal(client: Client, recorded: Iterable[Recorded]) -> None:
    """Write facts as the journal does, every one a batch."""
    writer = Writer(client)
    position = writer.resume("log")
    batch = None
    for fact in recorded:
        if fact.position <= position:
            continue
        if batch is not None and len(batch.events) < 9 and batch.takes(fact):
            batch.add(fact)
            continue
        if batch is not None:
            writer.write(batch)
        batch = begin(fact)
    if batch is not None:
        writer.write(batch)


async def comparisons(lab: Lab, server: Server, client: Client, file: Path) -> list[dict[str, object]]:
    """The reports of a running ranker, one after each round of the lab's life."""
    clock, reports = At(lab.scene), []
    loop = Loop(role(lab.scene.policy), lab.scene.log, clock, cluster="test")
    database = Database(server.url, server.token_file)
    check = DriftCheck(loop, lab.scene.log, database, clock=clock, file=file)
    stop = asyncio.Event()
    running = asyncio.create_task(loop.run(stop))
    await loop.caught_up.wait()
    for number in range(ROUNDS):
        lab.live(number)
        journal(client, lab.scene.log.recorded)
        reports.append(await check.check())
    stop.set()
    await running
    return reports


def test_the_books_and_the_database_never_differ(clickhouse: Server, client: Client, tmp_path: Path) -> None:
    """Runs begin and end between heartbeats, a host is lost with a refund; the window is shorter than the story."""
    lab = Lab(Policy(lookback_ms=10 * MINUTE))
    reports = asyncio.run(comparisons(lab, clickhouse, client, tmp_path / "drift.json"))
    found = [report for report in reports if report["status"] == "compared"]
    assert len(found) > ROUNDS // 2
    assert [report["drift_gpu_ms"] for report in found] == [0] * len(found), found
    held = [sum(drift["books_gpu_ms"] for drift in report["budgets"].values()) for report in found[1:]]  # type: ignore[attr-defined]
    assert min(held) > 0
    assert json.loads((tmp_path / "drift.json").read_text()) == reports[-1]


def test_a_difference_is_found_to_the_millisecond(clickhouse: Server, client: Client, tmp_path: Path) -> None:
    """An agent reports seven milliseconds of one GPU that nobody started."""
    lab = Lab(Policy(lookback_ms=10 * MINUTE))
    ghost = Segment(
        run=RunId("ghost.1"),
        job=JobId("ghost"),
        budget=BudgetPath("b"),
        user=UserName("u"),
        charged=True,
        gpus=1,
        since=lab.scene.now,
        until=lab.scene.now + 7,
    )
    beat = HostBeat(host=HostId("h9"), gpus=1, segments=(ghost,))
    lab.scene.say(Heartbeat(at=lab.scene.now, agent="x", hosts=(beat,)))
    reports = asyncio.run(comparisons(lab, clickhouse, client, tmp_path / "drift.json"))
    assert [report["drift_gpu_ms"] for report in reports[1:6]] == [7] * 5
    assert reports[5]["budgets"]["b"]["drift_gpu_ms"] == -7  # type: ignore[index]
    assert reports[-1]["drift_gpu_ms"] == 0, "it has left the window"


def test_a_server_that_is_away_is_asked_again_and_found(tmp_path: Path) -> None:
    """S54. Not the module's server: this one is killed."""
    server = Server(data=tmp_path / "own")
    server.data.mkdir()
    server.start()
    database = Database(server.url, server.token_file)
    try:
        migrate(server.client())
        assert database.known().position == 0
        server.kill()
        with pytest.raises(Away, match=r"refused|does not answer"):
            database.known()
        server.start()
        assert database.known().position == 0
    finally:
        server.kill()
