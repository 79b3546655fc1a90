"""What the console asks ClickHouse, on a real engine: of nothing, of a simulated lab, and of rows written by hand."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from clickhouse_connect.driver import Client

from services.console import questions
from services.console.pages.cluster import bars_by_host
from tenure.clickhouse.window import read_account, read_window
from tenure.domain.units import DAY, HOUR, MINUTE
from tests.contract.dashboards.month import T0, load, month
from tests.contract.own_clickhouse import clickhouse, client
from tests.contract.test_clickhouse_rates import SCRIPT, reported
from tests.contract.test_clickhouse_schema import write
from tests.scenario.script import script_to_world

__all__ = ["clickhouse", "client"]

SHORT = 2
WINDOW = {"since": T0, "until": T0 + SHORT * DAY}
STEP_S = 3_600
QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "use": (questions.USE_OVER_TIME, {"path": "", "step": STEP_S}),
    "ratios": (questions.RATIO_OVER_TIME, {"paths": ["a"], "step": STEP_S}),
    "users": (questions.USERS, {"path": ""}),
    "timeline": (questions.TIMELINE, {}),
    "parked": (questions.PARKED, {}),
    "checkpoints": (questions.CHECKPOINTS, {}),
    "free": (questions.FREE, {}),
    "bursts": (questions.BURSTS, {}),
}


def ask(client: Client, name: str, **parameters: object) -> Sequence[Sequence[Any]]:
    sql, usual = QUESTIONS[name]
    return client.query(sql, {**WINDOW, **usual, **parameters}).result_rows


def held(client: Client, rows: list[dict[str, Any]]) -> None:
    """Write occupancy, an hour a row."""
    usual = {"kind": "segment", "position": 1, "cluster": "sim", "host": "h0", "user": "ana", "budget": "a"}
    columns = ["kind", "position", "cluster", "host", "run", "job", "budget", "user", "charged", "gpus"]
    columns += ["since_ms", "until_ms", "gpu_ms", "busy_milli"]
    made = []
    for row in rows:
        full = {**usual, "charged": True, "gpus": 8, "busy_milli": None, "run": f"{row['job']}.1", **row}
        full["until_ms"] = full.get("until_ms", full["since_ms"] + HOUR)
        full["gpu_ms"] = full["gpus"] * (full["until_ms"] - full["since_ms"])
        made.append([full[column] for column in columns])
    client.insert("occupancy", made, column_names=columns)


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_answers_of_nothing(client: Client, name: str) -> None:
    assert list(ask(client, name)) == []


def test_sums_over_time_and_by_user_are_the_reports(client: Client) -> None:
    load(client, month(SHORT).recorded)
    window = "since_ms = {since:Int64}, until_ms = {until:Int64}"
    sql = f"SELECT sumIf(gpu_ms, charged), sumIf(gpu_ms, NOT charged) FROM window_usage({window})"
    ((charged, unallocated),) = client.query(sql, WINDOW).result_rows
    use = ask(client, "use")
    assert charged > 0 and sum(row[4] for row in use) == charged and sum(row[5] for row in use) == unallocated
    assert [row[0] for row in use] == sorted({row[0] for row in use}) and len(use) == SHORT * 24
    users = ask(client, "users")
    assert sum(row[1] for row in users) == charged and sum(row[2] for row in users) == unallocated
    leaves = [row[0] for row in client.query("SELECT DISTINCT budget FROM occupancy ORDER BY budget").result_rows]
    parts = [sum(row[4] for row in ask(client, "use", path=leaf)) for leaf in leaves]
    assert sum(parts) == charged and all(part >= 0 for part in parts)
    ratios = ask(client, "ratios", paths=leaves)
    assert {path for _, path, _ in ratios} <= set(leaves) and all(ratio >= 0 for _, _, ratio in ratios)
    free = {budget: (had, free) for budget, had, free, _ in ask(client, "free")}
    assert sum(had for had, _ in free.values()) == charged and sum(free for _, free in free.values()) == unallocated


def test_with_rates_use_and_users_are_in_the_unit_of_account_as_what_is_owed(client: Client) -> None:
    write(client, reported(script_to_world(SCRIPT).recorded), size=200)
    window = {"since": 0, "until": 6 * HOUR}
    account, real = read_account(client, 0, 6 * HOUR), read_window(client, 0, 6 * HOUR)
    for path in ("a", "b", "c"):
        own = [of for of in account if of.budget == path]
        charged, unallocated = sum(of.charged_gpu_ms for of in own), sum(of.unallocated_gpu_ms for of in own)
        use = ask(client, "use", path=path, **window)
        assert sum(row[4] for row in use) == pytest.approx(charged, abs=len(use)), path
        assert sum(row[5] for row in use) == pytest.approx(unallocated, abs=len(use)), path
        users = ask(client, "users", path=path, **window)
        assert [sum(row[at] for row in users) for at in (1, 2)] == [charged, unallocated]
    dear = [sum(of.charged_gpu_ms for of in held if of.budget == "a") for held in (account, real)]
    assert dear[0] > 2 * dear[1], "a B200 costs 2.5 and 4"
    free = {budget: had for budget, had, *_ in ask(client, "free", **window)}
    assert free["a"] == dear[1], "incentives show real GPUs"


def test_the_timeline_never_draws_two_runs_in_one_place(client: Client) -> None:
    load(client, month(SHORT).recorded)
    since, until = T0 + DAY, T0 + DAY + 6 * HOUR
    rows = ask(client, "timeline", since=since, until=until)
    assert rows
    bars = bars_by_host(rows, {row[0]: 8 for row in rows}, since, until, {})
    for host in bars.values():
        for number, one in enumerate(host):
            assert one.y >= 0 and one.y + one.height <= 8 and 0 <= one.x <= 1000
            for other in host[:number]:
                apart = one.x >= other.x + other.width - 1.5 or other.x >= one.x + one.width - 1.5
                assert apart or one.y >= other.y + other.height or other.y >= one.y + one.height


def test_parked_is_charged_and_measured_and_hardly_used(client: Client) -> None:
    held(
        client,
        [
            {"job": "parked", "since_ms": T0, "busy_milli": 10},
            {"job": "parked", "since_ms": T0 + HOUR, "busy_milli": 900},
            {"job": "busy", "since_ms": T0, "busy_milli": 990},
            {"job": "unmeasured", "since_ms": T0},
            {"job": "free", "since_ms": T0, "busy_milli": 0, "charged": False},
            {"job": "short", "since_ms": T0, "until_ms": T0 + MINUTE // 10, "busy_milli": 0},
        ],
    )
    ((job, user, budget, parked, part, measured),) = ask(client, "parked")
    assert (job, user, budget, parked, part, measured) == ("parked", "ana", "a", 8 * HOUR, 0.5, 16 * HOUR)


def test_a_burst_is_more_than_twice_the_share_after_a_day_without_any(client: Client) -> None:
    load(client, month(SHORT).recorded)  # its hosts and its tree
    client.command("TRUNCATE TABLE occupancy")
    client.command("TRUNCATE TABLE occupancy_hourly")
    client.command("TRUNCATE TABLE occupancy_by_run_hourly")
    (budget, *_) = [
        row[0] for row in client.query("SELECT DISTINCT path FROM shares WHERE leaf ORDER BY path").result_rows
    ]
    hours = [0, *range(30, 36)]
    ((host, types),) = client.query("SELECT min(host), groupUniqArray(toString(gpu_type)) FROM capacity").result_rows
    usual = {"host": host, "budget": budget, "gpus": 256}
    held(client, [{**usual, "job": f"j{hour}", "since_ms": T0 + hour * HOUR} for hour in hours])
    held(client, [{"job": "steady", "budget": "b", "gpus": 256, "since_ms": T0 + hour * HOUR} for hour in range(40)])
    ((path, began, idle, burst, entitled, times),) = ask(client, "bursts")
    assert (path, began, idle, burst) == (budget, T0 + 30 * HOUR, 29, 6 * 256 * HOUR)
    assert times == pytest.approx(burst / entitled) and times > 2
    payload = json.dumps({"policy": {"rates_milli": dict.fromkeys(types, 3000)}})
    rates = [[10**6, "PolicyChanged", T0, payload]]
    client.insert("facts", rates, column_names=["position", "kind", "at_ms", "payload"])
    ((*_, burst_of_account, entitled_of_account, _),) = ask(client, "bursts")
    assert (burst_of_account, entitled_of_account) == (3 * burst, pytest.approx(3 * entitled))


def test_a_minimum_is_held_against_the_first_checkpoint(client: Client) -> None:
    facts = [
        ("JobAdmitted", "long", "", T0, 8 * HOUR),
        ("RunStarted", "long", "long.1", T0 + MINUTE, 0),
        ("CheckpointReported", "long", "long.1", T0 + 11 * MINUTE, 0),
        ("CheckpointReported", "long", "long.1", T0 + 21 * MINUTE, 0),
        ("JobAdmitted", "fair", "", T0, 30 * MINUTE),
        ("RunStarted", "fair", "fair.1", T0, 0),
        ("CheckpointReported", "fair", "fair.1", T0 + 10 * MINUTE, 0),
        ("JobAdmitted", "never", "", T0, 8 * HOUR),
        ("RunStarted", "never", "never.1", T0, 0),
    ]
    spec = '"spec":{{"user":"ana","replicas":2,"gpus_per_replica":8,"min_runtime_ms":{0}}},"submitted_at":1'
    rows = [
        [position, kind, "sim", at, job, run, "a", "{" + spec.format(minimum) + "}" if minimum else "{}"]
        for position, (kind, job, run, at, minimum) in enumerate(facts, start=1)
    ]
    columns = ["position", "kind", "cluster", "at_ms", "job", "run", "budget", "payload"]
    client.insert("events", rows, column_names=columns)
    ((job, user, budget, gpus, minimum, first, times),) = ask(client, "checkpoints")
    assert (job, user, budget, gpus) == ("long", "ana", "a", 16)
    assert (minimum, first, times) == (8 * HOUR, 10 * MINUTE, 48.0)
