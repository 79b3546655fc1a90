"""Edits of the budget tree: all or nothing, and no budget with jobs is taken away. Pure; the gateway calls it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tenure.domain.ids import BudgetPath
from tenure.domain.nearest import did_you_mean, shown
from tenure.domain.refusal import Refusal
from tenure.domain.tree import BudgetTree, field_of, lineage
from tenure.domain.tree_check import MEMBERS_MAX, Draft, build_tree, check_path, check_people, check_share

_JOBS_FIX = "cancel them or let them finish first"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetEdit:
    """One budget as it is to be. None keeps what there is (for a new budget: nobody, and no `users_equal`)."""

    path: str
    share_percent: float
    managers: Sequence[str] | None = None
    users_equal: bool | None = None
    members: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareDifference:
    """A budget whose share changed; None where the budget did not exist."""

    path: BudgetPath
    before_ppm: int | None
    after_ppm: int | None


def edit_tree(
    tree: BudgetTree,
    *,
    edits: Sequence[BudgetEdit],
    merge: bool,
    remove: Sequence[str] = (),
    in_use: Collection[BudgetPath] = (),
) -> BudgetTree:
    """The tree after an edit. Raises `Refusal`, and then nothing of the edit holds.

    Without `merge`, `edits` are the whole new tree. With it, they change budgets or add them below existing ones, and
    `remove` takes budgets out with everything below them. `in_use` are the budgets with queued or running jobs: they
    must stay, and stay leaves.
    """
    if remove and not merge:
        raise Refusal(field="remove", problem="the edit gives a whole new tree", fix="leave the budgets out of it")
    if merge and not edits and not remove:
        raise Refusal(field="budgets", problem="nothing to change", fix="give budgets to change, add or remove")
    removed = _removed(tree, remove)
    drafts: dict[BudgetPath, Draft] = {}
    if merge:
        drafts = {
            node.path: Draft(
                path=node.path,
                share_ppm=Fraction(node.share_ppm),
                managers=node.managers,
                users_equal=node.users_equal,
                members=node.members,
            )
            for node in tree.nodes
            if node.path not in removed
        }
    given: set[BudgetPath] = set()
    for edit in edits:
        draft = _draft(tree, edit)
        if draft.path in given:
            raise Refusal(field=field_of(draft.path), problem="given twice", fix="give each budget once")
        if draft.path in removed:
            raise Refusal(
                field=field_of(draft.path), problem="changed and removed in one edit", fix="do one or the other"
            )
        given.add(draft.path)
        drafts[draft.path] = draft
    changed = build_tree(drafts.values())
    check_in_use(tree, changed, in_use=in_use)
    return changed


def check_in_use(before: BudgetTree, after: BudgetTree, *, in_use: Collection[BudgetPath]) -> None:
    """Raise `Refusal` if a budget with jobs would vanish or stop being a leaf when `before` becomes `after`."""
    for path in sorted(in_use):
        if not before.is_leaf(path) or after.is_leaf(path):
            continue
        problem = "would get children" if path in after.by_path else "would be removed"
        raise Refusal(field=field_of(path), problem=f"{path} has queued or running jobs and {problem}", fix=_JOBS_FIX)


def diff_trees(before: BudgetTree, after: BudgetTree) -> tuple[ShareDifference, ...]:
    """The budgets whose share changed, in order of path: one entry of the history."""
    differences = (
        ShareDifference(path=path, before_ppm=_share(before, path), after_ppm=_share(after, path))
        for path in sorted(before.by_path.keys() | after.by_path.keys())
    )
    return tuple(each for each in differences if each.before_ppm != each.after_ppm)


def _share(tree: BudgetTree, path: BudgetPath) -> int | None:
    node = tree.by_path.get(path)
    return None if node is None else node.share_ppm


def _removed(tree: BudgetTree, remove: Sequence[str]) -> frozenset[BudgetPath]:
    """The budgets to remove and all below them."""
    roots = frozenset(remove)
    for text in remove:
        if text not in tree.by_path:
            raise Refusal(
                field="remove",
                problem=f"there is no budget {shown(text)}",
                fix=f"{did_you_mean(text, tree.by_path)}name an existing budget",
            )
    return frozenset(node.path for node in tree.nodes if any(above in roots for above in lineage(node.path)))


def _draft(tree: BudgetTree, edit: BudgetEdit) -> Draft:
    path = check_path(edit.path)
    field = field_of(path)
    old = tree.by_path.get(path)
    managers = check_people(edit.managers, field=f"{field}.managers")
    if edit.managers is None and old is not None:
        managers = old.managers
    members = check_people(edit.members, field=f"{field}.members", most=MEMBERS_MAX)
    if edit.members is None and old is not None:
        members = old.members
    users_equal = edit.users_equal
    if users_equal is None:
        users_equal = old is not None and old.users_equal
    return Draft(
        path=path,
        share_ppm=check_share(edit.share_percent, field=f"{field}.share"),
        managers=managers,
        users_equal=users_equal,
        members=members,
    )
