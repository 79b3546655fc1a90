"""The tree of commands; each module of this package adds its own."""

from typing import Annotated

import typer

from tenure.cli import (
    budget_import,
    budgets,
    config,
    doctor,
    follow,
    hosts,
    jobs,
    log,
    log_dead,
    log_restore,
    output,
    people,
    queue,
    serve,
    simulate,
    submit,
    tokens,
    trace,
    up,
    why,
)

app = typer.Typer(
    name="tenure",
    help="Shared GPU clusters: budgets of GPU time, fair share over a sliding week, a contract for every job.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_PARTS = (up, submit, queue, jobs, why, follow, output, budgets, people, budget_import, hosts, serve, simulate, trace)
for module in (*_PARTS, log, log_dead, log_restore, config, doctor, tokens):
    module.register(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"tenure {version('tenure')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """The options before any command; each does all its work in a callback."""
    assert not version, "the callback has ended the process"
