"""I1-I10 on whole worlds: random jobs, cancels, drains, silences and tree edits; and restarts that change nothing."""

from functools import partial
from typing import Any

import msgspec
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.checks.invariants import check_log
from tests.scenario.script import build, instant, script_to_world

INSTANTS = st.integers(0, 120).map(lambda minutes: f"{minutes}m")
BUDGETS = {
    "a": {"share": 50, "children": {"x": {"share": 70}, "y": {"share": 30}}},
    "b": {"share": 40},
    "c": {"share": 10},
}
POLICIES = (
    {"lookback": "1h", "ratio_margin": 0.2},
    {"lookback": "9h", "setback_per_gpu_hour": "1h", "ratio_margin": 0.0},
    {"min_runtime_cap": "10m", "grace_max": "20s", "escrow_slack": "1s", "victim_ratio_step": 0.5},
    {"suspect_after": "11s", "lost_after": "40s", "signal_confirm": "0", "automation_share": 1.0},
    {"suspect_after": "15m", "reservation_depth": 0, "promise_horizon": "0"},
)
LEAVES = ("a/x", "a/y", "b", "c")


@st.composite
def submissions(draw: st.DrawFn, *, number: int) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "at": draw(INSTANTS),
        "submit": f"j{number:02}",
        "budget": draw(st.sampled_from(LEAVES)),
        "gpus": draw(st.sampled_from((1, 2, 4, 8))),
        "replicas": draw(st.sampled_from((1, 1, 2, 3))),
        "min_runtime": draw(st.sampled_from(("0", "5m", "20m", "1h"))),
        "runs_for": draw(st.sampled_from(("1m", "10m", "45m", "2h"))),
        "resumable": draw(st.booleans()),
        "priority": draw(st.integers(0, 2)),
        "starts_after": draw(st.sampled_from(("0", "0", "2s"))),
        "stops_after": draw(st.sampled_from(("0", "3s", "25s", "60s"))),
        "exit_code": draw(st.sampled_from((0, 0, 0, 1))),
    }
    if entry["exit_code"] and entry["replicas"] > 1:
        entry["breaks_replica"] = 1
    return entry


@st.composite
def scripts(draw: st.DrawFn) -> dict[str, Any]:
    """Three hosts of eight GPUs and two hours of anything that can happen."""
    when: list[dict[str, Any]] = [draw(submissions(number=number)) for number in range(draw(st.integers(4, 14)))]
    jobs = [entry["submit"] for entry in when]
    for _ in range(draw(st.integers(0, 3))):
        when.append({"at": draw(INSTANTS), "cancel": draw(st.sampled_from(jobs))})
    if draw(st.booleans()):
        start = draw(st.integers(1, 90))
        host = draw(st.sampled_from(("h000", "h001", "h002")))
        when.append({"at": f"{start}m", "drain": host, "fatal": draw(st.booleans())})
        when.append({"at": f"{start + draw(st.integers(1, 60))}m", "resume": host})
    if draw(st.booleans()):
        start = draw(st.integers(1, 90))
        host = draw(st.sampled_from(("h000", "h001", "h002")))
        when.append({"at": f"{start}m", "silence": host})
        when.append({"at": f"{start * 60 + draw(st.sampled_from((10, 45, 200, 900)))}s", "speak": host})
    if draw(st.booleans()):
        start = draw(st.integers(1, 60))
        host = draw(st.sampled_from(("h000", "h001", "h002")))
        when.append({"at": f"{start}m", "drain": host, "empty_at": f"{start + draw(st.integers(1, 90))}m"})
        when.append({"at": f"{start + draw(st.integers(1, 100))}m", "resume": host})
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(1, 100))
        signal = {
            "signal": draw(st.sampled_from(("h000", "h001", "h002"))),
            "source": draw(st.sampled_from(("kernel", "nvml", "check:x"))),
            "severity": draw(st.sampled_from(("watch", "drain", "fatal"))),
        }
        when.append({"at": f"{start}m", **signal})
        when.append({"at": f"{start * 60 + draw(st.sampled_from((10, 300)))}s", **signal, "over": True})
    if draw(st.booleans()):
        start = draw(st.integers(1, 90))
        when.append({"at": f"{start}m", "breaks": "h002"})
        when.append({"at": f"{start + draw(st.integers(1, 30))}m", "mends": "h002"})
    if draw(st.booleans()):
        when.append({"at": draw(INSTANTS), "tree": {**BUDGETS, "b": {"share": 5}}})
    for _ in range(draw(st.integers(0, 2))):
        when.append({"at": draw(INSTANTS), "policy": draw(st.sampled_from(POLICIES))})
    given_ = {
        "hosts": "3x8",
        "budgets": BUDGETS,
        "policy": {
            "lookback": "4h",
            "heartbeat": "10s",
            "suspect_after": "25s",
            "automation_share": 0.5,
            "host_clear": "10m",
        },
    }
    return {"given": given_, "when": when, "until": "3h"}


QUICK = (Phase.explicit, Phase.reuse, Phase.generate)  # shrinking whole worlds takes minutes


@settings(max_examples=40, deadline=None, phases=QUICK)
@given(scripts())
def test_no_invariant_is_ever_broken(script: dict[str, Any]) -> None:
    world = script_to_world(script)
    check_log(world.recorded)


@settings(max_examples=15, deadline=None, phases=QUICK)
@given(
    scripts(),
    st.lists(
        st.tuples(INSTANTS, st.sampled_from(("budget", "ranker", "placer", "health")), st.booleans()),
        min_size=1,
        max_size=6,
    ),
)
def test_restarts_change_nothing(script: dict[str, Any], restarts: list[tuple[str, str, bool]]) -> None:
    """I6: folding twice, or a snapshot and the rest, gives the same state and the same decisions."""
    undisturbed = script_to_world(script)
    world = build(script)
    for at, role, with_snapshot in restarts:
        world.at(instant(at), partial(world.actor(role).restart, with_snapshot=with_snapshot))
    script_to_world(script, world=world)
    assert lines(world.recorded) == lines(undisturbed.recorded)


def lines(recorded: Any) -> list[bytes]:
    return [msgspec.json.encode(entry) for entry in recorded]
