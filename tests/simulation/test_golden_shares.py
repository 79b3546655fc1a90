"""Golden scenarios: who gets what. Each outcome was worked out by hand; the arithmetic is in the comments.

One host of 8 GPUs, jobs that hold it for an hour: 1 h = 8 GPU-hours. Ties go by path.
"""

from typing import Any

import pytest

from tests.simulation.golden import hours, play

HALVES = {"a": {"share": 50}, "b": {"share": 50}}


def test_a_budget_that_was_idle_for_three_days_is_paid_back() -> None:
    """Two equal budgets; b comes three days after a.

    Days 0-3: a alone: 72 h. At 72 h b has 0 h in the window, a 72 h: b is lower for the next 72 h, until it has 72 h
    as well. 144-168 h: they take turns, a first (tie): 12 h each, 84 h in all. From 168 h on the window loses an hour
    of a's first 72 for every hour that passes: with a running both stay at 84 h, so a keeps it. An order that was
    published is not taken back for a tie, so b may have one hour more where the phases meet.
    """
    golden = play(HALVES, [hours("0s", "a", 240, budget="a"), hours("72h", "b", 240, budget="b")], until="240h")
    turns = golden.turns()
    assert turns[:2] == [("a", 72), ("b", 72)]
    assert turns[2:26] == [("a", 1), ("b", 1)] * 12
    late = [job[0] for at, job in golden.starts() if at >= 168]
    assert len(late) == 72 and late.count("b") <= 1
    # Owed: each half of 8 GPUs while it asks: a 240 h x 4 = 960, b 168 h x 4 = 672. b got 84 h x 8 = 672, or an hour
    # more: all it was owed although it came late, and a was owed no more for having been alone.
    assert golden.budget("a").owed_gpu_hours == 960 and golden.budget("b").owed_gpu_hours == 672
    assert golden.budget("b").delivered_gpu_hours in (672, 680)
    assert golden.budget("a").delivered_gpu_hours + golden.budget("b").delivered_gpu_hours == 240 * 8
    assert golden.report.delivered.ratio == golden.report.delivered.worst == 1
    assert golden.report.occupancy == 1 and golden.report.preemptions.total == 0


def test_an_idle_childs_share_stays_with_its_siblings() -> None:
    """a (50 %) has x and y (half each), x has p and q; q never asks; b has the other half.

    q's part goes to p, its sibling, not to y or b: of 4 h, b has 2, y 1, p 1 (its own half hour and q's).
    """
    tree = {
        "a": {
            "share": 50,
            "children": {
                "x": {"share": 50, "children": {"p": {"share": 50}, "q": {"share": 50}}},
                "y": {"share": 50},
            },
        },
        "b": {"share": 50},
    }
    asks = [hours("0s", name, 160, budget=path) for name, path in (("p", "a/x/p"), ("y", "a/y"), ("b", "b"))]
    golden = play(tree, asks, until="160h")
    started = [job[0] for _, job in golden.starts()]
    assert {name: started.count(name) for name in "pyb"} == {"p": 40, "y": 40, "b": 80}
    # Owed: p 12.5 % of 8 GPUs = 1 GPU for 160 h, y 2, b 4; q asks for nothing and is owed nothing.
    owed = {budget.path: budget.owed_gpu_hours for budget in golden.report.delivered.budgets}
    assert owed == {"a/x/p": 160, "a/x/q": 0, "a/y": 320, "b": 640}
    ratios = {budget.path: budget.ratio for budget in golden.report.delivered.budgets}
    assert ratios == {"a/x/p": 2, "a/x/q": 1, "a/y": 1, "b": 1}
    # A week that does not exist yet cannot be rolled over: the window itself is the only one.
    assert golden.report.rolling_7d.ratio == golden.report.delivered.ratio == 1


def test_one_percent_beside_fifty() -> None:
    """Shares 1, 50, 49 with endless demand: after 100 h exactly 1, 50 and 49 h, when all three ratios are 1.

    The small budget is not starved to make it so: at 0 h all ratios are 0, and it starts before either has 2 h.
    """
    tree = {"big": {"share": 50}, "rest": {"share": 49}, "small": {"share": 1}}
    golden = play(tree, [hours("0s", path[0], 100, budget=path) for path in tree], until="100h")
    started = [job[0] for _, job in golden.starts()]
    assert {name: started.count(name) for name in "brs"} == {"b": 50, "r": 49, "s": 1}
    assert started.index("s") == 2
    owed = {budget.path: round(budget.owed_gpu_hours, 6) for budget in golden.report.delivered.budgets}
    assert owed == {"big": 400, "rest": 392, "small": 8}
    assert all(budget.ratio == pytest.approx(1) for budget in golden.report.delivered.budgets)
    assert golden.report.delivered.at_least_95 == 3


def test_weight_zero_has_what_nobody_wants() -> None:
    """z has no share. a asks for ten hours, then for one more at 12 h.

    0-10 h: a's ten. z starts when a asks for nothing: 10-11, 11-12. At 12 h a's job comes as z's second ends: a. Then
    z's last three. z's entitlement is 0: it comes last however little it had.
    """
    asks = [hours("0s", "z", 5, budget="z"), hours("0s", "a", 10, budget="a"), hours("12h", "a9", 1, budget="a")]
    golden = play({"a": {"share": 100}, "z": {"share": 0}}, asks, until="20h")
    assert golden.turns() == [("a", 10), ("z", 2), ("a", 1), ("z", 3)]
    # z is owed nothing, so nothing is missing; a is owed 11 h x 8 and has it. 16 of 20 h are held.
    assert (golden.budget("z").owed_gpu_hours, golden.budget("z").delivered_gpu_hours) == (0, 40)
    assert (golden.budget("a").owed_gpu_hours, golden.budget("a").delivered_gpu_hours) == (88, 88)
    assert golden.report.delivered.ratio == 1 and golden.report.occupancy == 16 / 20


def test_weight_zero_keeps_its_contract() -> None:
    """The same, but a's last job comes half an hour later: z's hour is protected, so a waits for half an hour of it.

    a is owed hour 12 (from 12:30: half an hour x 8 = 4) and hour 13 (until 14:00 with its job: 8); it has 13-14.
    """
    asks = [hours("0s", "z", 5, budget="z"), hours("0s", "a", 10, budget="a"), hours("750m", "a9", 1, budget="a")]
    golden = play({"a": {"share": 100}, "z": {"share": 0}}, asks, until="20h")
    assert golden.turns() == [("a", 10), ("z", 3), ("a", 1), ("z", 2)]
    assert (golden.budget("a").owed_gpu_hours, golden.budget("a").delivered_gpu_hours) == (80 + 4 + 8, 88)
    assert golden.budget("a").ratio == golden.report.delivered.worst == 88 / 92


@pytest.mark.parametrize("policy", [{}, {"lookback": "12h"}])
def test_all_high_changes_nothing_across_teams(policy: dict[str, Any]) -> None:
    """Three budgets; a marks all it has as HIGH. Not one start is another than if it had not."""

    def starts(priority: int) -> list[tuple[float, str]]:
        tree = {"a": {"share": 30}, "b": {"share": 50}, "c": {"share": 20}}
        asks = [
            hours("0s", "a", 30, budget="a", priority=priority),
            hours("0s", "b", 20, budget="b"),
            hours("90m", "c", 10, budget="c", gpus=4),
            {"at": "4h", "submit": ["long"], "budget": "b", "gpus": 8, "min_runtime": "2h", "runs_for": "9h"}
            | {"resumable": True},
            {"at": "30m", "submit": ["free"], "budget": "c", "gpus": 8, "runs_for": "20h", "resumable": True},
        ]
        golden = play(tree, asks, until="24h", hosts="2x8", policy=policy)
        assert golden.report.runs > 24
        return golden.starts()

    assert starts(0) == starts(100)
