"""What a cluster has its own values of, one knob a test: the same evidence in a cluster with one and in one without."""

from collections.abc import Mapping

import pytest

from services.health.policy.mending import Plug
from tenure.domain.host import HostState
from tenure.domain.ids import HostId, JobId, RunId
from tenure.domain.policy import OF_CLUSTER, Policy
from tenure.domain.reasons import EndCause, Reason, Why
from tenure.domain.units import HOUR, MINUTE, SECOND, Millis
from tenure.events.placing import RunEnded
from tests.unit.health.test_doubt import complain
from tests.unit.health.ward import Ward

OWN, COMMON = "h0", "x0"
PLUG = Plug(repairs=True, tests=False)


def two_clusters(own: Mapping[str, int], *, plug: Plug | None = None) -> Ward:
    """Hosts h0..h3 of cluster c, which has its own values, and x0..x3 of cluster d."""
    policy = Policy(clusters={"c": dict(own)})
    ward = Ward(policy=policy) if plug is None else Ward(policy=policy, plug=plug)
    others = [f"x{number}" for number in range(4)]
    ward.register(*others, cluster="d", block="d")
    ward.names = [*ward.names, *map(HostId, others)]
    ward.beat(*ward.names)
    ward.decide()
    return ward


def when(ward: Ward, host: str, state: HostState) -> Millis:
    """How long after now a host first comes to a state, within two hours of beats."""
    began = ward.now
    while ward.now < began + 2 * HOUR:
        ward.live(5 * SECOND, *ward.names)
        found = [change.at for change in ward.changes(host) if change.state is state and change.at >= began]
        if found:
            return found[0] - began
    raise AssertionError(f"{host} never is {state}")


def test_how_long_a_signal_has_to_last() -> None:
    ward = two_clusters({"signal_confirm_ms": 10 * MINUTE})
    complain(ward, OWN, COMMON)
    assert when(ward, COMMON, HostState.DRAINING) == Policy().signal_confirm_ms
    ward.now = ward.changes(COMMON)[1].at
    assert when(ward, OWN, HostState.DRAINING) == 10 * MINUTE


def test_how_long_it_has_to_be_over() -> None:
    ward = two_clusters({"host_clear_ms": 30 * SECOND})
    complain(ward, OWN, COMMON)
    ward.live(2 * MINUTE, *ward.names)
    complain(ward, OWN, COMMON, over=True)
    assert when(ward, OWN, HostState.HEALTHY) == 30 * SECOND
    assert ward.state(COMMON) is HostState.DRAINED


def test_how_many_incidents_are_too_many() -> None:
    ward = two_clusters({"incidents_max": 1}, plug=PLUG)
    complain(ward, OWN, COMMON)
    ward.live(2 * MINUTE, *ward.names)
    assert ward.state(OWN) is HostState.FAILED
    assert ward.changes(OWN)[-1].why.numbers["incidents_max"] == 1
    assert ward.state(COMMON) is HostState.REPAIRING


def test_how_long_a_repair_may_take() -> None:
    ward = two_clusters({"repair_limit_ms": 3 * MINUTE}, plug=PLUG)
    complain(ward, OWN, COMMON)
    ward.live(2 * MINUTE, *ward.names)
    began = ward.changes(OWN)[-1]
    assert began.state is HostState.REPAIRING
    ward.now = began.at
    assert when(ward, OWN, HostState.FAILED) == 3 * MINUTE
    assert ward.state(COMMON) is HostState.REPAIRING


@pytest.mark.parametrize("host", [OWN, COMMON])
def test_how_many_launches_may_fail(host: str) -> None:
    ward = two_clusters({"job_failures": 1})
    ward.assign("1.1", host)
    why = Why(rule="P10", reason=Reason.END_FAILED, numbers={"host": host, "started": False})
    end = RunEnded(at=ward.now, run=RunId("1.1"), job=JobId("1"), cause_of_end=EndCause.FAILED, why=why)
    ward.say(end)
    ward.decide()
    assert ward.state(host) is (HostState.DRAINED if host == OWN else HostState.HEALTHY)


def test_what_the_health_role_has_own_values_of() -> None:
    """Each of these has its test above, or a scenario: `a_cluster_has_its_own_automation`."""
    tried = {"signal_confirm_ms", "host_clear_ms", "incidents_max", "repair_limit_ms", "job_failures"}
    of_contracts = {"min_runtime_cap_ms", "grace_max_ms"}
    assert set(OF_CLUSTER) == tried | of_contracts | {"automation_share"}
