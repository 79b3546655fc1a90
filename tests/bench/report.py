"""`make bench`: run the bench modules, keep their figures in docs/benchmarks.json, write them into docs/benchmarks.md.

A bench module is a module beside this one with a `main`; `python -m tests.bench.NAME` (with `--json` if it has that)
prints one JSON object of groups of figures, `{"group": {"figure": 12.3}}`, and nothing else on stdout. The group
`conditions` tells the circumstances.
`make bench ARGS="log ranker"` measures those again and leaves the rest as it was. What follows a single module are
its own options: `make bench ARGS="months --only growth"` keeps the groups that it does not measure then.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

from tests.bench.targets import TARGETS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks.md"
FIGURES = ROOT / "docs" / "benchmarks.json"
BEGIN, END = "<!-- figures: begin, written by make bench -->", "<!-- figures: end -->"

Measured = dict[str, dict[str, Any]]
"""By module: `at` (date), `machine`, `figures` (what the module printed)."""


def bench_modules() -> list[str]:
    """The names of the modules that measure."""
    found = sorted(Path(__file__).parent.glob("*.py"))
    return [path.stem for path in found if path.stem != "report" and "def main(" in path.read_text()]


def measure(name: str, options: Sequence[str] = ()) -> dict[str, Any]:
    """Run one module with its own options. Raises SystemExit when it fails or prints something else than JSON."""
    print(f"{name} ...", file=sys.stderr, flush=True)
    began = time.monotonic()
    command = [sys.executable, "-m", f"tests.bench.{name}", *options]
    if '"--json"' in (Path(__file__).parent / f"{name}.py").read_text():
        command.append("--json")
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if run.returncode != 0:
        raise SystemExit(f"tests.bench.{name} failed with status {run.returncode}")
    try:
        figures: dict[str, Any] = json.loads(run.stdout)
    except ValueError as error:
        raise SystemExit(f"tests.bench.{name} printed no JSON: {error}") from error
    print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return {"at": time.strftime("%Y-%m-%d"), "machine": machine(), "figures": figures}


def machine() -> str:
    """What it was measured on, without its name."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()}, Python {platform.python_version()}"


def flat(figures: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Every figure with its path, in the order in which it was printed."""
    for name, value in figures.items():
        path = f"{before}.{name}" if before else name
        if isinstance(value, Mapping):
            yield from flat(value, path)
        else:
            yield path, value


def render(measured: Measured) -> str:
    """The generated part of the page."""
    known = {f"{name}.{path}": value for name, part in measured.items() for path, value in flat(part["figures"])}
    lines = ["", "## Targets", "", "| figure | target | measured | Slurm |", "|---|---|---|---|"]
    for target in TARGETS:
        if not target.what:
            continue
        value = known.get(target.figure)
        if isinstance(value, list):
            value = target.worst(value)
        if value is None:
            said = "not measured yet"
        else:
            said = f"{shown(value)} {target.unit}" + ("" if target.met(value) else ", **missed**")
        lines.append(f"| {target.what} | {target.wanted} | {said} | {target.slurm or '-'} |")
    for name in sorted(measured):
        part = measured[name]
        conditions = part["figures"].get("conditions", {})
        circumstances = "".join(f"; {key} {shown(value)}" for key, value in flat(conditions))
        lines += [
            "",
            f"## {name}",
            "",
            f"{part['at']}, {part['machine']}{circumstances}. See `tests/bench/{name}.py`.",
        ]
        for rows in tables(name, part["figures"]):
            lines += ["", *rows]
    return "\n".join([*lines, ""])


Groups = dict[str, Any]


def tables(module: str, figures: Mapping[str, Any]) -> Iterator[Iterator[str]]:
    """The groups in order: neighbours that have the same figures side by side, all others below one another."""
    groups = [(group, inner) for group, inner in figures.items() if group != "conditions"]
    alone: Groups = {}
    for names, run in groupby(groups, key=lambda group: tuple(group[1]) if isinstance(group[1], Mapping) else ()):
        alike = dict(run)
        if not names or len(alike) == 1:
            alone |= alike
            continue
        if alone:
            yield table(alone)
        alone = {}
        yield side_by_side(module, alike)
    if alone:
        yield table(alone)


def table(groups: Groups) -> Iterator[str]:
    """A row for each figure of one group."""
    yield from ("| | figure | value |", "|---|---|---|")
    for group, figures in groups.items():
        for name, value in (figures if isinstance(figures, Mapping) else {"": figures}).items():
            yield f"| {group} | {name} | {shown(value)} |"


def side_by_side(module: str, groups: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A row for each figure, a column for each group, what is wanted of them, and a mark where that is missed."""
    names = list(next(iter(groups.values())))
    targets = {target.figure: target for target in TARGETS}
    wanted = {
        name: [targets[path] for group in groups if (path := f"{module}.{group}.{name}") in targets] for name in names
    }
    head = ["figure", *(["wanted"] if any(wanted.values()) else []), *groups]
    yield from (f"| {' | '.join(head)} |", f"|{'---|' * len(head)}")
    for name in names:
        cells = [name]
        if any(wanted.values()):
            cells.append(", ".join(dict.fromkeys(target.wanted for target in wanted[name])))
        for group, figures in groups.items():
            target, value = targets.get(f"{module}.{group}.{name}"), figures[name]
            missed = target is not None and value is not None and not target.met(value)
            cells.append(f"{shown(value)} *" if missed else shown(value))
        yield f"| {' | '.join(cells)} |"


def shown(value: object) -> str:
    """A figure as people read it: four digits, thousands apart."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(shown(one) for one in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{path} {shown(one)}" for path, one in flat(value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def with_figures(page: str, figures: str) -> str:
    """The page with the part between the marks replaced. Raises ValueError if it lacks them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE.name} lacks {BEGIN!r} or {END!r}")
    return f"{before}{BEGIN}\n{figures}\n{END}{after}"


def load() -> Measured:
    """The figures that were kept."""
    measured: Measured = json.loads(FIGURES.read_text())
    return measured


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, keep, write. Exit status 0, or 1 when a module failed; what was measured before it is kept."""
    parser = argparse.ArgumentParser(prog="make bench ARGS=...", description="Measure and rewrite docs/benchmarks.md.")
    known = bench_modules()
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"{', '.join(known)}; all if none is named")
    given = sys.argv[1:] if arguments is None else arguments
    named = list(takewhile(lambda argument: not argument.startswith("-"), given))
    options = given[len(named) :]
    wanted: list[str] = parser.parse_args(named or options).modules or known
    unknown = [name for name in wanted if name not in known]
    if unknown:
        parser.error(f"{', '.join(unknown)}: no such module; there are {', '.join(known)}")
    if options and len(wanted) != 1:
        parser.error(f"{' '.join(options)}: options are those of one module; name it")
    measured = load()
    for name in wanted:
        before, measured[name] = measured.get(name), measure(name, options)
        if options and before is not None:
            kept = {group: figures for group, figures in before["figures"].items() if group != "conditions"}
            measured[name]["figures"] = kept | measured[name]["figures"]
        FIGURES.write_text(json.dumps(measured, indent=1) + "\n")
        PAGE.write_text(with_figures(PAGE.read_text(), render(measured)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
