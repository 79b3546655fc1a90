"""`tenure token` and `tenure whoami`: development tokens, and who one is to the gateway."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli import parsing, words
from tenure.cli.connection import connect, running_root
from tenure.cli.options import SYSTEM, Json
from tenure.cli.terminal import Cell, Column, Table, cell, print_json, print_table, say
from tenure.domain.names import check_label
from tenure.domain.refusal import Refusal
from tenure.domain.rights import GROUP, Role
from tenure.domain.units import HOUR, SECOND, format_duration

if TYPE_CHECKING:
    from tenure.v1 import identity_pb2

LIFETIME = 12 * HOUR
COLUMNS = (Column(title="BUDGET"), Column(title="YOU MAY", least=20))

group = typer.Typer(no_args_is_help=True, help="Tokens that say who calls, signed by this machine's key.")


def register(app: typer.Typer) -> None:
    """Add the commands to the tree."""
    app.add_typer(group, name="token", rich_help_panel=SYSTEM)
    app.command(rich_help_panel=SYSTEM)(whoami)


@group.command()
def create(
    user: Annotated[str, typer.Option("--user", "-u", metavar="USER", help="Whom it names.")],
    role: Annotated[
        list[Role] | None,
        typer.Option("--role", help="A role beyond what the budget tree gives them; viewer: less. Repeatable."),
    ] = None,
    expires: Annotated[
        int, typer.Option(parser=parsing.duration, metavar="TIME", help="Good for so long.", show_default="12h")
    ] = LIFETIME,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Of the system there.", show_default="what runs")
    ] = None,
) -> None:
    """Print a token for TENURE_TOKEN. Who can read the key of the data directory can make one for anybody."""
    from tenure.runtime.local_tokens import LIFETIME_MAX, load_key

    name = check_label(user.strip(), field="--user")
    if not name or name.startswith(GROUP):
        raise Refusal(field="--user", problem=f"{user[:40]!r} is no name of a user", fix="name one, such as ana")
    if not SECOND <= expires <= LIFETIME_MAX:
        longest = format_duration(LIFETIME_MAX)
        raise Refusal(field="--expires", problem="too short or too long", fix=f"give 1s to {longest}")
    key = load_key(_key_file(data))
    print(key.sign(user=name, roles=role or [], now=words.now_ms(), lifetime_ms=expires))  # type: ignore[arg-type]


def whoami(as_json: Json = False) -> None:
    """Show who you are to the gateway, how it knows, and what you may do."""
    with connect() as client:
        answer = client.whoami()
    if as_json:
        print_json(
            {
                "user": answer.user,
                "roles": list(answer.roles),
                "groups": list(answer.groups),
                "how": answer.how,
                "address": answer.address,
                "rights": list(answer.rights),
                "budgets": [{"path": one.path, "rights": list(one.rights)} for one in answer.budgets],
            }
        )
        return
    _show(answer)


def _show(answer: "identity_pb2.WhoAmIResponse") -> None:
    say(cell(answer.user, "bold"))
    for title, value in (
        ("Known by", f"{answer.how}, from {answer.address}"),
        ("Roles", ", ".join(answer.roles)),
        ("Groups", ", ".join(answer.groups)),
        ("You may", ", ".join(answer.rights)),
    ):
        if value:
            say(Cell(f"  {title:<9} "), cell(value))
    if answer.budgets:
        say("")
        rows = [[cell(one.path), cell(", ".join(one.rights))] for one in answer.budgets]
        print_table(Table(columns=COLUMNS, rows=rows), empty="")


def _key_file(data: Path | None) -> Path:
    """The key of a data directory; one is made in a directory that is named and has none. Raises `Refusal`."""
    from tenure.runtime.data_dir import default_root
    from tenure.runtime.local_tokens import key_file, make_key

    root = (data or running_root() or default_root()).absolute()
    path = key_file(root)
    if data is not None and root.is_dir() and os.access(root, os.W_OK):
        make_key(path)
    if not path.exists():
        fix = "start tenure up on it first, or name the directory of one with --data"
        raise Refusal(field="--data", problem=f"{root} has no key to sign with", fix=fix)
    return path
