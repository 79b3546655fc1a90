"""`tenure serve ROLE`: become one role's process. The arguments after the role are its own."""

import os
import sys
from typing import Annotated

import typer

from tenure.cli.options import SYSTEM

FORECAST = "forecast"
"""It decides nothing, and lives with the simulator that it runs."""


def register(app: typer.Typer) -> None:
    """Add the command to the tree; it leaves every option to the role, `--help` too."""
    settings = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}
    app.command(rich_help_panel=SYSTEM, context_settings=settings)(serve)


def serve(
    role: Annotated[str, typer.Argument(metavar="ROLE", help="Such as gateway; without one they are listed.")] = "",
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="See serve ROLE --help.")] = None,
) -> None:
    """Run one role in this process (for machines where systemd or Kubernetes looks after it)."""
    sys.stdout.flush()
    os.execv(sys.executable, role_command(role, *(arguments or ())))


def role_command(role: str, *arguments: str) -> list[str]:
    """The command line of a role's process. `-P`: the working directory may hold a `services` of its own."""
    module = ["simulator.live"] if role == FORECAST else ["services", role]
    return [sys.executable, "-P", "-m", *module, *arguments]
