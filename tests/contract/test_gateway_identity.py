"""Who may call the gateway: development tokens, the operating system's users, rights on every method, who is said."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
from google.protobuf.descriptor import FileDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from services.gateway.identity.methods import METHODS
from services.gateway.server import Server
from tenure.domain.refusal import Refusal
from tenure.domain.rights import Role
from tenure.domain.tree import PPM, BudgetNode, BudgetTree
from tenure.events.budgets import BudgetTreeChanged
from tenure.events.fact import Origin
from tenure.events.intake import JobSubmitted
from tenure.runtime.identity_options import build_identity_options
from tenure.runtime.local_tokens import load_key, make_key
from tenure.v1 import budgets_pb2, hosts_pb2, identity_pb2, identity_pb2_grpc, jobs_pb2, policy_pb2
from tests.contract.conftest import MemoryUnderTest
from tests.contract.gateway_rig import NOW, LogHistory, Rig, good_job, play, refused

NO_OS_USERS = build_identity_options({"os_users": False})
NOBODY_UID = 65534


class People:
    """A key, and what its tokens put into the metadata of a call."""

    def __init__(self, folder: Path) -> None:
        self.key = folder / "identity" / "key.pem"
        make_key(self.key)

    def token(self, user: str, *roles: Role, lifetime_ms: int = 60_000, now: int | None = None) -> str:
        issued = time.time_ns() // 1_000_000 if now is None else now
        return load_key(self.key).sign(user=user, roles=roles, now=issued, lifetime_ms=lifetime_ms)

    def called(self, user: str, *roles: Role) -> dict[str, object]:
        """How a call of theirs is made."""
        return bearer(self.token(user, *roles))


def bearer(token: str) -> dict[str, object]:
    return {"metadata": (("authorization", f"Bearer {token}"),)}


@pytest.fixture
def people(tmp_path: Path) -> People:
    return People(tmp_path)


def closed_tree() -> BudgetTreeChanged:
    """chem is ana's and the group lab's to submit to; mia manages science, pia manages chem."""
    nodes = (
        BudgetNode(path="robotics", share_ppm=PPM * 2 // 5),
        BudgetNode(path="science", share_ppm=PPM * 3 // 5, managers=("mia",)),
        BudgetNode(path="science/bio", share_ppm=PPM // 2),
        BudgetNode(path="science/chem", share_ppm=PPM // 2, managers=("pia",), members=("ana", "group:lab")),
    )
    return BudgetTreeChanged(at=NOW, tree=BudgetTree(nodes=nodes), by="mia")


def play_with(people: People, scenario: Callable[[Rig], Awaitable[None]], **options: object) -> None:
    """On loopback without the operating system's word, so that only tokens count."""

    async def with_tree(rig: Rig) -> None:
        await rig.write(closed_tree())
        await scenario(rig)

    play(MemoryUnderTest(), with_tree, **{"identity": NO_OS_USERS, "local_key": people.key, **options})


def test_every_method_has_its_right() -> None:
    """A method without one could not even be served; this says which it is."""
    served = {f"/{name}" for file in SERVED for name in methods_of(file)}
    assert served == set(METHODS)


SERVED = (
    budgets_pb2.DESCRIPTOR,
    hosts_pb2.DESCRIPTOR,
    identity_pb2.DESCRIPTOR,
    jobs_pb2.DESCRIPTOR,
    policy_pb2.DESCRIPTOR,
    health_pb2.DESCRIPTOR,
    reflection_pb2.DESCRIPTOR,
)


def methods_of(file: FileDescriptor) -> list[str]:
    return [
        f"{service.full_name}/{method.name}" for service in file.services_by_name.values() for method in service.methods
    ]


def test_without_credentials_only_health_answers(people: People) -> None:
    async def scenario(rig: Rig) -> None:
        served = await health_pb2_grpc.HealthStub(rig.channel).Check(health_pb2.HealthCheckRequest())
        assert served.status == health_pb2.HealthCheckResponse.SERVING
        for method in METHODS:
            if "Health" in method or "Reflection" in method:
                continue
            stream = method.endswith(("Watch", "Logs"))
            call = rig.channel.unary_stream if stream else rig.channel.unary_unary
            raw = call(method, bytes, bytes)
            await refused(drained(raw(b"")) if stream else raw(b""), "UNAUTHENTICATED", "TENURE_TOKEN")
        reflect = reflection_pb2_grpc.ServerReflectionStub(rig.channel).ServerReflectionInfo
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        await refused(drained(reflect(iter([asked]))), "UNAUTHENTICATED")
        answers = reflect(iter([asked]), **people.called("ana"))
        names = [one.name async for answer in answers for one in answer.list_services_response.service]
        assert "tenure.v1.Identity" in names

    play_with(people, scenario)


async def drained(stream: "grpc.aio.UnaryStreamCall[object, object]") -> list[object]:
    return [one async for one in stream]


def test_a_token_must_be_good(people: People, tmp_path: Path) -> None:
    other = People(tmp_path / "other")
    good = people.token("ana")
    head, body, signature = good.split(".")
    cases = {
        "not a JWT": "secret-nonsense",
        "expired": people.token("ana", now=1_600_000_000_000),
        "another data directory": other.token("ana"),
        "signature": f"{head}.{body}.{signature[:-4]}AAAA",
        "name": people.token("group:lab"),
    }

    async def scenario(rig: Rig) -> None:
        for word, token in cases.items():
            error = await refused(rig.jobs.List(jobs_pb2.ListJobsRequest(), **bearer(token)), "UNAUTHENTICATED", word)
            assert token[:12] not in (error.details() or "")
        await rig.jobs.List(jobs_pb2.ListJobsRequest(), **bearer(good))

    play_with(people, scenario)


def test_members_submit_and_others_do_not(people: People) -> None:
    async def scenario(rig: Rig) -> None:
        async def submit(budget: str, **call: object) -> str:
            answer = await rig.jobs.Submit(jobs_pb2.SubmitRequest(job=good_job(budget=budget, user="")), **call)
            return str(answer.job_id)

        job = await submit("science/chem", **people.called("ana"))
        for above in (people.called("pia"), people.called("mia"), people.called("root", Role.ADMIN)):
            await submit("science/chem", **above)
        asked = submit("science/chem", **people.called("eve"))
        await refused(asked, "PERMISSION_DENIED", "eve may not submit to science/chem", "pia, mia or an admin")
        await submit("science/bio", **people.called("eve"))
        for limited in (Role.VIEWER, Role.AGENT):
            asked = submit("science/chem", **people.called("ana", limited))
            await refused(asked, "PERMISSION_DENIED", f"ana with the role {limited}")
        batch = jobs_pb2.SubmitBatchRequest(
            jobs=[good_job(user="", budget=budget) for budget in ("science/bio", "science/chem")]
        )
        await refused(rig.jobs.SubmitBatch(batch, **people.called("eve")), "PERMISSION_DENIED", "science/chem")
        shown = await rig.jobs.Get(jobs_pb2.GetJobRequest(job_id=job), **people.called("eve"))
        assert shown.job.spec.user == "ana"

    play_with(people, scenario)


def test_only_an_admin_acts_for_others_and_the_fact_says_who_it_was(people: People) -> None:
    async def scenario(rig: Rig) -> None:
        request = jobs_pb2.SubmitRequest(job=good_job(user="ana"))
        refusal = refused(rig.jobs.Submit(request, **people.called("eve")), "PERMISSION_DENIED", "you are eve", "'ana'")
        await refusal
        await rig.jobs.Submit(request, **people.called("olga", Role.ADMIN))
        group = jobs_pb2.SubmitRequest(job=good_job(user="group:lab"))
        called = people.called("olga", Role.ADMIN)
        await refused(rig.jobs.Submit(group, **called), "INVALID_ARGUMENT", "user: 'group:lab' is a group")
        cancel = jobs_pb2.CancelJobRequest(job_id="x", user="ana")
        await refused(rig.jobs.Cancel(cancel, **people.called("ana")), "NOT_FOUND")
        (fact,) = [one.fact for one in await rig.recorded() if isinstance(one.fact, JobSubmitted)]
        assert fact.spec.user == "ana"
        assert fact.origin is not None
        assert (fact.origin.user, fact.origin.how) == ("olga", "local token")
        assert fact.origin.address.startswith("127.0.0.1:")

    play_with(people, scenario)


def test_whose_job_may_be_cancelled_and_whose_output_read(people: People) -> None:
    cancels = {"ana": True, "pia": True, "mia": True, "eve": False, "lab": False}
    reads = dict(cancels)

    async def scenario(rig: Rig) -> None:
        for user, allowed in cancels.items():
            answer = await rig.jobs.Submit(jobs_pb2.SubmitRequest(job=good_job(user="")), **people.called("ana"))
            request = jobs_pb2.CancelJobRequest(job_id=answer.job_id)
            if not allowed:
                asked = rig.jobs.Cancel(request, **people.called(user))
                await refused(asked, "PERMISSION_DENIED", "cancel", "pia, mia or an admin")
            else:
                await rig.jobs.Cancel(request, **people.called(user))
        await rig.jobs.Cancel(request, **people.called("olga", Role.OPERATOR))
        for user, allowed in reads.items():
            logs = jobs_pb2.JobLogsRequest(job_id=answer.job_id, stream="nonsense")
            code = "INVALID_ARGUMENT" if allowed else "PERMISSION_DENIED"
            await refused(drained(rig.jobs.Logs(logs, **people.called(user))), code)
        await refused(
            drained(rig.jobs.Logs(logs, **people.called("olga", Role.OPERATOR))), "PERMISSION_DENIED", "output"
        )

    play_with(people, scenario)


def test_the_values_of_an_environment_are_for_those_who_may_read_the_output(people: People) -> None:
    secret = {"WANDB_API_KEY": "s3cr3t", "SEED": "7"}
    sees = {"ana": True, "pia": True, "mia": True, "eve": False}

    async def scenario(rig: Rig) -> None:
        request = jobs_pb2.SubmitRequest(job=good_job(user="", environment=secret))
        job = (await rig.jobs.Submit(request, **people.called("ana"))).job_id
        for user, whole in sees.items():
            call = people.called(user)
            got = await rig.jobs.Get(jobs_pb2.GetJobRequest(job_id=job), **call)
            (listed,) = (await rig.jobs.List(jobs_pb2.ListJobsRequest(), **call)).jobs
            watching = rig.jobs.Watch(jobs_pb2.WatchJobRequest(job_id=job), **call)
            watched: Any = await watching.read()
            watching.cancel()
            story = await rig.jobs.Explain(jobs_pb2.ExplainJobRequest(job_id=job), **call)
            for shown in (got.job, listed, watched.job, story.job):
                assert set(shown.spec.environment) == set(secret)
                assert (dict(shown.spec.environment) == secret) is whole
            assert ("s3cr3t" in str(story) + str(got) + str(listed) + str(watched)) is whole
            assert "WANDB_API_KEY" in story.steps[0].fact_json

    play_with(people, scenario, history_of=LogHistory)


def test_managers_delegate_downwards_only(people: People) -> None:
    def edit(path: str, percent: float, **more: object) -> budgets_pb2.SetSharesRequest:
        budget = budgets_pb2.Budget(path=path, share_percent=percent, **more)  # type: ignore[arg-type]
        return budgets_pb2.SetSharesRequest(budgets=[budget], merge=True)

    async def scenario(rig: Rig) -> None:
        async def allowed(user: str, request: budgets_pb2.SetSharesRequest) -> None:
            await rig.budgets.SetShares(request, **people.called(user))

        async def denied(user: str, request: budgets_pb2.SetSharesRequest, *words: str) -> None:
            asked = rig.budgets.SetShares(request, **people.called(user))
            await refused(asked, "PERMISSION_DENIED", *words)

        await allowed("mia", edit("science/chem", 40, managers=["pia", "leo"]))
        await allowed("leo", edit("science/chem", 40, members=["ana", "tim"]))
        await allowed("leo", edit("science/chem/x", 100, managers=["tim"]))
        await allowed("mia", edit("science/chem/x", 50))
        await denied("mia", edit("science", 50), "share of science", "ask an admin")
        await denied("mia", edit("science", 60, managers=["mia", "eve"]), "managers of science")
        await denied("mia", edit("robotics", 39), "robotics")
        await denied("leo", edit("science/chem", 50), "mia or an admin")
        await denied("leo", edit("science/bio", 40), "science/bio")
        await denied("tim", edit("science/chem/x", 60), "science/chem/x")
        await denied("eve", edit("science/bio", 50), "may not")  # changes nothing, and still is not hers to ask
        removal = budgets_pb2.SetSharesRequest(merge=True, remove=["science/chem"])
        await denied("leo", removal, "science/chem")
        await denied("mia", budgets_pb2.SetSharesRequest(budgets=[budgets_pb2.Budget(path="a", share_percent=1)]))
        tree = (await rig.budgets.GetTree(budgets_pb2.GetTreeRequest(), **people.called("eve"))).budgets
        chem = next(one for one in tree if one.path == "science/chem")
        assert (list(chem.managers), list(chem.members), chem.share_percent) == (["pia", "leo"], ["ana", "tim"], 40)
        opened = edit("science/chem", 40, no_members=True)
        await allowed("pia", opened)
        await rig.jobs.Submit(
            jobs_pb2.SubmitRequest(job=good_job(budget="science/chem/x", user="")), **people.called("eve")
        )
        history = await rig.budgets.History(budgets_pb2.BudgetHistoryRequest(path="science"), **people.called("eve"))
        assert [change.asked_by for change in history.changes][-1] == "mia"
        assert history.changes[-1].asked_how == "local token" and history.changes[-1].asked_from

    play_with(people, scenario)


def test_operators_tend_hosts(people: People) -> None:
    async def scenario(rig: Rig) -> None:
        request = hosts_pb2.DrainHostRequest(host="h000", comment="fan")
        await refused(rig.hosts.Drain(request, **people.called("mia")), "PERMISSION_DENIED", "drain", "an admin")
        await rig.hosts.Drain(request, **people.called("olga", Role.OPERATOR))
        resume = hosts_pb2.ResumeHostRequest(host="h000")
        await refused(rig.hosts.Resume(resume, **people.called("eve")), "PERMISSION_DENIED")
        repair = hosts_pb2.CompleteRepairRequest(host="h000")
        await refused(rig.hosts.CompleteRepair(repair, **people.called("eve")), "PERMISSION_DENIED")
        await rig.hosts.Resume(resume, **people.called("root", Role.ADMIN))
        by = [getattr(one.fact, "origin", None) for one in await rig.recorded()]
        users = [origin.user for origin in by if isinstance(origin, Origin)]
        assert users == ["olga", "root"]

    play_with(people, scenario)


def test_whoami_says_what_one_may(people: People) -> None:
    async def scenario(rig: Rig) -> None:
        identity = identity_pb2_grpc.IdentityStub(rig.channel)
        answer = await identity.WhoAmI(identity_pb2.WhoAmIRequest(), **people.called("pia"))
        assert (answer.user, list(answer.roles), answer.how) == ("pia", [], "local token")
        assert list(answer.rights) == ["know oneself", "look"]
        found = {one.path: list(one.rights) for one in answer.budgets}
        assert found["science/chem"] == ["submit", "cancel", "read output", "name members"]
        assert found["robotics"] == ["submit"]
        agent = await identity.WhoAmI(identity_pb2.WhoAmIRequest(), **people.called("h000", Role.AGENT))
        assert (list(agent.rights), list(agent.budgets)) == (["know oneself"], [])

    play_with(people, scenario)


def test_on_loopback_the_operating_system_says_who_it_is() -> None:
    async def scenario(rig: Rig) -> None:
        identity = identity_pb2_grpc.IdentityStub(rig.channel)
        answer = await identity.WhoAmI(identity_pb2.WhoAmIRequest())
        assert (answer.how, list(answer.roles)) == (f"uid {os.getuid()}", ["admin"])
        await rig.submit(user="ana")
        await rig.jobs.Submit(jobs_pb2.SubmitRequest(job=good_job(user="")))
        users = [one.fact.spec.user for one in await rig.recorded() if isinstance(one.fact, JobSubmitted)]
        assert users == ["ana", answer.user]

    play(MemoryUnderTest(), scenario)


def test_a_token_of_nobody_known_here_is_not_made_up_for_by_the_operating_system(people: People) -> None:
    """Whoever shows a token wants to be who it names, with the rights of that: never more."""
    foreign = jwt.encode({"iss": "https://elsewhere.example", "sub": "ana"}, "k" * 32, algorithm="HS256")

    async def scenario(rig: Rig) -> None:
        identity = identity_pb2_grpc.IdentityStub(rig.channel)
        others = [
            {"metadata": (("authorization", value),)} for value in ("Basic YW5hOmFuYQ==", "Bearer ", "Bearer", "")
        ]
        for credentials in (bearer(foreign), *others):
            asked = identity.WhoAmI(identity_pb2.WhoAmIRequest(), **credentials)
            await refused(asked, "UNAUTHENTICATED")

    play(MemoryUnderTest(), scenario, local_key=people.key)


CALLER = """
import os, sys, grpc
from tenure.v1 import budgets_pb2, budgets_pb2_grpc, identity_pb2, identity_pb2_grpc, jobs_pb2, jobs_pb2_grpc
os.setgroups([])  # only now: the interpreter itself may lie where that user may not read
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
channel = grpc.insecure_channel(sys.argv[1])
who = identity_pb2_grpc.IdentityStub(channel).WhoAmI(identity_pb2.WhoAmIRequest(), timeout=10)
print(who.how, ",".join(who.roles))
for user in ("", "ana"):
    job = jobs_pb2.JobSpec(budget="robotics", user=user, replicas=1, gpus_per_replica=1, command=["true"])
    try:
        jobs_pb2_grpc.JobsStub(channel).Submit(jobs_pb2.SubmitRequest(job=job), timeout=10)
        print("accepted")
    except grpc.RpcError as error:
        print(error.code().name)
try:
    edit = budgets_pb2.SetSharesRequest(merge=True, budgets=[budgets_pb2.Budget(path="robotics", share_percent=1)])
    budgets_pb2_grpc.BudgetsStub(channel).SetShares(edit, timeout=10)
except grpc.RpcError as error:
    print(error.code().name)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process as another user")
def test_another_user_of_the_machine_gets_nothing_for_free() -> None:
    async def scenario(rig: Rig) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CALLER, rig.address, str(NOBODY_UID), stdout=subprocess.PIPE
        )
        said = (await process.communicate())[0].decode().splitlines()
        assert said == [f"uid {NOBODY_UID} ", "accepted", "PERMISSION_DENIED", "PERMISSION_DENIED"]

    play(MemoryUnderTest(), scenario)


def test_what_others_reach_needs_an_identity_and_tls(tmp_path: Path, people: People) -> None:
    async def open_it() -> str:
        for listen in ("0.0.0.0:0", "[::]:0", "gateway.lab.example:0"):
            with pytest.raises(Refusal, match=r"nobody who calls there could be known.*identity\.issuer"):
                Server(listen, local_key=tmp_path / "none")
            with pytest.raises(Refusal, match=r"without TLS.*identity\.tls_certificate"):
                Server(listen, local_key=people.key)
        server = Server("0.0.0.0:0", build_identity_options({"insecure_plaintext": True}), local_key=people.key)
        await server.stop()
        return server.address

    assert asyncio.run(open_it()).startswith("0.0.0.0:")
