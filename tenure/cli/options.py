"""Options that several commands share, and the panels of the help."""

from pathlib import Path
from typing import Annotated

import typer

from tenure.cli import completion

JOBS, BUDGETS, HOSTS, SYSTEM = "Jobs", "Budgets", "Hosts", "The system"

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]
JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="Id of the job.", show_default=False, autocompletion=completion.jobs)
]
Smtp = Annotated[
    str, typer.Option(metavar="URL", help="The mail server: smtp://host:25, smtp://user@host:587.", show_default="none")
]
SmtpPasswordFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Its user's password.")]
EmailFrom = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Who the mail is from.", show_default="whom it goes to")
]
