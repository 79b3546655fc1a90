"""`tenure logs`: what a job's processes wrote, as they wrote it."""

import sys
from typing import Annotated

import typer

from tenure.cli.connection import connect
from tenure.cli.options import JOBS, JobArgument


def register(app: typer.Typer) -> None:
    """Add the command to the tree."""
    app.command(rich_help_panel=JOBS)(logs)


def logs(
    job_id: JobArgument,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run is over.")] = False,
    replica: Annotated[int, typer.Option("--replica", "-r", min=0, max=1_000_000, help="Which replica.")] = 0,
    run: Annotated[
        int, typer.Option("--run", min=0, max=1_000_000, metavar="N", help="Which run.", show_default="the latest")
    ] = 0,
    stderr: Annotated[bool, typer.Option("--stderr", help="Its stderr instead of its stdout.")] = False,
    tail: Annotated[
        int, typer.Option("--tail", min=0, max=2**40, metavar="BYTES", help="Only the end.", show_default="all")
    ] = 0,
) -> None:
    """Print what a job's replica wrote."""
    stream = "stderr" if stderr else "stdout"
    with connect() as client:
        for data in client.output(job_id, run=run, replica=replica, stream=stream, follow=follow, tail_bytes=tail):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
