"""Incentives: where what people do and what is counted part ways. Only what hosts and jobs reported: no guesses."""

import asyncio

from services.console import questions
from services.console.asked import Asked, Page
from services.console.gateway import NoAnswer
from services.console.history import Rows
from services.console.pages.spans import DAYS, days_of, span_of
from services.console.tables import Column, Kind, Row, Table
from tenure.domain.units import MINUTE

KEEP_S = 30.0
REAL = "Hours of real GPUs, of whatever type"
ACCOUNT = "GPU-hours by the rates of their types"

PARKED = (
    Column(key="job", title="Job", kind=Kind.JOB),
    Column(key="user", title="User"),
    Column(key="budget", title="Budget", kind=Kind.BUDGET),
    Column(
        key="parked_gpu_ms",
        title="Charged, near idle",
        kind=Kind.GPU_TIME,
        says="Hours of real GPUs, below 5 % utilisation",
    ),
    Column(key="part", title="Of what it was charged", kind=Kind.PERCENT),
    Column(
        key="measured_gpu_ms",
        title="Measured",
        kind=Kind.GPU_TIME,
        says="Hours of real GPUs whose utilisation is known",
    ),
)
CHECKPOINTS = (
    Column(key="job", title="Job", kind=Kind.JOB),
    Column(key="user", title="User"),
    Column(key="budget", title="Budget", kind=Kind.BUDGET),
    Column(key="gpus", title="GPUs", kind=Kind.NUMBER),
    Column(key="min_runtime_ms", title="Declared minimum", kind=Kind.LENGTH),
    Column(key="first_checkpoint_ms", title="First checkpoint after", kind=Kind.LENGTH),
    Column(key="times", title="Minimum ÷ checkpoint", kind=Kind.RATIO),
)
FREE = (
    Column(key="budget", title="Budget", kind=Kind.BUDGET),
    Column(key="charged_gpu_ms", title="Charged", kind=Kind.GPU_TIME, says=REAL),
    Column(key="unallocated_gpu_ms", title="Unallocated", kind=Kind.GPU_TIME, says=f"{REAL}, free of charge"),
    Column(key="part", title="Free part", kind=Kind.PERCENT),
)
BURSTS = (
    Column(key="budget", title="Budget", kind=Kind.BUDGET),
    Column(key="at_ms", title="Began", kind=Kind.INSTANT),
    Column(key="idle_hours", title="Idle hours before", kind=Kind.NUMBER),
    Column(key="burst_gpu_ms", title="Charged in the 6 hours after", kind=Kind.GPU_TIME, says=ACCOUNT),
    Column(key="entitled_gpu_ms", title="Entitled in them", kind=Kind.GPU_TIME, says=ACCOUNT),
    Column(key="times", title="Times its share", kind=Kind.RATIO),
)


async def show(asked: Asked) -> Page:
    """The page."""
    span = span_of(asked)
    window = {"since": span.since // MINUTE * MINUTE, "until": span.until // MINUTE * MINUTE}
    asking = (questions.PARKED, questions.CHECKPOINTS, questions.FREE, questions.BURSTS)
    answers = await asyncio.gather(*(_ask(asked, sql, window) for sql in asking))
    found = [rows for rows, _ in answers]
    trouble = next((said for _, said in answers if said), "")
    parked, checkpoints, free, bursts = found
    tables = [
        _table("parked", "Parked GPUs: charged, and hardly used", PARKED, parked, "No measured GPU was parked."),
        _table(
            "checkpoints",
            "Declared minimum against the first checkpoint",
            CHECKPOINTS,
            checkpoints,
            "No job is like that.",
        ),
        _table("free", "Dependence on unallocated GPU time", FREE, free, "Nothing was held."),
        _table("bursts", "Bursts after idle time", BURSTS, bursts, "No budget came back so."),
    ]
    return Page(
        section="incentives",
        title="Incentives",
        template="incentives.html",
        tables=tables,
        seen=[trouble],
        context={"live": True, "days": days_of(asked), "all_days": DAYS, "trouble": trouble},
    )


async def _ask(asked: Asked, sql: str, window: dict[str, int]) -> tuple[Rows, str]:
    """The rows, and why there are none."""
    try:
        rows = await asked.rows(sql, about=days_of(asked), keep_s=KEEP_S, **window)
    except NoAnswer as away:
        return [], f"This cannot be read now: {away.said}"
    return ([], "Some of this is being read.") if rows is None else (rows, "")


def _table(name: str, caption: str, columns: tuple[Column, ...], rows: Rows, empty: str) -> Table:
    """A table whose columns are those of the query, in order."""
    keys = [column.key for column in columns]
    told: list[Row] = [dict(zip(keys, row, strict=True)) for row in rows]
    return Table(name=name, caption=caption, columns=columns, rows=told, key="", empty=empty)
