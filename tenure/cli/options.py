"""Options that several commands share, and the panels of the help."""

from typing import Annotated

import typer

from tenure.cli import completion

JOBS, BUDGETS, HOSTS, SYSTEM = "Jobs", "Budgets", "Hosts", "The system"

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]
JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="Id of the job.", show_default=False, autocompletion=completion.jobs)
]
