"""Hosts: their states and signals, incidents and repairs; and orders to drain, resume and repair, for operators."""

import time
from collections.abc import Mapping
from urllib.parse import quote

from services.console import words
from services.console.asked import Asked, Page, checked_text
from services.console.gateway import NoAnswer
from services.console.pages.spans import DAYS, days_of, span_of
from services.console.tables import Column, Kind, Row, Table
from tenure.domain.reasons import Reason
from tenure.domain.refusal import Refusal
from tenure.domain.rights import Right
from tenure.domain.units import DAY, parse_duration
from tenure.v1 import hosts_pb2, jobs_pb2

REPORT_S = 2.0
HEARD_STEP_MS = 5_000
"""An open page of a host is told in such steps that the host was heard."""
VIEWS: Mapping[str, tuple[str, ...]] = {
    "all": (),
    "healthy": ("healthy",),
    "out": ("draining", "drained", "repairing", "probation", "failed", "lost"),
    "doubted": ("suspect",),
}
TITLES = {"all": "All", "healthy": "Healthy", "out": "Out of service or leaving", "doubted": "Doubted"}
HOSTS = (
    Column(key="host", title="Host", kind=Kind.HOST, below="block"),
    Column(key="state", title="State", kind=Kind.STATE),
    Column(key="gpus_held", title="Held", kind=Kind.NUMBER),
    Column(key="gpus", title="GPUs", kind=Kind.NUMBER),
    Column(key="gpu_type", title="Type", below="cluster"),
    Column(key="last_seen_ms", title="Heard", kind=Kind.SINCE, says="How long ago its agent was heard last"),
    Column(key="signals", title="Signals", kind=Kind.NUMBER),
    Column(key="gravest", title="Gravest", wide=True),
    Column(key="comment", title="Why", wide=True),
)
SIGNALS = (
    Column(key="code", title="Signal", below="device"),
    Column(key="severity", title="Severity"),
    Column(key="source", title="From"),
    Column(key="count", title="Times", kind=Kind.NUMBER),
    Column(key="first_at_ms", title="First", kind=Kind.INSTANT),
    Column(key="last_at_ms", title="Last", kind=Kind.INSTANT),
    Column(key="text", title="What it says", wide=True, below="evidence"),
)
INCIDENTS = (
    Column(key="began_ms", title="Began", kind=Kind.INSTANT),
    Column(key="host", title="Host", kind=Kind.HOST),
    Column(key="reason", title="Why", wide=True),
    Column(key="state", title="State", kind=Kind.STATE),
    Column(key="ending", title="Ended by", says="automatic, human, or open"),
    Column(key="drained_ms", title="Empty", kind=Kind.INSTANT),
    Column(key="ended_ms", title="Back", kind=Kind.INSTANT),
    Column(key="lasted_ms", title="Lasted", kind=Kind.LENGTH),
    Column(key="refunded_gpu_ms", title="Refunded", kind=Kind.GPU_TIME, says="GPU-hours given back to budgets (P2)"),
    Column(key="by", title="By", below="comment"),
    Column(key="incident", title="Incident", shown=False),
)
CAUSES = (
    Column(key="reason", title="Cause", wide=True),
    Column(key="automatic", title="Ended by itself", kind=Kind.NUMBER),
    Column(key="human", title="By a person", kind=Kind.NUMBER),
    Column(key="still_open", title="Open", kind=Kind.NUMBER),
    Column(key="refunded_gpu_ms", title="Refunded", kind=Kind.GPU_TIME),
)
RUNS = (
    Column(key="run", title="Run"),
    Column(key="job", title="Job", kind=Kind.JOB, below="name"),
    Column(key="budget", title="Budget", kind=Kind.BUDGET, below="user"),
    Column(key="state", title="State", kind=Kind.STATE),
    Column(key="protected_until_ms", title="Protected for", kind=Kind.UNTIL),
)


async def show_all(asked: Asked) -> Page:
    """All hosts, and the numbers of their incidents."""
    view = asked.choice("view", "all", tuple(VIEWS))
    hosts = (await asked.hosts()).hosts
    report = await _report(asked)
    shown = [_row(host) for host in hosts if not VIEWS[view] or host.state in VIEWS[view]]
    causes: list[Row] = [
        {
            "reason": _reason(cause.reason),
            "automatic": cause.automatic,
            "human": cause.human,
            "still_open": cause.still_open,
            "refunded_gpu_ms": cause.refunded_gpu_ms,
        }
        for cause in report.causes
    ]
    none = "There was no incident."
    tables = [
        Table(name="hosts", caption="Hosts", columns=HOSTS, rows=shown, key="host", empty="No host is like that."),
        _incidents(report, ""),
        Table(name="causes", caption="Incidents by cause", columns=CAUSES, rows=causes, key="reason", empty=none),
    ]
    numbers = {name: sum(1 for host in hosts if not states or host.state in states) for name, states in VIEWS.items()}
    spreads = [
        (title, words.age(spread.p50_ms), words.age(spread.p90_ms))
        for title, spread in (("To detect", report.detect), ("To drain", report.drain), ("To repair", report.repair))
        if spread.count
    ]
    return Page(
        section="hosts",
        title="Hosts",
        template="hosts.html",
        tables=tables,
        seen=[numbers, spreads, report.availability if report.HasField("availability") else None],
        context={
            "live": True,
            "view": view,
            "titles": TITLES,
            "numbers": numbers,
            "report": report,
            "spreads": spreads,
            "days": days_of(asked),
            "all_days": DAYS,
        },
    )


async def show(asked: Asked) -> Page:
    """One host."""
    name = asked.request.path_params["host"]
    host = next((each for each in (await asked.hosts()).hosts if each.host == name), None)
    if host is None:
        raise NoAnswer("NOT_FOUND", f"there is no host {name[:100]!r}; see all hosts")
    report = await _report(asked)
    runs = await _runs(asked, list(host.runs))
    signals: list[Row] = [
        {key: getattr(signal, key) for column in SIGNALS for key in (column.key, column.below) if key}
        for signal in host.signals
    ]
    nothing, empty = "Nothing is said against it.", "Nothing runs on it."
    tables = [
        Table(name="signals", caption="Signals", columns=SIGNALS, rows=signals, key="", empty=nothing),
        Table(name="runs", caption="Runs on it", columns=RUNS, rows=runs, key="run", empty=empty),
        _incidents(report, name),
    ]
    may = asked.who.may(Right.TEND_HOSTS)
    leaves = host.state in ("draining", "drained")
    return Page(
        section="hosts",
        title=name,
        template="host.html",
        tables=tables,
        seen=[
            host.state,
            host.gpus_held,
            host.comment,
            host.empty_at_ms,
            host.deadline_ms,
            host.waits_for,
            host.last_seen_ms // HEARD_STEP_MS,
            may,
        ],
        context={
            "live": True,
            "host": host,
            "may": may,
            "drains": leaves,
            "can_be_repaired": host.state in ("drained", "lost", "repairing", "failed"),
            "days": days_of(asked),
            "all_days": DAYS,
        },
    )


async def drain(asked: Asked, fields: dict[str, str]) -> str:
    """Ask for a drain. Returns where to look afterwards."""
    name = asked.request.path_params["host"]
    within = fields.get("within", "").strip()
    deadline = 0
    if within:
        length = parse_duration(within, field="within")
        if not 0 < length <= 90 * DAY:
            raise Refusal(field="within", problem=f"{within[:40]!r} is out of range", fix="give up to 90d, or nothing")
        deadline = time.time_ns() // 1_000_000 + length
    request = hosts_pb2.DrainHostRequest(
        host=name,
        comment=_comment(fields),
        fatal=fields.get("fatal") == "yes",
        deadline_ms=deadline,
        accepts=bool(deadline) and fields.get("accepts") == "yes",
    )
    await asked.do(asked.console.gateway.hosts.Drain, request)
    return _address(name)


async def resume(asked: Asked, fields: dict[str, str]) -> str:
    """Have it take runs again. Returns where to look afterwards."""
    name = asked.request.path_params["host"]
    request = hosts_pb2.ResumeHostRequest(host=name, comment=_comment(fields))
    await asked.do(asked.console.gateway.hosts.Resume, request)
    return _address(name)


async def repaired(asked: Asked, fields: dict[str, str]) -> str:
    """Say that it is repaired. Returns where to look afterwards."""
    name = asked.request.path_params["host"]
    request = hosts_pb2.CompleteRepairRequest(host=name, comment=_comment(fields))
    await asked.do(asked.console.gateway.hosts.CompleteRepair, request)
    return _address(name)


def _comment(fields: dict[str, str]) -> str:
    return checked_text(fields.get("comment", ""), field="comment")


def _address(name: str) -> str:
    return f"/hosts/{quote(name, safe='')}"


async def _report(asked: Asked) -> hosts_pb2.HostReportResponse:
    request = hosts_pb2.HostReportRequest(since_ms=span_of(asked).since)
    return await asked.share("host-report", asked.console.gateway.hosts.Report, request, keep_s=REPORT_S)


async def _runs(asked: Asked, runs: list[str]) -> list[Row]:
    """The runs with what is known of their jobs."""
    if not runs:
        return []
    live = await asked.jobs(jobs_pb2.ListJobsRequest(states=["starting", "running", "stopping"], limit=10_000))
    known = {run.run_id: (job, run) for job in live.jobs for run in job.runs[-1:]}
    rows: list[Row] = []
    for name in runs:
        job, run = known.get(name, (None, None))
        rows.append(
            {
                "run": name,
                "job": name.rpartition(".")[0] if job is None else job.job_id,
                "name": "" if job is None else job.spec.name,
                "budget": "" if job is None else job.spec.budget,
                "user": "" if job is None else job.spec.user,
                "state": "" if run is None else run.state,
                "protected_until_ms": None if run is None else run.protected_until_ms or None,
            }
        )
    return rows


def _row(host: hosts_pb2.Host) -> Row:
    gravest = host.signals[0] if host.signals else None
    return {
        "host": host.host,
        "block": host.block,
        "state": host.state,
        "gpus_held": host.gpus_held,
        "gpus": host.gpus,
        "gpu_type": host.gpu_type,
        "cluster": host.cluster,
        "last_seen_ms": host.last_seen_ms,
        "signals": len(host.signals),
        "gravest": "" if gravest is None else f"{gravest.code} ({gravest.severity}): {gravest.text}",
        "comment": host.comment,
    }


def _incidents(report: hosts_pb2.HostReportResponse, host: str) -> Table:
    """Of one host, or of all; the latest first."""
    rows: list[Row] = [
        {
            "began_ms": each.began_ms,
            "host": each.host,
            "reason": _reason(each.reason),
            "state": each.state,
            "ending": each.ending,
            "drained_ms": each.drained_ms or None,
            "ended_ms": each.ended_ms or None,
            "lasted_ms": each.ended_ms - each.began_ms if each.ended_ms else None,
            "refunded_gpu_ms": each.refunded_gpu_ms or None,
            "by": each.by,
            "comment": each.comment,
            "incident": each.incident,
        }
        for each in report.incidents
        if not host or each.host == host
    ]
    none = "There was no incident."
    return Table(name="incidents", caption="Incidents", columns=INCIDENTS, rows=rows[::-1], key="incident", empty=none)


def _reason(name: str) -> str:
    """A reason without its numbers, in words."""
    try:
        return words.why(jobs_pb2.Why(rule="P9", reason=Reason(name).value))
    except ValueError:
        return name.replace("_", " ")
