"""What a follower is told of a job, and when: from the job alone."""

from typing import Any

import pytest

from tenure.cli.notices import keys_before, notices_of
from tenure.domain.units import MINUTE
from tenure.v1 import jobs_pb2

T0 = 1_790_000_000_000


def job(state: str, *runs: jobs_pb2.Run, **fields: Any) -> jobs_pb2.Job:
    spec = jobs_pb2.JobSpec(budget="science/chem", user="ana", name="train")
    return jobs_pb2.Job(job_id="j1", state=state, spec=spec, runs=runs, **fields)


def run(number: int, state: str = "running", *, protected_ms: int = 120 * MINUTE, **fields: Any) -> jobs_pb2.Run:
    hosts = [jobs_pb2.HostGpus(host=f"h00{n}", gpus=range(8)) for n in range(2)]
    return jobs_pb2.Run(
        run_id=f"j1.{number}",
        number=number,
        state=state,
        started_at_ms=T0,
        protected_until_ms=T0 + protected_ms,
        hosts=hosts,
        **fields,
    )


def keys(job: jobs_pb2.Job, now: int = T0) -> list[str]:
    return [each.key for each in notices_of(job, now=now)]


def test_nothing_is_said_of_who_waits_or_is_starting() -> None:
    assert keys(job("queued")) == []
    assert keys(job("starting", jobs_pb2.Run(run_id="j1.1", number=1, state="starting"))) == []


def test_a_start_says_what_it_got_and_until_when_it_is_protected() -> None:
    [said] = notices_of(job("running", run(1)), now=T0)
    assert said.key == "j1.1:started" and said.at == T0 and (said.budget, said.user) == ("science/chem", "ana")
    assert said.text.startswith("Job j1 (train) of science/chem: run 1 started: 16 GPUs on 2 hosts, protected until ")
    [said] = notices_of(job("running", run(1, protected_ms=0)), now=T0)
    assert said.text.endswith("16 GPUs on 2 hosts, unallocated.")


@pytest.mark.parametrize(
    ("minute", "warned"),
    [(0, None), (59, None), (60, 60), (104, 60), (105, 15), (114, 15), (115, 5), (119, 5), (120, None), (500, None)],
)
def test_the_end_of_its_protection_is_said_three_times(minute: int, warned: int | None) -> None:
    expected = [] if warned is None else [f"j1.1:protection_ends-{warned}"]
    assert keys(job("running", run(1)), T0 + minute * MINUTE)[1:] == expected


def test_a_warning_tells_what_is_left_when_it_is_said() -> None:
    late = notices_of(job("running", run(1)), now=T0 + 111 * MINUTE + 1)[-1]
    assert "its protection ends in 9 min, at " in late.text and late.at == T0 + 105 * MINUTE


@pytest.mark.parametrize(("minutes", "first"), [(5, None), (6, 5), (15, 5), (16, 15), (60, 15), (61, 60)])
def test_who_was_protected_for_less_is_not_warned_as_it_starts(minutes: int, first: int | None) -> None:
    short = run(1, protected_ms=minutes * MINUTE)
    warnings = {key for each in range(minutes + 1) for key in keys(job("running", short), T0 + each * MINUTE)[1:]}
    said = sorted(int(key.rpartition("-")[2]) for key in warnings)
    assert said[-1:] == ([] if first is None else [first])


def test_a_preempted_run_is_queued_again_and_another_one_starts() -> None:
    gone = run(1, "preempted", ended_at_ms=T0 + 9, ended_by="j7")
    again = job("running", gone, run(2))
    assert keys(again) == ["j1.1:started", "j1.1:preempted", "j1.1:requeued", "j1.2:started"]
    assert notices_of(again, now=T0)[1].text.endswith("run 1 was preempted, for j7.")
    assert keys(job("queued", gone)) == ["j1.1:started", "j1.1:preempted", "j1.1:requeued"]


def test_one_that_cannot_resume_is_over_when_it_is_preempted() -> None:
    gone = run(1, "preempted", ended_at_ms=T0 + 9)
    assert keys(job("preempted", gone, finished_at_ms=T0 + 9)) == ["j1.1:started", "j1.1:preempted", "j1:done"]


@pytest.mark.parametrize(
    ("state", "said"), [("drained", "was stopped by a drain (h000)."), ("host_lost", "was lost with a host (h000).")]
)
def test_what_hosts_did_to_it_is_said(state: str, said: str) -> None:
    stopped = notices_of(job("queued", run(1, state, ended_at_ms=T0 + 9, ended_by="h000")), now=T0)[1]
    assert stopped.key == "j1.1:stopped" and stopped.text.endswith(said)


def test_the_end_says_how_it_ended() -> None:
    failed = job("failed", run(1, "failed", ended_at_ms=T0 + 9, exit_code=3), finished_at_ms=T0 + 10)
    assert keys(failed) == ["j1.1:started", "j1:done"]
    assert notices_of(failed, now=T0)[1].text.endswith("is over: failed with status 3.")
    assert notices_of(failed, now=T0)[1].at == T0 + 10
    assert keys(job("rejected", finished_at_ms=T0)) == ["j1:done"]
    stopped = job("cancelled", run(1, "cancelled", ended_at_ms=T0 + 9, exit_code=143), finished_at_ms=T0 + 10)
    assert notices_of(stopped, now=T0)[1].text.endswith("is over: cancelled."), "what the signal left says nothing"


def test_who_begins_to_follow_hears_of_the_present_run_not_of_earlier_ones() -> None:
    again = job("running", run(1, "preempted", ended_at_ms=T0 + 9), run(2))
    assert keys_before(again, now=T0, last_run_too=False) == {"j1.1:started", "j1.1:preempted", "j1.1:requeued"}
    assert keys_before(again, now=T0, last_run_too=True) == set(keys(again))
    assert keys_before(job("queued"), now=T0, last_run_too=True) == set()


def test_the_same_thing_is_the_same_notice_whenever_it_is_looked_at() -> None:
    running = job("running", run(1))
    seen = [set(keys(running, T0 + minute * MINUTE)) for minute in range(130)]
    assert set.union(*seen) == {"j1.1:started", *(f"j1.1:protection_ends-{each}" for each in (60, 15, 5))}
