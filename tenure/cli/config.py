"""`tenure config`: the configuration file and the policy; what is wrong with a file, what counts, what there is."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli.options import SYSTEM, Json
from tenure.cli.terminal import Column, Table, cell, print_json, print_table
from tenure.domain.nearest import did_you_mean, listed
from tenure.domain.refusal import Refusal

if TYPE_CHECKING:
    from tenure.runtime.settings.given import Settings
    from tenure.runtime.settings.setting import Setting

COLUMNS = (Column(title="KEY"), Column(title="VALUE", least=16), Column(title="FROM"))

group = typer.Typer(no_args_is_help=True, help="The configuration of processes, and the policy.")


def register(app: typer.Typer) -> None:
    """Add the group to the tree."""
    app.add_typer(group, name="config", rich_help_panel=SYSTEM)


RoleName = Annotated[
    str, typer.Option("--role", metavar="ROLE", help="Only what this role reads.", show_default="all roles")
]


@group.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A configuration file.")],
    role: RoleName = "",
    as_json: Json = False,
) -> None:
    """Say everything that is wrong with a file, at once: unknown keys, wrong values, files that cannot be read."""
    from tenure.runtime.settings.given import collect

    settings, wrong = collect(role=_role(role), config=file, environment={}, look=True)
    if as_json:
        errors = [{"field": each.field, "problem": each.problem, "fix": each.fix} for each in wrong]
        print_json({"file": str(file), "ok": not wrong, "settings": len(settings.given), "errors": errors})
    elif not wrong:
        print(f"{file}: good, {len(settings.given)} settings")
    for each in wrong if not as_json else ():
        print(each)
    if wrong:
        raise typer.Exit(1)


@group.command()
def show(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A configuration file.", show_default="none")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="As a process would be given. Repeatable.")
    ] = None,
    role: RoleName = "",
    as_json: Json = False,
) -> None:
    """Show the settings that a process started here would have, and where each comes from. No secret is shown."""
    from tenure.runtime.settings.given import load_settings

    settings = load_settings(role=_role(role), config=config, environment=os.environ, sets=sets or [])
    rows = _rows(settings)
    if as_json:
        known = [{"key": setting.path, "value": value, "from": source} for setting, value, source in rows]
        print_json(json.loads(json.dumps(known, default=str)))
        return
    shown = [
        [cell(setting.path), cell(setting.default_in_words if value is None else _written(value)), cell(source)]
        for setting, value, source in rows
    ]
    print_table(Table(columns=COLUMNS, rows=shown), empty="")


@group.command()
def example() -> None:
    """Print a configuration file with every key, commented out."""
    from tenure.runtime.settings.page import example

    print(example(), end="")


@group.command()
def reference() -> None:
    """Print docs/configuration.md: every key with its flag, kind and default."""
    from tenure.runtime.settings.page import page

    print(page(), end="")


def _rows(settings: "Settings") -> "list[tuple[Setting, object, str]]":
    from tenure.runtime.settings.secrets import without_secrets
    from tenure.runtime.settings.table import settings_of

    rows = []
    for setting in settings_of(settings.role):
        raw, given = settings.raw(setting.path), settings.given.get(setting.path)
        value = without_secrets(raw) if setting.private and raw is not None else raw
        rows.append((setting, value, "default" if given is None else given.where))
    return rows


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _role(name: str) -> str:
    """The role of this name; empty for all. Raises `Refusal`."""
    from tenure.runtime.settings.table import ENGINE, ROLES

    known = (*ROLES, ENGINE, "up")
    if name and name not in known:
        fix = f"{did_you_mean(name, known)}use one of {listed(known)}"
        raise Refusal(field="--role", problem=f"{name[:40]!r} is no role", fix=fix)
    return name
