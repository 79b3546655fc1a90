"""`tenure budget`: the tree and how each budget stands, its edits and their history, what is owed and delivered."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenure.cli import completion, parsing, words
from tenure.cli.connection import caller, connect
from tenure.cli.options import BUDGETS, EmailFrom, Json, Smtp, SmtpPasswordFile
from tenure.cli.standing import ahead_gpu_ms, ratio
from tenure.cli.terminal import Cell, Column, Table, cell, print_json, print_table

if TYPE_CHECKING:
    from tenure.cli.sending import Mail
    from tenure.domain.tree import BudgetTree
    from tenure.sdk.client import Client
    from tenure.v1 import budgets_pb2

TREE_COLUMNS = (
    Column(title="BUDGET"),
    Column(title="SHARE", right=True, drop=6),
    Column(title="OF ALL", right=True, drop=3),
    Column(title="ENTITLED", right=True, drop=5),
    Column(title="CHARGED", right=True, drop=4),
    Column(title="COMMITTED", right=True, drop=7),
    Column(title="RATIO", right=True, drop=2),
    Column(title="GPU-HOURS", right=True),
    Column(title="RUNNING", right=True, drop=1),
    Column(title="QUEUED", right=True, drop=1),
    Column(title="GPUS", right=True, drop=8),
    Column(title="MANAGERS", drop=9, least=8),
)
HISTORY_COLUMNS = (
    Column(title="AT"),
    Column(title="BUDGET"),
    Column(title="BEFORE", right=True),
    Column(title="AFTER", right=True),
    Column(title="BY", drop=1, least=6),
    Column(title="COMMENT", drop=2, least=12),
)
REPORT_COLUMNS = (
    Column(title="BUDGET"),
    Column(title="OWED", right=True),
    Column(title="DELIVERED", right=True),
    Column(title="RATIO", right=True),
    Column(title="UNALLOCATED", right=True, drop=1),
    Column(title="ENTITLED", right=True, drop=2),
    Column(title="REFUNDED", right=True, drop=3),
)

group = typer.Typer(no_args_is_help=True, help="The budget tree: shares, standing, history, reports.")
PathArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="A budget and those below.", show_default="all", autocompletion=completion.budgets
    ),
]


def register(app: typer.Typer) -> None:
    """Add the group to the tree."""
    app.add_typer(group, name="budget", rich_help_panel=BUDGETS)


@group.command()
def show(path: PathArgument = "", as_json: Json = False) -> None:
    """Show the tree: shares, and how far each budget is ahead of or behind its entitlement."""
    with connect() as client:
        tree = client.tree()
    chosen = [one for one in tree.budgets if is_within(one.path, path)]
    if path and not chosen:
        raise typer.BadParameter(f"no budget {path!r}; see tenure budget show", param_hint="'PATH'")
    if as_json:
        from tenure.cli import documents

        listing = [documents.budget(one) for one in chosen]
        print_json({"position": tree.position, "budgets": listing})
        return
    print_table(Table(columns=TREE_COLUMNS, rows=[_tree_row(one) for one in chosen]), empty="No budgets.")


@group.command("set")
def set_shares(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH=PERCENT...", help="Shares of the parent.", show_default=False),
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Replace the whole tree by this one.")] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="PATH", help="Remove it and those below. Repeatable."),
    ] = None,
    comment: Annotated[str, typer.Option("--comment", "-m", help="Why; kept in the history.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing: show who would have gained and lost by it.")
    ] = False,
    since: Annotated[
        Any,
        typer.Option(parser=parsing.duration, metavar="TIME", help="With --dry-run: how far back.", show_default="30d"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Change shares, all of them or none. What was delivered before stays as it was."""
    wanted = parsing.shares(settings or [])
    if bool(file) == bool(wanted or remove):
        raise typer.BadParameter("give either PATH=PERCENT and --remove, or --file", param_hint="'PATH=PERCENT'")
    if since is not None and not dry_run:
        raise typer.BadParameter("nothing is replayed without --dry-run: add it, or leave --since out")
    with connect() as client:
        edit = _edit(client, wanted, file=file, remove=remove or [])
        if dry_run:
            planned = client.planned_tree(edit.budgets, merge=edit.merge, remove=edit.remove, user=caller())
        else:
            position = client.set_shares(
                edit.budgets,
                merge=edit.merge,
                remove=edit.remove,
                user=caller(),
                comment=comment,
                expected_position=edit.expected_position,
            )
    if dry_run:
        from tenure.cli.budget_dry_run import show_gains

        show_gains(planned, since=since, as_json=as_json)
        return
    if as_json:
        print_json({"position": position})
    else:
        print(f"The tree is changed from now on (position {position}).")


@group.command()
def history(path: PathArgument = "", as_json: Json = False) -> None:
    """Show every change of a share: who, when, why."""
    with connect() as client:
        answer = client.budget_history(path)
    if as_json:
        from tenure.cli import documents

        print_json({"changes": [documents.change(one) for one in answer.changes]})
        return
    rows = [_history_row(one) for one in answer.changes]
    print_table(Table(columns=HISTORY_COLUMNS, rows=rows), empty="No changes.")


@group.command()
def report(
    path: PathArgument = "",
    since: Annotated[
        int,
        typer.Option(parser=parsing.duration, metavar="TIME", help="How far back: 7d.", show_default="the window"),
    ] = 0,
    week: Annotated[
        bool, typer.Option("--weekly", help="The last seven whole days, with users and hosts, as Markdown.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="With --weekly: a page that can be mailed.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="With --weekly: the Markdown as a file.")
    ] = None,
    email: Annotated[
        str, typer.Option(metavar="ADDRESS", help="With --weekly: mail it by --smtp.", show_default=False)
    ] = "",
    smtp: Smtp = "",
    smtp_password_file: SmtpPasswordFile = None,
    email_from: EmailFrom = "",
    as_json: Json = False,
) -> None:
    """Show what each budget was owed (its share, up to its demand) and what was delivered."""
    if week:
        if since:
            raise typer.BadParameter("--weekly is of the last seven whole days: leave --since out")
        mail = _mail(email, {"--smtp": smtp, "--email-from": email_from}, password_file=smtp_password_file)
        _tell_week(path, html=html, markdown=markdown, mail=mail, as_json=as_json)
        return
    if html or markdown or email or smtp or email_from or smtp_password_file:
        raise typer.BadParameter("--html, --markdown and --email are of --weekly: add it")
    now = words.now_ms()
    with connect() as client:
        answer = client.budget_report(since_ms=now - since if since else 0, until_ms=now if since else 0, path=path)
    if as_json:
        from tenure.cli import documents

        print_json(documents.report(answer))
        return
    print(f"GPU-hours from {words.exact_clock(answer.since_ms)} to {words.exact_clock(answer.until_ms)}")
    rows = [_report_row(row) for row in answer.rows]
    print_table(Table(columns=REPORT_COLUMNS, rows=rows), empty="No budgets.")


def _mail(email: str, given: dict[str, str], *, password_file: Path | None) -> "Mail | None":
    from tenure.cli.sending import mail_to

    if not email and (any(given.values()) or password_file is not None):
        raise typer.BadParameter("--smtp and what belongs to it are of mail: give --email")
    return mail_to(email, given, password_file=password_file) if email else None


def _tell_week(path: str, *, html: Path | None, markdown: Path | None, mail: "Mail | None", as_json: bool) -> None:
    from tenure.cli import weekly
    from tenure.cli.files import writable

    for file, field in ((html, "--html"), (markdown, "--markdown")):
        if file is not None:
            writable(file, field=field)
    with connect() as client:
        told = weekly.ask(client, path)
    if html or markdown or not (as_json or mail):
        weekly.tell(told, html=html, markdown=markdown)
    if mail is not None:
        weekly.post(told, mail)
    if as_json:
        print_json(weekly.document(told))


def is_within(path: str, above: str) -> bool:
    """Whether `path` is `above` or a budget below it; everything is within the empty path."""
    return not above or path == above or path.startswith(above + "/")


def replace_tree(client: "Client", tree: "BudgetTree", *, comment: str, user: str) -> int:
    """Make `tree` the whole tree. Returns the position of the change."""
    return client.set_shares(as_message(tree), merge=False, user=user, comment=comment)


def as_message(tree: "BudgetTree") -> "list[budgets_pb2.Budget]":
    """The tree as the gateway takes it."""
    from tenure.domain.tree import PPM
    from tenure.v1 import budgets_pb2

    return [
        budgets_pb2.Budget(
            path=node.path,
            share_percent=node.share_ppm * 100 / PPM,
            managers=node.managers,
            members=node.members,
            users_equal=node.users_equal,
        )
        for node in tree.nodes
    ]


@dataclass(frozen=True, kw_only=True)
class _Edit:
    """What is to be done to the tree, as the gateway takes it."""

    budgets: "Sequence[budgets_pb2.Budget]"
    merge: bool
    remove: Sequence[str] = ()
    expected_position: int = 0


def _edit(client: "Client", wanted: dict[str, float], *, file: Path | None, remove: list[str]) -> _Edit:
    """A whole tree from a file, or these shares changed; the latter refused if somebody changes the tree meanwhile."""
    from tenure.v1 import budgets_pb2

    if file is not None:
        from tenure.runtime.budgets_file import load_budgets

        return _Edit(budgets=as_message(load_budgets(file)), merge=False)
    tree = client.tree()
    known = {one.path: one for one in tree.budgets}
    changed: list[budgets_pb2.Budget] = []
    for path, percent in wanted.items():
        before = known.get(path, budgets_pb2.Budget())
        changed.append(
            budgets_pb2.Budget(
                path=path, share_percent=percent, managers=before.managers, users_equal=before.users_equal
            )
        )
    return _Edit(budgets=changed, merge=True, remove=remove, expected_position=tree.position)


def _tree_row(budget: "budgets_pb2.Budget") -> list[Cell]:
    depth = budget.path.count("/")
    standing = ratio(budget)
    ahead = ahead_gpu_ms(budget)
    gpus = budget.gpus_allocated + budget.gpus_unallocated
    style = "green" if ahead < 0 else "yellow"
    return [
        cell("  " * depth + budget.path.rpartition("/")[2]),
        cell(f"{budget.share_percent:g}%"),
        cell(words.percent(budget.fraction)),
        cell(words.hours(budget.entitlement_gpu_ms)),
        cell(words.hours(budget.charged_gpu_ms)),
        cell(words.hours(budget.commitment_gpu_ms)),
        cell(None if standing is None else f"{standing:.2f}"),
        cell(f"{words.hours(abs(ahead))} {'behind' if ahead < 0 else 'ahead'}", style),
        cell(budget.jobs_running),
        cell(budget.jobs_queued),
        cell(gpus),
        cell(", ".join(budget.managers)),
    ]


def _history_row(change: "budgets_pb2.BudgetChange") -> list[Cell]:
    before = change.share_percent_before if change.HasField("share_percent_before") else None
    after = change.share_percent_after if change.HasField("share_percent_after") else None
    return [
        cell(words.exact_clock(change.at_ms)),
        cell(change.path),
        cell("new" if before is None else f"{before:g}%"),
        cell("removed" if after is None else f"{after:g}%"),
        cell(change.by),
        cell(change.comment),
    ]


def _report_row(row: "budgets_pb2.BudgetReportRow") -> list[Cell]:
    depth = row.path.count("/")
    delivered = min(row.delivered_gpu_ms / row.owed_gpu_ms, 1.0) if row.owed_gpu_ms else None
    style = "" if delivered is None else "green" if delivered >= 0.95 else "red"
    return [
        cell("  " * depth + row.path.rpartition("/")[2]),
        cell(words.hours(row.owed_gpu_ms)),
        cell(words.hours(row.delivered_gpu_ms)),
        cell(None if delivered is None else words.percent(delivered), style),
        cell(words.hours(row.unallocated_gpu_ms)),
        cell(words.hours(row.entitlement_gpu_ms)),
        cell(words.hours(row.refunded_gpu_ms)),
    ]
