"""`queue`, `job`, `why`, `cancel`, `logs`: what people and programs read of a job."""

import grpc
import pytest

from tenure.v1 import budgets_pb2, jobs_pb2
from tests.unit.cli.canned import NOW, Canned
from tests.unit.cli.conftest import Run


def spec(**changes: object) -> jobs_pb2.JobSpec:
    fields: dict[str, object] = {
        "budget": "science/chem",
        "user": "ana",
        "replicas": 4,
        "gpus_per_replica": 8,
        "min_runtime_ms": 900_000,
        "resumable": True,
        "command": ["echo", "a b"],
    }
    return jobs_pb2.JobSpec(**{**fields, **changes})


def running() -> jobs_pb2.Job:
    run = jobs_pb2.Run(
        run_id="j1.1",
        number=1,
        state="running",
        started_at_ms=NOW - 60_000,
        protected_until_ms=NOW + 840_000,
        hosts=[jobs_pb2.HostGpus(host="h000", gpus=[0, 1])],
    )
    return jobs_pb2.Job(job_id="j1", state="running", spec=spec(name="fold"), submitted_at_ms=NOW - 90_000, runs=[run])


def queued() -> jobs_pb2.Job:
    why = jobs_pb2.Why(rule="P6", reason="defer_no_room", numbers={"gpus_wanted": "8", "gpus_free": "2"})
    return jobs_pb2.Job(
        job_id="j2",
        state="queued",
        spec=spec(replicas=1, min_runtime_ms=0, resumable=False),
        submitted_at_ms=NOW - 30_000,
        rank=1,
        latest_start_ms=NOW + 3_600_000,
        why=why,
    )


@pytest.fixture
def two(gateway: Canned) -> Canned:
    gateway.jobs = [running(), queued()]
    gateway.budgets = [
        budgets_pb2.Budget(path="science/chem", charged_gpu_ms=30, commitment_gpu_ms=20, entitlement_gpu_ms=100)
    ]
    gateway.cluster = jobs_pb2.ClusterSummary(gpus=64, gpus_available=56, gpus_allocated=32, gpus_free=24, now_ms=NOW)
    return gateway


def test_the_queue_shows_when_a_job_will_probably_start(
    tenure: Run, two: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert "START" not in tenure("queue").out.replace("LATEST START", ""), "there is no forecast"
    two.jobs[1].forecast_start_p50_ms, two.jobs[1].forecast_start_p90_ms = NOW + 60_000, NOW + 7_200_000
    two.jobs[1].forecast_basis = "followed"
    head, running_, queued_ = tenure("queue").out.splitlines()[1:4]
    assert "START P50" in head and "START P90" in head and head.endswith("WHY")
    assert running_.split().count("-") == 4, "rank, latest start, and no forecast of a job that runs"
    assert "14:14:20" in queued_ and "16:13:20" in queued_
    two.forecast = jobs_pb2.ForecastSummary(trouble="it is being worked out")
    assert tenure("queue").out.splitlines()[-1] == "No expected starts: it is being worked out."
    shown = tenure("job", "j2").out
    assert "Start, p50" in shown and "Start, p90" in shown
    document = tenure("queue", "--json").json()["jobs"][1]
    assert document["forecast_start_p50_ms"] == NOW + 60_000 and document["forecast_basis"] == "followed"


def test_the_queue_shows_place_reason_and_ratio(tenure: Run, two: Canned) -> None:
    lines = tenure("queue").out.splitlines()
    assert lines[0].startswith("64 GPUs, 8 unavailable, 32 allocated, 0 unallocated, 24 free | jobs: 1 queued, 1 run")
    assert lines[2].split() == [
        *("j1", "running", "-", "science/chem", "ana", "fold", "4x8", "15m", "resumable", "1m", "0.50"),
        *("0.00", "h", "behind", "-"),
        *("protected", "until", "14:27:20"),
    ]
    assert lines[3].split()[:9] == ["j2", "queued", "1", "science/chem", "ana", "-", "8", "unallocated", "30s"]
    assert "no room (P6)" in lines[3] and "\x1b" not in "".join(lines)


def test_the_queue_leaves_out_what_is_over_unless_asked(tenure: Run, two: Canned) -> None:
    two.jobs.append(jobs_pb2.Job(job_id="j0", state="completed", spec=spec(), finished_at_ms=NOW))
    assert "j0" not in tenure("queue").out
    assert "j0" in tenure("queue", "--all").out


def test_an_empty_queue_says_so(tenure: Run) -> None:
    assert tenure("queue").out.splitlines()[-1] == "Nothing runs and nothing waits."


def test_the_filters_reach_the_gateway(tenure: Run, gateway: Canned) -> None:
    tenure("queue", "--budget", "science", "--user", "ana", "--state", "queued", "--state", "running", "--limit", "7")
    request = gateway.last(jobs_pb2.ListJobsRequest)
    assert (request.budget, request.user, list(request.states), request.limit) == (
        "science",
        "ana",
        ["queued", "running"],
        7,
    )


def test_the_queue_as_json_is_raw_with_iso_times(tenure: Run, two: Canned) -> None:
    document = tenure("queue", "--json").json()
    assert document["cluster"]["gpus_free"] == 24
    assert document["now"] == "2026-09-21T14:13:20.000Z" and document["now_ms"] == NOW
    job = document["jobs"][1]
    assert job["job"] == "j2" and job["gpus"] == 8 and job["min_runtime_ms"] == 0 and job["budget_ratio"] == 0.5
    assert job["latest_start_ms"] == NOW + 3_600_000
    assert job["why"] == {"rule": "P6", "reason": "defer_no_room", "numbers": {"gpus_free": 2, "gpus_wanted": 8}}
    assert job["first_started_at"] is None and job["first_started_at_ms"] is None


def test_a_job_is_shown_with_its_runs(tenure: Run, two: Canned) -> None:
    out = tenure("job", "j1").out
    assert out.startswith("j1  running\n")
    assert "Command       echo 'a b'" in out and "GPUs          4x8" in out
    assert out.splitlines()[-1].split()[:2] == ["j1.1", "running"] and "h000:0,1" in out


def test_a_job_tells_the_topology_it_asked_for(tenure: Run, two: Canned) -> None:
    assert "Topology" not in tenure("job", "j1").out and tenure("job", "j1", "--json").json()["topology"] == "any"
    next(job for job in two.jobs if job.job_id == "j1").spec.topology = "one-block"
    assert "Topology      one-block" in tenure("job", "j1").out
    assert tenure("job", "j1", "--json").json()["topology"] == "one-block"


def test_a_job_tells_the_hosts_it_named(tenure: Run, two: Canned) -> None:
    assert "Only on" not in tenure("job", "j1").out and tenure("job", "j1", "--json").json()["hosts"] == []
    spec = next(job for job in two.jobs if job.job_id == "j1").spec
    spec.hosts.extend(["h000", "h001"])
    spec.hosts_excluded.append("h007")
    out, document = tenure("job", "j1").out, tenure("job", "j1", "--json").json()
    assert "Only on       h000, h001" in out and "Not on        h007" in out
    assert (document["hosts"], document["hosts_excluded"]) == (["h000", "h001"], ["h007"])


def test_a_job_as_json_has_the_run_s_hosts(tenure: Run, two: Canned) -> None:
    document = tenure("job", "j1", "--json").json()
    assert document["runs"][0]["hosts"] == {"h000": [0, 1]} and document["runs"][0]["exit_code"] is None


def test_an_unknown_job_is_refused_in_one_line(tenure: Run) -> None:
    result = tenure("job", "nope")
    assert (result.status, result.out) == (1, "")
    assert result.err == "tenure: job: 'nope' is unknown; see tenure queue --all\n"


def test_watching_prints_each_state_once(tenure: Run, gateway: Canned) -> None:
    gateway.jobs = [jobs_pb2.Job(job_id="j1", state="failed", spec=spec())]
    result = tenure("job", "j1", "--watch")
    assert result.status == 1
    assert [line.split()[2] for line in result.out.splitlines()] == ["queued", "running", "failed"]


def test_why_tells_of_many_victims_in_few_lines(tenure: Run, gateway: Canned) -> None:
    victims = [
        jobs_pb2.Step(at_ms=NOW, kind="RunPreemptionRequested", text=f"victim {n}", fact_json=f'{{"job": "v{n}"}}')
        for n in range(9)
    ]
    gateway.steps = [*victims, jobs_pb2.Step(at_ms=NOW, kind="RunAssigned", text="started", fact_json='{"job": "j1"}')]
    lines = tenure("why", "j1").out.splitlines()
    assert [line.split("  ")[-1] for line in lines[:2]] == ["victim 0", "victim 1"]
    assert "7 more like this" in lines[2] and lines[3].endswith("started") and len(lines) == 4
    assert len(tenure("why", "j1", "--all").out.splitlines()) == 10
    assert len(tenure("why", "j1", "--json").json()["steps"]) == 10


def test_why_tells_each_step_with_rule_reason_and_numbers(tenure: Run, gateway: Canned) -> None:
    numbers = {"ratio": "0.42", "held_gpu_ms": "7200000", "waited_ms": "90000"}
    gateway.steps = [
        jobs_pb2.Step(position=3, at_ms=NOW + 7, kind="JobSubmitted", text="ana submitted it"),
        jobs_pb2.Step(
            position=9,
            at_ms=NOW + 1500,
            kind="RunAssigned",
            text="run 1 got h000",
            why=jobs_pb2.Why(rule="P4", reason="start_in_order", numbers=numbers),
            fact_json='{"type": "RunAssigned"}',
        ),
    ]
    assert tenure("why", "j1").out.splitlines() == [
        "2026-09-21 14:13:20.007  ana submitted it",
        "2026-09-21 14:13:21.500  run 1 got h000",
        " " * 25 + "P4 in order: held_gpu_ms 2.0 GPU-h, ratio 0.42, waited_ms 1m30s",
    ]
    document = tenure("why", "j1", "--json").json()
    assert document["steps"][1]["why"]["numbers"] == {"held_gpu_ms": 7200000, "ratio": 0.42, "waited_ms": 90000}
    assert document["steps"][1]["fact"] == {"type": "RunAssigned"} and document["position"] == 77


def test_names_from_outside_cannot_command_the_terminal(tenure: Run, gateway: Canned) -> None:
    gateway.steps = [jobs_pb2.Step(at_ms=NOW, text="[red]a[/red] \x1b[31mb\nc")]
    assert tenure("why", "j1").out == "2026-09-21 14:13:20.000  [red]a[/red] \\x1b[31mb\\nc\n"


def test_cancelling_goes_on_after_a_refusal(tenure: Run, two: Canned) -> None:
    result = tenure("cancel", "j1", "nope", "j2")
    assert result.status == 1
    assert result.out == "j1 running\nj2 queued\n"
    assert result.err.startswith("tenure: job: 'nope'") and len(result.err.splitlines()) == 1


def test_logs_are_the_bytes_the_job_wrote(tenure: Run, gateway: Canned) -> None:
    gateway.output = ["épochs\n".encode(), b"\x1b[1mdone", b"\r\n"]
    result = tenure("logs", "j1", "--replica", "2", "--run", "3", "--stderr", "--follow", "--tail", "99")
    assert result.out == "épochs\n\x1b[1mdone\r\n"
    request = gateway.last(jobs_pb2.JobLogsRequest)
    assert (request.replica, request.run, request.stream, request.follow) == (2, 3, "stderr", True)
    assert request.tail_bytes == 99


def test_logs_carry_on_where_a_broken_connection_left_off(tenure: Run, gateway: Canned) -> None:
    gateway.output = [b"one\n", b"two\n", b"three\n"]
    gateway.drop_after = 1
    assert tenure("logs", "j1", "--follow").out == "one\ntwo\nthree\n"
    assert [request.offset for request in gateway.requests if isinstance(request, jobs_pb2.JobLogsRequest)] == [0, 4]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (grpc.StatusCode.INTERNAL, "failed (INTERNAL): boom; its log says more"),
        (grpc.StatusCode.UNIMPLEMENTED, "does not know this call: is it an older version?"),
        (grpc.StatusCode.PERMISSION_DENIED, "tenure: boom"),
    ],
)
def test_trouble_in_the_gateway_is_one_line(tenure: Run, gateway: Canned, code: grpc.StatusCode, said: str) -> None:
    gateway.refusals["Explain"] = (code, "boom")
    result = tenure("why", "j1")
    assert result.status == 1 and said in result.err and len(result.err.splitlines()) == 1
