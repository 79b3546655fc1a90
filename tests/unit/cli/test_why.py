"""`tenure why`: the answer first, the numbers beside it, the story last; what it says when it cannot."""

import json
import re

import pytest
import typer

from simulator.replay import Sought
from tenure.cli import replay
from tenure.domain.ids import FactId, JobId, Position
from tenure.domain.reasons import JobState, Reason, Why
from tenure.events.fact import Recorded
from tenure.events.placing import JobFinished
from tenure.v1 import jobs_pb2
from tests.unit.cli.canned import NOW, Canned
from tests.unit.cli.conftest import Run

HOUR = 3_600_000


def side(budget: str, ratio: float | None, ahead_h: float) -> jobs_pb2.BudgetSide:
    return jobs_pb2.BudgetSide(budget=budget, ratio=ratio, ahead_gpu_ms=round(ahead_h * HOUR))


def one_of_everything() -> jobs_pb2.StandsBefore:
    """Before the job."""
    sides = jobs_pb2.Sides(own=side("science", 0.91, -30), other=side("robotics", 0.62, -120.4))
    return jobs_pb2.StandsBefore(
        jobs=[
            jobs_pb2.JobBefore(
                job_id="j1",
                name="fold",
                user="ana",
                budget="robotics/arm",
                rank=1,
                gpus=16,
                sides=sides,
                because="lower_ratio",
            )
        ],
        jobs_count=30,
        jobs_gpus=300,
        runs=[
            jobs_pb2.RunBefore(
                run_id="j0.1",
                job_id="j0",
                user="bob",
                budget="science/bio",
                gpus=8,
                state="running",
                protected_until_ms=NOW + HOUR,
                kept="keep_protected",
                sides=jobs_pb2.Sides(own=side("science/chem", 0.9, -3), other=side("science/bio", 1.2, 6)),
            ),
            jobs_pb2.RunBefore(run_id="j5.1", job_id="j5", user="eve", budget="free", gpus=4, state="running"),
            jobs_pb2.RunBefore(run_id="j6.1", gpus=8, kept="keep_ratio_not_lower", drained_at_ms=NOW + HOUR),
        ],
        runs_count=3,
        reservations=[
            jobs_pb2.ReservationBefore(
                job_id="j7", user="kim", budget="x", gpus=64, hosts=8, latest_start_ms=NOW + HOUR
            )
        ],
        reservations_count=1,
        room=[
            jobs_pb2.RoomBefore(
                cluster="c", gpu_type="H100", hosts=4, gpus=32, gpus_free=4, hosts_with_gpus_free=3, largest_hole=2
            )
        ],
        hosts=[jobs_pb2.HostBefore(host="h003", state="draining", gpus=8, since_ms=NOW - HOUR, comment="fan")],
        hosts_count=1,
        standing=[side("science", 0.91, -30), side("science/chem", None, 2)],
    )


@pytest.fixture
def waiting(gateway: Canned) -> jobs_pb2.ExplainJobResponse:
    """A job that waits, with one of everything before it."""
    gateway.explained = jobs_pb2.ExplainJobResponse(
        answer=["It waits for 8 GPUs.", "And \x1b[31mso\non."],
        before=one_of_everything(),
        expected=jobs_pb2.ExpectedStart(earliest_at_ms=NOW + HOUR, earliest_basis="protection", text="Not before."),
        gave_way=[jobs_pb2.GaveWay(run_id="j2.1", by="j1", at_ms=NOW, ran_ms=HOUR, answer=["Run 1 had to go."])],
        forecast=jobs_pb2.StartForecast(p50_at_ms=NOW + HOUR, p90_at_ms=NOW + 2 * HOUR, basis="16 futures"),
        alternatives=[
            jobs_pb2.Alternative(change="4 GPUs instead of 8", field="gpus", value="4", outcome="now"),
            jobs_pb2.Alternative(change="accept A100", field="gpu_type", outcome="at", start_ms=NOW + HOUR),
            jobs_pb2.Alternative(change="no contract", field="min_runtime_ms", outcome="not"),
        ],
    )
    gateway.steps = [jobs_pb2.Step(position=3, at_ms=NOW, kind="JobSubmitted", text="ana submitted it")]
    return gateway.explained


def test_the_answer_comes_first_and_the_story_last(
    tenure: Run, gateway: Canned, waiting: jobs_pb2.ExplainJobResponse
) -> None:
    lines = tenure("why", "j2").out.splitlines()
    assert lines[:2] == ["It waits for 8 GPUs.", "And \\x1b[31mso\\non."]
    titles = [line for line in lines if re.fullmatch(r"[A-Z ]+( \(the first .*\))?", line) and "  " not in line]
    assert titles == [
        "JOBS BEFORE IT (the first 1 of 30)",
        "RUNS ON HOSTS IT COULD USE",
        "PROMISED TO OTHERS",
        "ROOM",
        "HOSTS THAT TAKE NO RUNS",
        "ITS BUDGETS",
        "STORY",
    ]
    assert lines[-1] == "2026-09-21 14:13:20.000  ana submitted it"
    (request,) = (one for one in gateway.requests if isinstance(one, jobs_pb2.ExplainJobRequest))
    assert not request.forecast, "a job that does not wait has none"


def test_no_ratio_stands_without_its_hours(tenure: Run, waiting: jobs_pb2.ExplainJobResponse) -> None:
    out = tenure("why", "j2").out
    assert "robotics 0.62, 120.4 h behind" in out and "science 0.91, 30.0 h behind" in out
    assert "science/bio 1.20, 6.00 h ahead" in out
    standing = [line.split() for line in out.splitlines() if line.startswith("science")]
    assert ["science", "0.91", "30.0", "h", "behind", "0.00", "0.00"] in standing
    assert ["science/chem", "-", "2.00", "h", "ahead", "0.00", "0.00"] in standing


def test_runs_say_what_keeps_them(tenure: Run, waiting: jobs_pb2.ExplainJobResponse) -> None:
    lines = tenure("why", "j2").out.splitlines()
    (kept,) = (line for line in lines if line.startswith("j0.1"))
    (going,) = (line for line in lines if line.startswith("j5.1"))
    (drained,) = (line for line in lines if line.startswith("j6.1"))
    assert "drain: until" in drained
    assert kept.split()[-1] == "protected" and going.endswith("gives way")


def test_what_was_simulated_comes_after_what_is_known(
    tenure: Run, gateway: Canned, waiting: jobs_pb2.ExplainJobResponse
) -> None:
    gateway.jobs = [jobs_pb2.Job(job_id="j2", state="queued")]
    lines = tenure("why", "j2").out.splitlines()
    assert [one.forecast for one in gateway.requests if isinstance(one, jobs_pb2.ExplainJobRequest)] == [False, True]
    at = lines.index("FORECAST")
    assert lines[at - 2] == "2026-09-21 14:13:20.000  ana submitted it"
    assert lines[at + 1].startswith("Simulated forward, it has started by ")
    assert lines[at + 1].endswith("nine of ten: 16 futures.")
    at = lines.index("WHAT WOULD CHANGE IT")
    assert [line.split("  ")[0] for line in lines[at + 2 : at + 5]] == [
        "4 GPUs instead of 8",
        "accept A100",
        "no contract",
    ]
    assert lines[at + 2].endswith("  now") and lines[at + 4].endswith("  no sooner")
    waiting.forecast.Clear()
    waiting.forecast.basis = "16 futures"
    assert "it starts later than was looked in most futures: 16 futures." in tenure("why", "j2").out
    assert "could not be looked at" not in tenure("why", "j2").out
    del waiting.alternatives[:]
    waiting.alternatives_trouble = "no forecast is available: none came within 2 s"
    out = tenure("why", "j2").out
    assert "What would change it could not be looked at: no forecast is available: none came within 2 s." in out
    assert tenure("why", "j2", "--json").json()["alternatives_trouble"] == waiting.alternatives_trouble


def test_json_has_every_field(tenure: Run, waiting: jobs_pb2.ExplainJobResponse) -> None:
    document = tenure("why", "j2", "--json").json()
    assert document["answer"][0] == "It waits for 8 GPUs." and document["steps"][0]["kind"] == "JobSubmitted"
    before = document["before"]
    assert before["jobs"][0]["sides"]["other"] == {
        "budget": "robotics",
        "ratio": 0.62,
        "ahead_gpu_ms": round(-120.4 * HOUR),
        "used_gpu_ms": 0,
        "entitlement_gpu_ms": 0,
    }
    assert (before["jobs_count"], before["jobs"][0]["because"]) == (30, "lower_ratio")
    assert [run["drained_at_ms"] for run in before["runs"]] == [None, None, NOW + HOUR]
    assert before["runs"][1]["kept"] is None and before["runs"][1]["sides"] is None
    assert before["reservations"][0]["latest_start_ms"] == NOW + HOUR
    assert (before["room"][0]["largest_hole"], before["hosts"][0]["comment"]) == (2, "fan")
    assert before["standing"][1]["ratio"] is None
    assert document["expected"]["earliest_basis"] == "protection" and document["expected"]["latest_at"] is None
    assert document["gave_way"][0]["answer"] == ["Run 1 had to go."]
    assert document["alternatives"][0]["outcome"] == "now"
    assert document["forecast"]["p90_at_ms"] == NOW + 2 * HOUR and document["rejection"] is None


def test_the_log_s_options_are_for_the_replay(tenure: Run, gateway: Canned) -> None:
    result = tenure("why", "j2", "--nats", "nats://h:4222")
    assert result.status == 2 and "only --replay reads the log itself" in result.err


def test_a_replay_asks_where_the_log_is_when_it_is_elsewhere(
    tenure: Run, gateway: Canned, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    result = tenure("why", "j2", "--replay")
    assert result.status == 1 and "--nats" in result.err and len(result.err.splitlines()) == 1


def test_a_replay_says_when_the_log_s_server_is_away(tenure: Run, gateway: Canned) -> None:
    result = tenure("why", "j2", "--replay", "--nats", "nats://127.0.0.1:1")
    assert result.status == 1 and "127.0.0.1:1" in result.err and len(result.err.splitlines()) == 1


def test_a_replay_names_what_it_cannot_decide_again(capsys: pytest.CaptureFixture[str]) -> None:
    """The ids of these facts are no role's: the one is of a fact that was imported, the other has none."""
    why = Why(rule="P10", reason=Reason.END_COMPLETED)
    sought = Sought(JobId("j1"))
    for position, name in enumerate(("imported-1", "")):
        fact = JobFinished(at=NOW, id=FactId(name), job=JobId("j1"), state=JobState.COMPLETED, why=why)
        sought.look(Recorded(Position(position), fact))
    for as_json in (False, True):
        with pytest.raises(typer.Exit) as end:
            replay.report(sought, [], as_json=as_json)
        told = capsys.readouterr()
        assert end.value.exit_code == 1 and "2 of 2 facts about j1 cannot be decided again" in told.err
        assert "the same" not in told.out
    document = json.loads(told.out)
    assert (document["same"], document["left_out"], document["decisions"]) == (False, 2, [])
