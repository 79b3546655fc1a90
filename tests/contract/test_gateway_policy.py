"""The gRPC service Policy: who changes it, what is refused, what is said of it, and the first policy of a log."""

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from services.gateway.policies import reload_policy, write_first
from tenure.domain.ids import JobId
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason, Why
from tenure.domain.rights import Role
from tenure.domain.units import DAY, HOUR, MINUTE
from tenure.events.budgets import JobRejected
from tenure.events.policy import KnobChange, PolicyChanged
from tenure.runtime.options import build_policy
from tenure.v1 import jobs_pb2, policy_pb2, policy_pb2_grpc
from tests.contract.gateway_rig import NOW, LogHistory, Rig, good_job, refused
from tests.contract.test_gateway_identity import People, play_with

GetPolicy, SetPolicy = policy_pb2.GetPolicyRequest, policy_pb2.SetPolicyRequest


@pytest.fixture
def people(tmp_path: Path) -> People:
    return People(tmp_path)


def stub(rig: Rig) -> "policy_pb2_grpc.PolicyAsyncStub":
    found: policy_pb2_grpc.PolicyAsyncStub = policy_pb2_grpc.PolicyStub(rig.channel)  # type: ignore[assignment]
    return found


async def policies(rig: Rig) -> list[PolicyChanged]:
    return [entry.fact for entry in await rig.recorded() if isinstance(entry.fact, PolicyChanged)]


def test_an_admin_changes_it_and_nobody_else(people: People) -> None:
    async def scenario(rig: Rig) -> None:
        request = SetPolicy(values={"lookback": "3d"}, merge=True, comment="exam week")
        for call in (people.called("mia"), people.called("olga", Role.OPERATOR), people.called("vic", Role.VIEWER)):
            await refused(stub(rig).SetPolicy(request, **call), "PERMISSION_DENIED", "change the policy", "set policy")
        assert await policies(rig) == []
        answer = await stub(rig).SetPolicy(request, **people.called("ana", Role.ADMIN))
        assert [(each.name, each.before, each.after) for each in answer.changes] == [("lookback", "7d", "3d")]
        (fact,) = await policies(rig)
        assert (fact.policy, fact.by, fact.comment) == (Policy(lookback_ms=3 * DAY), "ana", "exam week")
        assert fact.changes == (KnobChange(knob="lookback_ms", before=7 * DAY, after=3 * DAY),)
        assert fact.origin is not None
        assert (fact.origin.user, fact.origin.address[:10]) == ("ana", "127.0.0.1:")
        shown = await stub(rig).GetPolicy(GetPolicy(), **people.called("eve"))
        assert {each.name: each.value for each in shown.knobs}["lookback"] == "3d"
        assert (shown.position, shown.by) == (answer.position, "ana")
        again = await stub(rig).SetPolicy(request, **people.called("ana", Role.ADMIN))
        assert (again.position, list(again.changes)) == (answer.position, [])
        history = await stub(rig).PolicyHistory(policy_pb2.PolicyHistoryRequest(), **people.called("eve"))
        assert [(each.by, each.asked_by, each.comment) for each in history.changes] == [("ana", "ana", "exam week")]

    play_with(people, scenario)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"lokback": "1d"}, ["lokback", "did you mean lookback?"]),
        ({"lookback_ms": "1"}, ["lookback_ms", "unknown key"]),
        ({"lookback": "soon"}, ["lookback", "not a duration", "90s"]),
        ({"lookback": "0"}, ["lookback"]),
        ({"ratio_margin": "nan"}, ["ratio_margin", "not a number"]),
        ({"ratio_margin": "101"}, ["ratio_margin", "out of range", "0 to 100"]),
        ({"job_failures": "1.5"}, ["job_failures", "not a number"]),
        ({"heartbeat": "1s"}, ["heartbeat", "cannot change from 5s while the system runs"]),
    ],
)
def test_a_mistake_changes_nothing(people: People, values: dict[str, str], words: list[str]) -> None:
    async def scenario(rig: Rig) -> None:
        request = SetPolicy(values={"grace_max": "1m", **values}, merge=True)
        await refused(stub(rig).SetPolicy(request, **people.called("ana", Role.ADMIN)), "INVALID_ARGUMENT", *words)
        assert await policies(rig) == []

    play_with(people, scenario)


def test_a_whole_policy_resets_what_it_does_not_name_and_says_what_must_stay(people: People) -> None:
    async def scenario(rig: Rig) -> None:
        admin = people.called("ana", Role.ADMIN)
        await stub(rig).SetPolicy(SetPolicy(values={"lookback": "3d", "ratio_margin": "0.5"}, merge=True), **admin)
        answer = await stub(rig).SetPolicy(SetPolicy(values={"lookback": "2d", "heartbeat": "1s"}), **admin)
        assert {each.name: each.after for each in answer.changes} == {"lookback": "2d", "ratio_margin": "0.02"}
        assert len(answer.notes) == 1
        assert answer.notes[0].startswith("heartbeat stays 5s: agents read it when they start")
        outdated = SetPolicy(values={"lookback": "1d"}, merge=True, expected_position=answer.position - 1)
        await refused(stub(rig).SetPolicy(outdated, **admin), "ABORTED", "the policy has changed since")

    play_with(people, scenario)


def test_a_submission_is_checked_by_the_policy_of_now(people: People) -> None:
    async def scenario(rig: Rig) -> None:
        admin = people.called("root", Role.ADMIN)
        assert rig.gateway.policy == Policy()
        await stub(rig).SetPolicy(SetPolicy(values={"queued_per_user": "7"}, merge=True), **admin)
        assert rig.gateway.policy == Policy(queued_per_user=7)

    play_with(people, scenario)


def test_the_story_of_a_job_tells_the_changes_while_it_was_there(people: People) -> None:
    async def scenario(rig: Rig) -> None:
        admin = people.called("root", Role.ADMIN)
        await write_first(rig.gateway, source="tenure.yaml")
        await stub(rig).SetPolicy(SetPolicy(values={"lookback": "1d"}, merge=True), **admin)
        request = jobs_pb2.SubmitRequest(job=good_job(user="", budget="science/bio"))
        job = JobId((await rig.jobs.Submit(request, **admin)).job_id)
        await stub(rig).SetPolicy(SetPolicy(values={"lookback": "2d"}, merge=True, comment="why not"), **admin)
        gone = Why(rule="admission", reason=Reason.REJECT_ADMISSION, numbers={"field": "x", "problem": "y", "fix": "z"})
        await rig.write(JobRejected(at=NOW, job=job, why=gone))
        await stub(rig).SetPolicy(SetPolicy(values={"lookback": "3d"}, merge=True), **admin)
        story = await rig.jobs.Explain(jobs_pb2.ExplainJobRequest(job_id=job), **admin)
        assert [step.kind for step in story.steps] == ["JobSubmitted", "PolicyChanged", "JobRejected"]
        assert story.steps[1].text == "root changed the policy: lookback from 1d to 2d: why not."

    play_with(people, scenario, history_of=LogHistory)


def test_others_in_its_lane_only_delay_a_change(people: People) -> None:
    """The budget role writes there all the time."""

    async def scenario(rig: Rig) -> None:
        admin = people.called("ana", Role.ADMIN)
        await asyncio.gather(
            *(
                stub(rig).SetPolicy(SetPolicy(values={"lookback": f"{number}h"}, merge=True), **admin)
                for number in range(1, 4)
            )
        )
        facts = await policies(rig)
        assert sorted(fact.policy.lookback_ms for fact in facts) == [HOUR, 2 * HOUR, 3 * HOUR]
        for before, after in pairwise(facts):
            assert [change.before for change in after.changes] == [before.policy.lookback_ms]

    play_with(people, scenario)


def test_a_log_gets_its_first_policy_once(people: People) -> None:
    async def scenario(rig: Rig) -> None:
        await write_first(rig.gateway, source="tenure.yaml")
        await write_first(rig.gateway, source="tenure.yaml")
        (first,) = await policies(rig)
        assert (first.policy, first.by) == (Policy(lookback_ms=DAY), "gateway")
        assert first.changes == (KnobChange(knob="lookback_ms", before=7 * DAY, after=DAY),)
        assert first.origin is not None
        assert (first.origin.how, first.origin.address) == ("start", "tenure.yaml")
        await reload_policy(rig.gateway, build_policy({"lookback": "2d", "heartbeat": "9s"}), source="tenure.yaml")
        assert [fact.policy for fact in await policies(rig)] == [first.policy, Policy(lookback_ms=2 * DAY)]

    play_with(people, scenario, policy=Policy(lookback_ms=DAY))


def test_an_own_value_of_a_cluster_stays_when_the_common_one_changes(people: People) -> None:
    """Also one that equals the common value as it is said, and so does taking it away."""

    async def scenario(rig: Rig) -> None:
        async def changed(**values: str) -> list[tuple[str, str, str]]:
            answer = await stub(rig).SetPolicy(SetPolicy(values=values, merge=True), **people.called("ana", Role.ADMIN))
            return [(each.name, each.before, each.after) for each in answer.changes]

        dev, name = "{dev: {grace_max: 10m}}", "clusters.dev.grace_max"
        assert await changed(clusters=dev) == [(name, "10m (as everywhere)", "10m")]
        assert await changed(clusters=dev) == []
        assert await changed(grace_max="20m") == [("grace_max", "10m", "20m")]
        assert rig.gateway.policy.of_cluster("dev").grace_max_ms == 10 * MINUTE
        assert await changed(grace_max="10m") == [("grace_max", "20m", "10m")]
        assert await changed(clusters="{}") == [(name, "10m", "10m (as everywhere)")]
        assert await changed(grace_max="20m") == [("grace_max", "10m", "20m")]
        assert rig.gateway.policy.of_cluster("dev").grace_max_ms == 20 * MINUTE

    play_with(people, scenario)


def test_patience_that_one_late_heartbeat_wears_out_is_told(people: People) -> None:
    async def scenario(rig: Rig) -> None:
        await write_first(rig.gateway, source="tenure.yaml")

        async def told(**values: str) -> list[str]:
            request = SetPolicy(values=values, merge=True)
            return list((await stub(rig).SetPolicy(request, **people.called("ana", Role.ADMIN))).notes)

        assert await told(suspect_after="15s", lost_after="15s") == []
        assert await told(suspect_after="14s") == [
            "suspect_after: 14s is soon: heartbeats come every 5s; give at least 3 of them"
        ]
        assert await told(suspect_after="1m") == ["lost_after: 15s is before suspect_after (1m), and counts as that"]

    play_with(people, scenario)


def test_values_of_a_cluster_without_hosts_are_taken_and_told(people: People, caplog: pytest.LogCaptureFixture) -> None:
    """One file serves a lab whose second cluster is to come, or is not there any more."""
    word = "clusters.tset: no host is in this cluster; did you mean test? known: test"
    tset = "{tset: {min_runtime_cap: 2h}}"

    async def scenario(rig: Rig) -> None:
        await write_first(rig.gateway, source="tenure.yaml")
        assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [word]
        caplog.clear()
        await reload_policy(rig.gateway, build_policy({"clusters": tset, "lookback": "3d"}), source="tenure.yaml")
        assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [word]
        assert rig.gateway.policy.lookback_ms == 3 * DAY
        request = SetPolicy(values={"lookback": "2d", "clusters": tset})
        answer = await stub(rig).SetPolicy(request, **people.called("ana", Role.ADMIN))
        assert list(answer.notes) == [word]
        assert rig.gateway.policy.lookback_ms == 2 * DAY

    play_with(people, scenario, policy=build_policy({"clusters": tset}))


def test_rates_and_own_values_of_a_cluster_are_knobs_like_others(people: People) -> None:
    async def scenario(rig: Rig) -> None:
        admin = people.called("ana", Role.ADMIN)
        values = {"rates": "{B200: 2.5, H10O: 1}", "clusters": "{test: {min_runtime_cap: 2h}}"}
        answer = await stub(rig).SetPolicy(SetPolicy(values=values, merge=True), **admin)
        assert [(each.name, each.before, each.after) for each in answer.changes] == [
            ("rates.B200", "1", "2.5"),
            ("clusters.test.min_runtime_cap", "8h", "2h"),
        ]
        assert list(answer.notes) == [
            "rates.B200: no host has GPUs of this type; known: H100",
            "rates.H10O: no host has GPUs of this type; did you mean H100? known: H100",
        ]
        shown = {each.name: each for each in (await stub(rig).GetPolicy(GetPolicy(), **admin)).knobs}
        assert (shown["rates"].value, shown["rates"].default) == ("{B200: 2.5, H10O: 1}", "{}")
        assert shown["clusters"].value == "{test: {min_runtime_cap: 2h}}"
        (fact,) = await policies(rig)
        assert fact.policy.rates_milli == {"B200": 2_500, "H10O": 1_000}
        for values, word in (
            ({"clusters": "{test: {lookback: 2h}}"}, "unknown key"),
            ({"rates": "{B200: 2.0001}"}, "at most three decimals"),
            ({"rates": "2"}, "write {B200: 2.5, CPU: 0.05}"),
        ):
            await refused(stub(rig).SetPolicy(SetPolicy(values=values, merge=True), **admin), "INVALID_ARGUMENT", word)
        good = good_job(min_runtime_ms=3 * HOUR)
        sent = jobs_pb2.SubmitRequest(job=good)
        await refused(rig.jobs.Submit(sent, **admin), "INVALID_ARGUMENT", "cap of 2h in cluster test")

    play_with(people, scenario)
