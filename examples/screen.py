"""The demo's live view: a row per host, a cell per GPU, and what happened last."""

from collections import deque
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tenure.v1.jobs_pb2 import Job, ListJobsResponse

HUES = ("cyan", "magenta", "yellow", "green", "blue", "red")
FREE = "·"


def hue_of(budget: str, budgets: Sequence[str]) -> str:
    """One hue per budget."""
    return HUES[budgets.index(budget) % len(HUES)]


def gpu_map(jobs: Iterable[Job], hosts: Sequence[tuple[str, int]], budgets: Sequence[str]) -> dict[str, list[Text]]:
    """Per host a cell for each GPU: `#` protected, `=` past its contract, `~` unallocated, `!` stopping."""
    cells = {host: [Text(FREE, style="dim")] * gpus for host, gpus in hosts}
    for job in jobs:
        if job.state not in ("starting", "running", "stopping") or not job.runs:
            continue
        run = job.runs[-1]
        mark = "~" if not job.spec.min_runtime_ms else "#"
        if job.state == "stopping":
            mark = "!"
        for held in run.hosts:
            for gpu in held.gpus:
                cells[held.host][gpu] = Text(mark, style=f"bold {hue_of(job.spec.budget, budgets)}")
    return cells


def frame(
    answer: ListJobsResponse,
    hosts: Sequence[tuple[str, int]],
    budgets: Sequence[str],
    story: deque[Text],
    elapsed_s: float,
) -> RenderableType:
    """One picture of the cluster."""
    board = Table.grid(padding=(0, 2))
    for host, cells in gpu_map(answer.jobs, hosts, budgets).items():
        board.add_row(Text(host, style="bold"), Text(" ").join(cells))
    legend = Text("  ").join([Text(f"■ {budget}", style=hue_of(budget, budgets)) for budget in budgets])
    marks = Text("# contract   ~ unallocated   ! stopping   · free", style="dim")
    cluster = answer.cluster
    counts = ", ".join(f"{count} {state}" for state, count in sorted(answer.counts.items()))
    head = Text(
        f"{elapsed_s:5.1f} s   {cluster.gpus_allocated} allocated, {cluster.gpus_unallocated} unallocated,"
        f" {cluster.gpus_free} free   jobs: {counts}",
        style="bold",
    )
    return Group(head, Text(), board, Text(), legend, marks, Text(), *list(story)[-12:])
