"""An edit of the shares below a budget: first what it would do, then the change, unless the tree changed meanwhile."""

from decimal import Decimal, InvalidOperation
from urllib.parse import quote

from services.console.asked import Asked, Page, checked_text
from services.console.gateway import NoAnswer
from services.console.standing import standing_of
from services.console.tables import Column, Kind, Row, Table
from tenure.domain.refusal import Refusal
from tenure.v1 import budgets_pb2, jobs_pb2

PREVIEW = (
    Column(key="path", title="Budget", kind=Kind.BUDGET),
    Column(key="share_before", title="Share % now", kind=Kind.NUMBER),
    Column(key="share_after", title="Share % then", kind=Kind.NUMBER),
    Column(key="gpus_before", title="GPUs now", kind=Kind.NUMBER, says="Of the available ones, by its share"),
    Column(key="gpus_after", title="GPUs then", kind=Kind.NUMBER),
    Column(key="gpus_held", title="Holds now", kind=Kind.NUMBER, says="GPUs of its allocated runs"),
    Column(key="ratio", title="Ratio now", kind=Kind.RATIO),
    Column(key="effect", title="What that means", wide=True),
)


async def edit(asked: Asked, fields: dict[str, str]) -> str | Page:
    """A preview, or with `do=apply` the change itself; returns where to look afterwards."""
    parent = checked_text(fields.get("parent", ""), field="parent")
    tree = await asked.tree()
    children = [each for each in tree.budgets if each.path.rpartition("/")[0] == parent and each.path != parent]
    if not children:
        raise NoAnswer("NOT_FOUND", f"there is nothing below {parent[:100]!r} to share")
    comment = checked_text(fields.get("comment", ""), field="comment")
    wanted = {each.path: _percent(fields, each.path, each.share_percent) for each in children}
    total = sum(wanted.values())
    if total > 100:
        raise Refusal(field="shares", problem=f"sum to {total} %", fix="give siblings 100 % or less together")
    if fields.get("do") == "apply":
        return await _apply(asked, fields.get("position", ""), comment, parent, wanted, children)
    cluster = (await asked.jobs(jobs_pb2.ListJobsRequest(limit=1))).cluster
    rows = [_row(each, wanted[each.path], _above(tree, parent), cluster.gpus_available) for each in children]
    table = Table(name="preview", caption="What would change", columns=PREVIEW, rows=rows, key="path")
    return Page(
        section="budgets",
        title=f"Shares below {parent}" if parent else "Shares of the topmost budgets",
        template="shares.html",
        tables=[table],
        context={
            "parent": parent,
            "wanted": wanted,
            "total": total,
            "position": tree.position,
            "comment": comment,
            "changed": any(row["share_before"] != row["share_after"] for row in rows),
            "back": _address(parent),
        },
    )


async def _apply(
    asked: Asked,
    position: str,
    comment: str,
    parent: str,
    wanted: dict[str, Decimal],
    children: list[budgets_pb2.Budget],
) -> str:
    if not position.isascii() or not position.isdecimal() or len(position) > 18:
        raise Refusal(field="position", problem="missing", fix="begin with the preview")
    changed = [
        budgets_pb2.Budget(path=each.path, share_percent=float(wanted[each.path]))
        for each in children
        if wanted[each.path] != _exact(each.share_percent)
    ]
    if changed:
        request = budgets_pb2.SetSharesRequest(
            budgets=changed,
            merge=True,
            comment=comment,
            expected_position=int(position),
        )
        await asked.do(asked.console.gateway.budgets.SetShares, request)
    return _address(parent)


def _percent(fields: dict[str, str], path: str, present: float) -> Decimal:
    text = fields.get(f"share:{path}", "").strip().replace(",", ".")
    if not text:
        return _exact(present)
    try:
        found = Decimal(text) if len(text) < 20 else Decimal("NaN")
    except InvalidOperation:
        found = Decimal("NaN")
    if not found.is_finite() or not 0 <= found <= 100 or found != found.quantize(Decimal("0.0001")):
        fix = "give a percentage of 0 to 100 with at most four decimals"
        raise Refusal(field=f"share of {path}", problem=f"{text[:40]!r} is none", fix=fix)
    return found


def _exact(percent: float) -> Decimal:
    return Decimal(str(round(percent, 4)))


def _above(tree: budgets_pb2.GetTreeResponse, parent: str) -> float:
    """The part of the whole that is shared here."""
    return next((each.fraction for each in tree.budgets if each.path == parent), 1.0)


def _row(budget: budgets_pb2.Budget, wanted: Decimal, above: float, available: int) -> Row:
    before, after = budget.fraction * available, above * float(wanted) / 100 * available
    return {
        "path": budget.path,
        "share_before": float(_exact(budget.share_percent)),
        "share_after": float(wanted),
        "gpus_before": round(before, 2),
        "gpus_after": round(after, 2),
        "gpus_held": budget.gpus_allocated,
        "ratio": standing_of(budget).ratio,
        "effect": _effect(budget, before, after),
    }


def _effect(budget: budgets_pb2.Budget, before: float, after: float) -> str:
    """In words. Entitlement counts from the change on, never backwards (P1)."""
    if round(before, 4) == round(after, 4):
        return "stays as it is"
    sign = "more" if after > before else "fewer"
    said = f"{abs(after - before):.1f} GPUs {sign} from now on"
    if budget.gpus_allocated > after:
        said += "; it holds more than that now, and its runs keep what their contracts protect"
    return said


def _address(parent: str) -> str:
    return f"/budgets/{quote(parent)}" if parent else "/budgets"
