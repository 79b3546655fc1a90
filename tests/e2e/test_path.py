"""The whole path on real parts: submissions to processes and back, on one running system."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tenure.sdk.errors import ServerError
from tests.checks.invariants import check_segments
from tests.e2e.system import System, running

SCRIPTS = Path(__file__).parents[2] / "examples" / "scripts"


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Four hosts of four GPUs; budgets a, b, c/x and c/y."""
    with running(tmp_path_factory.mktemp("path")) as system:
        yield system
        system.check()
        assert system.stop() == 0


def sh(text: str) -> list[str]:
    return ["/bin/sh", "-c", text]


def empty(system: System) -> None:
    """Wait until nothing runs and nothing waits."""

    def probe() -> bool | None:
        answer = system.client.jobs(states=("submitted", "queued", "starting", "running", "stopping"))
        return True if not answer.jobs else None

    system.until(probe, what="an empty cluster")


def test_a_job_runs_with_its_environment_and_its_output_can_be_read(system: System) -> None:
    words = "$TENURE_JOB_ID $TENURE_RUN_ID $TENURE_BUDGET $RANK/$WORLD_SIZE $LOCAL_RANK $NODE_RANK/$NNODES"
    job_id = system.submit("a", sh(f"echo {words} $CUDA_VISIBLE_DEVICES; echo oops >&2"), gpus=2, seconds=5)
    job = system.wait(job_id)
    assert job.state == "completed" and job.runs[0].exit_code == 0
    devices = ",".join(str(gpu) for gpu in job.runs[0].hosts[0].gpus)
    assert system.output_of(job_id).split() == [job_id, f"{job_id}.1", "a", "0/1", "0", "0/1", devices]
    errors = b"".join(system.client.output(job_id, stream="stderr"))
    assert errors == b"oops\n"


def test_a_gang_starts_whole_and_its_ranks_meet(system: System) -> None:
    command = [sys.executable, str(SCRIPTS / "rendezvous.py"), "0"]
    job = system.wait(system.submit("a", command, gpus=4, replicas=3, seconds=5))
    assert job.state == "completed" and len(job.runs[0].hosts) == 3
    assert all("sum of ranks 3" in system.output_of(job.job_id, replica=rank) for rank in range(3))


def test_a_gang_that_does_not_fit_holds_nothing(system: System, tmp_path: Path) -> None:
    go = tmp_path / "go"
    blocker = system.submit("b", sh(f"while [ ! -e {go} ]; do sleep 0.05; done"), gpus=1, seconds=30)
    system.wait(blocker, "running")
    gang = system.submit("a", sh("true"), gpus=4, replicas=4, seconds=5)
    small = system.wait(system.submit("a", sh("true"), gpus=4, seconds=5))
    assert small.state == "completed"
    assert system.client.job(gang).state == "queued"
    assert system.client.job(gang).why.reason in (
        "defer_no_room",
        "defer_fragmented",
        "defer_no_timetable",
        "reserve_earliest",
    )
    go.touch()
    assert system.wait(gang).state == "completed"


def test_failures_signals_and_missing_commands_are_said(system: System) -> None:
    failed = system.wait(system.submit("a", sh("exit 7"), seconds=5))
    killed = system.wait(system.submit("a", sh("kill -9 $$"), seconds=5))
    missing = system.wait(system.submit("a", ["/no/such/program"], seconds=5))
    assert [job.state for job in (failed, killed, missing)] == ["failed"] * 3
    assert [job.runs[0].exit_code for job in (failed, killed, missing)] == [7, 137, 127]
    assert "/no/such/program" in missing.why.numbers["error"]


def test_one_failing_rank_brings_the_gang_down(system: System) -> None:
    command = sh('[ "$RANK" = 1 ] && exit 5; sleep 60')
    job = system.wait(system.submit("a", command, gpus=1, replicas=3, seconds=30))
    assert (job.state, job.runs[0].exit_code) == ("failed", 5)


def test_a_contract_is_kept_and_a_resumable_job_carries_on(system: System) -> None:
    empty(system)
    command = [sys.executable, str(SCRIPTS / "counter.py"), "60"]
    victim = system.submit("b", command, gpus=4, replicas=4, seconds=4, resumable=True)
    system.wait(victim, "running")
    asker = system.wait(system.submit("a", sh("sleep 0.3"), gpus=4, seconds=2))
    job = system.wait(victim)
    first = job.runs[0]
    assert first.state == "preempted" and first.ended_by == asker.job_id
    assert first.protected_until_ms - first.started_at_ms == 4_000
    late_ms = first.ended_at_ms - first.protected_until_ms
    assert 0 <= late_ms < 2_000, f"asked for {late_ms} ms after the protection ended"
    assert asker.first_started_at_ms >= first.protected_until_ms
    assert job.state == "completed" and job.resume_count == 1 and len(job.runs) == 2
    saved = system.output_of(victim, run=1).split("saved at ")[1].split()[0]
    assert f"counting from {saved} to 60" in system.output_of(victim, run=2)


def test_unallocated_gives_way_at_once_and_costs_nothing(system: System) -> None:
    empty(system)
    free = [system.submit("b", sh("sleep 30"), gpus=4) for _ in range(4)]
    for job_id in free:
        system.wait(job_id, "running")
    paid = system.wait(system.submit("a", sh("true"), gpus=4, replicas=2, seconds=2))
    assert paid.state == "completed"
    assert paid.first_started_at_ms - paid.submitted_at_ms < 3_000
    states = [system.client.job(job_id).state for job_id in free]
    assert states.count("preempted") == 2, "two of four had to go, and a job that cannot resume is over"
    for job_id in free:
        if system.client.job(job_id).state == "running":
            system.client.cancel(job_id, user="tester")
    assert {system.wait(job_id).charged_gpu_ms for job_id in free} == {0}


def test_priority_counts_inside_one_budget_only(system: System) -> None:
    empty(system)
    holder = system.submit("a", sh("sleep 30"), gpus=4, replicas=4, seconds=1)
    system.wait(holder, "running")
    served = system.wait(system.submit("a", sh("true"), gpus=1, seconds=1, priority=5))
    assert served.state == "completed"
    assert system.wait(holder).state == "preempted"
    assert any(step.why.reason == "disrupt_higher_priority" for step in system.story_of(holder))


def test_cancel_while_queued_starting_and_running(system: System) -> None:
    empty(system)
    holder = system.submit("a", sh("sleep 60"), gpus=4, replicas=4, seconds=30)
    system.wait(holder, "running")
    queued = system.submit("a", sh("true"), gpus=1, seconds=1)
    system.client.cancel(queued, user="tester")
    assert system.wait(queued).state == "cancelled"
    system.client.cancel(holder, user="tester")
    assert system.wait(holder).state == "cancelled", "even while it is protected: its owner wants it gone"
    starting = [system.submit("a", sh("sleep 60"), gpus=1, seconds=30) for _ in range(8)]
    for job_id in starting:
        system.client.cancel(job_id, user="tester")
    assert {system.wait(job_id).state for job_id in starting} == {"cancelled"}
    empty(system)


def test_a_story_has_reasons_and_numbers(system: System) -> None:
    job_id = system.submit("c/x", sh("true"), seconds=1)
    system.wait(job_id)
    steps = system.story_of(job_id)
    kinds = [step.kind for step in steps]
    wanted = ["JobSubmitted", "JobAdmitted", "RunAssigned", "RunStarted", "RunEnded", "JobFinished"]
    assert [kind for kind in kinds if kind in wanted] == wanted
    assigned = next(step for step in steps if step.kind == "RunAssigned")
    assert assigned.why.rule == "P4" and "rank" in assigned.why.numbers


def test_the_report_is_read_from_clickhouse_and_adds_up(system: System) -> None:
    for budget in ("a", "b"):
        system.wait(system.submit(budget, sh("sleep 0.2"), seconds=1))
    empty(system)
    charged = {
        row.path: sum(
            job.charged_gpu_ms for job in system.client.jobs(limit=10_000).jobs if job.spec.budget == row.path
        )
        for row in system.client.budget_report().rows
        if row.leaf
    }

    def differences() -> dict[str, int]:
        rows = {row.path: row.delivered_gpu_ms for row in system.client.budget_report().rows if row.leaf}
        return {path: rows[path] - charged[path] for path in rows if rows[path] != charged[path]}

    with suppress(AssertionError):
        system.until(lambda: None if differences() else True)
    check_segments([entry.fact for entry in system.recorded()], complete=True)
    assert differences() == {} and charged["a"] > 0 and charged["b"] > 0


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"budget": "nope"}, "budget"),
        ({"budget": "c"}, "budget"),
        ({"seconds": 61}, "min_runtime"),
        ({"seconds": -1}, "min_runtime"),
        ({"gpus": 0}, "gpus"),
        ({"gpus": 2**62}, "gpus"),
        ({"gpus": 5}, "gpus"),
        ({"replicas": 0}, "replicas"),
        ({"replicas": 17, "gpus": 1}, "replicas"),
        ({"gpu_type": "H10O"}, "gpu_type"),
        ({"command": []}, "command"),
        ({"command": ["x" * 10_000_000]}, "command"),
        ({"name": "bad\x07name"}, "name"),
    ],
)
def test_bad_submissions_are_refused_by_name_and_write_nothing(
    system: System, change: dict[str, object], field: str
) -> None:
    before = system.client.jobs(limit=1).counts
    wanted: dict[str, object] = {"budget": "a", "command": ["true"], "seconds": 1, **change}
    with pytest.raises(ServerError, match=field):
        system.submit(wanted.pop("budget"), wanted.pop("command"), **wanted)  # type: ignore[arg-type]
    assert dict(system.client.jobs(limit=1).counts) == dict(before)
