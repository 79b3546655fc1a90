"""Golden scenarios: contracts, squatting, lost capacity and edited trees. The arithmetic is in the comments.

One host of 8 GPUs (two where said) that jobs hold whole: 1 h = 8 GPU-hours. Ties go by path.
"""

from typing import Any

import pytest

from tests.simulation.golden import hours, play

HALVES = {"a": {"share": 50}, "b": {"share": 50}}


def test_ping_pong_gives_each_run_its_hour() -> None:
    """Two budgets, one job each that would go on for days, contracts of 1 h: they take turns on 8 GPUs for 24 h.

    A run is protected for its hour, so there are at most 24 runs and never more preemptions than hours. It goes on a
    little after its hour while the other is not lower by the margin: with h hours each and t passed, the ratios differ
    by 2 d / t where one is d ahead, so it goes on until d > 0.01 t: at most 0.24 h in all this time. So neither is
    ever further ahead than 1 h + 0.24 h.
    """
    asks = [
        {"at": "0s", "submit": name, "budget": name, "gpus": 8, "min_runtime": "1h", "runs_for": "100h"}
        | {"resumable": True}
        for name in ("a", "b")
    ]
    golden = play(HALVES, asks, until="24h")
    lengths = _lengths(golden.lines)
    assert all(length >= 3600 for length in lengths), lengths
    assert 18 <= golden.report.preemptions.total <= 24
    assert golden.report.preemptions.allocated == golden.report.preemptions.total == len(lengths)
    assert golden.count("job_requeued") == len(lengths)
    ahead = 0.0
    for at, job in golden.starts():
        ahead = max(ahead, abs(_held(golden.lines, "a", at) - _held(golden.lines, "b", at)))
        assert job in ("a", "b")
    assert ahead <= 1.24
    # Both are owed 24 h x 4 and what was stopped was saved: nothing is lost.
    assert {budget.owed_gpu_hours for budget in golden.report.delivered.budgets} == {96}
    assert golden.report.delivered.worst >= (12 - 0.62) / 12
    assert golden.report.goodput == 1 and golden.report.occupancy == 1


def test_a_squatter_pays_for_its_parked_gpus() -> None:
    """a parks 8 GPUs under an 8 h contract and does nothing with them; its real job comes at 8 h. b asks all the time.

    At 8 h a has been charged 8 h, b nothing: the parked run goes (its contract is fulfilled), and b is lower until it
    has 8 h too. At 16 h they are equal and a's real job starts: parking cost it eight hours of waiting.
    """
    park = {"at": "0s", "submit": "park", "budget": "a", "gpus": 8, "min_runtime": "8h", "runs_for": "48h"}
    asks = [hours("0s", "b", 40, budget="b"), hours("8h", "a", 1, budget="a")]
    golden = play(HALVES, [park, *asks], until="16h")
    honest = play(HALVES, asks, until="16h")
    [end] = [line for line in golden.lines if line["type"] == "run_ended" and line["job"] == "park"]
    assert (end["t"], end["cause"], end["charged_gpu_s"]) == (8 * 3600, "preempted", 64 * 3600)
    assert golden.turns() == [("p", 1), ("b", 8)]
    assert golden.first_start("a000") == 16
    assert honest.first_start("a000") == 8
    # Both asked all the time: owed 16 h x 4 each, and both had it: the parked hours are delivered hours.
    for path in ("a", "b"):
        assert (golden.budget(path).owed_gpu_hours, golden.budget(path).delivered_gpu_hours) == (64, 64)
    # It was no use: a run that cannot resume loses what it did, 8 h of 16.
    assert golden.report.preemptions.lost_gpu_hours == 64 and golden.report.goodput == 0.5


def test_capacity_halved_for_a_day() -> None:
    """Two hosts; one is away from 24 h to 48 h. a and b ask all the time for whole hosts.

    With two hosts each has one an hour; with one they take turns. Each gets 24 + 12 + 24 = 60 h x 8 = 480 GPU-hours,
    which is its half of what was there: 4/8 x (16 x 24 + 8 x 24 + 16 x 24) = 480.
    """
    asks = [hours("0s", "a", 80, budget="a"), hours("0s", "b", 80, budget="b")]
    away: list[dict[str, Any]] = [{"at": "24h", "drain": "h001", "fatal": True}, {"at": "48h", "repaired": "h001"}]
    golden = play(HALVES, asks + away, until="72h", hosts="2x8")
    for path in ("a", "b"):
        assert (golden.budget(path).owed_gpu_hours, golden.budget(path).delivered_gpu_hours) == (480, 480)
    assert golden.report.availability == pytest.approx(960 / 1152)
    assert golden.report.occupancy == 1, "what is not there is not idle"
    hours_of = golden.report.gpu_hours
    assert (hours_of.capacity, hours_of.charged, hours_of.idle, hours_of.unavailable) == (1152, 960, 0, 192)
    assert golden.report.preemptions.total == golden.report.host_losses.runs == 0
    on_the_lost = [
        line["t"] / 3600
        for line in golden.lines
        if line["type"] == "run_started" and "h001" in line["hosts"] and line["t"] < 72 * 3600
    ]
    assert on_the_lost == [*range(24), *range(48, 72)]


def test_a_lost_host_gives_its_runs_their_time_back() -> None:
    """Two hosts, a on one, b on the other; b's is lost at 3 h with all b did: no checkpoint, 3 h x 8 = 24 GPU-hours.

    They are refunded, so at 3 h b has 0 h, a 3 h and its contract behind it: b takes a's host at once. b has 3 h again
    at 6 h, and is not higher than a before.
    """
    asks = [
        {"at": "0s", "submit": name, "budget": name, "gpus": 8, "min_runtime": "2h", "runs_for": "10h"}
        | {"resumable": True}
        for name in ("a", "b")
    ]
    golden = play(HALVES, asks, until="6h", hosts="2x8", lost=[("h001", "3h")])
    assert golden.starts() == [(0, "a"), (0, "b"), (3, "b")]
    [end] = [line for line in golden.lines if line["type"] == "run_ended" and line["cause"] == "host_lost"]
    assert (end["t"], end["by"], end["refunded_gpu_s"], end["charged_gpu_s"]) == (3 * 3600, "h001", 24 * 3600, 0)
    # There were 16 x 3 + 8 x 3 = 72 GPU-hours, half of it owed to each; a had 0-3 h, b 3-6 h, 24 each.
    for path in ("a", "b"):
        assert (golden.budget(path).owed_gpu_hours, golden.budget(path).delivered_gpu_hours) == (36, 24)
    parts = golden.report.gpu_hours
    assert (parts.capacity, parts.charged, parts.refunded, parts.idle, parts.unavailable) == (96, 48, 24, 0, 24)
    assert (golden.report.host_losses.runs, golden.report.host_losses.lost_gpu_hours) == (1, 24)
    assert golden.report.goodput == pytest.approx(1 - 24 / 72)
    assert golden.report.occupancy == 1 and golden.report.availability == 72 / 96


def test_a_tree_edit_in_mid_window_never_works_backwards() -> None:
    """a and b have halves for 10 h, then 25 and 75 %: entitlements add up piece by piece (P1).

    At 10 h both have 5 h. At 50 h a is entitled to 10 x 1/2 + 40 x 1/4 = 15 h, b to 10 x 1/2 + 40 x 3/4 = 35 h, and
    that is what they have. Backwards it would be 12.5 and 37.5 h: a would have waited from 10 h to 20 h.
    """
    asks = [hours("0s", "a", 60, budget="a"), hours("0s", "b", 60, budget="b")]
    edit = [{"at": "10h", "tree": {"a": {"share": 25}, "b": {"share": 75}}}]
    golden = play(HALVES, asks + edit, until="50h")
    started = [job[0] for at, job in golden.starts() if at < 50]
    assert (started[:10].count("a"), started[:10].count("b")) == (5, 5)
    assert (started.count("a"), started.count("b")) == (15, 35)
    assert "a" in started[10:14], "a is not made to pay for what it was entitled to"
    for path, entitled in (("a", 15), ("b", 35)):
        assert golden.budget(path).owed_gpu_hours == golden.budget(path).delivered_gpu_hours == entitled * 8


def test_a_tree_edit_inside_an_hour_owes_by_both_trees() -> None:
    """The edit is at 10 h 30: that hour owes a 30 min x 4 GPUs + 30 min x 2 = 3 GPU-hours."""
    asks = [hours("0s", "a", 20, budget="a"), hours("0s", "b", 20, budget="b")]
    edit = [{"at": "630m", "tree": {"a": {"share": 25}, "b": {"share": 75}}}]
    golden = play(HALVES, asks + edit, until="11h", since="10h")
    assert (golden.budget("a").owed_gpu_hours, golden.budget("b").owed_gpu_hours) == (3, 5)


def _lengths(lines: list[dict[str, Any]]) -> list[float]:
    """How long each ended run lasted, in seconds."""
    started = {line["run"]: line["t"] for line in lines if line["type"] == "run_started"}
    return [round(line["t"] - started[line["run"]], 3) for line in lines if line["type"] == "run_ended"]


def _held(lines: list[dict[str, Any]], job: str, at: float) -> float:
    """Hours that a job held its GPUs until `at` (in hours)."""
    held, since = 0.0, None
    for line in lines:
        if line.get("job") != job or line["t"] / 3600 > at:
            continue
        if line["type"] == "run_started":
            since = line["t"] / 3600
        elif line["type"] == "run_ended" and since is not None:
            held, since = held + line["t"] / 3600 - since, None
    return held + (at - since if since is not None else 0)
