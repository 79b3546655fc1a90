"""One request of a page: what it asks, who asks, and what pages answer from. Bad questions name the field."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import grpc
from google.protobuf.message import Message
from starlette.requests import Request

from services.console.callers import Callers, Who
from services.console.gateway import Gateway, NoAnswer
from services.console.history import History, Rows
from services.console.sharing import Shared
from services.console.tables import Table
from tenure.domain.refusal import Refusal
from tenure.domain.rights import Right
from tenure.v1 import budgets_pb2, hosts_pb2, jobs_pb2

A = TypeVar("A", bound=Message)
Q = TypeVar("Q", bound=Message)
R = TypeVar("R")

MOMENT_S = 0.2
"""So old an answer of the gateway may be that several pages share."""
PATIENCE_S = 0.3
FORECAST_S, FORECAST_WAIT_S = 5.0, 0.05
"""So old a forecast may be; so long the queue waits for one."""
REPORT_S = 10.0
"""So old one may be that is read from ClickHouse."""
TEXT_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Console:
    """What all requests share."""

    gateway: Gateway
    history: History
    callers: Callers
    shared: Shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What is answered: a template with what it shows. The first table is what an export without a name gives.

    `seen`: what the page is made from, beside the tables; while that and they are the same, so is the page.
    """

    section: str
    title: str
    template: str
    tables: Sequence[Table] = ()
    seen: object = None
    context: Mapping[str, object] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request, and who makes it."""

    console: Console
    request: Request
    who: Who

    def text(self, name: str, default: str = "") -> str:
        """A word of the address's query. Raises `Refusal`."""
        return checked_text(self.request.query_params.get(name, default), field=name)

    def number(self, name: str, default: int, *, least: int, most: int) -> int:
        """A whole number of the query. Raises `Refusal`."""
        text = self.request.query_params.get(name, "")
        if not text:
            return default
        found = int(text) if text.isascii() and text.isdecimal() and len(text) < 12 else None
        if found is None or not least <= found <= most:
            raise Refusal(field=name, problem=f"{text[:40]!r} is out of range", fix=f"give {least} to {most}")
        return found

    def choice(self, name: str, default: str, known: Sequence[str]) -> str:
        """One of a few words of the query. Raises `Refusal`."""
        text = self.request.query_params.get(name, default) or default
        if text not in known:
            raise Refusal(field=name, problem=f"{text[:40]!r} is not known", fix=f"use one of {', '.join(known)}")
        return text

    async def jobs(self, request: jobs_pb2.ListJobsRequest) -> jobs_pb2.ListJobsResponse:
        """A list of jobs. What of it differs by caller, values of environments, is shown by no page."""
        return await self.share("jobs", self.console.gateway.jobs.List, request)

    async def job(self, job_id: str) -> jobs_pb2.Job:
        """One job."""
        request = jobs_pb2.GetJobRequest(job_id=job_id)
        return (await self.share("job", self.console.gateway.jobs.Get, request)).job

    async def foreseen(self, request: jobs_pb2.ListJobsRequest) -> Mapping[str, jobs_pb2.Job]:
        """The waiting ones of these jobs with when they will start, by id; without those that nobody can tell of yet.

        A forecast takes its time: a page shows the one before meanwhile.
        """
        question = jobs_pb2.ListJobsRequest()
        question.CopyFrom(request)
        question.forecast = True
        del question.states[:]
        question.states.append("queued")
        jobs, token = self.console.gateway.jobs.List, self.who.token
        try:
            answer = await self.console.shared.latest(
                ("forecast", question.SerializeToString(deterministic=True)),
                lambda: self.console.gateway.call(jobs, question, token=token),
                keep_s=FORECAST_S,
                wait_s=self.patience_s and FORECAST_WAIT_S,
            )
        except NoAnswer:
            return {}
        return {} if answer is None else {job.job_id: job for job in answer.jobs if job.forecast_start_p50_ms}

    async def tree(self) -> budgets_pb2.GetTreeResponse:
        """The budgets."""
        return await self.share("tree", self.console.gateway.budgets.GetTree, budgets_pb2.GetTreeRequest())

    @property
    def patience_s(self) -> float | None:
        """How long a page waits for ClickHouse before it is shown without; an export waits for all of it."""
        return None if self.request.query_params.get("format", "html") != "html" else PATIENCE_S

    async def rows(self, sql: str, *, about: str, keep_s: float = REPORT_S, **parameters: object) -> "Rows | None":
        """Rows of ClickHouse; None: they are being read. Raises `NoAnswer`."""
        self.check_may_look()
        return await self.console.history.rows(sql, parameters, keep_s=keep_s, about=about, wait_s=self.patience_s)

    async def report(self, *, since: int, until: int, path: str) -> "budgets_pb2.BudgetReportResponse | None":
        """What budgets were owed and got; None: it is being read."""
        self.check_may_look()
        request = budgets_pb2.BudgetReportRequest(since_ms=since, until_ms=until, path=path)
        report, token = self.console.gateway.budgets.Report, self.who.token
        return await self.console.shared.latest(
            ("report", path, until - since),
            lambda: self.console.gateway.call(report, request, token=token),
            keep_s=REPORT_S,
            wait_s=self.patience_s,
        )

    async def hosts(self) -> hosts_pb2.ListHostsResponse:
        """The hosts."""
        return await self.share("hosts", self.console.gateway.hosts.List, hosts_pb2.ListHostsRequest())

    async def share(
        self,
        name: str,
        method: "grpc.aio.UnaryUnaryMultiCallable[Q, A]",
        request: Q,
        *,
        keep_s: float = MOMENT_S,
        also: Hashable = None,
    ) -> A:
        """An answer that all who may look may have. `also`: what it follows from beside the request."""
        self.check_may_look()
        gateway, token = self.console.gateway, self.who.token
        key = (name, request.SerializeToString(deterministic=True), also)
        return await self.console.shared.get(key, lambda: gateway.call(method, request, token=token), keep_s=keep_s)

    def check_may_look(self) -> None:
        """Raise `NoAnswer` for who may not see what all who may look see."""
        if Right.LOOK not in self.who.rights:
            raise NoAnswer("PERMISSION_DENIED", f"{self.who.user} may not look at jobs, budgets and hosts")

    async def do(self, method: "grpc.aio.UnaryUnaryMultiCallable[Q, A]", request: Q) -> A:
        """A call of the caller's own. Raises `NoAnswer`."""
        return await self.console.gateway.call(method, request, token=self.who.token)


def checked_text(text: str, *, field: str) -> str:
    """A word that somebody typed. Raises `Refusal`."""
    if len(text) > TEXT_MAX or not text.isprintable():
        raise Refusal(field=field, problem="is too long, or has characters that cannot be shown", fix="shorten it")
    return text.strip()
