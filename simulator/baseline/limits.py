"""B2, how many protected GPUs a team may hold at once: its share of the installed GPUs, fixed until somebody edits it.

A team is a leaf of the budget tree. Labs write such a limit down as a number (a group limit of an account, a project's
guaranteed GPUs); it knows nothing of the past, and nothing of hosts that are away.
"""

from collections.abc import Mapping

from tenure.domain.ids import BudgetPath
from tenure.domain.tree import BudgetTree


def team_limits(tree: BudgetTree, *, gpus: int) -> Mapping[BudgetPath, int]:
    """The limit of every leaf, to the nearest GPU, of `gpus` installed ones."""
    return {leaf: int(tree.fractions[leaf] * gpus + 0.5) for leaf in tree.leaves}
