"""`tenure config`: the configuration file and the policy; what is wrong with a file, what counts, what there is."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli import documents, words
from tenure.cli.connection import caller, connect
from tenure.cli.options import SYSTEM, Json
from tenure.cli.terminal import Column, Table, cell, print_json, print_table, say
from tenure.domain.nearest import did_you_mean, listed
from tenure.domain.refusal import Refusal

if TYPE_CHECKING:
    from tenure.runtime.settings.given import Settings
    from tenure.runtime.settings.setting import Setting

COLUMNS = (Column(title="KEY"), Column(title="VALUE", least=16), Column(title="FROM"))

KNOB_COLUMNS = (Column(title="KNOB"), Column(title="VALUE"), Column(title="DEFAULT"))
HISTORY_COLUMNS = (
    *(Column(title="WHEN"), Column(title="BY"), Column(title="FROM")),
    *(Column(title="CHANGE", least=20), Column(title="COMMENT", least=8)),
)

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
def apply(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="Its section policy: becomes the policy.", show_default=False),
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KNOB=VALUE", help="One knob; wins over the file. Repeatable.")
    ] = None,
    comment: Annotated[str, typer.Option("--comment", "-m", help="Why, for the history.")] = "",
    as_json: Json = False,
) -> None:
    """Change the policy of the running system: to what a file says, or some knobs. It takes the role admin."""
    from tenure.runtime.settings.given import load_settings
    from tenure.runtime.settings.table import POLICY

    if file is None and not sets:
        raise Refusal(field="FILE", problem="nothing to apply", fix="name a file, or give --set KNOB=VALUE")
    settings = load_settings(role="", config=file, environment={}, sets=sets or [])
    values = {
        knob: json.dumps(value) if isinstance(value, dict) else str(value)
        for knob, value in settings.section(POLICY).items()
    }
    with connect() as client:
        answer = client.set_policy(values, merge=file is None, user=caller(), comment=comment)
    if as_json:
        changed = [{"knob": each.name, "before": each.before, "after": each.after} for each in answer.changes]
        print_json({"position": answer.position, "changes": changed, "notes": list(answer.notes)})
        return
    for each in answer.changes:
        print(f"{each.name}: {each.before} -> {each.after}")
    if not answer.changes:
        print("the policy is so already: nothing was changed")
    for note in answer.notes:
        print(f"note: {note}", file=sys.stderr)


@group.command()
def policy(as_json: Json = False) -> None:
    """Show the policy that the running system decides by, and who set it."""
    with connect() as client:
        answer = client.policy()
    if as_json:
        print_json(
            {
                "position": answer.position,
                "at_ms": answer.at_ms,
                "by": answer.by,
                "comment": answer.comment,
                "knobs": {each.name: each.value for each in answer.knobs},
            }
        )
        return
    rows = [
        [cell(each.name), cell(each.value, "bold" if each.value != each.default else ""), cell(each.default)]
        for each in answer.knobs
    ]
    print_table(Table(columns=KNOB_COLUMNS, rows=rows), empty="")
    if answer.position:
        why = f": {answer.comment}" if answer.comment else ""
        say(cell(f"since {words.instant(answer.at_ms, now=words.now_ms())}, by {answer.by}{why}"))


@group.command()
def history(as_json: Json = False) -> None:
    """Show who changed the policy, when, from where, and each old and new value."""
    with connect() as client:
        changes = client.policy_history()
    if as_json:
        print_json([documents.policy_change(each) for each in changes])
        return
    rows = []
    for change in changes:
        knobs = [f"{each.name} {each.before} -> {each.after}" for each in change.changes]
        rows.append(
            [
                cell(words.instant(change.at_ms, now=words.now_ms())),
                cell(change.by),
                cell(change.asked_from),
                cell(", ".join(knobs) or "the defaults"),
                cell(change.comment),
            ]
        )
    print_table(Table(columns=HISTORY_COLUMNS, rows=rows), empty="the policy was never changed")


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
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_written(each)}" for key, each in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _role(name: str) -> str:
    """The role of this name; empty for all. Raises `Refusal`."""
    from tenure.runtime.settings.console import CONSOLE
    from tenure.runtime.settings.table import ENGINE, ROLES

    known = (*ROLES, CONSOLE, ENGINE, "up")
    if name and name not in known:
        fix = f"{did_you_mean(name, known)}use one of {listed(known)}"
        raise Refusal(field="--role", problem=f"{name[:40]!r} is no role", fix=fix)
    return name
