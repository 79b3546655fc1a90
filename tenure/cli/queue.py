"""`tenure queue`: what runs and what waits, in the order it will start, and why; `--watch` keeps it current.

`--fragmentation` shows instead what could start on the hosts.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli import completion, words
from tenure.cli.connection import connect
from tenure.cli.options import JOBS, Json
from tenure.cli.standing import ahead_gpu_ms, ratio
from tenure.cli.terminal import Cell, Column, Table, as_plain, as_rich, cell, clean, console, is_terminal, print_table
from tenure.sdk.errors import ServerUnreachable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tenure.v1 import budgets_pb2, jobs_pb2

    Look = Callable[[], tuple[jobs_pb2.ListJobsResponse, budgets_pb2.GetTreeResponse]]

LISTED = 100
"""Jobs shown unless --limit says otherwise."""
LIVE = ("submitted", "queued", "starting", "running", "stopping")
STATE_STYLES = {
    "submitted": "dim",
    "queued": "yellow",
    "starting": "cyan",
    "running": "green",
    "stopping": "magenta",
    "completed": "dim",
    "failed": "red",
    "preempted": "magenta",
    "cancelled": "dim",
    "rejected": "red",
}
COLUMNS = (
    Column(title="JOB"),
    Column(title="STATE"),
    Column(title="RANK", right=True, drop=3),
    Column(title="BUDGET", least=14),
    Column(title="USER", drop=6, least=6),
    Column(title="NAME", drop=5, least=10),
    Column(title="GPUS", right=True),
    Column(title="CONTRACT", drop=4),
    Column(title="FOR", right=True, drop=2),
    Column(title="RATIO", right=True, drop=7),
    Column(title="AHEAD", right=True, drop=7),
    Column(title="LATEST START", right=True, drop=8),
    Column(title="WHY", drop=1, least=16),
)
FORECAST = (Column(title="START P50", right=True, drop=3), Column(title="START P90", right=True, drop=6))
"""Before the last column, where any job has a forecast."""


def register(app: typer.Typer) -> None:
    """Add the command to the tree."""
    app.command(rich_help_panel=JOBS)(queue)


def queue(
    budget: Annotated[
        str,
        typer.Option(
            "--budget",
            "-b",
            metavar="PATH",
            help="Only this one and below.",
            show_default=False,
            autocompletion=completion.budgets,
        ),
    ] = "",
    user: Annotated[str, typer.Option("--user", "-u", help="Only this user's.", show_default=False)] = "",
    state: Annotated[
        list[str] | None, typer.Option("--state", "-s", metavar="STATE", help="Only jobs in this state. Repeatable.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Jobs that are over, too.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="At most so many jobs.")] = LISTED,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep the screen current until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often --watch looks.")] = 1.0,
    fragmentation: Annotated[
        bool, typer.Option("--fragmentation", help="Instead: how large a gang could be placed, and when.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what runs and what waits, in order, and why."""
    if fragmentation:
        given = {"--budget": budget, "--user": user, "--state": state, "--all": everything, "--watch": watch}
        given["--limit"] = limit != LISTED
        _show_fragmentation([option for option, value in given.items() if value], as_json=as_json)
        return
    states = tuple(state or ()) or (() if everything else LIVE)
    empty = "No jobs." if everything or state else "Nothing runs and nothing waits."
    with connect() as client:

        def look() -> "tuple[jobs_pb2.ListJobsResponse, budgets_pb2.GetTreeResponse]":
            return client.jobs(states=states, budget=budget, user=user, limit=limit, forecast=True), client.tree()

        if watch and not as_json:
            _watch(look, every=every, empty=empty)
            return
        jobs, tree = look()
    if as_json:
        from tenure.cli import documents
        from tenure.cli.terminal import print_json

        print_json(documents.queue(jobs, {budget.path: budget for budget in tree.budgets}))
        return
    print(summary(jobs))
    print_table(table(jobs, tree), empty=empty)
    if jobs.forecast.trouble and not jobs.forecast.made_at_ms and jobs.counts.get("queued"):
        print(f"No expected starts: {clean(jobs.forecast.trouble)}.")
    if len(jobs.jobs) == limit:
        print(f"The first {limit}; more with --limit.")


def _show_fragmentation(others: list[str], *, as_json: bool) -> None:
    """`others`: options that choose jobs, of which there are none here."""
    from tenure.cli import documents, fragmentation
    from tenure.cli.terminal import print_json

    if others:
        problem = f"it shows hosts, not jobs; leave out {', '.join(others)}"
        raise typer.BadParameter(problem, param_hint="'--fragmentation'")
    with connect() as client:
        answer = client.fragmentation()
    if as_json:
        print_json(documents.fragmentation(answer))
    else:
        fragmentation.show(answer)


def summary(answer: "jobs_pb2.ListJobsResponse") -> str:
    """One line about the cluster and the number of jobs."""
    cluster, counts = answer.cluster, answer.counts
    missing = cluster.gpus - cluster.gpus_available
    parts = [
        f"{cluster.gpus} GPUs",
        *([f"{missing} unavailable"] if missing else []),
        f"{cluster.gpus_allocated} allocated",
        f"{cluster.gpus_unallocated} unallocated",
        f"{cluster.gpus_free} free",
    ]
    live = [f"{counts[state]} {state}" for state in LIVE if counts.get(state)]
    return ", ".join(parts) + (f" | jobs: {', '.join(live)}" if live else " | no jobs")


def table(answer: "jobs_pb2.ListJobsResponse", tree: "budgets_pb2.GetTreeResponse") -> Table:
    """A row for each job."""
    budgets = {budget.path: budget for budget in tree.budgets}
    now = answer.cluster.now_ms
    rows = [_row(job, budgets.get(job.spec.budget), now=now) for job in answer.jobs]
    if not any(job.forecast_start_p50_ms for job in answer.jobs):
        return Table(columns=COLUMNS, rows=rows)
    starts = [_starts(job, now=now) for job in answer.jobs]
    rows = [[*row[:-1], *start, row[-1]] for row, start in zip(rows, starts, strict=True)]
    return Table(columns=(*COLUMNS[:-1], *FORECAST, COLUMNS[-1]), rows=rows)


def _starts(job: "jobs_pb2.Job", *, now: int) -> list[Cell]:
    """The instants by which it will probably, and very probably, have started."""
    return [cell(words.clock(at, now=now)) for at in (job.forecast_start_p50_ms, job.forecast_start_p90_ms)]


def _row(job: "jobs_pb2.Job", budget: "budgets_pb2.Budget | None", *, now: int) -> list[Cell]:
    spec, standing = job.spec, None if budget is None else ratio(budget)
    return [
        cell(job.job_id),
        cell(job.state, STATE_STYLES.get(job.state, "")),
        cell(job.rank or None),
        cell(spec.budget),
        cell(spec.user),
        cell(spec.name),
        cell(words.gang(replicas=spec.replicas, gpus_per_replica=spec.gpus_per_replica)),
        cell(words.contract(min_runtime_ms=spec.min_runtime_ms, resumable=spec.resumable)),
        cell(words.age(now - _since(job))),
        cell(None if standing is None else f"{standing:.2f}"),
        cell(None if budget is None or standing is None else words.ahead(ahead_gpu_ms(budget))),
        cell(words.instant(job.latest_start_ms, now=now)),
        cell(_why(job, now=now)),
    ]


def _since(job: "jobs_pb2.Job") -> int:
    """Since when the job is in what matters of its state: running since, waiting since, over since."""
    if job.finished_at_ms:
        return job.finished_at_ms
    if job.state in ("running", "stopping") and job.runs and job.runs[-1].started_at_ms:
        return job.runs[-1].started_at_ms
    return job.submitted_at_ms


def _why(job: "jobs_pb2.Job", *, now: int) -> str:
    if job.state == "running" and job.runs and job.spec.min_runtime_ms:
        until = job.runs[-1].protected_until_ms
        return f"protected until {words.clock(until, now=now)}" if until > now else "past its protection"
    if not job.why.reason:
        return ""
    rule = f" ({job.why.rule})" if job.why.rule else ""
    room = words.room(job.why.numbers)
    return words.reason(job.why.reason) + rule + (f": {room}" if room else "")


def _watch(look: "Look", *, every: float, empty: str) -> None:
    """Show the queue again and again; on a terminal in place, else one listing after the other."""
    if not is_terminal():
        while True:
            jobs, tree = look()
            shown = table(jobs, tree)
            print("\n".join([summary(jobs), *(as_plain(shown) if shown.rows else [empty]), ""]), flush=True)
            time.sleep(every)
    from rich.live import Live

    out = console()
    with Live(console=out, screen=True, auto_refresh=False) as live:
        jobs, tree = look()
        trouble = ""
        while True:
            live.update(_screen(jobs, tree, trouble=trouble, empty=empty, width=out.width, height=out.height))
            live.refresh()
            time.sleep(every)
            try:
                jobs, tree = look()
                trouble = ""
            except ServerUnreachable as away:
                trouble = str(away)


def _screen(
    jobs: "jobs_pb2.ListJobsResponse",
    tree: "budgets_pb2.GetTreeResponse",
    *,
    trouble: str,
    empty: str,
    width: int,
    height: int,
) -> "RenderableType":
    """One screen full: the summary, as many jobs as fit, and what is wrong."""
    from rich.console import Group
    from rich.text import Text

    room = max(1, height - 4)
    shown = table(jobs, tree)
    left_out = len(shown.rows) - room
    now = words.clock(jobs.cluster.now_ms, now=jobs.cluster.now_ms)
    body = as_rich(Table(columns=shown.columns, rows=shown.rows[:room]), width) if shown.rows else Text(empty)
    foot = Text(trouble, style="bold red") if trouble else Text(f"... and {left_out} more" if left_out > 0 else "")
    head = Text(f"{now}  {summary(jobs)}", style="bold", no_wrap=True, overflow="ellipsis")
    return Group(head, body, foot)
