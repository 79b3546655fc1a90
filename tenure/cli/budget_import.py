"""`tenure budget import`: a first budgets.yaml from another scheduler's accounts."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tenure.cli import budgets
from tenure.cli.files import writable


class Source(StrEnum):
    """Whose accounts."""

    SACCTMGR = "sacctmgr"


def register(_: typer.Typer) -> None:
    """Add the command to `tenure budget`."""
    budgets.group.command("import")(import_accounts)


def import_accounts(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What sacctmgr printed.", show_default=False)],
    source: Annotated[Source, typer.Option("--from", help="Whose accounts.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="budgets.yaml.", show_default=False)],
    map_out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Which budget pays for an account: --budget-map of trace import."),
    ] = None,
) -> None:
    """Make a budgets.yaml of Slurm's accounts: shares of the parent, users as members. It asks no server.

    FILE is made by: sacctmgr show assoc -P format=Account,ParentName,User,Share (with cluster=NAME where there are
    several). What Slurm says otherwise is told. Look at the result, then: tenure budget set --file budgets.yaml
    """
    from tenure.cli.slurm_accounts import budgets_yaml, load_accounts

    assert source is Source.SACCTMGR, "there is no other"
    place = writable(out, field="--out")
    map_place = None if map_out is None else writable(map_out, field="--map-out")
    page = budgets_yaml(load_accounts(file))
    place.write_text(page.text)
    if map_place is not None:
        map_place.write_text(page.budget_map)
    for note in page.notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"wrote {out}: look at it, then: tenure budget set --file {out}")
