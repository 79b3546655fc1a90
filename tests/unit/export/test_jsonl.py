"""The log as `events.jsonl`: the schema that readers outside this repository rely on."""

import json
from typing import Any

from tenure.domain.host import HostState
from tenure.domain.ids import BudgetPath, HostId, JobId, RunId, UserName
from tenure.domain.job import Launch, ReplicaPlace
from tenure.domain.policy import Policy
from tenure.domain.reasons import EndCause, JobState
from tenure.domain.units import HOUR, SECOND
from tenure.events.budgets import JobRejected
from tenure.events.intake import JobCancelRequested
from tenure.events.placing import JobRequeued, RunAssigned
from tenure.events.policy import KnobChange, PolicyChanged
from tenure.export.jsonl import EXPORTED, blocks, lines
from tests.unit.journal.facts import T0, WHY, Story

REASON = {"rule": "P4", "reason": "start_in_order", "numbers": {"rank": 1}}


def told(story: Story, *types: str, origin_ms: int | None = T0) -> list[dict[str, Any]]:
    """The lines of these types."""
    everything = [json.loads(line) for line in lines(story.recorded, origin_ms=origin_ms)]
    return [line for line in everything if line["type"] in types]


def test_a_job_from_submission_to_its_end() -> None:
    story = Story()
    story.capacity("h000", T0, 8)
    story.submitted("j1", T0 + 1_500)
    story.admitted("j1", T0 + 1_500, gpus=2)
    story.started("j1.1", T0 + 2 * SECOND)
    story.ended("j1.1", T0 + 62 * SECOND)
    story.finished("j1", T0 + 62 * SECOND)
    everything = [json.loads(line) for line in lines(story.recorded, origin_ms=T0)]
    assert everything == [
        {"t": 0, "type": "origin", "epoch_ms": T0},
        {"t": 0, "type": "capacity", "host": "h000", "gpus": 8, "gpu_type": "H100"},
        {
            "t": 1.5,
            "type": "job_submitted",
            "job": "j1",
            "budget": "science/chem",
            "user": "ana",
            "replicas": 1,
            "gpus_per_replica": 2,
            "min_runtime_s": 3600,
            "resumable": False,
            "priority": 0,
            "gpu_type": None,
        },
        {
            "t": 2,
            "type": "run_started",
            "job": "j1",
            "run": "j1.1",
            "hosts": {"h0": [0, 1]},
            "charged": True,
            "protected_until": 3602,
        },
        {
            "t": 62,
            "type": "run_ended",
            "job": "j1",
            "run": "j1.1",
            "cause": "completed",
            "by": None,
            "reason": REASON,
            "refunded_gpu_s": 0,
        },
        {"t": 62, "type": "job_finished", "job": "j1", "state": "completed", "reason": REASON},
    ]


def test_what_a_host_fault_refunds_is_told_with_the_end() -> None:
    story = Story()
    story.started("j1.1", T0)
    story.ended("j1.1", T0 + 10 * SECOND, EndCause.HOST_LOST, by="h0")
    story.started("j2.1", T0 + 11 * SECOND)
    story.charged("j1.1", T0 + 12 * SECOND, refunded=2_500, since=T0, until=T0 + 10 * SECOND)
    [ended] = told(story, "run_ended")
    assert (ended["cause"], ended["by"], ended["refunded_gpu_s"], ended["t"]) == ("host_lost", "h0", 2.5, 10)
    assert [line["type"] for line in told(story, "run_started", "run_ended")] == [
        "run_started",
        "run_ended",
        "run_started",
    ]


def test_a_fact_that_came_late_stands_at_its_instant() -> None:
    story = Story()
    story.started("j1.1", T0 + SECOND)
    story.capacity("h1", T0 + HOUR, 8)
    story.ended("j1.1", T0 + 5 * SECOND)
    assert [line["t"] for line in told(story, "run_started", "capacity", "run_ended")] == [1, 5, 3600]


def test_facts_of_one_instant_keep_the_order_of_the_log() -> None:
    story = Story()
    story.started("j1.1", T0)
    for number in range(2, 6):
        story.ended(f"j1.{number - 1}", T0 + 5)
        story.started(f"j1.{number}", T0 + 5)
    kinds = [line["type"] for line in told(story, "run_started", "run_ended")]
    assert kinds == ["run_started"] + ["run_ended", "run_started"] * 4


def test_the_earliest_instant_is_the_origin_unless_one_is_given() -> None:
    story = Story()
    story.capacity("h0", T0 + 7_000, 8)
    story.capacity("h1", T0 + 5_000, 8)
    assert [line["t"] for line in told(story, "origin", "capacity", origin_ms=None)] == [0, 0, 2]
    assert told(story, "origin", origin_ms=None)[0]["epoch_ms"] == T0 + 5_000
    assert [line["t"] for line in told(story, "capacity")] == [5, 7]


def test_an_empty_log_is_an_origin_alone() -> None:
    assert [json.loads(line) for line in lines([])] == [{"t": 0, "type": "origin", "epoch_ms": 0}]


def test_a_rejected_job_never_was_in_the_system() -> None:
    story = Story()
    story.submitted("j1", T0)
    story.submitted("j2", T0)
    story.say(JobRejected(at=T0 + SECOND, job=JobId("j1"), why=WHY))
    assert [(line["type"], line["job"]) for line in told(story, "job_submitted", "job_rejected")] == [
        ("job_rejected", "j1"),
        ("job_submitted", "j2"),
    ], "j2 was accepted and is still to be looked at"


def test_a_run_that_never_started_is_told_apart() -> None:
    story = Story()
    placement = (
        ReplicaPlace(replica=0, host=HostId("h1"), gpus=(0, 1)),
        ReplicaPlace(replica=1, host=HostId("h1"), gpus=(2, 3)),
    )
    story.say(
        RunAssigned(
            at=T0,
            run=RunId("j1.1"),
            job=JobId("j1"),
            number=1,
            budget=BudgetPath("a"),
            user=UserName("u"),
            placement=placement,
            launch=Launch(command=("true",)),
            min_runtime_ms=0,
            resumable=True,
            grace_ms=0,
            resume_count=0,
            master_address="h1",
            master_port=1,
            why=WHY,
        )
    )
    story.ended("j1.1", T0 + SECOND, EndCause.CANCELLED)
    [assigned] = told(story, "run_assigned")
    assert assigned["hosts"] == {"h1": [0, 1, 2, 3]} and assigned["charged"] is False
    assert told(story, "run_ended") == [] and told(story, "run_not_started")[0]["cause"] == "cancelled"


def test_the_further_types() -> None:
    story = Story()
    story.tree(T0, science=50, science__chem=40)
    story.host("h0", T0, HostState.DRAINING)
    story.preempted("j1.1", T0, by="j2")
    story.say(JobCancelRequested(at=T0, job=JobId("j1"), by=UserName("ana")))
    story.say(JobRequeued(at=T0, job=JobId("j1"), run=RunId("j1.1"), submitted_at=T0 - HOUR, resume_count=1, why=WHY))
    story.finished("j1", T0, JobState.CANCELLED)
    kinds = ("budget_tree", "host_state", "preemption_requested", "cancel_requested", "job_requeued", "job_finished")
    found = told(story, *kinds)
    assert [line["type"] for line in found] == list(kinds)
    assert found[0]["shares"] == {"science": 0.5, "science/chem": 0.4}
    assert (found[1]["state"], found[2]["by"], found[5]["state"]) == ("draining", "j2", "cancelled")


def test_a_changed_policy_names_each_knob_with_what_it_was() -> None:
    story = Story()
    changes = (
        KnobChange(knob="lookback_ms", before=2 * HOUR, after=HOUR + SECOND // 2),
        KnobChange(knob="ratio_margin", before=0.02, after=0.5),
    )
    story.say(PolicyChanged(at=T0 + SECOND, policy=Policy(), changes=changes, by=UserName("ana"), comment="exams"))
    (line,) = told(story, "policy_changed")
    assert (line["t"], line["by"], line["comment"]) == (1, "ana", "exams")
    assert line["knobs"] == {"lookback": [7200, 3600.5], "ratio_margin": [0.02, 0.5]}


def test_kinds_that_are_no_lines_change_nothing() -> None:
    story = Story()
    story.capacity("h0", T0, 8)
    story.held("j1.1", T0, T0 + 5)
    story.ended("j1.1", T0 + 5)
    everything = list(lines(story.recorded))
    assert everything == list(lines([r for r in story.recorded if type(r.fact) in EXPORTED]))


def test_blocks_are_the_same_lines() -> None:
    story = Story()
    for number in range(1_500):
        story.capacity(f"h{number}", T0 + number, 8)
    everything = [line + b"\n" for line in lines(story.recorded)]
    assert b"".join(blocks(story.recorded)) == b"".join(everything)
    assert list(blocks([])) == [b'{"t":0,"type":"origin","epoch_ms":0}\n']
