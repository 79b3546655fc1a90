"""`tenure doctor`: looks at everything that usually goes wrong, and says what to do about it."""

from pathlib import Path
from typing import Annotated

import typer

from tenure.cli.options import SYSTEM, Json
from tenure.cli.terminal import Cell, cell, print_json, say


def register(app: typer.Typer) -> None:
    """Add the command to the tree."""
    app.command(rich_help_panel=SYSTEM)(doctor)


def doctor(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Look at this one.", show_default="what runs")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the installation, the machine and the running system; status 1 if something is wrong."""
    from tenure.cli.checks import all_findings

    findings = all_findings(data)
    if as_json:
        print_json(
            {
                "well": all(finding.well for finding in findings),
                "checks": [
                    {
                        "subject": finding.subject,
                        "well": finding.well,
                        "detail": finding.detail,
                        "problem": finding.problem or None,
                        "fix": None if finding.well else finding.fix,
                    }
                    for finding in findings
                ],
            }
        )
    else:
        width = max(len(finding.subject) for finding in findings)
        for finding in findings:
            sign = Cell("ok     ", "green") if finding.well else Cell("problem", "bold red")
            words = finding.detail if finding.well else f"{finding.problem}; {finding.fix}"
            say(sign, "  ", cell(finding.subject.ljust(width), "bold"), "  ", cell(words))
    if not all(finding.well for finding in findings):
        raise typer.Exit(1)
