"""What people ask the gateway to write: submissions, cancels, edits of the tree, drains. Over a real channel."""

import asyncio
from collections.abc import Sequence

import pytest
from google.rpc import error_details_pb2, status_pb2

from tenure.domain.host import HostSpec
from tenure.domain.ids import FactId, HostId, JobId, UserName
from tenure.domain.job import Topology
from tenure.domain.job_id import is_job_id
from tenure.domain.reasons import JobState
from tenure.domain.refusal import Refusal
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted
from tenure.events.fact import Fact
from tenure.events.intake import DrainRequested, JobCancelRequested, JobSubmitted, ResumeRequested
from tenure.events.placing import JobFinished
from tenure.events.reports import HostRegistered
from tenure.log.memory import MemoryLog
from tenure.log.port import Appended, Expect, LogFull, Unavailable
from tenure.v1 import budgets_pb2, hosts_pb2, jobs_pb2
from tests.contract.conftest import LogUnderTest, MemoryUnderTest
from tests.contract.gateway_rig import NOW, WHY, Rig, good_job, play, refused, running, tree

HUGE = 2**62


def submit(rig: Rig, *, key: str = "", **fields: object) -> "asyncio.Future[jobs_pb2.SubmitResponse]":
    request = jobs_pb2.SubmitRequest(job=good_job(**fields), idempotency_key=key)
    return asyncio.ensure_future(rig.jobs.Submit(request))


def batch(rig: Rig, count: int, *, key: str = "", **fields: object) -> "asyncio.Future[jobs_pb2.SubmitBatchResponse]":
    specs = [good_job(name=f"n{number}", **fields) for number in range(count)]
    return asyncio.ensure_future(rig.jobs.SubmitBatch(jobs_pb2.SubmitBatchRequest(jobs=specs, idempotency_key=key)))


async def submitted(rig: Rig) -> list[JobSubmitted]:
    return [recorded.fact for recorded in await rig.recorded() if isinstance(recorded.fact, JobSubmitted)]


# --- submit --------------------------------------------------------------------------------------------------------


def test_an_accepted_job_is_in_the_log_when_its_id_is_told(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        answer = await submit(rig, replicas=2, min_runtime_ms=60_000, resumable=True, environment={"A": "1"})
        (fact,) = await submitted(rig)
        assert (fact.job, is_job_id(fact.job)) == (answer.job_id, True)
        spec = fact.spec
        assert (spec.budget, spec.user, spec.gpus, spec.resumable) == ("science/chem", "ana", 16, True)
        assert (spec.launch.command, spec.launch.environment) == (("true",), {"A": "1"})

    play(log_under_test, scenario)


def test_a_job_can_be_read_as_soon_as_its_id_is_told(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        for _ in range(20):
            job = (await submit(rig)).job_id
            answer = await rig.jobs.Get(jobs_pb2.GetJobRequest(job_id=job))
            assert (answer.job.job_id, answer.job.state) == (job, "submitted")

    play(log_under_test, scenario)


def test_ids_rise_in_the_order_of_submission(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        ids = [await rig.submit() for _ in range(20)]
        assert ids == sorted(set(ids))

    play(log_under_test, scenario)


BAD_JOBS = [
    ({"budget": "science/chm"}, "NOT_FOUND", "budget", "did you mean science/chem"),
    ({"budget": "science"}, "INVALID_ARGUMENT", "budget", "not a leaf"),
    ({"budget": ""}, "INVALID_ARGUMENT", "budget", "missing"),
    ({"min_runtime_ms": 8 * 3_600_000 + 1}, "INVALID_ARGUMENT", "min_runtime", "8h"),
    ({"min_runtime_ms": -1}, "INVALID_ARGUMENT", "min_runtime", "negative"),
    ({"min_runtime_ms": HUGE}, "INVALID_ARGUMENT", "min_runtime", "8h"),
    ({"replicas": 0}, "INVALID_ARGUMENT", "replicas", "not positive"),
    ({"replicas": -3}, "INVALID_ARGUMENT", "replicas", "not positive"),
    ({"replicas": HUGE}, "INVALID_ARGUMENT", "replicas", "too many"),
    ({"gpus_per_replica": 0}, "INVALID_ARGUMENT", "gpus_per_replica", "not positive"),
    ({"gpus_per_replica": -8}, "INVALID_ARGUMENT", "gpus_per_replica", "not positive"),
    ({"gpus_per_replica": HUGE}, "INVALID_ARGUMENT", "gpus_per_replica", "too many"),
    ({"gpus_per_replica": 9}, "INVALID_ARGUMENT", "gpus_per_replica", "largest host has 8"),
    ({"replicas": 5}, "INVALID_ARGUMENT", "replicas", "each host fits 1, 4 hosts"),
    ({"gpu_type": "H10"}, "INVALID_ARGUMENT", "gpu_type", "did you mean H100"),
    ({"topology": "one-blok"}, "INVALID_ARGUMENT", "topology", "did you mean one-block"),
    ({"hosts": ["h002x"]}, "INVALID_ARGUMENT", "hosts", "did you mean h002"),
    ({"hosts_excluded": ["h9"]}, "INVALID_ARGUMENT", "hosts_excluded", "there is no host 'h9'"),
    ({"command": []}, "INVALID_ARGUMENT", "command", "empty"),
    ({"command": [""]}, "INVALID_ARGUMENT", "command", "empty"),
    ({"command": ["true", "x" * 10_000_000]}, "INVALID_ARGUMENT", "command", "use at most 65536"),
    ({"name": "a\x1b[31mb"}, "INVALID_ARGUMENT", "name", "control characters"),
    ({"user": "a\nb"}, "INVALID_ARGUMENT", "user", "control characters"),
    ({"priority": HUGE}, "INVALID_ARGUMENT", "priority", "out of range"),
    ({"grace_ms": -1}, "INVALID_ARGUMENT", "grace", "negative"),
    ({"working_directory": "tmp"}, "INVALID_ARGUMENT", "working_directory", "absolute"),
    ({"environment": {"A B": "1"}}, "INVALID_ARGUMENT", "environment", "cannot name a variable"),
]


def test_bad_jobs_are_refused_by_field_and_fix_and_nothing_is_written(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        before = await rig.log.head()
        for fields, code, field, words in BAD_JOBS:
            error = await refused(submit(rig, **fields), code, f"{field}", words, ";")
            assert (error.details() or "").startswith(field)
        assert await rig.log.head() == before

    play(log_under_test, scenario)


def test_a_gang_that_no_block_holds_is_refused_with_the_arithmetic(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        row = tuple(
            HostSpec(host=HostId(f"r{n}"), gpus=8, gpu_type="H100", block=f"row/rack{n // 2}", cluster="test")
            for n in range(6)
        )
        await rig.write(HostRegistered(at=NOW, agent="agent-2", hosts=row))
        await rig.submit(replicas=6, topology="one-block")
        await rig.submit(replicas=10, topology="prefer-block")
        arithmetic = "asked 7 replicas x 8 GPUs in one block; in the largest, row, each host fits 1, 6 hosts make 6"
        asked = submit(rig, replicas=7, topology="one-block")
        await refused(
            asked, "INVALID_ARGUMENT", "topology", arithmetic, "ask for at most 6 replicas, or for prefer-block"
        )
        shapes = [(fact.spec.replicas, fact.spec.topology) for fact in await submitted(rig)]
        assert shapes == [(6, Topology.ONE_BLOCK), (10, Topology.PREFER_BLOCK)]

    play(log_under_test, scenario)


def test_a_refusal_names_its_field_in_the_standard_details() -> None:
    async def scenario(rig: Rig) -> None:
        error = await refused(submit(rig, replicas=0), "INVALID_ARGUMENT")
        packed = dict(error.trailing_metadata() or ())["grpc-status-details-bin"]
        status = status_pb2.Status.FromString(packed)
        violations = error_details_pb2.BadRequest()
        assert status.details[0].Unpack(violations)
        assert violations.field_violations[0].field == "replicas"

    play(MemoryUnderTest(), scenario)


def test_before_any_host_registers_a_job_is_refused() -> None:
    async def scenario(log: MemoryLog) -> None:
        async with running(log) as rig:
            await rig.write(BudgetTreeChanged(at=NOW, tree=tree(science=100, science__chem=100), by=UserName("mia")))
            await refused(submit(rig), "INVALID_ARGUMENT", "no hosts have registered yet")

    MemoryUnderTest().run(scenario)


# --- idempotency ---------------------------------------------------------------------------------------------------


def test_the_same_key_and_body_give_the_same_id(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        first = await submit(rig, key="k", environment={"A": "1", "B": "2"})
        again = await submit(rig, key="k", environment={"B": "2", "A": "1"})
        assert first.job_id == again.job_id
        assert len(await submitted(rig)) == 1

    play(log_under_test, scenario)


def test_a_key_used_with_another_body_is_refused(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        first = await submit(rig, key="k")
        await refused(submit(rig, key="k", replicas=2), "ALREADY_EXISTS", "idempotency_key", first.job_id)
        assert len(await submitted(rig)) == 1

    play(log_under_test, scenario)


def test_keys_are_scoped_by_user(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        ids = {(await submit(rig, key="k", user=user)).job_id for user in ("ana", "ben")}
        assert len(ids) == 2

    play(log_under_test, scenario)


def test_many_racing_submissions_with_one_key_become_one_job(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        answers = await asyncio.gather(*(submit(rig, key="k") for _ in range(32)))
        assert len({answer.job_id for answer in answers}) == 1
        assert len(await submitted(rig)) == 1

    play(log_under_test, scenario)


def test_of_racing_bodies_under_one_key_one_wins_and_the_others_are_told(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        calls = [submit(rig, key="k", replicas=number) for number in (1, 2, 3, 4)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        accepted = [answer for answer in answers if isinstance(answer, jobs_pb2.SubmitResponse)]
        assert len(accepted) == 1
        for call in calls:
            if isinstance(call.exception(), BaseException):
                await refused(call, "ALREADY_EXISTS", "idempotency_key")

    play(log_under_test, scenario)


def test_two_gateways_agree_on_one_job_for_one_key(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        async with running(await log_under_test.connect()) as other:
            answers = await asyncio.gather(*(submit(each, key="k") for _ in range(8) for each in (rig, other)))
            assert len({answer.job_id for answer in answers}) == 1
        assert len(await submitted(rig)) == 1

    play(log_under_test, scenario)


def test_a_key_outlives_a_restart_of_the_gateway(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        first = await submit(rig, key="k")
        async with running(await log_under_test.connect()) as restarted:
            assert (await submit(restarted, key="k")).job_id == first.job_id
            await refused(submit(restarted, key="k", name="x"), "ALREADY_EXISTS")

    play(log_under_test, scenario)


# --- batches -------------------------------------------------------------------------------------------------------


def test_a_batch_of_ten_thousand_is_accepted_whole_and_in_order(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        answer = await batch(rig, 10_000)
        ids = list(answer.job_ids)
        assert len(set(ids)) == 10_000
        assert ids == sorted(ids)
        facts = await submitted(rig)
        assert [(fact.job, fact.spec.name) for fact in facts] == [(job, f"n{n}") for n, job in enumerate(ids)]

    play(log_under_test, scenario)


def test_one_bad_job_refuses_the_whole_batch(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        before = await rig.log.head()
        specs = [good_job(), good_job(replicas=-1), good_job(replicas=-2)]
        call = rig.jobs.SubmitBatch(jobs_pb2.SubmitBatchRequest(jobs=specs))
        await refused(call, "INVALID_ARGUMENT", "jobs[1].replicas", "not positive")
        specs = [good_job(), good_job(user="ben")]
        await refused(rig.jobs.SubmitBatch(jobs_pb2.SubmitBatchRequest(jobs=specs)), "INVALID_ARGUMENT", "jobs[1].user")
        await refused(batch(rig, 0), "INVALID_ARGUMENT", "jobs: empty")
        await refused(batch(rig, 10_001), "INVALID_ARGUMENT", "jobs: 10001")
        assert await rig.log.head() == before

    play(log_under_test, scenario)


def test_racing_batches_with_one_key_become_one(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        answers = await asyncio.gather(*(batch(rig, 2_500, key="k") for _ in range(4)))
        assert len({tuple(answer.job_ids) for answer in answers}) == 1
        assert [fact.job for fact in await submitted(rig)] == list(answers[0].job_ids)
        await refused(batch(rig, 2_501, key="k"), "ALREADY_EXISTS", "idempotency_key")

    play(log_under_test, scenario)


class Breaking(MemoryLog):
    """A log that fails from a certain append on, until it is mended."""

    def __init__(self, trouble: Exception) -> None:
        super().__init__()
        self.trouble = trouble
        self.appends_left: int | None = None

    async def append(self, facts: Sequence[Fact], *, expect: Expect | None = None) -> Appended:
        if self.appends_left is not None:
            if self.appends_left == 0:
                raise self.trouble
            self.appends_left -= 1
        return await super().append(facts, expect=expect)


@pytest.mark.parametrize(
    ("trouble", "code"), [(Unavailable("gone"), "UNAVAILABLE"), (LogFull("full"), "RESOURCE_EXHAUSTED")]
)
def test_a_batch_cut_short_is_completed_by_the_same_batch(trouble: Exception, code: str) -> None:
    log = Breaking(trouble)
    test = MemoryUnderTest()
    test.log = log

    async def scenario(rig: Rig) -> None:
        log.appends_left = 2  # the first job, and a thousand more
        await refused(batch(rig, 2_500, key="k"), code, "1001 of 2500", "idempotency_key 'k'")
        assert len(await submitted(rig)) == 1_001
        log.appends_left = None
        await refused(batch(rig, 2_499, key="k"), "ALREADY_EXISTS")
        answer = await batch(rig, 2_500, key="k")
        facts = await submitted(rig)
        assert [fact.job for fact in facts] == list(answer.job_ids)
        assert [fact.spec.name for fact in facts] == [f"n{number}" for number in range(2_500)]

    play(test, scenario)


@pytest.mark.parametrize(
    ("trouble", "code"), [(Unavailable("gone"), "UNAVAILABLE"), (LogFull("full"), "RESOURCE_EXHAUSTED")]
)
def test_a_log_that_does_not_take_a_job_is_said_so(trouble: Exception, code: str) -> None:
    log = Breaking(trouble)
    test = MemoryUnderTest()
    test.log = log

    async def scenario(rig: Rig) -> None:
        log.appends_left = 0
        await refused(submit(rig), code, "log")

    play(test, scenario)


# --- cancel --------------------------------------------------------------------------------------------------------


def cancel(rig: Rig, job: str) -> "asyncio.Future[jobs_pb2.CancelJobResponse]":
    return asyncio.ensure_future(rig.jobs.Cancel(jobs_pb2.CancelJobRequest(job_id=job, user="ana")))


def test_a_cancel_is_written_once_and_answered_with_the_job(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        job = await rig.submit()
        assert (await cancel(rig, job)).job.job_id == job
        await cancel(rig, job)
        asked = [r.fact for r in await rig.recorded() if isinstance(r.fact, JobCancelRequested)]
        assert [(fact.job, fact.by) for fact in asked] == [(job, "ana")]

    play(log_under_test, scenario)


def test_what_is_over_or_unknown_cannot_be_cancelled(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        job = JobId(await rig.submit())
        spec = rig.loop.state.jobs[job].spec
        await rig.write(
            JobAdmitted(at=NOW, job=job, spec=spec, submitted_at=NOW),
            JobFinished(at=NOW, job=job, state=JobState.CANCELLED, why=WHY),
        )
        before = await rig.log.head()
        await refused(cancel(rig, job), "FAILED_PRECONDITION", "job_id", "over already: cancelled")
        await refused(cancel(rig, "j-nothing"), "NOT_FOUND", "job_id", "there is no job 'j-nothing'")
        await refused(cancel(rig, ""), "NOT_FOUND", "job_id")
        assert await rig.log.head() == before

    play(log_under_test, scenario)


# --- budgets -------------------------------------------------------------------------------------------------------


def set_shares(
    rig: Rig, shares: dict[str, float], *, merge: bool = True, **fields: object
) -> "asyncio.Future[budgets_pb2.SetSharesResponse]":
    budgets = [budgets_pb2.Budget(path=path, share_percent=share) for path, share in shares.items()]
    request = budgets_pb2.SetSharesRequest(budgets=budgets, merge=merge, user="mia", **fields)
    return asyncio.ensure_future(rig.budgets.SetShares(request))


def test_an_edit_changes_the_tree_and_keeps_its_history(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        answer = await set_shares(rig, {"science": 70, "robotics": 30}, comment="new year")
        shown = await rig.budgets.GetTree(budgets_pb2.GetTreeRequest())
        assert shown.position == answer.position
        assert {b.path: b.share_percent for b in shown.budgets} == {
            "robotics": 30,
            "science": 70,
            "science/bio": 50,
            "science/chem": 50,
        }
        assert {b.path: list(b.managers) for b in shown.budgets}["science"] == ["mia"]
        history = await rig.budgets.History(budgets_pb2.BudgetHistoryRequest(path="science"))
        changes = [(c.path, c.share_percent_before, c.share_percent_after, c.comment) for c in history.changes]
        assert changes[-1] == ("science", 60, 70, "new year")
        assert ("science/bio", 0, 50, "first") in changes
        assert not history.changes[0].HasField("share_percent_before")

    play(log_under_test, scenario)


def test_bad_edits_are_refused_whole(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        before = await rig.log.head()
        await refused(set_shares(rig, {"science": 90}), "INVALID_ARGUMENT", "budgets", "sum to 130 %", "at most 100 %")
        for share in (float("nan"), float("inf"), -1.0, 101.0):
            await refused(set_shares(rig, {"science": share}), "INVALID_ARGUMENT", "budgets.science.share")
        await refused(set_shares(rig, {"a/b": 1}), "INVALID_ARGUMENT", "no budget a above it")
        await refused(set_shares(rig, {"a\x07": 1}), "INVALID_ARGUMENT", "budgets", "not a usable name")
        await refused(set_shares(rig, {"a/" * 10_000 + "a": 1}), "INVALID_ARGUMENT", "levels")
        await refused(set_shares(rig, {}, remove=["chem"]), "INVALID_ARGUMENT", "remove", "there is no budget 'chem'")
        await refused(set_shares(rig, {}), "INVALID_ARGUMENT", "nothing to change")
        await refused(set_shares(rig, {}, merge=False), "INVALID_ARGUMENT", "no budgets")
        await refused(set_shares(rig, {"science": 1}, comment="a\nb"), "INVALID_ARGUMENT", "comment")
        assert await rig.log.head() == before

    play(log_under_test, scenario)


def test_a_dry_run_answers_with_the_tree_and_writes_nothing(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        before = await rig.log.head()
        answer = await set_shares(rig, {"science": 70, "robotics": 30}, dry_run=True)
        shares = {budget.path: budget.share_percent for budget in answer.budgets}
        assert shares == {"robotics": 30, "science": 70, "science/bio": 50, "science/chem": 50}
        assert answer.position == 0 and await rig.log.head() == before
        await refused(set_shares(rig, {"science": 90}, dry_run=True), "INVALID_ARGUMENT", "sum to 130 %")
        await rig.submit()
        await refused(
            set_shares(rig, {}, remove=["science/chem"], dry_run=True), "FAILED_PRECONDITION", "queued or running jobs"
        )

    play(log_under_test, scenario)


def test_a_budget_with_jobs_cannot_be_removed(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        job = JobId(await rig.submit())
        chem = "budgets.science.children.chem"
        for remove in ("science/chem", "science"):
            await refused(
                set_shares(rig, {}, remove=[remove]), "FAILED_PRECONDITION", chem, "has queued or running jobs"
            )
        await refused(set_shares(rig, {"robotics": 10}, merge=False), "FAILED_PRECONDITION", chem)
        await refused(set_shares(rig, {"science/chem/new": 10}), "FAILED_PRECONDITION", "would get children")
        spec = rig.loop.state.jobs[job].spec
        await rig.write(
            JobAdmitted(at=NOW, job=job, spec=spec, submitted_at=NOW),
            JobFinished(at=NOW, job=job, state=JobState.CANCELLED, why=WHY),
        )
        await set_shares(rig, {}, remove=["science/chem"])
        assert not rig.loop.state.tree.is_leaf("science/chem")

    play(log_under_test, scenario)


def test_an_edit_of_an_old_tree_is_aborted(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        old = (await rig.budgets.GetTree(budgets_pb2.GetTreeRequest())).position
        new = (await set_shares(rig, {"robotics": 20}, expected_position=old)).position
        await refused(set_shares(rig, {"robotics": 10}, expected_position=old), "ABORTED", "expected_position")
        await set_shares(rig, {"robotics": 10}, expected_position=new)

    play(log_under_test, scenario)


def test_racing_edits_each_build_on_the_other(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        async with running(await log_under_test.connect()) as other:
            edits = [set_shares(each, {f"robotics/{name}": 10}) for each in (rig, other) for name in "abcd"[:2]]
            edits += [set_shares(each, {f"robotics/{name}": 10}) for each in (rig, other) for name in "cd"]
            await asyncio.gather(*edits)
            await rig.gateway.catch_up()
            children = rig.loop.state.tree.children["robotics"]
            assert children == tuple(f"robotics/{name}" for name in "abcd")

    play(log_under_test, scenario)


# --- hosts ---------------------------------------------------------------------------------------------------------


def drain(rig: Rig, host: str = "h001", **fields: object) -> "asyncio.Future[hosts_pb2.DrainHostResponse]":
    request = hosts_pb2.DrainHostRequest(host=host, **{"user": "olga", "comment": "fan", **fields})
    return asyncio.ensure_future(rig.hosts.Drain(request))


def test_a_drain_is_written_with_its_reason_and_once(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        answer = await drain(rig)
        assert (answer.host.host, answer.host.comment) == ("h001", "fan")
        await refused(drain(rig), "FAILED_PRECONDITION", "host", "draining already (fan)")
        await drain(rig, fatal=True)
        drains = [r.fact for r in await rig.recorded() if isinstance(r.fact, DrainRequested)]
        assert [(fact.host, fact.by, fact.fatal) for fact in drains] == [
            (HostId("h001"), "olga", False),
            (HostId("h001"), "olga", True),
        ]

    play(log_under_test, scenario)


def test_bad_orders_to_hosts_are_refused(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        before = await rig.log.head()
        await refused(drain(rig, "h0001"), "NOT_FOUND", "host", "did you mean h001")
        await refused(drain(rig, comment=" "), "INVALID_ARGUMENT", "comment", "say why")
        await refused(drain(rig, deadline_ms=5), "INVALID_ARGUMENT", "deadline_ms", "not in the future")
        await refused(drain(rig, deadline_ms=-5), "INVALID_ARGUMENT", "deadline_ms", "negative")
        await refused(drain(rig, deadline_ms=2**62), "INVALID_ARGUMENT", "deadline_ms", "after the year 2100")
        resume = rig.hosts.Resume(hosts_pb2.ResumeHostRequest(host="h001", user="olga"))
        await refused(resume, "FAILED_PRECONDITION", "host", "not draining")
        repair = rig.hosts.CompleteRepair(hosts_pb2.CompleteRepairRequest(host="h001"))
        await refused(repair, "FAILED_PRECONDITION", "host", "not drained")
        assert await rig.log.head() == before

    play(log_under_test, scenario)


def test_a_drained_host_is_resumed_or_said_to_be_repaired(log_under_test: LogUnderTest) -> None:
    async def scenario(rig: Rig) -> None:
        await asyncio.gather(drain(rig), drain(rig, "h002"))
        await asyncio.gather(
            rig.hosts.Resume(hosts_pb2.ResumeHostRequest(host="h001", user="olga")),
            rig.hosts.CompleteRepair(hosts_pb2.CompleteRepairRequest(host="h002", user="olga", comment="new fan")),
        )
        kinds = [type(r.fact).__name__ for r in await rig.recorded()][-4:]
        assert sorted(kinds) == ["DrainRequested", "DrainRequested", "RepairCompleted", "ResumeRequested"]
        resumed = [r.fact for r in await rig.recorded() if isinstance(r.fact, ResumeRequested)]
        assert resumed[0].host == "h001"

    play(log_under_test, scenario)


def test_what_every_reader_would_pass_over_is_not_written(log_under_test: LogUnderTest) -> None:
    """Else somebody is told that it was done, and nothing comes of it."""

    async def scenario(rig: Rig) -> None:
        before = await rig.log.head()
        order = DrainRequested(
            at=NOW, id=FactId("x"), cluster="test", host=HostId("h001"), by="olga", comment="fan", deadline=2**62
        )
        with pytest.raises(Refusal, match=r"request: cannot be: deadline: .* is no instant between 1970 and 2100"):
            await rig.gateway.append([order])
        assert await rig.log.head() == before

    play(log_under_test, scenario)
