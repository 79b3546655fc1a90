"""A what-if on what really happened: the log of a running system, or an export, replayed as it was or changed."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenure.cli import parsing, words
from tenure.cli.figures import show
from tenure.cli.files import write_blocks
from tenure.cli.outcome import Outputs, draw, tell_rejected
from tenure.cli.progress import Simulating
from tenure.cli.terminal import Cell, Column, Table, cell, print_json, print_table
from tenure.domain.refusal import Refusal
from tenure.domain.units import SECOND, Millis

if TYPE_CHECKING:
    from simulator.past.plan import Question
    from simulator.past.story import Past
    from tenure.domain.tree import BudgetTree

Export = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE",
        help="With --from-log: an events.jsonl[.gz] in place of the running system's log.",
        show_default=False,
    ),
]
FromLog = Annotated[
    bool, typer.Option("--from-log", help="What really happened in place of a trace, as it was or changed.")
]
Since = Annotated[
    Any, typer.Option(parser=parsing.duration, metavar="TIME", help="So much of the log.", show_default="30d")
]
NOTICED_GPU_HOURS = 0.05
"""A smaller change of what was delivered is none: it is not seen in the figures beside it."""
SHOWN = 20
"""So many users are shown; the JSON has all."""
_POLICY = "fair"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Which log, and how much of it. `others`: options that it does not go with, None where they were not given."""

    file: Path | None = None
    since: Millis | None = None
    from_log: bool = True
    others: Mapping[str, object] | None = None

    def question(
        self,
        *,
        settings: Sequence[str] = (),
        budgets: Path | None = None,
        cluster: Path | None = None,
        tree: "BudgetTree | None" = None,
    ) -> "Question":
        """What is asked of it, read and checked. Raises `Refusal`, and `ServerUnreachable` where no system runs."""
        self._check()
        from simulator.collector import resting_collector
        from simulator.past.plan import read_question

        with resting_collector():
            past = self.past()
            return read_question(past, since=self.since, settings=settings, budgets=budgets, cluster=cluster, tree=tree)

    def past(self) -> "Past":
        """What happened."""
        from simulator.past.story import READS, Past, past_of

        if self.file is not None:
            from simulator.past.lines import facts_of

            return Past(facts_of(self.file))
        from tenure.cli.log import read_log, where

        access, name = where("", "", key_file=None, ca=None)
        return past_of(read_log(access, name, READS))

    def _check(self) -> None:
        if not self.from_log:
            field = "--since" if self.file is None else str(self.file)
            raise Refusal(field=field, problem="what it is of is not said", fix="write --from-log before it")
        for option, given in (self.others or {}).items():
            if given:
                fix = f"leave --{option} out, or --from-log: the log has its own jobs, hosts, outages and time"
                raise Refusal(field=f"--{option}", problem="does not go with --from-log", fix=fix)


def answer(question: "Question", *, outputs: Outputs, began: float) -> dict[str, Any]:
    """Replay, write and draw. Returns the report; `wall_seconds` is everything since `began`."""
    import msgspec

    from simulator.collector import resting_collector
    from simulator.past.answer import Answer
    from simulator.report import write_report
    from tenure.export.jsonl import blocks

    with resting_collector():
        with Simulating(end=question.end - question.start) as simulating:
            found = Answer(question, passed=simulating.passed)
        tell_rejected(found.recorded, of=found.jobs)
        if outputs.log is not None:
            write_blocks(outputs.log, blocks(found.recorded, origin_ms=found.origin))
        report = msgspec.structs.replace(found.report, wall_seconds=round(time.monotonic() - began, 3))
        if outputs.report is not None:
            write_report(outputs.report, report)
        told: dict[str, Any] = msgspec.to_builtins(report)
        tree = question.changes.tree or question.past.trees[-1][1]
        draw(found.recorded, told, outputs=outputs, tree=tree, kinds={}, origin_ms=found.origin)
    return told


def tell(report: Mapping[str, Any], *, as_json: bool) -> None:
    """The report as `tenure simulate` has it, then who gains and who loses."""
    if as_json:
        print_json(report)
        return
    show([report], names=[_POLICY])
    print()
    tell_gains(report["what_if"])


def tell_gains(what_if: Mapping[str, Any]) -> None:
    """Who gains and who loses, as tables."""
    since, until = words.exact_clock(what_if["since_ms"]), words.exact_clock(what_if["until_ms"])
    if what_if["compared_with"] == "replay":
        print(f"{since} to {until} with {', '.join(what_if['changes'])}, beside the same time replayed unchanged.")
    else:
        print(f"{since} to {until} replayed unchanged, beside what really happened.")
    if what_if["jobs_estimated"]:
        print(f"{what_if['jobs_estimated']:,} jobs did not come to their end: how long they work is a guess.")
    if what_if["contracts_cut"]:
        print(
            f"{what_if['contracts_cut']:,} jobs asked for a longer minimum runtime than the cap: they ask for the cap."
        )
    print("GPU-hours that were delivered, the change of unallocated ones, and waits until the first start.")
    for title, found in (("BUDGET", what_if["budgets"]), ("USER", what_if["users"])):
        print()
        chosen = _strongest(found) if title == "USER" else found
        print_table(_table(title, chosen, compared_with=what_if["compared_with"]), empty=f"No {title.lower()}s.")
        if len(chosen) < len(found):
            print(f"and {len(found) - len(chosen)} more {title.lower()}s whose change is smaller; --json has all")


def _strongest(found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those whose change is largest, in the order in which all are."""
    by_change = sorted(found, key=lambda gain: -abs(gain["delivered_change_gpu_hours"]))
    chosen = {gain["name"] for gain in by_change[:SHOWN]}
    return [gain for gain in found if gain["name"] in chosen]


def _table(title: str, found: Sequence[Mapping[str, Any]], *, compared_with: str) -> Table:
    was = "UNCHANGED" if compared_with == "replay" else "REALLY"
    now = "CHANGED" if compared_with == "replay" else "REPLAYED"
    columns = [
        Column(title=title),
        Column(title=was, right=True),
        Column(title=now, right=True),
        Column(title="CHANGE", right=True),
        Column(title="UNALLOCATED", right=True, drop=2),
        Column(title="MEAN WAIT", right=True, drop=3),
        Column(title="NOW", right=True, drop=3),
        Column(title="LONGER", right=True, drop=1),
    ]
    return Table(columns=columns, rows=[_row(gain) for gain in found])


def _row(gain: Mapping[str, Any]) -> list[Cell]:
    before, after = gain["before"], gain["after"]
    return [
        cell(gain["name"]),
        cell(f"{before['delivered_gpu_hours']:,.1f}"),
        cell(f"{after['delivered_gpu_hours']:,.1f}"),
        _change(gain["delivered_change_gpu_hours"]),
        cell(f"{gain['unallocated_change_gpu_hours']:+,.1f}"),
        _wait(before["wait_mean_s"]),
        _wait(after["wait_mean_s"]),
        _longer(gain["wait_mean_change_s"]),
    ]


def _change(gpu_hours: float) -> Cell:
    style = "" if abs(gpu_hours) < NOTICED_GPU_HOURS else "green" if gpu_hours > 0 else "red"
    return cell(f"{gpu_hours:+,.1f}" if style else "0.0", style)


def _wait(seconds: float | None) -> Cell:
    return cell(None if seconds is None else words.age(round(seconds * SECOND)))


def _longer(seconds: float | None) -> Cell:
    """The change of a wait, with its sign."""
    if seconds is None:
        return cell(None)
    length = words.age(round(abs(seconds) * SECOND))
    return cell(f"{'+' if seconds > 0 else '-'}{length}" if abs(seconds) >= 1 else "0s")
