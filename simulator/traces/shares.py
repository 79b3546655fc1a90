"""A budget tree for a history: each budget's share is its part of the GPU-time. Names of groups become budget names."""

import re
from collections.abc import Mapping
from pathlib import Path

from simulator.traces.source import Columns, lines_of, quoted_cells
from tenure.domain.names import check_word
from tenure.domain.nearest import shown
from tenure.domain.refusal import Refusal
from tenure.domain.tree import PPM
from tenure.domain.tree_check import check_path

UNKNOWN = "unknown"
EVERYTHING_ELSE = "*"
LEAST_PPM, LEAST_OF_MANY_PPM = 100, 1
MANY = 5_000
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_YAML_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})


class BudgetNames:
    """The budget of each group. A group that no map names becomes a budget of its own, spelled as names have to be."""

    def __init__(self, *, prefix: str = "", given: Mapping[str, str] | None = None) -> None:
        self._prefix, self._given = prefix, given
        self._paths: dict[str, str] = {}
        self._taken: set[str] = set()

    def path(self, group: str) -> str:
        """The path of a group's budget. Raises `Refusal` if there is a map that does not name it."""
        path = self._paths.get(group)
        if path is None:
            path = self._paths[group] = self._mapped(group) if self._given is not None else self._fresh(group)
        return path

    def _mapped(self, group: str) -> str:
        assert self._given is not None
        path = self._given.get(group) or self._given.get(EVERYTHING_ELSE)
        if path is None:
            raise Refusal(
                field="--budget-map",
                problem=f"no budget for {shown(group)}",
                fix=f"add a line for it, or one for {EVERYTHING_ELSE}, which stands for all others",
            )
        return path

    def _fresh(self, group: str) -> str:
        word = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{self._prefix}{group}" if group else UNKNOWN).strip("._-")[:56]
        word = word or UNKNOWN
        path, again = word, 1
        while path in self._taken:
            again += 1
            path = f"{word}-{again}"
        self._taken.add(path)
        return check_word(path, field="budget")


def load_map(path: Path) -> dict[str, str]:
    """The budget of each group, from a file of `group,budget`. Raises `Refusal` naming the line."""
    budgets: dict[str, str] = {}
    columns: Columns | None = None
    for line, text in lines_of(path):
        cells = [cell.strip() for cell in quoted_cells(text)]
        if columns is None:
            columns = Columns(cells, name=path.name, line=line)
            columns.need("group", "budget", hint="begin the file with the line group,budget")
            continue
        if len(cells) != len(columns.header):
            raise Refusal(field=f"{path.name}:{line}", problem=f"{len(cells)} cells", fix="write group,budget")
        group, budget = cells[columns.at("group")], cells[columns.at("budget")]
        if budgets.setdefault(group, check_path(budget)) != budget:
            raise Refusal(
                field=f"{path.name}:{line}", problem=f"{shown(group)} is given twice", fix="give each group once"
            )
    _check_leaves(budgets, path)
    return budgets


def _check_leaves(budgets: Mapping[str, str], path: Path) -> None:
    """A budget funds jobs or has children, not both."""
    paths = sorted(set(budgets.values()))
    for upper in paths:
        below = next((lower for lower in paths if lower.startswith(f"{upper}/")), None)
        if below is not None:
            raise Refusal(
                field=path.name, problem=f"{upper} cannot fund jobs, {below} is below it", fix="name leaves only"
            )


def budgets_yaml(gpu_s: Mapping[str, int]) -> list[str]:
    """The lines of a `budgets.yaml` with these leaves, each with a share of its parent by its GPU-time."""
    return ["budgets:", *_level(gpu_s, indent=2)]


def _level(gpu_s: Mapping[str, int], *, indent: int) -> list[str]:
    """The budgets of one parent, by name, and those below them."""
    totals: dict[str, int] = {}
    below: dict[str, dict[str, int]] = {}
    for path in sorted(gpu_s):
        name, slash, rest = path.partition("/")
        totals[name] = totals.get(name, 0) + gpu_s[path]
        if slash:
            below.setdefault(name, {})[rest] = gpu_s[path]
    lines: list[str] = []
    for name, share_ppm in shares_ppm(totals).items():
        key = name if _PLAIN.fullmatch(name) and name.lower() not in _YAML_WORDS else f'"{name}"'
        percent = f"{share_ppm * 100 / PPM:.4f}".rstrip("0").rstrip(".")
        lines.append(f"{' ' * indent}{key}:")
        lines.append(f"{' ' * indent}  share: {percent}")
        if name in below:
            lines.append(f"{' ' * indent}  children:")
            lines += _level(below[name], indent=indent + 4)
    return lines


def shares_ppm(weights: Mapping[str, int]) -> dict[str, int]:
    """Shares in ppm that sum to exactly one, in proportion to the weights, and none of nothing. Sorted by name.

    Largest remainders, after everyone has the least share: 0.01 % or, among thousands, 0.0001 %.
    """
    names = sorted(weights)
    least = LEAST_PPM if len(names) <= MANY else LEAST_OF_MANY_PPM
    rest, total = PPM - least * len(names), sum(weights.values())
    assert rest >= 0, "a tree has far fewer budgets than ppm"
    if total == 0:
        weights, total = dict.fromkeys(names, 1), len(names)
    shares = {name: least + rest * weights[name] // total for name in names}
    left = PPM - sum(shares.values())
    by_remainder = sorted(names, key=lambda name: (-(rest * weights[name] % total), name))
    for name in by_remainder[:left]:
        shares[name] += 1
    return shares
