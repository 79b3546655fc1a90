"""The flags of a role's command line, made from the table, and what they say."""

import argparse
from pathlib import Path

from tenure.runtime.settings.given import Settings
from tenure.runtime.settings.kinds import TRUTH
from tenure.runtime.settings.setting import Setting
from tenure.runtime.settings.table import ENGINE, TELEMETRY, settings_of


def add_flags(parser: argparse.ArgumentParser, role: str) -> None:
    """Add the flag of every setting that `role` reads, `--config` and `--set`."""
    found = _with_flag(role)
    pairs = parser.add_mutually_exclusive_group() if any(setting.instead_of for setting in found) else parser
    for setting in found:
        _add(pairs if setting.instead_of else parser, setting)
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file with settings: docs/configuration.md")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any setting; a knob of the policy by its name"
    )


def flags_given(arguments: argparse.Namespace, role: str) -> dict[str, object]:
    """What was given as a flag, by path."""
    found = {setting.path: getattr(arguments, setting.argument) for setting in _with_flag(role)}
    return {path: value for path, value in found.items() if value is not None}


def tell_arguments(settings: Settings, arguments: argparse.Namespace) -> None:
    """Put what counts into the parsed arguments, wherever it came from. Raises `Refusal`."""
    for setting in _with_flag(settings.role):
        setattr(arguments, setting.argument, settings.value(setting.path))


def _with_flag(role: str) -> list[Setting]:
    return [setting for setting in settings_of(role) if setting.flag and _is_of(setting, role)]


def _is_of(setting: Setting, role: str) -> bool:
    """Whether a flag is one of the role's: the engine has its own, and those of telemetry."""
    return (role == ENGINE) == (ENGINE in setting.roles) or setting.section == TELEMETRY


def _add(group: "argparse._ActionsContainer", setting: Setting) -> None:
    default = setting.default_in_words.replace("`", "") or setting.default
    told = setting.what.replace("`", "") + (f" (default: {default})" if default not in (None, False, "") else "")
    if setting.kind is TRUTH:
        action = argparse.BooleanOptionalAction if setting.default else "store_true"
        group.add_argument(setting.flag, dest=setting.argument, action=action, default=None, help=told)
    else:
        choices = setting.kind.choices or None
        metavar = None if choices else setting.kind.metavar
        group.add_argument(setting.flag, dest=setting.argument, choices=choices, metavar=metavar, help=told)
