"""`tenure why JOB`: what stands before it, what became of it and by which rule; `--replay` decides it all again."""

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.cli import before, waiting, words
from tenure.cli.connection import connect
from tenure.cli.jobs import reason_cells
from tenure.cli.options import JOBS, JobArgument, Json
from tenure.cli.terminal import Cell, clean, print_json, say

if TYPE_CHECKING:
    from tenure.v1 import jobs_pb2

OTHERS_SHOWN = 2
"""Of a row of other jobs' runs that had to go, so many are told."""
REPLAY = "With --replay"


def register(app: typer.Typer) -> None:
    """Add the command to the tree."""
    app.command(rich_help_panel=JOBS)(why)


def why(
    job_id: JobArgument,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Each run that had to go for it, too.")] = False,
    replay: Annotated[
        bool, typer.Option("--replay", help="Decide it all again from the log; status 1 if anything differs.")
    ] = False,
    as_json: Json = False,
    nats: Annotated[
        str,
        typer.Option(
            "--nats", metavar="URL", help="The log's server.", show_default="this machine's", rich_help_panel=REPLAY
        ),
    ] = "",
    cluster: Annotated[
        str, typer.Option("--cluster", help="Name of the log.", show_default="tenure", rich_help_panel=REPLAY)
    ] = "",
    key_file: Annotated[
        Path | None,
        typer.Option("--nats-key-file", metavar="FILE", help="The seed of the key `reader`.", rich_help_panel=REPLAY),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option("--nats-ca", metavar="FILE", help="Who signed the server's certificate.", rich_help_panel=REPLAY),
    ] = None,
) -> None:
    """Tell why the job waits or was stopped, and its story: each step with its rule and the numbers compared."""
    if replay:
        from tenure.cli import replay as replaying
        from tenure.cli.log import where

        replaying.run(job_id, *where(nats, cluster, key_file=key_file, ca=ca), as_json=as_json)
        return
    if nats or cluster or key_file or ca:
        raise typer.BadParameter("only --replay reads the log itself; leave them out, or add it", param_hint="'--nats'")
    with connect() as client:
        answer = client.explain(job_id, forecast=as_json)
        if as_json:
            from tenure.cli import documents, explained

            print_json({**documents.story(job_id, answer), **explained.explained(answer)})
            return
        before.show(answer)
        _tell(job_id, answer, keep=None if everything else OTHERS_SHOWN)
        if answer.job.state == "queued":  # what is known is read meanwhile
            sys.stdout.flush()
            before.show_forecast(client.explain(job_id, forecast=True))


def _tell(job_id: str, answer: "jobs_pb2.ExplainJobResponse", *, keep: int | None) -> None:
    """The story, step by step."""
    if answer.answer:
        say(Cell("\nSTORY", "bold"))
    for step, more in shortened(job_id, answer.steps, keep=keep):
        say(Cell(words.exact_clock(step.at_ms), "dim"), "  ", Cell(clean(step.text or step.kind)))
        reason = reason_cells(step.why)
        if reason:
            say(" " * 25, *reason)
        if more:
            say(" " * 25, Cell(f"and {more} more like this; tenure why --all shows each", "dim"))
    if answer.job.HasField("reservation"):
        waiting.show(answer.job)
    if answer.position < answer.last_position:
        print("tenure: the database lags behind the log, the end is missing; ask again in a moment", file=sys.stderr)


def shortened(
    job_id: str, steps: "Iterable[jobs_pb2.Step]", *, keep: int | None
) -> "Iterator[tuple[jobs_pb2.Step, int]]":
    """The steps, each with how many like it are left out after it: of other jobs only `keep` of a kind in a row."""
    for (kind, own), row in groupby(steps, key=lambda step: (step.kind, _tells_of(step, job_id))):
        alike = list(row)
        shown = alike if own or keep is None or not kind.startswith("Run") else alike[:keep]
        for step in shown[:-1]:
            yield step, 0
        yield shown[-1], len(alike) - len(shown)


def _tells_of(step: "jobs_pb2.Step", job_id: str) -> bool:
    return bool(json.loads(step.fact_json or "{}").get("job", job_id) == job_id)
