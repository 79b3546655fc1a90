"""What of requirements.lock tenure needs, with its hashes: at run time, or with --build to make its wheel.

The lock has the tools of development in it, too. Each package there names who asked for it; what nobody asked for that
is needed at run time stays out.
"""

import argparse
import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
ENTRY = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==.*\n(?:[ \t]+.*\n?)*", re.MULTILINE)
ASKED = re.compile(r"^ +# +(?:via +)?(?P<by>[a-z0-9][a-z0-9._-]*)", re.MULTILINE)


def normal(requirement: str) -> str:
    """The name of a requirement as the lock writes it."""
    match = NAME.match(requirement)
    assert match is not None, f"{requirement!r} begins with no name"
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def entries(lock: str) -> dict[str, str]:
    """Each package's lines in the lock."""
    return {normal(match["name"]): match[0] for match in ENTRY.finditer(lock)}


def needed(packages: Mapping[str, str], roots: Collection[str], *, without: Collection[str] = ()) -> list[str]:
    """The packages that `roots` need, themselves included, in order; not `without`, nor what only those need."""
    asked_by = {name: {normal(by) for by in ASKED.findall(text)} - {"via", "tenure"} for name, text in packages.items()}
    found = set(roots) - set(without)
    while more := {name for name, by in asked_by.items() if by & found} - found - set(without):
        found |= more
    missing = sorted(found - set(packages))
    if missing:
        raise SystemExit(f"requirements.lock lacks {', '.join(missing)}: run make lock")
    return sorted(found)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", action="store_true", help="what makes the wheel, in place of what runs")
    parser.add_argument("--without", default="", help="names of packages to leave out, separated by spaces")
    given = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = project["build-system"]["requires"] if given.build else project["project"]["dependencies"]
    without = [normal(name) for name in given.without.split()]
    packages = entries((ROOT / "requirements.lock").read_text())
    unknown = sorted(set(without) - set(packages))
    if unknown:
        raise SystemExit(f"--without: {', '.join(unknown)} is not in requirements.lock")
    for name in needed(packages, [normal(requirement) for requirement in asked], without=without):
        print(packages[name], end="")


if __name__ == "__main__":
    main()
