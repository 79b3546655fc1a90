"""A gateway with canned answers: a real gRPC server on a free port that says what a test told it and keeps requests."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import grpc

from tenure.v1 import budgets_pb2, budgets_pb2_grpc, hosts_pb2, hosts_pb2_grpc, jobs_pb2, jobs_pb2_grpc

NOW = 1_790_000_000_000


@dataclass
class Canned:
    """What the server says and what it was asked. `refusals`: method name to (code, message)."""

    jobs: list[jobs_pb2.Job] = field(default_factory=list)
    budgets: list[budgets_pb2.Budget] = field(default_factory=list)
    changes: list[budgets_pb2.BudgetChange] = field(default_factory=list)
    report_rows: list[budgets_pb2.BudgetReportRow] = field(default_factory=list)
    users: list[budgets_pb2.UserUsage] = field(default_factory=list)
    hosts: list[hosts_pb2.Host] = field(default_factory=list)
    steps: list[jobs_pb2.Step] = field(default_factory=list)
    pools: list[hosts_pb2.PoolFragmentation] = field(default_factory=list)
    host_report: hosts_pb2.HostReportResponse = field(default_factory=hosts_pb2.HostReportResponse)
    explained: jobs_pb2.ExplainJobResponse = field(default_factory=jobs_pb2.ExplainJobResponse)
    """What stands before a job; its steps are `steps`."""
    output: list[bytes] = field(default_factory=list)
    cluster: jobs_pb2.ClusterSummary = field(default_factory=lambda: jobs_pb2.ClusterSummary(now_ms=NOW))
    forecast: jobs_pb2.ForecastSummary | None = None
    refusals: dict[str, tuple[grpc.StatusCode, str]] = field(default_factory=dict)
    drop_after: int | None = None
    """Break the next output stream off after so many pieces, once."""
    requests: list[Any] = field(default_factory=list)
    address: str = ""

    def last(self, kind: type[Any]) -> Any:
        """The last request of this kind."""
        return next(request for request in reversed(self.requests) if isinstance(request, kind))

    def take(self, method: str, request: Any, context: grpc.ServicerContext) -> None:
        """Keep the request; refuse it if so told."""
        self.requests.append(request)
        if method in self.refusals:
            context.abort(*self.refusals[method])

    def job(self, job_id: str, context: grpc.ServicerContext) -> jobs_pb2.Job:
        """The job of that id."""
        for job in self.jobs:
            if job.job_id == job_id:
                return job
        context.abort(grpc.StatusCode.NOT_FOUND, f"job: {job_id!r} is unknown; see tenure queue --all")
        raise AssertionError("abort raises")


class _Jobs(jobs_pb2_grpc.JobsServicer):
    def __init__(self, canned: Canned) -> None:
        self.canned = canned

    def Submit(self, request, context):  # noqa: N802
        self.canned.take("Submit", request, context)
        return jobs_pb2.SubmitResponse(job_id="j1")

    def SubmitBatch(self, request, context):  # noqa: N802
        self.canned.take("SubmitBatch", request, context)
        return jobs_pb2.SubmitBatchResponse(job_ids=[f"j{n}" for n in range(len(request.jobs))])

    def Get(self, request, context):  # noqa: N802
        self.canned.take("Get", request, context)
        return jobs_pb2.GetJobResponse(job=self.canned.job(request.job_id, context))

    def List(self, request, context):  # noqa: N802
        self.canned.take("List", request, context)
        counts: dict[str, int] = {}
        for job in self.canned.jobs:
            counts[job.state] = counts.get(job.state, 0) + 1
        chosen = [job for job in self.canned.jobs if not request.states or job.state in request.states]
        cluster, forecast = self.canned.cluster, self.canned.forecast
        return jobs_pb2.ListJobsResponse(jobs=chosen, counts=counts, cluster=cluster, forecast=forecast)

    def Watch(self, request, context) -> Iterator[jobs_pb2.WatchJobResponse]:  # noqa: N802
        self.canned.take("Watch", request, context)
        job = self.canned.job(request.job_id, context)
        for state in ("queued", "running"):
            earlier = jobs_pb2.Job()
            earlier.CopyFrom(job)
            earlier.state = state
            yield jobs_pb2.WatchJobResponse(job=earlier)
        yield jobs_pb2.WatchJobResponse(job=job)

    def Cancel(self, request, context):  # noqa: N802
        self.canned.take("Cancel", request, context)
        return jobs_pb2.CancelJobResponse(job=self.canned.job(request.job_id, context))

    def Explain(self, request, context):  # noqa: N802
        self.canned.take("Explain", request, context)
        now = next((job for job in self.canned.jobs if job.job_id == request.job_id), None)
        answer = jobs_pb2.ExplainJobResponse(steps=self.canned.steps, position=77, job=now)
        answer.MergeFrom(self.canned.explained)
        return answer

    def Logs(self, request, context) -> Iterator[jobs_pb2.JobLogsResponse]:  # noqa: N802
        self.canned.take("Logs", request, context)
        data = b"".join(self.canned.output)
        start, sent = 0, 0
        for piece in self.canned.output:
            end = start + len(piece)
            if end > request.offset:
                if self.canned.drop_after == sent:
                    self.canned.drop_after = None
                    context.abort(grpc.StatusCode.UNAVAILABLE, "going away")
                begin = max(start, request.offset)
                yield jobs_pb2.JobLogsResponse(data=data[begin:end], offset=begin)
                sent += 1
            start = end


class _Budgets(budgets_pb2_grpc.BudgetsServicer):
    def __init__(self, canned: Canned) -> None:
        self.canned = canned

    def GetTree(self, request, context):  # noqa: N802
        self.canned.take("GetTree", request, context)
        return budgets_pb2.GetTreeResponse(budgets=self.canned.budgets, position=12)

    def SetShares(self, request, context):  # noqa: N802
        self.canned.take("SetShares", request, context)
        return budgets_pb2.SetSharesResponse(position=13)

    def History(self, request, context):  # noqa: N802
        self.canned.take("History", request, context)
        return budgets_pb2.BudgetHistoryResponse(changes=self.canned.changes)

    def Report(self, request, context):  # noqa: N802
        self.canned.take("Report", request, context)
        return budgets_pb2.BudgetReportResponse(
            rows=self.canned.report_rows,
            since_ms=request.since_ms or NOW - 3_600_000,
            until_ms=request.until_ms or NOW,
            position=5,
            users=self.canned.users if request.users else (),
        )


class _Hosts(hosts_pb2_grpc.HostsServicer):
    def __init__(self, canned: Canned) -> None:
        self.canned = canned

    def List(self, request, context):  # noqa: N802
        self.canned.take("ListHosts", request, context)
        return hosts_pb2.ListHostsResponse(hosts=self.canned.hosts)

    def Fragmentation(self, request, context):  # noqa: N802
        self.canned.take("Fragmentation", request, context)
        return hosts_pb2.FragmentationResponse(pools=self.canned.pools, now_ms=NOW)

    def Report(self, request, context):  # noqa: N802
        self.canned.take("HostReport", request, context)
        return self.canned.host_report

    def Drain(self, request, context):  # noqa: N802
        self.canned.take("Drain", request, context)
        return hosts_pb2.DrainHostResponse(
            host=hosts_pb2.Host(host=request.host, state="draining", empty_at_ms=NOW + 60_000, waits_for="j1.1")
        )

    def Resume(self, request, context):  # noqa: N802
        self.canned.take("Resume", request, context)
        return hosts_pb2.ResumeHostResponse(host=hosts_pb2.Host(host=request.host, state="healthy"))

    def CompleteRepair(self, request, context):  # noqa: N802
        self.canned.take("CompleteRepair", request, context)
        return hosts_pb2.CompleteRepairResponse(host=hosts_pb2.Host(host=request.host, state="healthy"))


def serve(canned: Canned) -> grpc.Server:
    """The server, started; `canned.address` says where."""
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    jobs_pb2_grpc.add_JobsServicer_to_server(_Jobs(canned), server)
    budgets_pb2_grpc.add_BudgetsServicer_to_server(_Budgets(canned), server)
    hosts_pb2_grpc.add_HostsServicer_to_server(_Hosts(canned), server)
    port = server.add_insecure_port("127.0.0.1:0")
    canned.address = f"127.0.0.1:{port}"
    server.start()
    return server
