"""A job: why it is where it is, its contract's clock, its runs, its story, what it prints; and its end, for who may."""

import contextlib
import time
from collections.abc import Iterable
from shlex import join
from urllib.parse import quote

from starlette.responses import JSONResponse, Response

from services.console import words
from services.console.asked import FORECAST_S, Asked, Page
from services.console.gateway import ANSWER_S, NoAnswer
from services.console.pages.queue import OVER, RUNNING, WAITING
from services.console.standing import Standing, standing_of
from services.console.tables import Column, Kind, Row, Table
from tenure.domain.rights import Right
from tenure.domain.units import HOUR, format_duration
from tenure.v1 import jobs_pb2

TAIL_BYTES, ANSWER_BYTES_MAX = 65_536, 1 << 20
LAST_WORDS_MS = 5_000
"""So long after a run's end its output is asked for: its agent may still have some."""
STORY_S = 10.0
REPLICAS_MAX = 10_000

RUNS = (
    Column(key="number", title="Run", kind=Kind.NUMBER),
    Column(key="state", title="State", kind=Kind.STATE),
    Column(key="assigned_at_ms", title="Assigned", kind=Kind.INSTANT),
    Column(key="started_at_ms", title="Started", kind=Kind.INSTANT),
    Column(key="protected_until_ms", title="Protected until", kind=Kind.INSTANT),
    Column(key="ended_at_ms", title="Ended", kind=Kind.INSTANT),
    Column(key="exit_code", title="Status", kind=Kind.NUMBER, says="Exit status of the replica that failed first"),
    Column(key="ended_by", title="Gave way to"),
    Column(key="hosts", title="Hosts and GPUs", wide=True),
)
STORY = (
    Column(key="at_ms", title="When", kind=Kind.INSTANT),
    Column(key="kind", title="Fact"),
    Column(key="text", title="What", wide=True),
    Column(key="rule", title="Rule"),
    Column(key="reason", title="Reason", shown=False),
    Column(key="position", title="Position", kind=Kind.NUMBER),
)
IN_THE_WAY = (
    Column(key="run_id", title="Run", below="state"),
    Column(key="job", title="Job", kind=Kind.JOB),
    Column(key="budget", title="Budget", kind=Kind.BUDGET),
    Column(key="gpus", title="GPUs", kind=Kind.NUMBER),
    Column(key="protected_until_ms", title="Protected for", kind=Kind.UNTIL),
)


async def show(asked: Asked) -> Page:
    """The page."""
    job_id = asked.request.path_params["job"]
    job, tree = await asked.job(job_id), await asked.tree()
    story, answer, trouble = await _story(asked, job)
    spec = job.spec
    budget = next((each for each in tree.budgets if each.path == spec.budget), None)
    standing = None if budget is None else standing_of(budget)
    run = job.runs[-1] if job.runs else None
    reserved = job.reservation if job.HasField("reservation") else None
    hosts_kept = None if reserved is None else words_of_hosts(reserved.hosts)
    facts = _facts(job)
    expected = await _expected(asked, job)
    now = time.time_ns() // 1_000_000
    protected = run is not None and run.protected_until_ms > now
    may_cancel = asked.who.may(Right.CANCEL, budget=spec.budget, owner=spec.user)
    output_choice = _output_choice(asked, job)
    charged = job.charged_gpu_ms // (HOUR // 100)  # as exactly as it is shown
    return Page(
        section="queue",
        title=spec.name or job_id,
        template="job.html",
        tables=_tables(job, story, reserved),
        seen=[
            job.state,
            job.rank,
            job.latest_start_ms,
            facts,
            trouble,
            _why(job),
            protected,
            charged,
            answer,
            list(expected),
            _as_shown(standing),
            hosts_kept,
            may_cancel,
            output_choice["may"],
        ],
        context={
            "live": job.state not in OVER,
            "job": job,
            "facts": facts,
            "why": _why(job),
            "answer": answer,
            "expected": expected,
            "run": run if run is not None and run.started_at_ms else None,
            "protected": protected,
            "running": job.state in RUNNING,
            "waiting": job.state in WAITING,
            "over": job.state in OVER,
            "ratio": None if standing is None else standing.ratio,
            "ahead_gpu_ms": None if standing is None else standing.ahead_gpu_ms,
            "reserved": hosts_kept,
            "story_trouble": trouble,
            "steps": list(story),
            "may_cancel": may_cancel,
            "output": output_choice,
        },
    )


def _as_shown(standing: Standing | None) -> tuple[str, str] | None:
    """How a budget stands, as exactly as it is shown."""
    if standing is None or standing.ratio is None:
        return None
    return f"{standing.ratio:.2f}", words.ahead(standing.ahead_gpu_ms)


def _tables(job: jobs_pb2.Job, story: list[jobs_pb2.Step], reserved: jobs_pb2.Reservation | None) -> list[Table]:
    tables = [
        Table(name="runs", caption="Runs", columns=RUNS, rows=_runs(job), key="number", empty="It has not run yet."),
        Table(name="story", caption="Story", columns=STORY, rows=_steps(story), key="position"),
    ]
    if reserved is not None:
        rows = [_in_the_way(each) for each in reserved.waits_for]
        empty = "Nothing is in the way any more."
        tables.append(
            Table(name="waits_for", caption="It waits for", columns=IN_THE_WAY, rows=rows, key="run_id", empty=empty)
        )
    return tables


async def cancel(asked: Asked, _: dict[str, str]) -> str:
    """Ask for its end. Returns where to look afterwards."""
    job_id = asked.request.path_params["job"]
    await asked.do(asked.console.gateway.jobs.Cancel, jobs_pb2.CancelJobRequest(job_id=job_id))
    return f"/jobs/{quote(job_id, safe='')}"


async def output(asked: Asked) -> Response:
    """What a replica has written by now, from `offset` on; the browser asks again for what follows.

    No request stays open: a browser has six connections, and a reader of silent output that has gone away is not seen.
    """
    job_id = asked.request.path_params["job"]
    offset = asked.number("offset", 0, least=0, most=10**11)
    request = jobs_pb2.JobLogsRequest(
        job_id=job_id,
        run=asked.number("run", 0, least=0, most=10**6),
        replica=asked.number("replica", 0, least=0, most=REPLICAS_MAX),
        stream=asked.choice("stream", "stdout", ("stdout", "stderr")),
        offset=offset,
        tail_bytes=0 if offset else TAIL_BYTES,
    )
    try:
        job = await asked.job(job_id)
        if not job.runs:
            return Response(status_code=204)  # it has not run yet: the browser asks again
        chosen = next((run for run in job.runs if run.number == request.run), job.runs[-1])
        request.run = chosen.number
        written, offset, more = await _written(asked, request)
    except NoAnswer as refused:
        return JSONResponse({"error": refused.said}, refused.status)
    over = chosen.ended_at_ms and time.time_ns() // 1_000_000 >= chosen.ended_at_ms + LAST_WORDS_MS and not more
    headers = {"x-tenure-offset": str(offset), "x-tenure-over": "yes" if over else "no"}
    headers["x-tenure-more"] = "yes" if more else "no"
    return Response(written, headers=headers, media_type="text/plain; charset=utf-8")


async def _written(asked: Asked, request: jobs_pb2.JobLogsRequest) -> tuple[bytes, int, bool]:
    """What there is, the offset of its first byte, and whether there may be more already."""
    gateway, written, offset = asked.console.gateway, bytearray(), request.offset
    pieces = gateway.stream(gateway.jobs.Logs, request, token=asked.who.token, timeout_s=ANSWER_S)
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            offset = offset if written else piece.offset
            if piece.offset != offset + len(written):
                return bytes(written), offset, True  # older bytes were thrown away meanwhile
            written += piece.data
            if len(written) >= ANSWER_BYTES_MAX:
                return bytes(written), offset, True
    return bytes(written), offset, False


async def _story(asked: Asked, job: jobs_pb2.Job) -> tuple[list[jobs_pb2.Step], list[str], str]:
    """The steps and the answer in sentences, read again when the job has changed; and why there are none."""
    request = jobs_pb2.ExplainJobRequest(job_id=job.job_id)
    told = jobs_pb2.Job()
    told.CopyFrom(job)
    told.charged_gpu_ms, told.rank = 0, 0  # what moves without a fact of the job
    try:
        answer = await asked.share(
            "explain",
            asked.console.gateway.jobs.Explain,
            request,
            keep_s=STORY_S,
            also=told.SerializeToString(deterministic=True),
        )
    except NoAnswer as away:
        if away.status < 500:
            raise
        return [], [], away.said
    return list(answer.steps), list(answer.answer), ""


async def _expected(asked: Asked, job: jobs_pb2.Job) -> tuple[int, int]:
    """When it will have started in half of the futures that were tried, and in nine of ten; 0: nobody can tell."""
    if job.state != "queued":
        return 0, 0
    request = jobs_pb2.GetJobRequest(job_id=job.job_id, forecast=True)
    get, token = asked.console.gateway.jobs.Get, asked.who.token
    try:
        answer = await asked.console.shared.latest(
            ("expected", job.job_id),
            lambda: asked.console.gateway.call(get, request, token=token),
            keep_s=FORECAST_S,
            wait_s=asked.patience_s,
        )
    except NoAnswer:
        return 0, 0
    return (0, 0) if answer is None else (answer.job.forecast_start_p50_ms, answer.job.forecast_start_p90_ms)


def _facts(job: jobs_pb2.Job) -> list[tuple[str, str]]:
    """What it asked for, in words."""
    spec = job.spec
    return [
        (title, text)
        for title, text in (
            ("GPUs", f"{spec.replicas * spec.gpus_per_replica} ({words.shape(spec)})"),
            ("Contract", words.contract(spec)),
            ("Priority", str(spec.priority) if spec.priority else ""),
            ("GPU type", spec.gpu_type),
            ("Cluster", spec.cluster),
            ("Topology", "" if spec.topology in ("", "any") else spec.topology),
            ("Only on", ", ".join(spec.hosts)),
            ("Not on", ", ".join(spec.hosts_excluded)),
            ("Grace", format_duration(spec.grace_ms)),
            ("Queued again", f"{job.resume_count} times" if job.resume_count else ""),
            ("Refunded", f"{words.gpu_hours(job.refunded_gpu_ms)} GPU-hours" if job.refunded_gpu_ms else ""),
            ("Command", _command(spec.command)),
            ("Directory", spec.working_directory),
        )
        if text
    ]


def _command(command: Iterable[str]) -> str:
    text = join(command)
    return text if len(text) <= 2_000 else f"{text[:2_000]} … ({len(text):,} characters)"


def _why(job: jobs_pb2.Job) -> str:
    return words.why(job.why, gpu_type=job.spec.gpu_type)


def _runs(job: jobs_pb2.Job) -> list[Row]:
    return [
        {
            "number": run.number,
            "state": run.state,
            "assigned_at_ms": run.assigned_at_ms or None,
            "started_at_ms": run.started_at_ms or None,
            "protected_until_ms": (run.protected_until_ms or None) if job.spec.min_runtime_ms else None,
            "ended_at_ms": run.ended_at_ms or None,
            "exit_code": run.exit_code if run.HasField("exit_code") else None,
            "ended_by": run.ended_by,
            "hosts": words_of_hosts(run.hosts),
        }
        for run in job.runs
    ]


def words_of_hosts(hosts: Iterable[jobs_pb2.HostGpus]) -> str:
    """Hosts with their GPUs in few words: `h000 (0-7), h001 (0 2)`; of many the first and how many more."""
    told = [f"{each.host} ({_numbers(list(each.gpus))})" for each in hosts]
    return ", ".join(told) if len(told) <= 16 else f"{', '.join(told[:16])} and {len(told) - 16} more"


def _numbers(gpus: list[int]) -> str:
    if len(gpus) > 2 and gpus == list(range(gpus[0], gpus[-1] + 1)):
        return f"{gpus[0]}–{gpus[-1]}"
    return " ".join(map(str, gpus))


def _steps(steps: Iterable[jobs_pb2.Step]) -> list[Row]:
    return [
        {
            "at_ms": step.at_ms,
            "kind": step.kind,
            "text": step.text,
            "rule": step.why.rule,
            "reason": step.why.reason,
            "position": step.position,
        }
        for step in steps
    ]


def _in_the_way(run: jobs_pb2.RunInTheWay) -> Row:
    return {
        "run_id": run.run_id,
        "state": run.state,
        "job": run.job_id,
        "budget": run.budget,
        "gpus": run.gpus,
        "protected_until_ms": run.protected_until_ms or None,
    }


def _output_choice(asked: Asked, job: jobs_pb2.Job) -> dict[str, object]:
    """Which output is shown: of the latest run's first replica unless the address says otherwise."""
    last = job.runs[-1].number if job.runs else 0
    run = asked.number("run", last, least=0, most=max(1, last))
    replica = asked.number("replica", 0, least=0, most=max(0, job.spec.replicas - 1))
    stream = asked.choice("stream", "stdout", ("stdout", "stderr"))
    address = f"/jobs/{quote(job.job_id, safe='')}/output?run={run}&replica={replica}&stream={stream}"
    return {
        "run": run,
        "replica": replica,
        "stream": stream,
        "address": address,
        "runs": [each.number for each in job.runs],
        "replicas": job.spec.replicas,
        "may": asked.who.may(Right.READ_OUTPUT, budget=job.spec.budget, owner=job.spec.user),
    }
