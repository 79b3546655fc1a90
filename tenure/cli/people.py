"""`tenure budget managers` and `members`: who decides about a budget, and who may submit to it."""

from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli import budgets, completion
from tenure.cli.connection import caller, connect
from tenure.cli.options import Json
from tenure.cli.terminal import clean, print_json

if TYPE_CHECKING:
    from tenure.v1 import budgets_pb2

PathArgument = Annotated[
    str, typer.Argument(metavar="PATH", help="The budget.", show_default=False, autocompletion=completion.budgets)
]
Add = Annotated[list[str] | None, typer.Option("--add", metavar="NAME", help="A user, or group:NAME. Repeatable.")]
Remove = Annotated[list[str] | None, typer.Option("--remove", metavar="NAME", help="Take one away. Repeatable.")]
Comment = Annotated[str, typer.Option("--comment", "-m", help="Why; kept in the history.")]


def register(_: typer.Typer) -> None:
    """Add the commands to `tenure budget`."""
    budgets.group.command()(managers)
    budgets.group.command()(members)


def managers(
    path: PathArgument, add: Add = None, remove: Remove = None, comment: Comment = "", as_json: Json = False
) -> None:
    """Show or change who sets the shares below a budget and may end its jobs. Those above it say who that is."""
    _people(path, "managers", add=add or [], remove=remove or [], comment=comment, as_json=as_json)


def members(
    path: PathArgument, add: Add = None, remove: Remove = None, comment: Comment = "", as_json: Json = False
) -> None:
    """Show or change who may submit to a budget and those below; nobody named: those named above, else everybody."""
    _people(path, "members", add=add or [], remove=remove or [], comment=comment, as_json=as_json)


def _people(path: str, what: str, *, add: list[str], remove: list[str], comment: str, as_json: bool) -> None:
    from tenure.v1 import budgets_pb2

    with connect() as client:
        tree = client.tree()
        found = next((one for one in tree.budgets if one.path == path), None)
        if found is None:
            raise typer.BadParameter(f"no budget {path!r}; see tenure budget show", param_hint="'PATH'")
        names = list(getattr(found, what))
        missing = [name for name in remove if name not in names]
        if missing:
            raise typer.BadParameter(f"{missing[0]!r} is not among the {what} of {path}", param_hint="'--remove'")
        if add or remove:
            names = [name for name in dict.fromkeys([*names, *add]) if name not in remove]
            change = budgets_pb2.Budget(path=path, share_percent=found.share_percent)
            getattr(change, what).extend(names)
            setattr(change, f"no_{what}", not names)
            client.set_shares([change], merge=True, user=caller(), comment=comment, expected_position=tree.position)
    if as_json:
        print_json({"path": path, what: names})
    else:
        print("\n".join(map(clean, names)) or _nobody(what, found))


def _nobody(what: str, budget: "budgets_pb2.Budget") -> str:
    return f"{clean(budget.path)} names no {what}."
