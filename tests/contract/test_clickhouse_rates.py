"""Budget reports in the unit of account on a real engine, against the simulator's, which shares no code with them."""

import shutil
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from clickhouse_connect.driver import Client

from services.journal.writer import Writer
from simulator.agents import Work
from simulator.report import build_report
from simulator.world import World
from tenure.clickhouse.migrate import MIGRATIONS, migrate, read_migrations
from tenure.clickhouse.report import budget_report
from tenure.clickhouse.window import Usage, read_account, read_window
from tenure.domain.host import CPU
from tenure.domain.ids import FactId, HostId, Position, RunId, UserName, job_of
from tenure.domain.policy import Policy
from tenure.domain.rates import DEFAULT_MILLI, MILLI
from tenure.domain.units import HOUR, MINUTE, SECOND
from tenure.events.fact import Recorded
from tenure.events.policy import PolicyChanged
from tenure.events.reports import Heartbeat, HostBeat, Segment
from tests.contract.dashboards.month import reports
from tests.contract.own_clickhouse import clickhouse, client
from tests.contract.test_clickhouse_retention import empty
from tests.contract.test_clickhouse_schema import batches, busy_lab, write
from tests.scenario.script import script_to_world
from tests.unit.journal.facts import T0, Story
from tests.unit.simulator.tale import Tale, ms
from tests.unit.simulator.test_report_rates import DECOMMISSIONED_OWED, decommissioned, retyped

__all__ = ["clickhouse", "client", "empty"]

RATES = "013_rates.sql"

SCRIPT: dict[str, Any] = {
    "why": "Three clusters, rates that change, a lost host.",
    "given": {
        "hosts": [
            {"name": "h100", "hosts": 2, "gpus_per_host": 8, "gpu_type": "H100"},
            {"name": "b200", "hosts": 2, "gpus_per_host": 8, "gpu_type": "B200"},
            {"name": "dev", "hosts": 1, "cpus_per_host": 16},
        ],
        "budgets": {"a": {"share": 50}, "b": {"share": 30}, "c": {"share": 20}},
        "policy": {"lookback": "8h"},
    },
    "when": [
        {"at": "0s", "policy": {"rates": {"B200": 2.5, "CPU": 0.05}}},
        {
            "at": "1m",
            "submit": "dear",
            "budget": "a",
            "gpus": 8,
            "gpu_type": "B200",
            "min_runtime": "4h",
            "runs_for": "4h",
        },
        {"at": "2m", "submit": "any", "budget": "b", "gpus": 8, "min_runtime": "2h", "runs_for": "3h"},
        {
            "at": "3m",
            "submit": "lost",
            "budget": "b",
            "gpus": 8,
            "cluster": "b200",
            "min_runtime": "2h",
            "runs_for": "9h",
        },
        {
            "at": "4m",
            "submit": "session",
            "budget": "c",
            "gpus": 12,
            "gpu_type": "CPU",
            "min_runtime": "2h",
            "runs_for": "3h",
        },
        {
            "at": "5m",
            "submit": "waits",
            "budget": "c",
            "gpus": 8,
            "cluster": "b200",
            "min_runtime": "1h",
            "runs_for": "1h",
        },
        {"at": "10m", "submit": "free", "budget": "c", "gpus": 4, "min_runtime": "0s", "runs_for": "2h"},
        {"at": "85m", "policy": {"rates": {"B200": 4, "CPU": 0.05}}},
        {
            "at": "100m",
            "signal": "b200-h001",
            "source": "kernel",
            "device": "gpu3",
            "code": "xid_79",
            "severity": "fatal",
        },
    ],
    "until": "6h",
    "then": [],
}


PLAIN: dict[str, Any] = {**SCRIPT, "when": [step for step in SCRIPT["when"] if "policy" not in step]}
"""The same without rates."""


def reported(recorded: Sequence[Recorded]) -> list[Recorded]:
    """The log with what agents report of it, which simulated ones do not."""
    beats = reports([entry.fact for entry in recorded], until=6 * HOUR)
    last = recorded[-1].position
    named = [msgspec.structs.replace(beat, id=FactId(f"beat-{number}")) for number, beat in enumerate(beats)]
    return [*recorded, *(Recorded(Position(last + 1 + number), beat) for number, beat in enumerate(named))]


@pytest.mark.parametrize(("since", "until"), [(0, 6 * HOUR), (20 * MINUTE, 110 * MINUTE), (HOUR, 3 * HOUR)])
def test_owed_and_delivered_are_those_of_the_simulator(client: Client, since: int, until: int) -> None:
    dear = compared(client, script_to_world(SCRIPT), since, until)["a"]
    if (since, until) == (0, 6 * HOUR):  # 8 B200 from 0:01 to 4:01: at 2.5 until two o'clock, then at 4
        assert dear == pytest.approx(8 * (119 / 60 * 2.5 + 121 / 60 * 4), abs=0.01)


def test_a_cpu_that_no_rate_names_costs_what_it_does_everywhere(client: Client) -> None:
    delivered = compared(client, script_to_world(PLAIN), 0, 6 * HOUR)
    assert delivered["c"] - 8 == pytest.approx(3 * 12 * DEFAULT_MILLI[CPU] / MILLI, abs=0.01), (
        "beside 8 B200 for an hour"
    )


def compared(client: Client, world: World, since: int, until: int) -> dict[str, float]:
    """What each leaf had, in GPU-hours of account: in ClickHouse as in the report of the simulator, and so is owed."""
    write(client, reported(world.recorded), size=200)
    report = build_report(
        world.recorded,
        policy_name="fair",
        kinds={},
        start=since,
        end=until,
        lookback_ms=HOUR,
        wall_seconds=0,
        work=Work(),
    )
    rows = {str(row.path): row for row in budget_report(client, since, until)}
    for leaf in report.delivered.budgets:
        row = rows[str(leaf.path)]
        assert row.owed_gpu_ms / HOUR == pytest.approx(leaf.owed_gpu_hours, abs=1e-6), leaf.path
        # hosts tell what they hold; the simulator takes it to be from a run's start to its end
        assert row.delivered_gpu_ms / HOUR == pytest.approx(leaf.delivered_gpu_hours, abs=8 * SECOND / HOUR), leaf.path
    return {path: row.delivered_gpu_ms / HOUR for path, row in rows.items()}


def test_without_rates_the_unit_is_a_gpu_hour(client: Client) -> None:
    """Where no host counts CPUs."""
    given = {**PLAIN["given"], "hosts": [pool for pool in PLAIN["given"]["hosts"] if pool["name"] != "dev"]}
    steps = [step for step in PLAIN["when"] if step.get("submit") != "session"]
    world = script_to_world({**PLAIN, "given": given, "when": steps})
    assert not any(isinstance(entry.fact, PolicyChanged) for entry in world.recorded)
    write(client, reported(world.recorded), size=200)
    for window in ((0, 6 * HOUR), (20 * MINUTE, 110 * MINUTE)):
        assert read_account(client, *window) == read_window(client, *window) != []
    assert client.query("SELECT * FROM rate_eras").result_rows == [(0, {CPU: DEFAULT_MILLI[CPU]})]
    assert client.query("SELECT is_so FROM has_rates").result_rows == [(False,)]


def held(tale: Tale, run: str, since: float, until: float, *, host: str = "h0") -> None:
    """What a host tells of a run that it had, hour by hour."""
    spec = tale.specs[job_of(RunId(run))]
    cuts = [ms(since), *range(ms(since) // HOUR * HOUR + HOUR, ms(until), HOUR), ms(until)]
    segments = tuple(
        Segment(
            run=RunId(run),
            job=job_of(RunId(run)),
            budget=spec.budget,
            user=spec.user,
            charged=spec.allocated,
            gpus=spec.gpus,
            since=one,
            until=other,
        )
        for one, other in pairwise(cuts)
    )
    beat = HostBeat(host=HostId(host), gpus=8, segments=segments)
    tale.say(Heartbeat(at=ms(until), agent="v", hosts=(beat,)))


def hours_of(client: Client, budget: str, since: float, until: float) -> tuple[float, float]:
    """Owed and delivered of a budget, in GPU-hours of account."""
    (row,) = budget_report(client, ms(since), ms(until), budget)
    return row.owed_gpu_ms / HOUR, row.delivered_gpu_ms / HOUR


def test_a_host_that_changes_its_type_has_each_at_its_time(client: Client) -> None:
    """By hand, as in the simulator's report; also where a window cuts the hour in which it changed."""
    tale = retyped()
    held(tale, "ja.1", 0, 2)
    held(tale, "jc.1", 2, 2.5)
    held(tale, "jc.2", 2.5, 4)
    write(client, tale.recorded, size=5)
    assert hours_of(client, "a", 0, 5) == (4 + 4 + 7 + 10, 16 + 4 + 10 + 10)
    assert hours_of(client, "b", 0, 5) == (7 + 10, 0)
    assert hours_of(client, "a", 2.25, 2.75) == (2 / 2 + 5 / 2, 2 + 5)
    assert hours_of(client, "a", 4, 5) == (0, 0), "nothing of H100 is left over"


def test_types_that_are_gone_make_no_demand_cheaper(client: Client) -> None:
    write(client, decommissioned().recorded)
    for since, until, owed in DECOMMISSIONED_OWED:
        assert hours_of(client, "a", since, until)[0] == pytest.approx(owed), since


def lab_with_rates() -> list[Recorded]:
    """H100 at 2 from the beginning; then segments said late and out of order, some taken back, and refunds."""
    told = busy_lab(11, segments=120)
    for number in range(0, 120, 12):
        refunded, begun = RunId(f"r{number}.1"), T0 + number * 5 * MINUTE
        told.started(refunded, begun)
        told.held(refunded, begun, begun + 3 * MINUTE)
        told.charged(refunded, begun + HOUR, refunded=MINUTE * 8, since=begun + MINUTE, until=begun + 2 * MINUTE)
        told.held(refunded, begun + 2 * MINUTE, begun + 3 * MINUTE, gpus=-8)
    first = Story()
    first.capacity("h0", T0, 8)
    first.say(PolicyChanged(at=T0, policy=Policy(rates_milli={"H100": 2_000}), by=UserName("ana")))
    half = len(told.recorded) // 2
    for entry in (*told.recorded[half:], *told.recorded[:half]):
        first.say(entry.fact)
    return first.recorded


def check_doubled(client: Client, windows: Sequence[tuple[int, int]]) -> None:
    for window in windows:
        held = [(each.user, each.budget, *amounts(each)) for each in read_window(client, *window)]
        weighed = [(each.user, each.budget, *amounts(each)) for each in read_account(client, *window)]
        assert weighed == [(*names, 2 * a, 2 * b, 2 * c) for *names, a, b, c in held] != []


def amounts(usage: Usage) -> tuple[int, int, int]:
    return usage.charged_gpu_ms, usage.unallocated_gpu_ms, usage.refunded_gpu_ms


def test_the_sums_know_what_was_there_before_them(empty: Client, tmp_path: Path) -> None:
    """Nothing is lost or doubled, also where the file is applied again and the last batch is written again."""
    recorded, whole, cut = lab_with_rates(), (T0, T0 + 11 * HOUR), (T0 + 7 * MINUTE, T0 + 3 * HOUR + 11)
    for path in sorted(MIGRATIONS.glob("*.sql")):
        if path.name != RATES:
            shutil.copy(path, tmp_path)
    migrate(empty, folder=tmp_path)
    parts = batches(recorded, size=7)
    third = len(parts) // 3
    older = Writer(empty)
    for batch in parts[:third]:
        older.write(batch)
    assert migrate(empty) == [RATES]
    check_doubled(empty, (whole, cut))
    (again,) = [each.statements for each in read_migrations(MIGRATIONS) if each.name == RATES]
    writer = Writer(empty)
    writer.resume("log")  # writes its last batch again
    check_doubled(empty, (whole, cut))
    for batches_of in (parts[third : 2 * third], parts[2 * third :]):
        for batch in batches_of:
            writer.write(batch)
        for statement in again:
            empty.command(statement)
        check_doubled(empty, (whole, cut))
        empty.command("OPTIMIZE TABLE occupancy_by_run_hourly FINAL")
        check_doubled(empty, (whole, cut))
    held = read_account(empty, *whole)
    empty.command("TRUNCATE TABLE occupancy")
    assert read_account(empty, *whole) == held, "whole hours are kept for ever"
