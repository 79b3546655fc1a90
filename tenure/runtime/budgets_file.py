"""`budgets.yaml`: the budget tree as people write it. The rules are `tenure.domain.tree_check`'s."""

from pathlib import Path

from tenure.domain.tree import BudgetTree
from tenure.domain.tree_check import check_tree
from tenure.runtime.yaml_file import load_yaml


def load_budgets(path: Path) -> BudgetTree:
    """The tree in a file. Raises `Refusal` naming the file and line (not YAML) or the budget (a broken rule)."""
    return check_tree(load_yaml(path))
