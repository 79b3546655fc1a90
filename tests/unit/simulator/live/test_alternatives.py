"""What would change a queued job's start, put to the placer's own functions."""

from dataclasses import replace

import pytest

from simulator.live.alternatives import alternatives
from simulator.live.state import read
from tenure.domain.ids import JobId
from tenure.domain.job import JobSpec
from tenure.domain.units import HOUR, MINUTE
from tenure.runtime.forecasts import Change
from tests.unit.simulator.live.present import FOLDING, POLICY, Present, a_job


def changes(present: Present, job: str, *, minute: int) -> dict[str, Change]:
    """By field what is told of a job at a minute."""
    state = FOLDING.placer.load(read(present.until(minute)).placer)
    told = alternatives(state, JobId(job), minute * MINUTE, policy=POLICY)
    return {each.field: each for each in told}


def holding(gpus: int = 8) -> JobSpec:
    """What keeps its GPUs from others for eight hours."""
    return a_job(gpus=gpus, contract=8 * HOUR)


def test_fewer_gpus_start_now_where_they_fit() -> None:
    present = Present(hosts="1x8")
    present.submit("holds", holding(gpus=4), minutes=300)
    present.submit("waits", a_job(gpus=8, contract=HOUR), minutes=10, at=1)
    told = changes(present, "waits", minute=2)
    assert told["gpus_per_replica"] == Change(
        change="4 GPUs instead of 8", field="gpus_per_replica", value="4", starts_at=2 * MINUTE
    )
    assert told["min_runtime_ms"].starts_at is None, "no contract makes room on a full host"


def test_the_smallest_change_that_starts_now_is_told() -> None:
    present = Present(hosts="1x8")
    present.submit("holds", holding(gpus=7), minutes=300)
    present.submit("waits", a_job(gpus=8, contract=HOUR), minutes=10, at=1)
    assert changes(present, "waits", minute=2)["gpus_per_replica"].value == "1"


def test_fewer_replicas_of_a_gang() -> None:
    present = Present(hosts="4x8")
    present.submit("holds", a_job(replicas=2, contract=8 * HOUR), minutes=300)
    present.submit("waits", a_job(replicas=4, contract=HOUR), minutes=10, at=1)
    told = changes(present, "waits", minute=2)
    assert told["replicas"].change == "2 replicas instead of 4"
    assert told["replicas"].starts_at == 2 * MINUTE


def test_a_shorter_contract_keeps_out_of_the_way_of_a_reservation() -> None:
    present = Present(hosts="2x8")
    present.submit("holds", a_job(contract=2 * HOUR), minutes=120)
    present.submit("gang", a_job(replicas=2, contract=HOUR, budget="b"), minutes=60, at=1)
    present.submit("waits", a_job(gpus=2, contract=4 * HOUR), minutes=30, at=2)
    told = changes(present, "waits", minute=3)
    assert told["min_runtime_ms"].change == "min-runtime 1h instead of 4h"
    assert told["min_runtime_ms"].value == "1h"
    assert told["min_runtime_ms"].starts_at == 3 * MINUTE


def test_another_type_where_there_is_one() -> None:
    present = Present(types=("A100", "H100"))
    present.submit("holds", replace(holding(), gpu_type="H100"), minutes=300)
    present.submit("waits", replace(a_job(contract=HOUR), gpu_type="H100", cluster="h100"), minutes=10, at=1)
    told = changes(present, "waits", minute=2)
    assert told["gpu_type"] == Change(change="accept A100", field="gpu_type", value="A100", starts_at=None)
    assert told["cluster"].starts_at is None, "each change alone"
    present.submit("free", replace(a_job(contract=HOUR), gpu_type="H100"), minutes=10, at=3)
    assert changes(present, "free", minute=4)["gpu_type"].starts_at == 4 * MINUTE


def test_what_does_not_wait_has_nothing_to_change() -> None:
    present = Present(hosts="1x8")
    present.submit("runs", holding(), minutes=300)
    for job in ("runs", "unknown"):
        with pytest.raises(ValueError, match=f"{job} does not wait"):
            changes(present, job, minute=1)


def test_looking_changes_nothing() -> None:
    present = Present(hosts="2x8")
    present.submit("holds", a_job(contract=2 * HOUR), minutes=120)
    present.submit("gang", a_job(replicas=2, contract=HOUR), minutes=60, at=1)
    state = FOLDING.placer.load(read(present.until(3)).placer)
    before = FOLDING.placer.dump(state)
    first = alternatives(state, JobId("gang"), 3 * MINUTE, policy=POLICY)
    assert FOLDING.placer.dump(state) == before
    assert alternatives(state, JobId("gang"), 3 * MINUTE, policy=POLICY) == first
