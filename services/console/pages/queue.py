"""The queue: what runs and what waits, in the order it will start, and why. 10,000 jobs are shown page by page."""

from collections.abc import Mapping
from math import ceil

from services.console import words
from services.console.asked import Asked, Page
from services.console.standing import Standing, standings
from services.console.tables import Column, Kind, Row, Table
from tenure.v1 import jobs_pb2

RUNNING = ("starting", "running", "stopping")
WAITING = ("submitted", "queued")
OVER = ("completed", "failed", "preempted", "cancelled", "rejected")
VIEWS: Mapping[str, tuple[str, ...]] = {
    "live": (*RUNNING, *WAITING),
    "running": RUNNING,
    "queued": WAITING,
    "over": OVER,
    "all": (*RUNNING, *WAITING, *OVER),
}
"""What `view` in the address chooses."""
TITLES = {"live": "Running and waiting", "running": "Running", "queued": "Waiting", "over": "Over", "all": "All"}
SIZES = (25, 50, 100, 250, 500)
FORESEEN_MAX = 1_000
"""Pages that begin deeper in the queue are shown without forecasts: those would be read for all jobs before."""
DEEPEST = 100_000
"""The gateway lists so many jobs at most."""

COLUMNS = (
    Column(key="job", title="Job", kind=Kind.JOB, below="name"),
    Column(key="state", title="State", kind=Kind.STATE),
    Column(key="rank", title="Rank", kind=Kind.NUMBER, says="Place in the fair-share order; 1 starts next"),
    Column(key="budget", title="Budget", kind=Kind.BUDGET, below="user"),
    Column(key="gpus", title="GPUs", kind=Kind.NUMBER, below="shape", says="Of all replicas"),
    Column(key="contract", title="Contract", says="Minimum runtime: so long nothing preempts a run"),
    Column(key="since_ms", title="For", kind=Kind.SINCE, says="Since it runs, waits, or is over"),
    Column(
        key="ratio",
        title="Ratio",
        kind=Kind.RATIO,
        below="ahead_gpu_ms",
        says="Of its budget: the lowest goes first (P3). Below it the GPU-hours ahead of its share, or behind it",
    ),
    Column(key="start_ms", title="Starts within", kind=Kind.UNTIL, says="The latest start that it was promised (P8)"),
    Column(
        key="forecast_start_p50_ms",
        title="Expected in",
        kind=Kind.BAND,
        below="forecast_start_p90_ms",
        says="Of the futures that were tried, half have started it by the first and nine of ten by the second",
    ),
    Column(
        key="protected_until_ms", title="Protected for", kind=Kind.UNTIL, says="So long nothing preempts its run (P5)"
    ),
    Column(key="why", title="Why", wide=True),
)


async def show(asked: Asked) -> Page:
    """The page. The address holds the filters."""
    view = asked.choice("view", "live", tuple(VIEWS))
    budget, user = asked.text("budget"), asked.text("user")
    size = int(asked.choice("size", "100", tuple(map(str, SIZES))))
    number = asked.number("page", 1, least=1, most=DEEPEST // size)
    exported = asked.request.query_params.get("format", "html") != "html"
    limit = DEEPEST if exported else number * size
    request = jobs_pb2.ListJobsRequest(states=VIEWS[view], budget=budget, user=user, limit=limit)
    answer, tree = await asked.jobs(request), await asked.tree()
    waits = any(job.state == "queued" for job in answer.jobs[0 if exported else (number - 1) * size :])
    foreseen = await asked.foreseen(request) if waits and (exported or limit <= FORESEEN_MAX) else {}
    counts = {state: answer.counts[state] for state in answer.counts}
    total = sum(counts.get(state, 0) for state in VIEWS[view])
    first = 0 if exported else (number - 1) * size
    standing = standings(tree)
    rows = [row_of(job, standing.get(job.spec.budget), foreseen.get(job.job_id)) for job in answer.jobs[first:]]
    table = Table(
        name="jobs", caption=TITLES[view], columns=COLUMNS, rows=rows, key="job", empty=_empty(view, budget, user)
    )
    cluster = answer.cluster
    gpus = {
        "total": cluster.gpus,
        "allocated": cluster.gpus_allocated,
        "unallocated": cluster.gpus_unallocated,
        "free": cluster.gpus_free,
        "unavailable": cluster.gpus - cluster.gpus_available,
    }
    numbers = {name: sum(counts.get(state, 0) for state in states) for name, states in VIEWS.items()}
    return Page(
        section="queue",
        title="Queue",
        template="queue.html",
        tables=[table],
        seen=[gpus, counts, total, view, number],
        context={
            "live": True,
            "gpus": gpus,
            "numbers": numbers,
            "titles": TITLES,
            "view": view,
            "budget": budget,
            "user": user,
            "size": size,
            "sizes": SIZES,
            "number": number,
            "last": min(max(1, ceil(total / size)), DEEPEST // size),
            "total": total,
            "first": first,
            "budgets": [each.path for each in tree.budgets],
        },
    )


def row_of(job: jobs_pb2.Job, standing: Standing | None, foreseen: jobs_pb2.Job | None) -> Row:
    """A job as a row; `foreseen`: the same with a forecast."""
    spec, run = job.spec, job.runs[-1] if job.runs else None
    running = job.state in RUNNING and run is not None
    waiting = job.state in WAITING
    return {
        "job": job.job_id,
        "name": spec.name,
        "state": job.state,
        "rank": job.rank or None,
        "budget": spec.budget,
        "user": spec.user,
        "gpus": spec.replicas * spec.gpus_per_replica,
        "shape": words.shape(spec) if spec.replicas > 1 else "",
        "contract": words.contract(spec),
        "since_ms": _since(job),
        "ratio": None if standing is None else standing.ratio,
        "ahead_gpu_ms": None if standing is None else standing.ahead_gpu_ms,
        "start_ms": (job.latest_start_ms or None) if waiting else None,
        "forecast_start_p50_ms": None if foreseen is None else foreseen.forecast_start_p50_ms or None,
        "forecast_start_p90_ms": None if foreseen is None else foreseen.forecast_start_p90_ms or None,
        "protected_until_ms": (run.protected_until_ms or None) if running and run and spec.min_runtime_ms else None,
        "why": "" if job.state in RUNNING else words.why(job.why, gpu_type=spec.gpu_type),
    }


def _since(job: jobs_pb2.Job) -> int:
    """Since when the job is in what matters of its state."""
    if job.finished_at_ms:
        return job.finished_at_ms
    if job.state in ("running", "stopping") and job.runs and job.runs[-1].started_at_ms:
        return job.runs[-1].started_at_ms
    return job.submitted_at_ms


def _empty(view: str, budget: str, user: str) -> str:
    if budget or user:
        return "No job is like that. Take a filter away to see more."
    return {"live": "Nothing runs and nothing waits.", "running": "Nothing runs.", "queued": "Nothing waits."}.get(
        view, "There is no job."
    )
