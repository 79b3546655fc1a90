"""The budget tree at the start of `tenure up`: the file's if it says something new, one leaf where there is none."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenure.cli.budgets import replace_tree
from tenure.cli.connection import Found, caller, client_of
from tenure.domain.ids import BudgetPath
from tenure.domain.tree import PPM, BudgetNode, BudgetTree
from tenure.runtime.data_dir import Endpoint

if TYPE_CHECKING:
    from tenure.v1 import budgets_pb2

DEFAULT_TREE = BudgetTree(nodes=(BudgetNode(path=BudgetPath("default"), share_ppm=PPM),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What came of it: a line to say if the tree was changed, and a budget that jobs can be submitted to."""

    changed: str
    leaf: str


def settle_tree(endpoint: Endpoint, *, tree: BudgetTree | None, tree_name: str) -> Settled:
    """Make `tree` the tree if it is another one; without it, make a default one where there is none.

    Raises `ServerError`, such as a refusal because a budget with jobs would go; nothing is changed then.
    """
    with client_of(Found(address=endpoint.address, endpoint=endpoint)) as client:
        present = client.tree()
        wanted = tree
        if tree is None and not present.budgets:
            wanted = DEFAULT_TREE
        if wanted is None or _is_same(wanted, present):
            leaves = [budget.path for budget in present.budgets if budget.leaf]
            return Settled(changed="", leaf=leaves[0] if leaves else "")
        comment = "the tree of a fresh installation" if tree is None else f"from {tree_name}"
        position = replace_tree(client, wanted, comment=comment, user=caller())
    leaf = wanted.leaves[0] if wanted.leaves else ""
    what = "one budget, default, with all GPUs" if tree is None else f"the tree of {tree_name}"
    return Settled(changed=f"budgets: {what} (position {position})", leaf=leaf)


def _is_same(tree: BudgetTree, present: "budgets_pb2.GetTreeResponse") -> bool:
    """Whether the gateway's tree says the same as `tree`."""
    wanted = {node.path: (node.share_ppm, node.managers, node.members, node.users_equal) for node in tree.nodes}
    have = {
        budget.path: (
            round(budget.share_percent * PPM / 100),
            tuple(budget.managers),
            tuple(budget.members),
            budget.users_equal,
        )
        for budget in present.budgets
    }
    return have == wanted
