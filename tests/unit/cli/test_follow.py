"""`tenure follow` against a canned gateway: what is said once, what is refused, what is remembered."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from tenure.v1 import jobs_pb2
from tests.unit.cli.canned import NOW, Canned
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_notices import job, run

DONE = {"finished_at_ms": NOW + 50}
GONE = run(1, "preempted", ended_at_ms=NOW + 20, ended_by="j7")
OVER = job("completed", GONE, run(2, "completed", ended_at_ms=NOW + 50, exit_code=0), **DONE)


def becoming(gateway: Canned, *looks: jobs_pb2.Job | grpc.StatusCode) -> Iterator[jobs_pb2.Job]:
    """Each look at the job shows the next of these, the last one for good."""
    left = list(looks)

    def shown(job_id: str, context: grpc.ServicerContext) -> jobs_pb2.Job:
        now = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(now, grpc.StatusCode):
            context.abort(now, "going away")
        assert isinstance(now, jobs_pb2.Job) and job_id == "j1"
        return now

    gateway.job = shown  # type: ignore[method-assign]
    return iter(())


def preempted(gateway: Canned, text: str = "Run 1 is to stop for j7: its ratio is lower.") -> None:
    fact = json.dumps({"run": "j1.1", "job": "j1"})
    gateway.steps = [
        jobs_pb2.Step(kind="RunPreemptionRequested", text="of another", fact_json=json.dumps({"run": "j9.1"})),
        jobs_pb2.Step(kind="RunPreemptionRequested", text=text, fact_json=fact),
        jobs_pb2.Step(kind="RunPreemptionRequested", text="of a third", fact_json=json.dumps({"run": "j8.1"})),
    ]


def events(out: str) -> list[str]:
    return [json.loads(line)["event"] for line in out.splitlines()]


def test_a_job_is_followed_to_its_end_each_thing_once(tenure: Run, gateway: Canned) -> None:
    preempted(gateway)
    becoming(gateway, job("queued"), job("running", run(1)), job("queued", GONE), OVER)
    result = tenure("follow", "j1", "--every", "1s")
    lines = result.out.splitlines()
    assert result.status == 0 and len(lines) == 5
    assert lines[1].endswith("run 1 was preempted, for j7. Run 1 is to stop for j7: its ratio is lower.")
    assert "queued again" in lines[2] and "run 2 started" in lines[3] and lines[4].endswith("is over: completed.")


def test_without_the_story_a_preemption_is_said_all_the_same(tenure: Run, gateway: Canned) -> None:
    gateway.refusals["Explain"] = (grpc.StatusCode.INTERNAL, "no story")
    becoming(gateway, job("preempted", GONE, **DONE))
    lines = tenure("follow", "j1").out.splitlines()
    assert [line.partition(": ")[2] for line in lines][1:] == ["run 1 was preempted, for j7.", "is over: preempted."]


def test_an_outage_of_the_gateway_is_waited_out(tenure: Run, gateway: Canned) -> None:
    away = [grpc.StatusCode.UNAVAILABLE] * 6  # a call is tried some times before it is given up
    becoming(gateway, job("running", run(1)), *away, OVER)
    preempted(gateway)
    result = tenure("follow", "j1", "--every", "1s", "--json")
    assert result.status == 0 and events(result.out)[-1] == "done"
    assert result.err.count("looking again until it answers") == 1


def test_what_was_told_is_not_told_again_after_a_restart(tenure: Run, gateway: Canned, tmp_path: Path) -> None:
    preempted(gateway)
    kept = tmp_path / "kept.json"
    ask = ("follow", "j1", "--state", str(kept), "--json")
    becoming(gateway, job("queued"))
    gateway.jobs = []
    gateway.refusals["List"] = (grpc.StatusCode.NOT_FOUND, "gone")
    assert tenure(*ask).status == 1 and not kept.exists(), "nothing was looked at"
    gateway.refusals.clear()
    becoming(gateway, job("running", run(1)), grpc.StatusCode.NOT_FOUND)
    first = tenure(*ask, "--every", "1s")
    assert first.status == 1 and events(first.out) == ["started"] and "going away" in first.err
    becoming(gateway, OVER)
    assert events(tenure(*ask).out) == ["preempted", "requeued", "started", "done"], "what happened meanwhile"
    assert tenure(*ask).out == ""


def test_a_state_of_another_following_is_refused(tenure: Run, gateway: Canned, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    becoming(gateway, OVER)
    preempted(gateway)
    assert tenure("follow", "j1", "--state", str(kept)).status == 0
    result = tenure("follow", "j2", "--state", str(kept))
    assert result.status == 1 and "--state" in result.err and "something else" in result.err
    kept.write_text('{"of": 1}')
    result = tenure("follow", "j1", "--state", str(kept))
    assert result.status == 1 and "is no file of tenure follow" in result.err


def test_of_a_budget_only_what_happens_from_now_on_is_told(tenure: Run, gateway: Canned) -> None:
    old = job("completed", run(1, "completed", ended_at_ms=NOW - 5), finished_at_ms=NOW - 5)
    old.job_id = "j0"
    fresh = job("running", run(1))
    fresh.job_id = "j3"
    gateway.jobs = [job("running", run(1)), old]
    looks: list[Callable[[], None]] = [
        lambda: None,
        lambda: gateway.jobs.append(fresh),
        lambda: gateway.jobs.remove(gateway.jobs[0]),  # it waits again: no list has it
    ]
    before = gateway.take

    def take(method: str, request: object, context: grpc.ServicerContext) -> None:
        if method == "List":
            if not looks:
                context.abort(grpc.StatusCode.PERMISSION_DENIED, "enough")
            looks.pop(0)()
        before(method, request, context)

    gateway.take = take  # type: ignore[method-assign]
    gateway.job = lambda job_id, context: job("queued", GONE)  # type: ignore[method-assign]
    preempted(gateway)
    result = tenure("follow", "--budget", "science", "--every", "1s", "--json")
    told = [(each["job"], each["event"]) for each in map(json.loads, result.out.splitlines())]
    assert told == [("j3", "started"), ("j1", "preempted"), ("j1", "requeued")]
    asked = gateway.last(jobs_pb2.ListJobsRequest)
    assert asked.budget == "science" and "queued" not in asked.states and result.status == 1


def test_an_unknown_job_is_refused_at_once(tenure: Run, gateway: Canned) -> None:
    result = tenure("follow", "jx")
    assert result.status == 1 and "unknown" in result.err and result.out == ""


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((), 2, "either JOB or --budget"),
        (("j1", "--budget", "a"), 2, "either JOB or --budget"),
        (("j1", "--every", "10ms"), 2, "--every"),
        (tuple(f"j{n}" for n in range(51)), 2, "at most 50 jobs"),
        (("j1", "--webhook", "https://h/x", "--slack", "https://h/x"), 2, "run one command for each"),
        (("j1", "--secret-file", "x"), 2, "give --webhook"),
        (("j1", "--smtp", "smtp://h"), 2, "give --email"),
        (("j1", "--webhook", "ftp://h/secret"), 1, "'ftp' is neither http nor https"),
        (("j1", "--webhook", "file:///etc/passwd"), 1, "no address of a web server"),
        (("j1", "--webhook", "https://u:secret@h/x"), 1, "a user or password in the address"),
        (("j1", "--slack", "https://h:99999/secret"), 1, "no address of a web server"),
        (("j1", "--slack", "@/nowhere/at/all"), 1, "cannot be read"),
        (("j1", "--email", "ana@example.org"), 1, "no mail server is set"),
        (("j1", "--email", "ana"), 1, "no address of mail"),
        (("j1", "--email", "a@b\nBcc: c@d", "--smtp", "smtp://h"), 1, "no address of mail"),
        (("j1", "--email", "a@b", "--smtp", "http://h"), 1, "no address of a mail server"),
        (("j1", "--email", "a@b", "--smtp", "smtp://u:secret@h"), 1, "a password in the address"),
        (("j1", "--email", "a@b", "--smtp", "smtp://u@h"), 1, "go together"),
    ],
)
def test_bad_input_is_refused_before_anything_is_asked(
    tenure: Run, gateway: Canned, arguments: tuple[str, ...], status: int, said: str
) -> None:
    result = tenure("follow", *arguments)
    assert result.status == status and said in result.err and len(result.err.splitlines()) == 1
    assert not gateway.requests and "secret" not in result.err.replace("--secret-file", "")
