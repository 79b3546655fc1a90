"""`Explain` of a job that waits, through a real gateway: what stands before it, when it can start, who may ask."""

from pathlib import Path

import pytest

from tenure.domain.ids import JobId
from tenure.domain.reasons import Reason, Why
from tenure.domain.rights import Role
from tenure.events.budgets import JobAdmitted, JobRejected
from tenure.events.placing import RunPreemptionRequested, RunStarted
from tenure.events.ranking import RankingPublished, Standing
from tenure.v1 import jobs_pb2
from tests.contract.conftest import LogUnderTest, MemoryUnderTest
from tests.contract.gateway_rig import NOW, LogHistory, Rig, assigned, good_job, place, play, refused
from tests.contract.test_gateway_identity import NO_OS_USERS, People

HOUR = 3_600_000


def standing(path: str, used: int, entitled: int) -> Standing:
    return Standing(path=path, charged_gpu_ms=used, commitment_gpu_ms=0, entitlement_gpu_ms=entitled)


async def admitted(rig: Rig, **fields: object) -> str:
    job = await rig.submit(**fields)
    spec = rig.loop.state.jobs[JobId(job)].spec
    await rig.write(JobAdmitted(at=NOW, job=JobId(job), spec=spec, submitted_at=NOW))
    return job


async def running(rig: Rig, *hosts: str, budget: str, protected_until: int) -> str:
    job = await admitted(rig, budget=budget, replicas=len(hosts))
    fact = assigned(rig.loop.state, job, place(*hosts))
    start = RunStarted(at=NOW, run=fact.run, job=fact.job, protected_until=protected_until, charged=True, hosts={})
    await rig.write(fact, start)
    return job


async def ranked(rig: Rig, *jobs: str) -> None:
    standings = (
        standing("robotics", 5 * HOUR, 4 * HOUR),
        standing("science", 3 * HOUR, 6 * HOUR),
        standing("science/bio", 1 * HOUR, 3 * HOUR),
        standing("science/chem", 2 * HOUR, 3 * HOUR),
    )
    await rig.write(RankingPublished(at=NOW, order=tuple(map(JobId, jobs)), standings=standings, basis=0))


async def explain(rig: Rig, job: str) -> jobs_pb2.ExplainJobResponse:
    return await rig.jobs.Explain(jobs_pb2.ExplainJobRequest(job_id=job))


def test_what_stands_before_a_job_is_told_by_name_with_both_sides(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        now = rig.gateway.now()
        soon = await running(rig, "h000", budget="robotics", protected_until=now + HOUR)
        kept = await running(rig, "h001", "h002", budget="science/bio", protected_until=now - HOUR)
        first = await admitted(rig, budget="science/bio", name="fold")
        asked = await admitted(rig, replicas=2)
        await ranked(rig, first, asked)
        answer = await explain(rig, asked)
        (job,) = answer.before.jobs
        assert (job.job_id, job.name, job.rank, job.gpus, job.because) == (first, "fold", 1, 8, "lower_ratio")
        assert (job.sides.other.budget, job.sides.own.budget) == ("science/bio", "science/chem")
        assert (job.sides.other.ahead_gpu_ms, job.sides.own.ahead_gpu_ms) == (-2 * HOUR, -HOUR)
        told = {run.job_id: run for run in answer.before.runs}
        assert (told[soon].kept, told[soon].sides.own.budget) == ("keep_protected", "science")
        assert (told[kept].kept, told[kept].gpus) == ("keep_ratio_not_lower", 16)
        assert told[kept].sides.other.ratio == pytest.approx(1 / 3)
        assert answer.before.runs_gpus == 24 and answer.before.jobs_gpus == 8
        assert [side.budget for side in answer.before.standing] == ["science", "science/chem"]
        assert (answer.expected.earliest_at_ms, answer.expected.earliest_basis) == (now + HOUR, "protection")
        said = " ".join(answer.answer)
        assert "science/bio has had 0.33 of its share (2.0 GPU-hours behind)" in said
        assert f"the protection of {soon}.1 ends" in said

    play(log_under_test, scenario, history_of=LogHistory)


def test_who_gave_way_is_told_the_hours_of_that_time(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        victim = await running(rig, "h000", budget="robotics", protected_until=NOW)
        asker = await admitted(rig)
        await ranked(rig, asker)
        numbers = {
            "level": "science",
            "ratio": 0.5,
            "victim_level": "robotics",
            "victim_ratio": 1.25,
            "margin": 0.02,
            "protected_until_ms": NOW,
        }
        why = Why(rule="P5", reason=Reason.DISRUPT_LOWER_RATIO, numbers=numbers)
        gone = RunPreemptionRequested(
            at=NOW, run=f"{victim}.1", job=victim, by=asker, why=why, escrow=place("h000"), deadline=NOW + HOUR
        )
        await rig.write(gone)
        later = (standing("robotics", 8 * HOUR, 4 * HOUR), standing("science", 6 * HOUR, 6 * HOUR))
        await rig.write(RankingPublished(at=NOW, order=(), standings=later, basis=0))
        answer = await explain(rig, victim)
        (gave_way,) = answer.gave_way
        assert (gave_way.by, gave_way.by_budget, gave_way.by_user) == (asker, "science/chem", "ana")
        assert (gave_way.sides.own.budget, gave_way.sides.own.ahead_gpu_ms) == ("robotics", HOUR)
        assert (gave_way.sides.other.budget, gave_way.sides.other.ahead_gpu_ms) == ("science", -3 * HOUR)
        told = answer.steps[-1]
        assert "science has had 0.50 of its share (3.0 GPU-hours behind)" in told.text
        assert "robotics has had 1.25 (1.0 GPU-hours ahead; margin 0.02)" in told.text
        assert told.why.numbers["victim_ahead_gpu_ms"] == str(HOUR)
        assert "ahead" not in told.fact_json, "the fact stays as it was written"

    play(log_under_test, scenario, history_of=LogHistory)


def test_a_rejection_has_its_arithmetic_and_a_job_without_an_answer_says_so() -> None:
    async def scenario(rig: Rig) -> None:
        job = await rig.submit()
        assert (await explain(rig, job)).answer == [
            "It was submitted and is not in the queue yet: the budget role has not answered."
        ]
        numbers = {"field": "replicas", "problem": "9 x 8 GPUs do not fit", "fix": "ask for at most 4"}
        why = Why(rule="P6", reason=Reason.REJECT_ADMISSION, numbers=numbers)
        await rig.write(JobRejected(at=NOW, job=JobId(job), why=why))
        answer = await explain(rig, job)
        assert (answer.rejection.field, answer.rejection.problem) == ("replicas", "9 x 8 GPUs do not fit")
        assert answer.answer[-1] == "What would be accepted: ask for at most 4."
        assert not answer.HasField("before") and not answer.HasField("expected")

    play(MemoryUnderTest(), scenario, history_of=LogHistory)


def test_who_may_not_look_is_told_which_right_is_missing(tmp_path: Path) -> None:
    people = People(tmp_path)

    async def scenario(rig: Rig) -> None:
        request = jobs_pb2.SubmitRequest(job=good_job(user="", environment={"KEY": "s3cr3t"}))
        job = (await rig.jobs.Submit(request, **people.called("ana"))).job_id
        question = jobs_pb2.ExplainJobRequest(job_id=job)
        agent = people.called("agnes", Role.AGENT)
        await refused(rig.jobs.Explain(question, **agent), "PERMISSION_DENIED", "agnes", "look")
        other = await rig.jobs.Explain(question, **people.called("eve"))
        assert other.answer and "s3cr3t" not in str(other) and "(hidden)" in other.steps[0].fact_json
        unknown = jobs_pb2.ExplainJobRequest(job_id="nope")
        await refused(rig.jobs.Explain(unknown, **people.called("eve")), "NOT_FOUND", "job_id", "nope")

    play(MemoryUnderTest(), scenario, identity=NO_OS_USERS, local_key=people.key, history_of=LogHistory)
