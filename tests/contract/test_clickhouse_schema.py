"""The schema and what is read from it, on a real engine: exact totals, exact windows, owed, stories."""

import random
import threading
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from clickhouse_connect.driver import Client

from services.gateway import state as gateway
from services.gateway.evolve import READS as GATEWAY_READS
from services.gateway.evolve import evolve as gateway_evolve
from services.gateway.metrics import readings
from services.gateway.policy.host_report import host_report
from services.journal.batch import Batch, begin
from services.journal.writer import Writer
from tenure.clickhouse.connect import connect
from tenure.clickhouse.migrate import MIGRATIONS, migrate, read_migrations
from tenure.clickhouse.report import BudgetRow, budget_report, users_report
from tenure.clickhouse.story import complete_position, export, story, visible_position
from tenure.clickhouse.window import Usage, read_window, read_window_at
from tenure.domain.ids import JobId, Position
from tenure.domain.policy import Policy
from tenure.domain.refusal import Refusal
from tenure.domain.units import DAY, HOUR, SECOND
from tenure.events.fact import Recorded
from tenure.events.placing import JobFinished
from tests.contract.own_clickhouse import Server, clickhouse, client
from tests.scenario.script import load as load_script
from tests.scenario.script import script_to_world
from tests.unit.journal.facts import T0, Story

__all__ = ["clickhouse", "client"]


def batches(facts: Iterable[Recorded], *, size: int) -> list[Batch]:
    """The facts in batches of at most `size`."""
    made: list[Batch] = []
    for recorded in facts:
        if made and len(made[-1].events) < size and made[-1].takes(recorded):
            made[-1].add(recorded)
        else:
            made.append(begin(recorded))
    return made


def write(client: Client, facts: Iterable[Recorded], *, size: int = 7) -> None:
    """Write facts as the journal does."""
    writer = Writer(client)
    writer.resume("log")
    for batch in batches(facts, size=size):
        writer.write(batch)


def occupied(facts: Story, since: int, until: int) -> dict[tuple[str, bool], int]:
    """By brute force: GPU-ms of the segments in a window, by budget and whether charged."""
    held: dict[tuple[str, bool], int] = {}
    for recorded in facts.recorded:
        for beat in getattr(recorded.fact, "hosts", ()):
            for part in beat.segments:
                overlap = min(part.until, until) - max(part.since, since)
                if overlap > 0:
                    key = (str(part.budget), part.charged)
                    held[key] = held.get(key, 0) + part.gpus * overlap
    return held


def by_budget(usages: Iterable[Usage]) -> dict[tuple[str, bool], int]:
    held: dict[tuple[str, bool], int] = {}
    for usage in usages:
        for charged, amount in ((True, usage.charged_gpu_ms), (False, usage.unallocated_gpu_ms)):
            if amount:
                key = (str(usage.budget), charged)
                held[key] = held.get(key, 0) + amount
    return held


def busy_lab(seed: int, *, segments: int = 300) -> Story:
    """Segments of four budgets over ten hours, said late and out of order."""
    chance = random.Random(seed)
    told = Story()
    for index in range(segments):
        since = T0 + chance.randrange(10 * HOUR)
        until = min(since + chance.randrange(1, HOUR), (since // HOUR + 1) * HOUR)
        told.held(
            f"j{index}.1",
            since,
            until,
            gpus=chance.choice([1, 2, 8]),
            budget=chance.choice(["a/x", "a/y", "b", "c"]),
            user=chance.choice(["ana", "ben"]),
            charged=chance.random() < 0.7,
            busy_milli=chance.choice([None, 250, 1000]),
        )
    return told


def test_migrations_are_applied_once(client: Client) -> None:
    assert migrate(client) == []
    numbers = [migration.number for migration in read_migrations(MIGRATIONS)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_two_processes_may_migrate_at_once(clickhouse: Server, client: Client) -> None:
    for name in ("owed_hourly", "demand_hourly", "occupancy_to_hourly"):
        client.command(f"DROP VIEW {name} SYNC")
    for name in ("migrations", "events"):
        client.command(f"DROP TABLE {name} SYNC")
    applied: list[list[str]] = []
    starters = [threading.Thread(target=lambda: applied.append(migrate(clickhouse.client()))) for _ in range(3)]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join()
    assert len(applied) == 3 and any(applied)
    assert migrate(client) == []
    write(client, busy_lab(0, segments=3).recorded)


def test_a_migration_that_was_changed_after_it_was_applied_is_refused(client: Client, tmp_path: Path) -> None:
    for path in MIGRATIONS.glob("*.sql"):
        (tmp_path / path.name).write_text(path.read_text() + "-- a comment changes nothing\n")
    assert migrate(client, folder=tmp_path) == []
    (tmp_path / "001_events.sql").write_text("SELECT 1;\n")
    with pytest.raises(Refusal, match=r"001_events.sql .* add a new file"):
        migrate(client, folder=tmp_path)


@pytest.mark.parametrize("seed", range(2))
def test_a_window_is_exact_to_the_millisecond(client: Client, seed: int) -> None:
    told = busy_lab(seed)
    write(client, told.recorded, size=50)
    chance = random.Random(seed)
    windows = [(T0, T0 + 10 * HOUR), (T0 + HOUR, T0 + 2 * HOUR), (T0 + 5, T0 + 6), (T0 + HOUR, T0 + HOUR + 1)]
    for _ in range(6):
        since = T0 + chance.randrange(10 * HOUR)
        windows.append((since, since + chance.randrange(1, 5 * HOUR)))
    for since, until in windows:
        assert by_budget(read_window(client, since, until)) == occupied(told, since, until), (since, until)


def test_a_window_at_a_position_knows_nothing_later(client: Client) -> None:
    told = busy_lab(3)
    write(client, told.recorded, size=40)
    early = Story()
    early.recorded = told.recorded[:120]
    for since, until in [(T0, T0 + 10 * HOUR), (T0 + 7, T0 + 9 * HOUR + 3), (T0 + 10, T0 + 20)]:
        found = read_window_at(client, since, until, position=Position(120))
        assert by_budget(found) == occupied(early, since, until)
        whole = read_window_at(client, since, until, position=Position(len(told.recorded)))
        assert whole == read_window(client, since, until)


def test_a_window_at_a_position_trusts_the_rollup_where_it_can(client: Client) -> None:
    """Hours that no later fact touched come from the rollup: the rows behind them are not needed."""
    told = Story()
    told.held("j1.1", T0, T0 + HOUR)
    told.held("j1.1", T0 + HOUR, T0 + 2 * HOUR)
    write(client, told.recorded)
    client.command(f"ALTER TABLE occupancy DELETE WHERE since_ms = {T0} SETTINGS mutations_sync = 2")
    found = read_window_at(client, T0, T0 + 2 * HOUR, position=Position(1))
    assert by_budget(found) == {("science/chem", True): 8 * HOUR}


def test_a_refund_takes_back_what_the_host_fault_cost(client: Client) -> None:
    told = Story()
    told.held("j1.1", T0, T0 + HOUR)
    told.held("j1.1", T0 + HOUR, T0 + HOUR + 600_000)
    lost_since = T0 + HOUR - 300_000
    told.charged("j1.1", T0 + 2 * HOUR, refunded=8 * 900_000, since=lost_since, until=T0 + HOUR + 600_000)
    write(client, told.recorded)
    [usage] = read_window(client, T0, T0 + 2 * HOUR)
    assert (usage.charged_gpu_ms, usage.refunded_gpu_ms) == (8 * (HOUR - 300_000), 8 * 900_000)
    [edge] = read_window(client, T0, T0 + HOUR - 100_000)
    assert (edge.charged_gpu_ms, edge.refunded_gpu_ms) == (8 * (HOUR - 300_000), 8 * 200_000)


@pytest.mark.parametrize("seed", range(2))
def test_who_used_a_budget_adds_up_to_what_it_got(client: Client, seed: int) -> None:
    write(client, busy_lab(seed).recorded, size=50)
    window = (T0 + HOUR // 3, T0 + 7 * HOUR)
    users = users_report(client, *window)
    assert users and users == sorted(users, key=lambda one: (-one.charged_gpu_ms, -one.unallocated_gpu_ms, one.budget))
    for row in budget_report(client, *window):
        mine = users_report(client, *window, row.path)
        assert row.delivered_gpu_ms == sum(one.charged_gpu_ms for one in mine)
        assert row.unallocated_gpu_ms == sum(one.unallocated_gpu_ms for one in mine)
        assert row.refunded_gpu_ms == sum(one.refunded_gpu_ms for one in mine)


def test_how_busy_the_gpus_were(client: Client) -> None:
    told = Story()
    told.held("j1.1", T0, T0 + 1000, gpus=1, busy_milli=500)
    told.held("j1.1", T0 + 1000, T0 + 3000, gpus=1, busy_milli=1000)
    told.held("j1.1", T0 + 3000, T0 + 4000, gpus=1)
    write(client, told.recorded)
    row = client.query("SELECT sum(gpu_ms), sum(measured_gpu_ms), sum(busy_gpu_ms) FROM occupancy_hourly").result_rows
    assert row == [(4000, 3000, 2500)]
    assert client.query("SELECT utilisation FROM usage_hourly").result_rows == [(2500 / 3000,)]


def test_what_became_of_the_occupied_time(client: Client) -> None:
    told = Story()
    told.held("j1.1", T0, T0 + 1000, gpus=4)
    told.held("j2.1", T0, T0 + 1000, gpus=2, charged=False)
    told.charged("j1.1", T0 + 1000, refunded=1500, since=T0 + 500, until=T0 + 1000)
    write(client, told.recorded)
    names = "charged_gpu_ms, unallocated_gpu_ms, infrastructure_loss_gpu_ms, occupied_gpu_ms"
    assert client.query(f"SELECT {names} FROM usage_hourly").result_rows == [(2500, 2000, 1500, 6000)]


def test_owed_is_the_smaller_of_share_and_demand_hour_by_hour(client: Client) -> None:
    told = Story()
    told.tree(T0 - DAY, science=50, science__chem=40, science__bio=60, arts=50)
    told.capacity("h0", T0 - DAY, 8)
    told.capacity("h1", T0 - DAY, 8)
    told.admitted("j1", T0 - HOUR, gpus=8)
    told.admitted("free", T0, gpus=16, allocated=False)
    told.capacity("h1", T0 + HOUR + HOUR // 2, 0)
    told.tree(T0 + 2 * HOUR, science=100, science__chem=40, science__bio=60, arts=0)
    told.finished("j1", T0 + 3 * HOUR - HOUR // 4)
    told.finished("free", T0 + 3 * HOUR)
    write(client, told.recorded)
    rows = {row.path: row for row in budget_report(client, T0 + HOUR // 2, T0 + 3 * HOUR)}
    chem = rows["science/chem"]  # type: ignore[index]
    half, quarter = HOUR // 2, HOUR // 4
    entitled = [0.2 * 16 * half, 0.2 * (16 * half + 8 * half), 0.4 * 8 * HOUR]
    wanted = [8 * half, 8 * HOUR, 8 * (HOUR - quarter)]
    assert chem.entitlement_gpu_ms == round(sum(entitled))
    assert chem.owed_gpu_ms == round(sum(min(pair) for pair in zip(entitled, wanted, strict=True)))
    assert chem.leaf and not rows["science"].leaf  # type: ignore[index]
    assert rows["science"].owed_gpu_ms == chem.owed_gpu_ms, "nobody else wanted anything"  # type: ignore[index]
    assert rows["arts"].owed_gpu_ms == 0 and rows["arts"].entitlement_gpu_ms > 0  # type: ignore[index]


def test_owed_is_bounded_by_demand(client: Client) -> None:
    told = Story()
    told.tree(T0, a=100)
    told.capacity("h0", T0, 8)
    told.admitted("j1", T0, gpus=2, budget="a")
    write(client, told.recorded)
    [row] = budget_report(client, T0, T0 + 90_000)
    assert (row.owed_gpu_ms, row.entitlement_gpu_ms) == (2 * 90_000, 8 * 90_000)


@pytest.mark.parametrize("seed", range(2))
def test_owed_agrees_with_its_definition(client: Client, seed: int) -> None:
    """Against the definition computed step by step in Python, over random histories and windows."""
    told, steps = random_history(seed)
    write(client, told.recorded, size=25)
    chance = random.Random(seed)
    for _ in range(3):
        since = T0 + chance.randrange(3 * HOUR)
        until = since + chance.randrange(1, 5 * HOUR)
        rows = {str(row.path): row for row in budget_report(client, since, until)}
        for path in ("a/x", "a/y", "b"):
            entitled, owed = steps.integrate(path, since, until)
            assert abs(rows[path].entitlement_gpu_ms - entitled) <= 2
            assert abs(rows[path].owed_gpu_ms - owed) <= 2
        assert abs(rows["a"].owed_gpu_ms - rows["a/x"].owed_gpu_ms - rows["a/y"].owed_gpu_ms) <= 1


class Steps:
    """The three step functions of a history, for the definition of `owed`."""

    def __init__(self) -> None:
        self.capacity: list[tuple[int, str, int]] = []
        self.trees: list[tuple[int, dict[str, float]]] = []
        self.jobs: list[tuple[str, int, int, int]] = []

    def integrate(self, path: str, since: int, until: int) -> tuple[float, float]:
        """Entitlement and owed, piece by piece."""
        instants = {since, until, *range((since // HOUR + 1) * HOUR, until, HOUR)}
        instants |= {at for at, *_ in self.capacity} | {at for at, _ in self.trees}
        instants |= {at for _, _, began, ended in self.jobs for at in (began, ended)}
        cuts = sorted(at for at in instants if since <= at <= until)
        entitled: dict[int, float] = {}
        wanted: dict[int, int] = {}
        for at, end in pairwise(cuts):
            hour = at // HOUR
            gpus = {host: offered for when, host, offered in self.capacity if when <= at}
            fractions = [fraction for when, fraction in self.trees if when <= at]
            share = fractions[-1].get(path, 0.0) if fractions else 0.0
            entitled[hour] = entitled.get(hour, 0.0) + share * sum(gpus.values()) * (end - at)
            held = sum(size for budget, size, began, ended in self.jobs if budget == path and began <= at < ended)
            wanted[hour] = wanted.get(hour, 0) + held * (end - at)
        return sum(entitled.values()), sum(min(entitled[hour], wanted[hour]) for hour in entitled)


def random_history(seed: int) -> tuple[Story, Steps]:
    """Hosts that fail and return, tree edits, jobs that come and go."""
    chance = random.Random(seed)
    told, steps = Story(), Steps()
    jobs: dict[str, tuple[str, int, int]] = {}
    at = T0
    for index in range(120):
        at += chance.randrange(1, 6 * 60_000)
        match chance.randrange(6):
            case 0:
                host, gpus = f"h{chance.randrange(4)}", chance.choice([0, 7, 8])
                told.capacity(host, at, gpus)
                steps.capacity.append((at, host, gpus))
            case 1:
                a, x = chance.randrange(1, 99), chance.randrange(1, 99)
                told.tree(at, a=a, a__x=x, a__y=100 - x, b=100 - a)
                fractions = {"a/x": a * x / 10_000, "a/y": a * (100 - x) / 10_000, "b": (100 - a) / 100}
                steps.trees.append((at, fractions))
            case 2 if jobs:
                name = chance.choice(sorted(jobs))
                told.finished(name, at)
                steps.jobs.append((*jobs.pop(name), at))
            case _:
                budget, gpus = chance.choice(["a/x", "a/y", "b"]), chance.choice([1, 2, 4])
                told.admitted(f"j{index}", at, gpus=gpus, budget=budget)
                jobs[f"j{index}"] = (budget, gpus, at)
    steps.jobs.extend((*job, T0 + DAY * 99) for job in jobs.values())
    return told, steps


def test_a_report_below_a_path_and_of_budgets_nobody_knows(client: Client) -> None:
    told = Story()
    told.tree(T0, a=50, a__x=100, ab=50)
    told.held("j1.1", T0, T0 + 1000, budget="a/x", gpus=1)
    told.held("j2.1", T0, T0 + 1000, budget="gone/old", gpus=2, charged=False)
    write(client, told.recorded)
    assert [row.path for row in budget_report(client, T0, T0 + HOUR)] == ["a", "a/x", "ab", "gone", "gone/old"]
    assert [row.path for row in budget_report(client, T0, T0 + HOUR, "a")] == ["a", "a/x"]
    gone = budget_report(client, T0, T0 + HOUR, "gone")
    assert [(row.leaf, row.unallocated_gpu_ms, row.delivered_gpu_ms) for row in gone] == [
        (False, 2000, 0),
        (True, 2000, 0),
    ]
    assert budget_report(client, T0 - HOUR, T0) == []
    assert isinstance(gone[0], BudgetRow)


def test_the_story_of_a_job(client: Client) -> None:
    told = Story()
    told.submitted("j1", T0)
    told.submitted("j2", T0)
    told.preempted("j2.1", T0 + 1, by="j1")
    told.finished("j1", T0 + 2)
    write(client, told.recorded, size=2)
    found = story(client, JobId("j1"))
    assert [(position, at) for position, at, _ in found] == [(1, T0), (3, T0 + 1), (4, T0 + 2)]
    assert b'"JobFinished"' in found[-1][2]
    assert story(client, JobId("nobody")) == []


def test_a_job_is_found_by_index(client: Client) -> None:
    told = Story()
    for index in range(20_000):
        told.finished(f"j{index}", T0 + index)
    write(client, told.recorded, size=5_000)
    explained = client.query("EXPLAIN indexes = 1 SELECT position FROM events WHERE job = 'j77'").result_rows
    assert any("job_index" in line for (line,) in explained)
    assert len(story(client, JobId("j77"))) == 1


def test_positions_and_export(client: Client) -> None:
    assert (visible_position(client), complete_position(client)) == (0, 0)
    told = busy_lab(1, segments=20)
    told.finished("j1", T0 + DAY)
    write(client, told.recorded, size=6)
    assert (visible_position(client), complete_position(client)) == (21, 18)
    assert list(export(client)) == told.recorded
    assert list(export(client, [JobFinished])) == told.recorded[-1:]
    assert list(export(client, after=Position(19))) == told.recorded[19:]


def test_a_database_belongs_to_one_log(client: Client) -> None:
    Writer(client).resume("this log")
    with pytest.raises(Refusal, match="another log"):
        Writer(client).resume("that log")


@pytest.mark.parametrize("url", ["127.0.0.1:8123", "ftp://h", "http://", "http://h:99999"])
def test_an_address_that_cannot_work_is_refused(url: str) -> None:
    with pytest.raises(Refusal, match="--clickhouse"):
        connect(url)


def seen_by_gateway(facts: Iterable[Recorded]) -> gateway.State:
    """What the gateway makes of these facts."""
    state = gateway.initial()
    for recorded in facts:
        if type(recorded.fact) in GATEWAY_READS:
            gateway_evolve(state, recorded)
    return state


def test_nobody_there_and_a_wrong_password(clickhouse: Server, tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match=r"127.0.0.1:1 does not answer"):
        connect("http://127.0.0.1:1")
    with pytest.raises(Refusal, match="--clickhouse-token-file"):
        connect(clickhouse.url, tmp_path / "missing")
    (tmp_path / "wrong").write_text("wrong")
    with pytest.raises(Refusal, match="password"):
        connect(clickhouse.url, tmp_path / "wrong")


@pytest.mark.parametrize(
    "name", ["a_repair_that_fails_needs_a_person", "a_host_is_repaired_and_tested_without_a_person"]
)
def test_incidents_are_what_the_gateway_reports(client: Client, name: str) -> None:
    world = script_to_world(load_script(Path(__file__).parents[1] / "scenario" / f"{name}.yaml"))
    write(client, world.recorded, size=50)
    state = seen_by_gateway(world.recorded)
    wanted = [
        (
            one.incident,
            one.host,
            one.reason,
            one.began_at,
            one.drained_at or 0,
            one.ended_at or 0,
            one.state,
            one.ending,
        )
        for one in host_report(state, since=0, until=world.now).incidents
    ]
    asked = "SELECT incident, host, reason, began_ms, drained_ms, ended_ms, state, ending FROM incidents"
    assert client.query(f"{asked} ORDER BY began_ms, incident").result_rows == wanted and wanted


@pytest.mark.parametrize(
    "name",
    [
        "a_lost_gpu_ends_its_host_runs_now",
        "a_lost_host_is_refunded_and_its_jobs_come_back",
        "a_lost_host_is_sent_to_repair",
        "a_lost_host_of_cpus_costs_no_gpu_time",
        "a_maintenance_window_takes_what_ends_before",
        "a_repair_that_fails_needs_a_person",
        "a_signal_has_to_last",
        "automation_holds_a_part_at_most",
        "repaired_host_takes_runs_again",
    ],
)
def test_the_numbers_of_hosts_are_what_the_gateway_reports(client: Client, name: str) -> None:
    """Who and why, how long each step took, GPU-time out of service and refunded: the report, and the metrics of it."""
    world = script_to_world(load_script(Path(__file__).parents[1] / "scenario" / f"{name}.yaml"))
    write(client, world.recorded, size=50)
    state = seen_by_gateway(world.recorded)
    report = host_report(state, since=0, until=world.now)
    wanted = [
        (one.incident, one.by or "", one.gpus, one.began_at - one.seen_at, one.out_from, one.refunded_gpu_ms)
        for one in report.incidents
    ]
    asked = "SELECT incident, answered_by, gpus, detect_ms, out_from_ms, refunded_gpu_ms FROM host_incidents"
    assert client.query(f"{asked} ORDER BY began_ms, incident").result_rows == wanted and wanted
    totals = """
        SELECT
            sum(gpus * greatest(0, if(ended_ms > 0, ended_ms, {now:Int64}) - out_from_ms)),
            sum(refunded_gpu_ms),
            countIf(ending = 'automatic' AND reason != 'host_drain_requested'),
            countIf(ending = 'human' AND reason != 'host_drain_requested')
        FROM host_incidents"""
    unplanned = [cause for cause in report.causes if cause.reason != "host_drain_requested"]
    assert client.query(totals, {"now": world.now}).result_rows == [
        (
            report.out_gpu_ms,
            report.refunded_gpu_ms,
            sum(cause.automatic for cause in unplanned),
            sum(cause.human for cause in unplanned),
        )
    ]
    told = readings(state, now=world.now, policy=Policy(), seen={})
    assert told["tenure.incidents.refunded"] == [(report.refunded_gpu_ms / SECOND, {})]
    assert told["tenure.hosts.out"] == [(report.out_gpu_ms / SECOND, {})]
    for step, spread in (("detect", report.detect), ("drain", report.drain), ("repair", report.repair)):
        longest = [value for value, of in told["tenure.incidents.time"] if of == {"step": step, "of": "longest"}]
        assert longest == ([spread.longest_ms / SECOND] if spread.count else [])
