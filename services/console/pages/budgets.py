"""Budgets: the tree with what each was owed and got, one budget over time, who uses it, and its children's shares."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from services.console import questions
from services.console.asked import Asked, Page
from services.console.charts import Chart, Series, line_chart
from services.console.gateway import NoAnswer
from services.console.history import Rows
from services.console.pages.spans import DAYS, Span, days_of, span_of
from services.console.standing import standing_of
from services.console.tables import Column, Kind, Row, Table
from tenure.domain.rights import Right
from tenure.domain.units import MINUTE
from tenure.v1 import budgets_pb2

ROWS_LATE_MS = 5 * MINUTE
"""So much later than they tell of, what hosts held is in ClickHouse and read from there, with room to spare."""
HOURS = "GPU-hours by the rates of their types"
COLOURS = ("c1", "c2", "c3", "c4", "c5", "c6")

TREE = (
    Column(key="path", title="Budget", kind=Kind.BUDGET),
    Column(key="share_percent", title="Share %", kind=Kind.NUMBER, says="Of its parent"),
    Column(key="fraction", title="Of the whole", kind=Kind.PERCENT),
    Column(key="ratio", title="Ratio", kind=Kind.RATIO, says="The lowest goes first (P3); 1.00 is exactly its share"),
    Column(key="ahead_gpu_ms", title="It is", kind=Kind.AHEAD, says="GPU-hours ahead of its share, or behind it"),
    Column(key="owed_gpu_ms", title="Owed", kind=Kind.GPU_TIME, says=f"{HOURS}: the smaller of share and demand"),
    Column(key="delivered_gpu_ms", title="Delivered", kind=Kind.GPU_TIME, says=f"{HOURS}: what was charged"),
    Column(key="delivered_part", title="Of owed", kind=Kind.PERCENT),
    Column(key="unallocated_gpu_ms", title="Unallocated", kind=Kind.GPU_TIME, says=f"{HOURS}, free of charge"),
    Column(key="gpus_allocated", title="GPUs now", kind=Kind.NUMBER, says="Real GPUs that its allocated runs hold"),
    Column(key="jobs_running", title="Running", kind=Kind.NUMBER),
    Column(key="jobs_queued", title="Waiting", kind=Kind.NUMBER),
    Column(key="managers", title="Managers"),
)
USERS = (
    Column(key="user", title="User"),
    Column(key="charged_gpu_ms", title="Charged", kind=Kind.GPU_TIME, says=HOURS),
    Column(key="part", title="Part of it", kind=Kind.PERCENT),
    Column(key="unallocated_gpu_ms", title="Unallocated", kind=Kind.GPU_TIME, says=f"{HOURS}, free of charge"),
)
OVER_TIME = (
    Column(key="at_ms", title="From", kind=Kind.INSTANT),
    Column(
        key="entitled_gpus", title="Entitled", kind=Kind.NUMBER, says="GPUs on average, by the rates of their types"
    ),
    Column(key="owed_gpus", title="Owed", kind=Kind.NUMBER),
    Column(key="charged_gpus", title="Charged", kind=Kind.NUMBER),
    Column(key="unallocated_gpus", title="Unallocated", kind=Kind.NUMBER),
)
RATIOS = (
    Column(key="at_ms", title="At", kind=Kind.INSTANT),
    Column(key="path", title="Budget", kind=Kind.BUDGET),
    Column(key="ratio", title="Ratio", kind=Kind.RATIO),
)
CHANGES = (
    Column(key="at_ms", title="When", kind=Kind.INSTANT),
    Column(key="path", title="Budget", kind=Kind.BUDGET),
    Column(key="share_percent_before", title="From %", kind=Kind.NUMBER),
    Column(key="share_percent_after", title="To %", kind=Kind.NUMBER),
    Column(key="by", title="By", below="asked_by"),
    Column(key="comment", title="Why", wide=True),
    Column(key="change", title="Number", kind=Kind.NUMBER, shown=False),
)


async def show_tree(asked: Asked) -> Page:
    """All budgets."""
    span = span_of(asked)
    tree = await asked.tree()
    report, trouble = await _report(asked, span, "")
    rows = [_row(budget, report) for budget in tree.budgets]
    table = Table(name="budgets", caption="Budgets", columns=TREE, rows=rows, key="path", empty="There is no budget.")
    return Page(
        section="budgets",
        title="Budgets",
        template="budgets.html",
        tables=[table],
        seen=[trouble],
        context={"live": True, **_choice(asked), "trouble": trouble, "edit": _editable(asked, tree, "")},
    )


async def show(asked: Asked) -> Page:
    """One budget and what is below it."""
    path = asked.request.path_params["path"].strip("/")
    span, tree = span_of(asked), await asked.tree()
    budget = _find(tree, path)
    (report, trouble), use, ratios, users, changes = await asyncio.gather(
        _report(asked, span, path),
        _rows(asked, questions.USE_OVER_TIME, span, path=path, step=span.hours_step_s),
        _rows(asked, questions.RATIO_OVER_TIME, span, paths=_beside(tree, path), step=span.step_s),
        _rows(asked, questions.USERS, span, path=path),
        asked.share(
            "history", asked.console.gateway.budgets.History, budgets_pb2.BudgetHistoryRequest(path=path), keep_s=1.0
        ),
    )
    below = [_row(each, report) for each in tree.budgets if f"{each.path}/".startswith(f"{path}/")]
    tables = [
        Table(name="budgets", caption="It and below", columns=TREE, rows=below, key="path"),
        _users(users),
        over_time(use, span),
        Table(name="ratios", caption="Ratio over time", columns=RATIOS, rows=_ratios(ratios), key=""),
        _changes(changes),
    ]
    standing = standing_of(budget)
    return Page(
        section="budgets",
        title=path,
        template="budget.html",
        tables=tables,
        seen=[trouble, budget.SerializeToString(deterministic=True).hex()],
        context={
            "live": True,
            **_choice(asked),
            "trouble": trouble,
            "budget": budget,
            "ratio": standing.ratio,
            "ahead_gpu_ms": standing.ahead_gpu_ms,
            "own": report.get(path),
            "use_chart": _use_chart(tables[2], span),
            "ratio_chart": _ratio_chart(_ratios(ratios), path, span),
            "above": [path.rsplit("/", number)[0] for number in range(path.count("/"), 0, -1)],
            "edit": _editable(asked, tree, path),
        },
    )


def _find(tree: budgets_pb2.GetTreeResponse, path: str) -> budgets_pb2.Budget:
    found = next((each for each in tree.budgets if each.path == path), None)
    if found is None:
        raise NoAnswer("NOT_FOUND", f"there is no budget {path[:100]!r}; see all budgets")
    return found


def _choice(asked: Asked) -> dict[str, object]:
    return {"days": days_of(asked), "all_days": DAYS}


async def _report(asked: Asked, span: Span, path: str) -> tuple[Mapping[str, budgets_pb2.BudgetReportRow], str]:
    """What budgets were owed and got; while ClickHouse is away nothing, and why."""
    try:
        answer = await asked.report(since=span.since, until=span.until, path=path)
    except NoAnswer as away:
        if away.status not in (503, 504, 404):
            raise
        return {}, f"What was owed and delivered cannot be read now: {away.said}"
    if answer is None:
        return {}, "What was owed and delivered is being read."
    return {row.path: row for row in answer.rows}, ""


async def _rows(asked: Asked, sql: str, span: Span, **parameters: Any) -> Rows:
    """Rows of ClickHouse; none while it is away, which the report says."""
    try:
        about = f"{span.until - span.since} ms"
        return await asked.rows(sql, about=about, since=span.since, until=span.until, **parameters) or []
    except NoAnswer:
        return []


def _row(budget: budgets_pb2.Budget, report: Mapping[str, budgets_pb2.BudgetReportRow]) -> Row:
    standing, told = standing_of(budget), report.get(budget.path)
    return {
        "path": budget.path,
        "share_percent": round(budget.share_percent, 4),
        "fraction": budget.fraction,
        "ratio": standing.ratio,
        "ahead_gpu_ms": standing.ahead_gpu_ms,
        "owed_gpu_ms": None if told is None else told.owed_gpu_ms,
        "delivered_gpu_ms": None if told is None else told.delivered_gpu_ms,
        "delivered_part": None if told is None or told.owed_gpu_ms <= 0 else told.delivered_gpu_ms / told.owed_gpu_ms,
        "unallocated_gpu_ms": None if told is None else told.unallocated_gpu_ms,
        "gpus_allocated": budget.gpus_allocated,
        "jobs_running": budget.jobs_running,
        "jobs_queued": budget.jobs_queued,
        "managers": ", ".join(budget.managers),
    }


def _beside(tree: budgets_pb2.GetTreeResponse, path: str) -> tuple[str, ...]:
    """The budget and those it is compared with: the others of its parent, as many as have a colour."""
    parent = path.rpartition("/")[0]
    others = [each.path for each in tree.budgets if each.path.rpartition("/")[0] == parent and each.path != path]
    return (path, *others[: len(COLOURS) - 1])


def _users(rows: Rows) -> Table:
    total = sum(charged for _, charged, _ in rows)
    told: list[Row] = [
        {
            "user": user,
            "charged_gpu_ms": charged,
            "part": charged / total if total > 0 else None,
            "unallocated_gpu_ms": unallocated,
        }
        for user, charged, unallocated in rows
    ]
    return Table(name="users", caption="Who uses it", columns=USERS, rows=told, key="user", empty="Nobody used it.")


def over_time(rows: Rows, span: Span) -> Table:
    """GPU-time by steps as GPUs on average. The last step is as long as it has lasted.

    One that has lasted for less than rows may be late is left out: it would look as if use had dropped.
    """
    told: list[Row] = []
    for at_s, entitled, _, owed, charged, unallocated in rows:
        begin = max(at_s * 1000, span.since)
        length = max(1, min((at_s + span.hours_step_s) * 1000, span.until) - begin)
        if length < ROWS_LATE_MS:
            continue
        told.append(
            {
                "at_ms": begin,
                "entitled_gpus": round(entitled / length, 3),
                "owed_gpus": round(owed / length, 3),
                "charged_gpus": round(charged / length, 3),
                "unallocated_gpus": round(unallocated / length, 3),
            }
        )
    return Table(name="over_time", caption="Entitlement and use over time", columns=OVER_TIME, rows=told, key="at_ms")


def _use_chart(table: Table, span: Span) -> Chart | None:
    def line(name: str, colour: str, key: str, *, area: bool = False) -> Series:
        return Series(name, colour, [(_int(row["at_ms"]), _float(row[key])) for row in table.rows], area)

    lines = [
        line("Charged", "c-use", "charged_gpus", area=True),
        line("Unallocated", "c-free", "unallocated_gpus"),
        line("Entitled", "c-owed", "entitled_gpus"),
    ]
    first = _int(table.rows[0]["at_ms"]) if table.rows else span.since
    says = (
        "GPUs on average, by the rates of their types: charged, unallocated, entitled. The table below has the numbers."
    )
    return line_chart(lines, since=max(span.since, first), until=span.until, says=says)


def _ratios(rows: Rows) -> list[Row]:
    return [{"at_ms": at_s * 1000, "path": path, "ratio": round(ratio, 4)} for at_s, path, ratio in rows]


def _ratio_chart(rows: Sequence[Row], path: str, span: Span) -> Chart | None:
    names = sorted({str(row["path"]) for row in rows}, key=lambda name: (name != path, name))
    lines = [
        Series(name, colour, [(_int(row["at_ms"]), _float(row["ratio"])) for row in rows if row["path"] == name])
        for name, colour in zip(names, COLOURS, strict=False)
    ]
    first = min((_int(row["at_ms"]) for row in rows), default=span.since)
    says = "The ratio that sorts budgets, over time, beside the others of the same parent. 1 is exactly the share."
    return line_chart(lines, since=max(span.since, first), until=span.until, says=says, mark=1.0)


def _changes(answer: budgets_pb2.BudgetHistoryResponse) -> Table:
    rows: list[Row] = [
        {
            "at_ms": each.at_ms,
            "path": each.path,
            "share_percent_before": each.share_percent_before if each.HasField("share_percent_before") else None,
            "share_percent_after": each.share_percent_after if each.HasField("share_percent_after") else None,
            "by": each.by,
            "asked_by": each.asked_by if each.asked_by != each.by else "",
            "comment": each.comment,
            "change": number,
        }
        for number, each in enumerate(answer.changes, start=1)
    ]
    return Table(name="changes", caption="Changes of shares", columns=CHANGES, rows=rows[::-1], key="change")


def _editable(asked: Asked, tree: budgets_pb2.GetTreeResponse, parent: str) -> list[budgets_pb2.Budget]:
    """The children whose shares the caller may set, if those are all there are."""
    children = [each for each in tree.budgets if each.path.rpartition("/")[0] == parent and each.path != parent]
    may = bool(children) and all(asked.who.may(Right.SET_SHARE, budget=each.path) for each in children)
    return children if may else []


def _int(value: object) -> int:
    assert isinstance(value, int), "an instant"
    return value


def _float(value: object) -> float:
    assert isinstance(value, int | float), "a number"
    return float(value)
