"""Every method of every service, called by somebody of each standing, on a real gateway: it does what the table says.

What a method needs is in `METHODS`, who has that is in `RIGHTS`, and who somebody is to the budget and the job asked
about is written down here. A method that is added fails until it has a question here.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.gateway.identity.methods import METHODS, REFLECTION
from tenure.domain.rights import RIGHTS, Right, Role, Standing
from tenure.domain.tree import PPM, BudgetNode, BudgetTree
from tenure.events.budgets import BudgetTreeChanged
from tenure.v1 import budgets_pb2, hosts_pb2, identity_pb2, jobs_pb2, policy_pb2
from tests.contract.conftest import MemoryUnderTest
from tests.contract.gateway_rig import NOW, LogHistory, Rig, good_job, play
from tests.contract.test_gateway_identity import NO_OS_USERS, People

CHEM = "science/chem"
ROLES = {"olga": Role.ADMIN, "otto": Role.OPERATOR, "vera": Role.VIEWER, "agnes": Role.AGENT}
WHO: Mapping[str, frozenset[Standing]] = {
    "olga": frozenset({Standing.ADMIN, Standing.USER}),
    "otto": frozenset({Standing.OPERATOR, Standing.USER}),
    "mia": frozenset({Standing.MANAGER_ABOVE, Standing.USER}),
    "pia": frozenset({Standing.MANAGER, Standing.USER}),
    "ben": frozenset({Standing.MEMBER, Standing.USER}),
    "ana": frozenset({Standing.OWNER, Standing.USER}),
    "eve": frozenset({Standing.USER}),
    "vera": frozenset({Standing.VIEWER}),
    "agnes": frozenset({Standing.AGENT}),
}
"""What each is to science/chem and to ana's job there."""

Question = Callable[[str], Any]
"""The request, for a job of ana's that is not over."""


def edit(**fields: Any) -> budgets_pb2.SetSharesRequest:
    """A change of science/chem in one thing: what is not said of it stays as it is."""
    budget = budgets_pb2.Budget(**{"path": CHEM, "share_percent": 50, **fields})
    return budgets_pb2.SetSharesRequest(budgets=[budget], merge=True)


def submission(**fields: Any) -> jobs_pb2.JobSpec:
    return good_job(**{"user": "", **fields})


QUESTIONS: Mapping[str, list[tuple[Right, Question]]] = {
    "/tenure.v1.Jobs/Submit": [(Right.SUBMIT, lambda _: jobs_pb2.SubmitRequest(job=submission()))],
    "/tenure.v1.Jobs/SubmitBatch": [
        (Right.SUBMIT, lambda _: jobs_pb2.SubmitBatchRequest(jobs=[submission(budget="robotics"), submission()]))
    ],
    "/tenure.v1.Jobs/Get": [(Right.LOOK, lambda job: jobs_pb2.GetJobRequest(job_id=job))],
    "/tenure.v1.Jobs/List": [(Right.LOOK, lambda _: jobs_pb2.ListJobsRequest())],
    "/tenure.v1.Jobs/Watch": [(Right.LOOK, lambda job: jobs_pb2.WatchJobRequest(job_id=job))],
    "/tenure.v1.Jobs/Cancel": [(Right.CANCEL, lambda job: jobs_pb2.CancelJobRequest(job_id=job))],
    "/tenure.v1.Jobs/Explain": [(Right.LOOK, lambda job: jobs_pb2.ExplainJobRequest(job_id=job))],
    "/tenure.v1.Jobs/Logs": [(Right.READ_OUTPUT, lambda job: jobs_pb2.JobLogsRequest(job_id=job))],
    "/tenure.v1.Budgets/GetTree": [(Right.LOOK, lambda _: budgets_pb2.GetTreeRequest())],
    "/tenure.v1.Budgets/SetShares": [
        (Right.SET_SHARE, lambda _: edit(share_percent=40)),
        (Right.SET_SHARE, lambda _: budgets_pb2.SetSharesRequest(merge=True, remove=[CHEM])),
        (Right.NAME_MANAGERS, lambda _: edit(managers=["pia", "new"])),
        (Right.NAME_MEMBERS, lambda _: edit(members=["ben", "new"])),
        (Right.NAME_MEMBERS, lambda _: edit(users_equal=True)),
    ],
    "/tenure.v1.Budgets/History": [(Right.LOOK, lambda _: budgets_pb2.BudgetHistoryRequest())],
    "/tenure.v1.Budgets/Report": [(Right.LOOK, lambda _: budgets_pb2.BudgetReportRequest())],
    "/tenure.v1.Hosts/List": [(Right.LOOK, lambda _: hosts_pb2.ListHostsRequest())],
    "/tenure.v1.Hosts/Drain": [(Right.TEND_HOSTS, lambda _: hosts_pb2.DrainHostRequest(host="x", comment="fan"))],
    "/tenure.v1.Hosts/Resume": [(Right.TEND_HOSTS, lambda _: hosts_pb2.ResumeHostRequest(host="x"))],
    "/tenure.v1.Hosts/CompleteRepair": [(Right.TEND_HOSTS, lambda _: hosts_pb2.CompleteRepairRequest(host="x"))],
    "/tenure.v1.Hosts/Report": [(Right.LOOK, lambda _: hosts_pb2.HostReportRequest())],
    "/tenure.v1.Hosts/Fragmentation": [(Right.LOOK, lambda _: hosts_pb2.FragmentationRequest())],
    "/tenure.v1.Policy/GetPolicy": [(Right.LOOK, lambda _: policy_pb2.GetPolicyRequest())],
    "/tenure.v1.Policy/SetPolicy": [
        (Right.SET_POLICY, lambda _: policy_pb2.SetPolicyRequest(values={"lookback": "3d"}, merge=True)),
        (Right.SET_POLICY, lambda _: policy_pb2.SetPolicyRequest(values={"lokback": "3d"}, merge=True)),
    ],
    "/tenure.v1.Policy/PolicyHistory": [(Right.LOOK, lambda _: policy_pb2.PolicyHistoryRequest())],
    "/tenure.v1.Identity/WhoAmI": [(Right.KNOW_ONESELF, lambda _: identity_pb2.WhoAmIRequest())],
}
STREAMS = ("/tenure.v1.Jobs/Watch", "/tenure.v1.Jobs/Logs")
IN_THE_NAME_OF: Mapping[str, Question] = {
    "/tenure.v1.Jobs/Submit": lambda _: jobs_pb2.SubmitRequest(job=submission(user="ina", budget="robotics")),
    "/tenure.v1.Jobs/SubmitBatch": lambda _: jobs_pb2.SubmitBatchRequest(
        jobs=[submission(user="ina", budget="robotics")]
    ),
    "/tenure.v1.Jobs/Cancel": lambda job: jobs_pb2.CancelJobRequest(job_id=job, user="ina"),
    "/tenure.v1.Budgets/SetShares": lambda _: budgets_pb2.SetSharesRequest(
        budgets=[budgets_pb2.Budget(path=CHEM, share_percent=50)], merge=True, user="ina"
    ),
    "/tenure.v1.Policy/SetPolicy": lambda _: policy_pb2.SetPolicyRequest(
        values={"lookback": "3d"}, merge=True, user="ina"
    ),
    "/tenure.v1.Hosts/Drain": lambda _: hosts_pb2.DrainHostRequest(host="x", comment="fan", user="ina"),
    "/tenure.v1.Hosts/Resume": lambda _: hosts_pb2.ResumeHostRequest(host="x", user="ina"),
    "/tenure.v1.Hosts/CompleteRepair": lambda _: hosts_pb2.CompleteRepairRequest(host="x", user="ina"),
}
"""What whoever may do that themselves asks for in the name of another."""
NOBODY = grpc.StatusCode.PERMISSION_DENIED


def the_tree() -> BudgetTreeChanged:
    nodes = (
        BudgetNode(path="robotics", share_ppm=PPM * 2 // 5),
        BudgetNode(path="science", share_ppm=PPM * 3 // 5, managers=("mia",)),
        BudgetNode(path="science/bio", share_ppm=PPM // 2, managers=("eve",), members=("eve",)),
        BudgetNode(path=CHEM, share_ppm=PPM // 2, managers=("pia",), members=("ben",)),
    )
    return BudgetTreeChanged(at=NOW, tree=BudgetTree(nodes=nodes), by="mia")


async def code_of(rig: Rig, method: str, request: Any, call: Mapping[str, Any]) -> grpc.StatusCode:
    """The status of a call; of a stream, of its first answer."""
    try:
        if method in STREAMS:
            stream = rig.channel.unary_stream(method, None, bytes)(request.SerializeToString(), timeout=20, **call)
            await stream.read()
            stream.cancel()
        else:
            await rig.channel.unary_unary(method, None, bytes)(request.SerializeToString(), timeout=20, **call)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def play_with(people: People, scenario: Callable[[Rig], Any]) -> None:
    play(MemoryUnderTest(), scenario, identity=NO_OS_USERS, local_key=people.key, history_of=LogHistory)


def called(people: People, user: str) -> Mapping[str, Any]:
    return people.called(user, *([ROLES[user]] if user in ROLES else []))


def test_every_method_is_asked_for_and_nothing_twice() -> None:
    named = {method for method, needs in METHODS.items() if needs.right is not None and method != REFLECTION}
    assert set(QUESTIONS) == named
    for method, questions in QUESTIONS.items():
        assert METHODS[method].right in [right for right, _ in questions]
    fields = {
        method
        for method, questions in QUESTIONS.items()
        if {"user", "job", "jobs"} & set(questions[0][1]("j").DESCRIPTOR.fields_by_name)
    }
    assert fields - {"/tenure.v1.Jobs/List"} == set(IN_THE_NAME_OF), "a filter is no name to act in"


@pytest.mark.parametrize("user", WHO)
def test_a_method_does_what_the_table_says(tmp_path: Path, user: str) -> None:
    people = People(tmp_path)

    async def scenario(rig: Rig) -> None:
        for method, questions in QUESTIONS.items():
            for right, question in questions:
                await rig.write(the_tree())
                job = await anas_job(rig, people)
                before = len(await rig.recorded())
                code = await code_of(rig, method, question(job), called(people, user))
                wanted = not RIGHTS[right].isdisjoint(WHO[user])
                assert (code is not NOBODY) is wanted, f"{user}, {method}, {right}: {code}"
                assert code is not grpc.StatusCode.UNKNOWN
                if not wanted:
                    assert len(await rig.recorded()) == before, "what is refused is not written"

    play_with(people, scenario)


@pytest.mark.parametrize("user", WHO)
def test_only_who_may_acts_for_others(tmp_path: Path, user: str) -> None:
    people = People(tmp_path)

    async def scenario(rig: Rig) -> None:
        for method, question in IN_THE_NAME_OF.items():
            await rig.write(the_tree())
            code = await code_of(rig, method, question(await anas_job(rig, people)), called(people, user))
            wanted = not RIGHTS[Right.ACT_FOR_OTHERS].isdisjoint(WHO[user])
            assert (code is not NOBODY) is wanted, f"{user}, {method}: {code}"

    play_with(people, scenario)


async def anas_job(rig: Rig, people: People) -> str:
    """A job of ana's in science/chem, which she is no member of any more."""
    request = jobs_pb2.SubmitRequest(job=good_job(user="ana"))
    job: str = (await rig.jobs.Submit(request, **called(people, "olga"))).job_id
    await rig.gateway.read()
    return job
