"""The files of the repository as the architecture tests read them: every file that is, or could be, committed."""

import ast
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = "tenure/v1/"


@dataclass(frozen=True, slots=True)
class Module:
    """A Python module: `path` from the root, its text and its syntax tree."""

    path: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        """How long it is."""
        return self.text.count("\n")


@cache
def tracked() -> tuple[str, ...]:
    """Paths from the root, sorted: what git tracks or would add. Generated code and the lock are left out."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    names = {name for name in listed if name and (ROOT / name).is_file()}
    return tuple(sorted(name for name in names if not name.startswith(GENERATED) and name != "requirements.lock"))


def modules(*tops: str) -> tuple[Module, ...]:
    """The Python modules under the folders `tops` (all of them if none is named)."""
    names = (name for name in tracked() if name.endswith(".py") and (not tops or name.split("/")[0] in tops))
    return tuple(read(name) for name in names)


@cache
def read(name: str) -> Module:
    """One module."""
    text = (ROOT / name).read_text()
    return Module(name, text, ast.parse(text, filename=name))


def production() -> tuple[Module, ...]:
    """What runs: no tests, no examples."""
    return modules("tenure", "services", "simulator")


def pure() -> tuple[Module, ...]:
    """The modules that decide or are folded: values, facts, and each role's state, fold, policy and decider."""
    shape = re.compile(r"tenure/(domain|events)/|services/\w+/(policy/|(decider|evolve|state)\.py$)")
    return tuple(module for module in production() if shape.match(module.path))


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full name of every module that is imported, wherever the import stands."""
    for item in ast.walk(tree):
        if isinstance(item, ast.Import):
            for alias in item.names:
                yield item.lineno, alias.name
        elif isinstance(item, ast.ImportFrom) and item.module:
            yield item.lineno, item.module


def dotted(expression: ast.expr) -> str:
    """`a.b.c` as it is written; empty for anything but names and attributes."""
    if isinstance(expression, ast.Name):
        return expression.id
    if isinstance(expression, ast.Attribute):
        before = dotted(expression.value)
        return f"{before}.{expression.attr}" if before else ""
    return ""


def documents() -> tuple[str, ...]:
    """The Markdown files."""
    return tuple(name for name in tracked() if name.endswith(".md"))


def words(text: str) -> frozenset[str]:
    """The words of `text`, for short lists."""
    return frozenset(text.split())


def say(rule: str, found: Sequence[str]) -> str:
    """The message of a failed test: the rule, and every place that breaks it."""
    return "\n  ".join([f"{rule}:", *found])
