"""The budget tree: shares down a project tree, its leaves fund jobs. Immutable; every edit makes a new tree."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from tenure.domain.ids import BudgetPath

PPM = 1_000_000
"""Shares are integers in parts per million of the parent: 16 % is 160,000."""
ROOT = BudgetPath("")
DEPTH_MAX = 12
NODES_MAX = 20_000
PATHS_KEPT = 1 << 16
"""Paths whose lineage is remembered: looked up at every decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetNode:
    """One budget. `share_ppm` is its fraction of its parent; `users_equal` treats its users as equal children (P4).

    `managers` and `members` are users and `group:NAME`. Members may submit here and below; none: those of the nearest
    budget above that has some, and where none has, everybody.
    """

    path: BudgetPath
    share_ppm: int
    managers: tuple[str, ...] = ()
    users_equal: bool = False
    members: tuple[str, ...] = ()

    @property
    def parent(self) -> BudgetPath:
        """The path above, `ROOT` at the top."""
        return BudgetPath(self.path.rpartition("/")[0])

    @property
    def name(self) -> str:
        """The last word of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class BudgetTree:
    """All budgets, sorted by path. The root (`ROOT`) is implicit and owns everything."""

    nodes: tuple[BudgetNode, ...] = field(default=())

    @cached_property
    def by_path(self) -> Mapping[BudgetPath, BudgetNode]:
        """The nodes by their path."""
        return {node.path: node for node in self.nodes}

    @cached_property
    def children(self) -> Mapping[BudgetPath, tuple[BudgetPath, ...]]:
        """The paths of each node's children in order of path; leaves are absent."""
        below: dict[BudgetPath, list[BudgetPath]] = {}
        for node in self.nodes:
            below.setdefault(node.parent, []).append(node.path)
        return {parent: tuple(sorted(paths)) for parent, paths in below.items()}

    @cached_property
    def fractions(self) -> Mapping[BudgetPath, float]:
        """Each budget's fraction of the whole: the product of the shares down its path (P1)."""
        fractions: dict[BudgetPath, float] = {ROOT: 1.0}
        for node in self.nodes:  # sorted by path, so a parent comes before its children
            fractions[node.path] = fractions[node.parent] * node.share_ppm / PPM
        return fractions

    @cached_property
    def leaves(self) -> tuple[BudgetPath, ...]:
        """The budgets that fund jobs, in order of path."""
        return tuple(node.path for node in self.nodes if node.path not in self.children)

    def is_leaf(self, path: BudgetPath) -> bool:
        """Whether `path` is a budget that funds jobs."""
        return path in self.by_path and path not in self.children


def field_of(path: BudgetPath) -> str:
    """Where `path` stands in a budgets file, as errors name it: `budgets.science.children.chem`."""
    return "budgets." + path.replace("/", ".children.") if path else "budgets"


@lru_cache(maxsize=PATHS_KEPT)
def lineage(path: BudgetPath) -> tuple[BudgetPath, ...]:
    """`path` and its ancestors, from the top level down: `a`, `a/b`, `a/b/c`."""
    parts = path.split("/")
    return tuple(BudgetPath("/".join(parts[:depth])) for depth in range(1, len(parts) + 1))


@lru_cache(maxsize=PATHS_KEPT)
def parting(one: BudgetPath, other: BudgetPath) -> tuple[BudgetPath, BudgetPath] | None:
    """The two ancestors at the level where the paths part (P5), or None for the same leaf.

    Where one is above the other, as after a leaf with runs was given children, it is the two themselves.
    """
    if one == other:
        return None
    for left, right in zip(lineage(one), lineage(other), strict=False):
        if left != right:
            return left, right
    return one, other
