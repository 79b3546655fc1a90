"""P8 without host losses and tree edits: every latest start that was ever published is met, whoever else comes.

But for what nobody can know ahead: how long the processes of a run take to start, and how much of the usual grace its
victims use, where it came to reserved hosts in their place. `test_timetables.py` has worlds without either.
"""

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from tenure.domain.host import HostState
from tenure.domain.ids import HostId, JobId
from tenure.domain.job import DEFAULT_GRACE
from tenure.domain.reasons import Reason
from tenure.domain.units import SECOND, Millis
from tenure.events.fact import Fact
from tenure.events.hosts import HostStateChanged
from tenure.events.placing import JobFinished, PlacementDeferred, ReservationDropped, ReservationMade, RunAssigned
from tests.checks.invariants import check_log
from tests.property.test_world import QUICK
from tests.scenario.script import instant, script_to_world

CLUSTERS = (
    [{"name": "one", "hosts": 6, "gpus_per_host": 8, "gpu_type": "H100", "hosts_per_block": 3}],
    [
        {"name": "big", "hosts": 4, "gpus_per_host": 8, "gpu_type": "H100", "hosts_per_block": 2},
        {"name": "small", "hosts": 4, "gpus_per_host": 4, "gpu_type": "A100", "hosts_per_block": 2},
    ],
)
SHAPES = ((1, 1), (1, 4), (1, 4), (1, 8), (1, 8), (2, 8), (3, 4), (3, 8), (4, 4))
STOPS = (("30s", "0s"), ("30s", "29s"), ("30s", "60s"), ("10m", "9m"), ("1s", "1s"))
"""Grace and how long the stop takes; who takes longer is killed."""

STARTS_AFTER: Millis = 5 * SECOND
LATE_MAX: Millis = DEFAULT_GRACE + STARTS_AFTER


@st.composite
def submissions(draw: st.DrawFn, *, number: int) -> dict[str, Any]:
    replicas, gpus = draw(st.sampled_from(SHAPES))
    grace, stops_after = draw(st.sampled_from(STOPS))
    return {
        "at": f"{draw(st.integers(0, 6 * 60))}m",
        "submit": f"j{number:02}",
        "budget": draw(st.sampled_from(("a", "b", "c"))),
        "replicas": replicas,
        "gpus": gpus,
        "min_runtime": draw(st.sampled_from(("0", "15m", "1h", "2h"))),
        "runs_for": draw(st.sampled_from(("5m", "40m", "2h", "8h"))),
        "resumable": draw(st.booleans()),
        "priority": draw(st.integers(0, 1)),
        "topology": draw(st.sampled_from(("any", "any", "prefer-block", "one-block"))),
        "grace": grace,
        "stops_after": stops_after,
        "starts_after": draw(st.sampled_from(("0s", "0s", f"{STARTS_AFTER}ms"))),
    }


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    when: list[dict[str, Any]] = [draw(submissions(number=number)) for number in range(draw(st.integers(6, 30)))]
    jobs = [entry["submit"] for entry in when]
    for _ in range(draw(st.integers(0, 4))):
        when.append({"at": f"{draw(st.integers(0, 400))}m", "cancel": draw(st.sampled_from(jobs))})
    given_ = {
        "hosts": draw(st.sampled_from(CLUSTERS)),
        "budgets": {"a": {"share": 30}, "b": {"share": 50}, "c": {"share": 20}},
        "policy": {"lookback": "8h", "heartbeat": "1h", "suspect_after": "3h", "lost_after": "4h"},
    }
    return {"given": given_, "when": when, "until": "18h"}


@settings(max_examples=60, deadline=None, phases=QUICK)
@given(worlds())
def test_every_latest_start_is_met(script: dict[str, Any]) -> None:
    recorded = script_to_world(script).recorded
    check_log(recorded)
    kept = met_promises([entry.fact for entry in recorded], end=instant(script["until"]))
    event(f"{min(kept, 3)} promises or more")


def met_promises(facts: list[Fact], *, end: Millis, late_max: Millis = LATE_MAX) -> int:
    """Assert that none is missed, or given up but for a host that left service. Returns how many were met."""
    states: dict[HostId, HostState] = {}
    made: dict[JobId, ReservationMade] = {}
    first: dict[JobId, Millis] = {}
    kept = 0
    for fact in facts:
        if isinstance(fact, HostStateChanged):
            states[fact.host] = fact.state
        elif isinstance(fact, ReservationMade):
            assert fact.latest_start <= first.get(fact.job, fact.latest_start), f"{fact.job} slips"
            first[fact.job], made[fact.job] = fact.latest_start, fact
        elif isinstance(fact, ReservationDropped):
            hosts = {place.host for place in made[fact.job].placement}
            assert any(states[host] is not HostState.HEALTHY for host in hosts), f"no host was lost: {fact}"
            del first[fact.job]
        elif isinstance(fact, RunAssigned) and fact.job in first:
            kept += 1
            late = fact.at - first.pop(fact.job)
            assert late <= late_max, f"{fact.job} starts {late} ms after its latest start"
        elif isinstance(fact, JobFinished):
            first.pop(fact.job, None)
        elif isinstance(fact, PlacementDeferred) and fact.job in first:
            assert fact.why.reason is not Reason.DEFER_ESCROW_EXPIRED, f"a promise is given up: {fact}"
    assert all(latest >= end for latest in first.values()), f"never started: {first}"
    return kept
