"""What a simulation leaves behind: where its results go, its pictures, and the words about what went wrong in it."""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from tenure.cli.files import writable
from tenure.cli.terminal import clean
from tenure.domain.refusal import Refusal
from tenure.domain.units import Millis

if TYPE_CHECKING:
    from tenure.domain.ids import JobId
    from tenure.domain.tree import BudgetTree
    from tenure.events.fact import Recorded

USAGE = 2
FEW = 5
"""Rows or jobs that are told one by one when something is wrong with many."""


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Where results go, links followed; None: nowhere."""

    report: Path | None
    log: Path | None
    html: Path | None
    png: Path | None
    svg: Path | None


@contextlib.contextmanager
def usage() -> Iterator[None]:
    """What is refused inside is said in one line and exits with 2."""
    try:
        yield
    except Refusal as refusal:
        say(clean(" ".join(str(refusal).split())))
        raise typer.Exit(USAGE) from refusal


def outputs_at(**paths: Path | None) -> Outputs:
    """Where results go, by option. Raises `Refusal` where one cannot be written, or is not named as what it is."""
    places: dict[str, Path | None] = {}
    for option, path in paths.items():
        if path is not None and option in ("png", "svg") and path.suffix.lower() != f".{option}":
            raise Refusal(
                field=f"--{option}", problem=f"{path} does not end in .{option}", fix=f"name it {path}.{option}"
            )
        places[option] = None if path is None else writable(path, field=f"--{option}")
    return Outputs(**places)


def say(line: str) -> None:
    """One line about a simulation, on stderr."""
    print(f"tenure simulate: {line}", file=sys.stderr)


def tell_unplayed(settings: Sequence[str]) -> None:
    """Which of the knobs that were set change nothing."""
    from simulator.knobs import UNPLAYED

    for knob in dict.fromkeys(setting.partition("=")[0].strip() for setting in settings):
        if knob in UNPLAYED:
            say(f"{knob} changes nothing here: hosts fail as --faults says, and at once")


def tell_rejected(recorded: "Sequence[Recorded]", *, of: int) -> None:
    """How many jobs were not admitted, and why the first few were not."""
    from tenure.events.budgets import JobRejected

    rejected = [entry.fact for entry in recorded if isinstance(entry.fact, JobRejected)]
    if rejected:
        say(f"{len(rejected)} of {of} jobs are rejected, as they would be by a real system:")
        tell_few(["{}: {field}: {problem}; {fix}".format(fact.job, **fact.why.numbers) for fact in rejected])


def tell_few(lines: Sequence[str]) -> None:
    """The first few of them, and how many more there are."""
    for line in lines[:FEW]:
        print(f"  {clean(' '.join(line.split()))}", file=sys.stderr)
    if len(lines) > FEW:
        print(f"  and {len(lines) - FEW} more", file=sys.stderr)


def draw(
    recorded: "Sequence[Recorded]",
    report: dict[str, Any],
    *,
    outputs: Outputs,
    tree: "BudgetTree",
    kinds: "Mapping[JobId, str]",
    origin_ms: Millis = 0,
) -> None:
    """The pictures of a run, where any are asked for."""
    if not (outputs.html or outputs.png or outputs.svg):
        return
    import msgspec

    from tenure.domain.tree import PPM
    from tenure.export.jsonl import lines

    encoded = list(lines(recorded, origin_ms=origin_ms))
    budgets = {str(budget.path): budget.share_ppm / PPM for budget in tree.nodes}
    drawn: dict[str, Any] = {"report": report, "budgets": budgets, "kinds": dict(kinds)}
    if outputs.html is not None:
        from simulator.pictures.page import write_html

        write_html(outputs.html, lines=map(msgspec.json.decode, encoded), **drawn)
    for path in (outputs.png, outputs.svg):
        if path is not None:
            from simulator.pictures.image import write_image

            write_image(path, lines=map(msgspec.json.decode, encoded), **drawn)
