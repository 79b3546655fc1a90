"""`tenure simulate`: a history or a what-if in the hands of the services' own deciders, and its report.

Bad input of any kind exits with 2 and one line on stderr, before anything is simulated or written.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenure.cli import parsing
from tenure.cli.figures import read_report, show
from tenure.cli.files import write_blocks
from tenure.cli.options import SYSTEM, Json
from tenure.cli.outcome import Outputs, draw, outputs_at, say, tell_few, tell_rejected, tell_unplayed, usage
from tenure.cli.progress import Simulating
from tenure.cli.terminal import print_json
from tenure.cli.whatif import Export, FromLog, Since, Source, answer, tell
from tenure.domain.refusal import Refusal

if TYPE_CHECKING:
    from simulator.plan import Files, Plan
    from simulator.workload import BadRow
    from tenure.events.fact import Recorded

POLICIES = ("fair", "priority")


def register(app: typer.Typer) -> None:
    """Add the command to the tree."""
    app.command(rich_help_panel=SYSTEM)(simulate)


def simulate(
    export: Export = None,
    from_log: FromLog = False,
    since: Since = None,
    cluster: Annotated[
        Path | None, typer.Option("--cluster", metavar="FILE", help="The hosts: a cluster.yaml.", show_default=False)
    ] = None,
    budgets: Annotated[
        Path | None, typer.Option("--budgets", metavar="FILE", help="The tree: a budgets.yaml.", show_default=False)
    ] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", metavar="FILE", help="The jobs: a trace.csv[.gz].", show_default=False)
    ] = None,
    faults: Annotated[
        Path | None,
        typer.Option("--faults", metavar="FILE", help="Outages of hosts: a faults.csv.", show_default="none"),
    ] = None,
    policy: Annotated[str, typer.Option("--policy", help="fair, or priority: what labs have today.")] = "fair",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KNOB=VALUE", help="A knob; an unknown one lists them. Repeatable."),
    ] = None,
    days: Annotated[
        float | None, typer.Option("--days", help="Stop after so many.", show_default="the last submission's day")
    ] = None,
    warmup: Annotated[
        Any, typer.Option(parser=parsing.duration, metavar="TIME", help="Not reported on.", show_default="7d")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", metavar="FILE", help="report.json.")] = None,
    log: Annotated[
        Path | None, typer.Option("--log", metavar="FILE", help="Everything that happened: events.jsonl[.gz].")
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="A page with pictures, which works offline.")
    ] = None,
    png: Annotated[Path | None, typer.Option("--png", metavar="FILE", help="The same as an image.")] = None,
    svg: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="The same as a drawing.")] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            "--compare", metavar="A.json B.json", help="Two reports side by side instead.", show_default=False
        ),
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out bad rows of the trace, and say so.")] = False,
    json: Json = False,
) -> None:
    """Replay a history, or a what-if, on a virtual clock: who waits, who gets what they are owed."""
    began = time.monotonic()
    if from_log or export or since is not None:
        others = {"trace": trace, "faults": faults, "days": days, "warmup": warmup, "compare": compare}
        others |= {"skip-bad": skip_bad, "policy": None if policy == "fair" else policy}
        source = Source(file=export, since=since, from_log=from_log, others=others)
        with usage():
            outputs = outputs_at(report=report, log=log, html=html, png=png, svg=svg)
            question = source.question(settings=settings or (), budgets=budgets, cluster=cluster)
            tell_unplayed(settings or ())
        tell(answer(question, outputs=outputs, began=began), as_json=json)
        return
    with usage():
        outputs = outputs_at(report=report, log=log, html=html, png=png, svg=svg)
        if compare is not None:
            if cluster or budgets or trace or faults or report or log:
                fix = "give it alone, or with --html, --png, --svg, --json"
                raise Refusal(field="--compare", problem="beside what is to be simulated", fix=fix)
            _compare(compare, outputs=outputs, as_json=json)
            raise typer.Exit
        from simulator.plan import read_plan

        if policy not in POLICIES:
            fix = f"choose {' or '.join(POLICIES)}"
            raise Refusal(field="--policy", problem=f"{policy[:40]!r} is not known", fix=fix)
        files = _files(cluster, budgets, trace, faults)
        plan = read_plan(files, settings=settings or (), days=days, warmup=warmup, skip_bad=skip_bad)
        tell_unplayed(settings or ())
        _tell_skipped(plan.trace.bad, of=len(plan.trace.jobs) + len(plan.trace.bad))
    told = _play(plan, policy=policy, outputs=outputs, began=began)
    if json:
        print_json(told)
    else:
        show([told], names=[policy])


def _play(plan: "Plan", *, policy: str, outputs: Outputs, began: float) -> dict[str, Any]:
    """Simulate, tell, write and draw. Returns the report."""
    from simulator.collector import resting_collector

    with resting_collector():
        recorded = _simulate(plan, policy=policy)
        tell_rejected(recorded, of=len(plan.jobs))
        told = _report(plan, recorded, policy=policy, outputs=outputs, began=began)
        draw(recorded, told, outputs=outputs, tree=plan.tree, kinds={job.job: job.kind for job in plan.jobs})
    return told


def _compare(paths: tuple[Path, Path], *, outputs: Outputs, as_json: bool) -> None:
    """Two reports side by side, each headed by its policy, by its file where both have the same. Raises `Refusal`."""
    reports = [read_report(path) for path in paths]
    policies = [str(report["policy"]) for report in reports]
    names = policies if len(set(policies)) > 1 else [path.stem for path in paths]
    for place in (outputs.html, outputs.png, outputs.svg):
        if place is not None:
            from simulator.pictures.side_by_side import write_comparison

            write_comparison(place, reports)
    if as_json:
        print_json(dict(zip(map(str, paths), reports, strict=True)))
    else:
        show(reports, names=names)


def _files(cluster: Path | None, budgets: Path | None, trace: Path | None, faults: Path | None) -> "Files":
    """The inputs, none of the needed ones missing. Raises `Refusal`."""
    from simulator.plan import Files

    if cluster is None:
        raise Refusal(field="--cluster", problem="missing", fix="name the cluster.yaml with the hosts")
    if budgets is None:
        raise Refusal(field="--budgets", problem="missing", fix="name the budgets.yaml with the tree")
    if trace is None:
        raise Refusal(field="--trace", problem="missing", fix="name the trace.csv with the jobs")
    return Files(cluster=cluster, budgets=budgets, trace=trace, faults=faults)


def _tell_skipped(bad: "Sequence[BadRow]", *, of: int) -> None:
    """How many rows were left out, and what is wrong with the first few."""
    if bad:
        say(f"{len(bad)} of {of} rows are bad and left out:")
        tell_few([row.reason for row in bad])


def _simulate(plan: "Plan", *, policy: str) -> "Sequence[Recorded]":
    """The whole log of the plan, under the policy of this name."""
    from simulator.baseline import PRIORITY
    from simulator.simulation import FAIR, Simulation

    simulation = Simulation(
        hosts=plan.hosts,
        tree=plan.tree,
        policy=plan.policy,
        work=plan.work,
        jobs=plan.jobs,
        faults=plan.faults,
        roles=PRIORITY if policy == "priority" else FAIR,
    )
    with Simulating(end=plan.end) as simulating:
        return simulation.run(plan.end, progress=simulating.passed)


def _report(
    plan: "Plan", recorded: "Sequence[Recorded]", *, policy: str, outputs: Outputs, began: float
) -> dict[str, Any]:
    """The report, written with the log; `wall_seconds` is everything since `began` but for writing the report."""
    import msgspec

    from simulator.report import build_report, write_report
    from tenure.export.jsonl import blocks

    report = build_report(
        recorded,
        policy_name=policy,
        kinds={job.job: job.kind for job in plan.jobs},
        start=plan.start,
        end=plan.end,
        lookback_ms=plan.policy.lookback_ms,
        wall_seconds=0,
        work=plan.work,
        rates_milli=plan.policy.rates_milli,
    )
    if outputs.log is not None:
        write_blocks(outputs.log, blocks(recorded, origin_ms=0))
    report = msgspec.structs.replace(report, wall_seconds=round(time.monotonic() - began, 3))
    if outputs.report is not None:
        write_report(outputs.report, report)
    told: dict[str, Any] = msgspec.to_builtins(report)
    return told
