"""A small world whose outcome was worked out by hand: played, reported, exported and checked in one go.

Worlds are told as scenarios are (`tests/scenario/script.py`); most have one host of 8 GPUs that is held whole for
hours, so that an hour is 8 GPU-hours and arithmetic is done in hours.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

import msgspec

from simulator.agents import FREE
from simulator.report import Report, build_report
from simulator.report.fields import BudgetDelivered
from simulator.world import World
from tenure.domain.ids import HostId
from tenure.domain.units import DAY
from tenure.export.jsonl import lines
from tests.checks.export import findings
from tests.checks.invariants import check_log
from tests.scenario.script import build, instant, script_to_world

QUIET = {"heartbeat": "1h", "suspect_after": "3h", "lost_after": "4h"}
"""No host is ever silent, so signs of life need not be frequent."""


@dataclass(frozen=True, kw_only=True)
class Golden:
    """What came of a world."""

    world: World
    report: Report
    lines: list[dict[str, Any]]

    def budget(self, path: str) -> BudgetDelivered:
        return next(budget for budget in self.report.delivered.budgets if budget.path == path)

    def starts(self) -> list[tuple[float, str]]:
        """When which job started, in hours; a start at the very end is after it."""
        end = self.report.window.end_s
        started = [line for line in self.lines if line["type"] == "run_started" and line["t"] < end]
        return [(line["t"] / 3600, line["job"]) for line in started]

    def first_start(self, job: str) -> float:
        """When a job first started, in hours, at the very end too."""
        return next(line["t"] for line in self.lines if line["type"] == "run_started" and line["job"] == job) / 3600

    def turns(self) -> list[tuple[str, int]]:
        """Whose jobs started, one after another: the letters their names begin with, and how many in a row."""
        return [(name, len(list(some))) for name, some in groupby(job[0] for _, job in self.starts())]

    def count(self, kind: str, **wanted: Any) -> int:
        """How many lines of a type have these values."""
        return sum(line["type"] == kind and wanted.items() <= line.items() for line in self.lines)


def play(
    budgets: Mapping[str, Any],
    when: Sequence[Mapping[str, Any]],
    *,
    until: str,
    since: str = "0s",
    hosts: str = "1x8",
    policy: Mapping[str, Any] | None = None,
    lost: Sequence[tuple[str, str]] = (),
) -> Golden:
    """Let a world happen to its end; `since` is where its test window begins. Nothing in it may break a rule.

    `lost`: hosts that fail with all they run, and when.
    """
    given = {"hosts": hosts, "budgets": budgets, "policy": QUIET | dict(policy or {})}
    script = {"given": given, "when": when, "until": until}
    world = build(script)
    for host, at in lost:
        world.at(instant(at), partial(world.lose, HostId(host)))
    script_to_world(script, world=world)
    check_log(world.recorded)
    report = build_report(
        world.recorded,
        policy_name="fair",
        kinds={},
        start=instant(since),
        end=instant(until),
        lookback_ms=7 * DAY,
        wall_seconds=0.0,
        work=FREE,
    )
    told = [json.loads(line) for line in lines(world.recorded, origin_ms=0)]
    found = findings(told, json.loads(msgspec.json.encode(report)), restart_overhead_s=0)
    assert not found, found
    return Golden(world=world, report=report, lines=told)


def hours(at: str, name: str, count: int, *, budget: str, **more: Any) -> dict[str, Any]:
    """`count` jobs, each of which holds a whole host for its contract of an hour."""
    jobs = [f"{name}{number:03}" for number in range(count)]
    return {"at": at, "submit": jobs, "budget": budget, "gpus": 8, "min_runtime": "1h", "runs_for": "1h"} | more
