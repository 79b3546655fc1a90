"""One request of a page: what it asks, who asks, and what pages answer from. Bad questions name the field."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import grpc
from google.protobuf.message import Message
from starlette.requests import Request

from services.console.callers import Callers, Who
from services.console.gateway import Gateway, NoAnswer
from services.console.history import History
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

    async def tree(self) -> budgets_pb2.GetTreeResponse:
        """The budgets."""
        return await self.share("tree", self.console.gateway.budgets.GetTree, budgets_pb2.GetTreeRequest())

    async def report(self, *, since: int, until: int, path: str) -> budgets_pb2.BudgetReportResponse:
        """What budgets were owed and got."""
        request = budgets_pb2.BudgetReportRequest(since_ms=since, until_ms=until, path=path)
        return await self.share("report", self.console.gateway.budgets.Report, request, keep_s=REPORT_S)

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
        if Right.LOOK not in self.who.rights:
            raise NoAnswer("PERMISSION_DENIED", f"{self.who.user} may not look at jobs, budgets and hosts")
        gateway, token = self.console.gateway, self.who.token
        key = (name, request.SerializeToString(deterministic=True), also)
        return await self.console.shared.get(key, lambda: gateway.call(method, request, token=token), keep_s=keep_s)

    async def do(self, method: "grpc.aio.UnaryUnaryMultiCallable[Q, A]", request: Q) -> A:
        """A call of the caller's own. Raises `NoAnswer`."""
        return await self.console.gateway.call(method, request, token=self.who.token)


def checked_text(text: str, *, field: str) -> str:
    """A word that somebody typed. Raises `Refusal`."""
    if len(text) > TEXT_MAX or not text.isprintable():
        raise Refusal(field=field, problem="is too long, or has characters that cannot be shown", fix="shorten it")
    return text.strip()
