"""`tenure job` and `cancel`: one job, and its end."""

import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli import completion, words
from tenure.cli.connection import caller, connect
from tenure.cli.options import JOBS, JobArgument, Json
from tenure.cli.queue import STATE_STYLES
from tenure.cli.terminal import Cell, Column, Table, cell, clean, print_json, print_table, say
from tenure.domain.host import CPU
from tenure.sdk.errors import ServerRefused

if TYPE_CHECKING:
    from tenure.v1 import jobs_pb2

RUN_COLUMNS = (
    Column(title="RUN"),
    Column(title="STATE"),
    Column(title="STARTED"),
    Column(title="PROTECTED UNTIL", drop=2),
    Column(title="ENDED", drop=1),
    Column(title="EXIT", right=True, drop=3),
    Column(title="BY", drop=4, least=8),
    Column(title="HOSTS", drop=5, least=16),
)


def register(app: typer.Typer) -> None:
    """Add the commands to the tree."""
    app.command(rich_help_panel=JOBS)(job)
    app.command(rich_help_panel=JOBS)(cancel)


def job(
    job_id: JobArgument,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Print each change until it is over.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is over; status 0 if it completed.")] = False,
    as_json: Json = False,
) -> None:
    """Show one job: what it asked for, where it is and why, its runs."""
    with connect() as client:
        if not (watch or wait):
            _show(client.job(job_id, forecast=True), as_json=as_json)
            return
        shown = ""
        for latest in client.watch(job_id):
            line = _change_line(latest)
            if watch and line != shown and not as_json:
                say(Cell(f"{words.exact_clock(words.now_ms())}  "), *line_cells(latest))
                sys.stdout.flush()
            shown = line
    if as_json or wait:
        _show(latest, as_json=as_json)
    if latest.state != "completed":
        raise typer.Exit(1)


def cancel(
    job_ids: Annotated[
        list[str], typer.Argument(metavar="JOB...", help="Ids of the jobs.", autocompletion=completion.jobs)
    ],
    as_json: Json = False,
) -> None:
    """Cancel jobs, whatever they are doing. Their processes get SIGTERM and their grace."""
    refused = 0
    states: dict[str, str | None] = {}
    with connect() as client:
        for job_id in job_ids:
            try:
                states[job_id] = client.cancel(job_id, user=caller()).state
            except ServerRefused as refusal:
                refused += 1
                states[job_id] = None
                print(f"tenure: {clean(str(refusal))}", file=sys.stderr)
                continue
            if not as_json:
                print(f"{job_id} {states[job_id]}")
    if as_json:
        print_json({"jobs": [{"job": job_id, "state": state} for job_id, state in states.items()]})
    if refused:
        raise typer.Exit(1)


def reason_cells(why: "jobs_pb2.Why") -> list[Cell]:
    """A reason for people: the rule, the words, the numbers; empty where there is none."""
    if not why.reason and not why.rule:
        return []
    numbers = words.numbers(why.numbers)
    return [
        Cell(f"{clean(why.rule)} " if why.rule else "", "cyan"),
        Cell(clean(words.reason(why.reason)), "bold"),
        Cell(f": {clean(numbers)}" if numbers else "", "dim"),
    ]


def line_cells(job: "jobs_pb2.Job") -> list[Cell]:
    """The job's state in one line."""
    run = f"  run {job.runs[-1].number} {clean(job.runs[-1].state)}" if job.runs else ""
    reason = reason_cells(job.why)
    return [cell(job.state, STATE_STYLES.get(job.state, "")), Cell(run), Cell("  " if reason else ""), *reason]


def _change_line(job: "jobs_pb2.Job") -> str:
    return "".join(part.text for part in line_cells(job))


def _show(job: "jobs_pb2.Job", *, as_json: bool) -> None:
    from tenure.cli import documents

    if as_json:
        print_json(documents.job(job))
        return
    now = words.now_ms()
    spec = job.spec
    shape = words.gang(replicas=spec.replicas, gpus_per_replica=spec.gpus_per_replica)
    environment = " ".join(f"{key}={value}" for key, value in sorted(spec.environment.items()))
    fields: list[tuple[str, object]] = [
        ("Name", spec.name),
        ("Budget", spec.budget),
        ("User", spec.user),
        ("CPUs", shape) if spec.gpu_type == CPU else ("GPUs", f"{shape} {spec.gpu_type}".rstrip()),
        ("Cluster", spec.cluster or None),
        ("Topology", spec.topology if spec.topology not in ("", "any") else None),
        ("Only on", ", ".join(spec.hosts) or None),
        ("Not on", ", ".join(spec.hosts_excluded) or None),
        ("Contract", words.contract(min_runtime_ms=spec.min_runtime_ms, resumable=spec.resumable)),
        ("Priority", spec.priority or None),
        ("Submitted", words.clock(job.submitted_at_ms, now=now)),
        ("Waited", words.age(job.first_started_at_ms - job.submitted_at_ms) if job.first_started_at_ms else None),
        ("Over since", words.clock(job.finished_at_ms, now=now) if job.finished_at_ms else None),
        ("Rank", job.rank or None),
        ("Latest start", words.instant(job.latest_start_ms, now=now) if job.latest_start_ms else None),
        ("Start, p50", words.instant(p50, now=now) if (p50 := job.forecast_start_p50_ms) else None),
        ("Start, p90", words.instant(p90, now=now) if (p90 := job.forecast_start_p90_ms) else None),
        ("Resumed", f"{job.resume_count} times" if job.resume_count else None),
        ("Charged", words.gpu_time(job.charged_gpu_ms) if job.charged_gpu_ms else None),
        ("Refunded", words.gpu_time(job.refunded_gpu_ms) if job.refunded_gpu_ms else None),
        ("Command", shlex.join(spec.command)),
        ("Directory", spec.working_directory),
        ("Environment", environment),
    ]
    say(Cell(job.job_id, "bold"), "  ", cell(job.state, STATE_STYLES.get(job.state, "")))
    if reason := reason_cells(job.why):
        say("  Why           ", *reason)
    for title, value in fields:
        if value not in (None, ""):
            say(f"  {title:<13} ", cell(value))
    if job.runs:
        print()
        print_table(_runs_table(job, now=now), empty="")


def _runs_table(job: "jobs_pb2.Job", *, now: int) -> Table:
    rows = [
        [
            cell(run.run_id),
            cell(run.state, STATE_STYLES.get(run.state, "")),
            cell(words.clock(run.started_at_ms, now=now)),
            cell(words.clock(run.protected_until_ms, now=now)),
            cell(words.clock(run.ended_at_ms, now=now)),
            cell(run.exit_code if run.HasField("exit_code") else None),
            cell(run.ended_by),
            cell(" ".join(f"{place.host}:{','.join(map(str, place.gpus))}" for place in run.hosts)),
        ]
        for run in job.runs
    ]
    return Table(columns=RUN_COLUMNS, rows=rows)
