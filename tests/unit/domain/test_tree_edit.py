"""Edits of the tree: merge, replace, remove; what is refused, and that budgets with jobs stay leaves."""

from typing import Any

import pytest

from tenure.domain.ids import BudgetPath
from tenure.domain.refusal import Refusal
from tenure.domain.tree import BudgetTree
from tenure.domain.tree_check import check_tree
from tenure.domain.tree_edit import BudgetEdit, ShareDifference, diff_trees, edit_tree

TREE = check_tree(
    {
        "budgets": {
            "science": {
                "share": 60,
                "managers": ["ana"],
                "children": {"chem": {"share": 50, "users": "equal", "managers": ["bo"]}, "bio": {"share": 50}},
            },
            "art": {"share": 40},
        }
    }
)


def shares(tree: BudgetTree) -> dict[str, int]:
    return {node.path: node.share_ppm for node in tree.nodes}


def paths(*names: str) -> list[BudgetPath]:
    return [BudgetPath(name) for name in names]


def refused(edits: list[BudgetEdit], **more: Any) -> Refusal:
    before = shares(TREE)
    with pytest.raises(Refusal) as caught:
        edit_tree(TREE, edits=edits, **{"merge": True, **more})
    assert shares(TREE) == before
    return caught.value


def edit(path: str, share: float, **more: Any) -> BudgetEdit:
    return BudgetEdit(path=path, share_percent=share, **more)


def test_merge_changes_what_is_named_and_keeps_the_rest() -> None:
    tree = edit_tree(TREE, edits=[edit("science/chem", 30)], merge=True)
    assert shares(tree) == shares(TREE) | {"science/chem": 300_000}
    chem = tree.by_path[BudgetPath("science/chem")]
    assert chem.users_equal
    assert chem.managers == ("bo",)


def test_merge_sets_managers_and_users_when_they_are_given() -> None:
    tree = edit_tree(TREE, edits=[edit("science/chem", 50, managers=[], users_equal=False)], merge=True)
    chem = tree.by_path[BudgetPath("science/chem")]
    assert chem.managers == ()
    assert not chem.users_equal


def test_merge_adds_below_existing_budgets() -> None:
    tree = edit_tree(TREE, edits=[edit("art/oil", 70), edit("art", 30)], merge=True)
    assert shares(tree)["art/oil"] == 700_000
    assert not tree.is_leaf(BudgetPath("art"))


def test_the_new_tree_is_sorted_like_a_read_one() -> None:
    tree = edit_tree(TREE, edits=[edit("a", 0), edit("science-fiction", 0)], merge=True)
    assert [node.path for node in tree.nodes] == sorted(node.path for node in tree.nodes)


def test_replace_is_the_whole_new_tree() -> None:
    tree = edit_tree(TREE, edits=[edit("science", 100), edit("science/bio", 10)], merge=False)
    assert shares(tree) == {"science": 1_000_000, "science/bio": 100_000}
    assert tree.by_path[BudgetPath("science")].managers == ("ana",)


def test_remove_takes_everything_below() -> None:
    tree = edit_tree(TREE, edits=[edit("art", 100)], remove=["science"], merge=True)
    assert shares(tree) == {"art": 1_000_000}


def test_shares_are_checked_after_the_whole_edit() -> None:
    tree = edit_tree(TREE, edits=[edit("science", 30), edit("art", 70)], merge=True)
    assert shares(tree)["art"] == 700_000
    assert refused([edit("art", 41)]).field == "budgets"
    assert refused([edit("science/bio", 50.0001)]).field == "budgets.science.children"


@pytest.mark.parametrize("share", [float("nan"), float("inf"), -1, 100.5, 2**62])
def test_a_share_that_is_no_percentage_is_refused(share: float) -> None:
    assert refused([edit("science/chem", share)]).field == "budgets.science.children.chem.share"


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("", "budgets"),
        ("/art", "budgets./art"),
        ("art/", "budgets.art/"),
        ("art//oil", "budgets.art//oil"),
        ("a\nb", "budgets"),
        ("/".join("a" * 10_000), "budgets"),
        ("x" * 10_000, "budgets"),
    ],
)
def test_a_path_that_is_none_is_refused(path: str, field: str) -> None:
    refusal = refused([edit(path, 1)])
    assert refusal.field == field
    assert len(str(refusal)) < 300


def test_a_child_needs_its_parent() -> None:
    refusal = refused([edit("music/jazz", 1)])
    assert refusal.field == "budgets.music.children.jazz"
    assert "music" in refusal.fix
    assert refused([edit("science/bio", 1)], merge=False).field == "budgets.science.children.bio"


def test_a_budget_given_twice_is_refused() -> None:
    assert refused([edit("art", 1), edit("art", 2)]).field == "budgets.art"


def test_managers_of_an_edit_are_checked() -> None:
    assert refused([edit("art", 1, managers=["\x07"])]).field == "budgets.art.managers"


def test_changed_and_removed_at_once_is_refused() -> None:
    assert refused([edit("science/bio", 1)], remove=["science"]).field == "budgets.science.children.bio"


def test_removing_an_unknown_budget_is_refused_with_the_nearest() -> None:
    refusal = refused([], remove=["sciense"])
    assert refusal.field == "remove"
    assert "did you mean science?" in refusal.fix


def test_remove_needs_merge() -> None:
    assert refused([edit("art", 1)], merge=False, remove=["science"]).field == "remove"


def test_an_edit_of_nothing_is_refused() -> None:
    assert refused([]).field == "budgets"
    assert refused([], merge=False).field == "budgets"
    assert refused([], remove=["science", "art"]).field == "budgets"


def test_users_equal_is_lost_only_knowingly() -> None:
    assert refused([edit("science/chem/lab", 1)]).field == "budgets.science.children.chem.users"
    tree = edit_tree(TREE, edits=[edit("science/chem", 50, users_equal=False), edit("science/chem/lab", 1)], merge=True)
    assert tree.is_leaf(BudgetPath("science/chem/lab"))


def test_a_budget_with_jobs_is_not_removed() -> None:
    in_use = paths("science/bio")
    for refusal in (
        refused([], remove=["science/bio"], in_use=in_use),
        refused([], remove=["science"], in_use=in_use),
        refused([edit("art", 100)], merge=False, in_use=in_use),
    ):
        assert refusal.field == "budgets.science.children.bio"
        assert "jobs" in refusal.problem
        assert "removed" in refusal.problem


def test_a_leaf_with_jobs_stays_a_leaf() -> None:
    refusal = refused([edit("art/oil", 100)], in_use=paths("art"))
    assert refusal.field == "budgets.art"
    assert "children" in refusal.problem


def test_budgets_with_jobs_may_change_their_share_and_their_neighbours() -> None:
    tree = edit_tree(
        TREE, edits=[edit("art", 0), edit("music", 5)], remove=["science/chem"], merge=True, in_use=paths("art")
    )
    assert tree.leaves == ("art", "music", "science/bio")


def test_jobs_of_budgets_that_never_were_do_not_block() -> None:
    edit_tree(TREE, edits=[edit("art", 1)], merge=True, in_use=paths("gone", "science"))


def test_the_difference_of_two_trees_names_each_changed_share() -> None:
    after = edit_tree(
        TREE,
        edits=[edit("art", 10), edit("music", 5), edit("science", 60, managers=["eve"])],
        remove=["science/bio"],
        merge=True,
    )
    assert diff_trees(TREE, after) == (
        ShareDifference(path=BudgetPath("art"), before_ppm=400_000, after_ppm=100_000),
        ShareDifference(path=BudgetPath("music"), before_ppm=None, after_ppm=50_000),
        ShareDifference(path=BudgetPath("science/bio"), before_ppm=500_000, after_ppm=None),
    )
    assert diff_trees(TREE, TREE) == ()


def test_an_edit_among_ten_thousand_budgets() -> None:
    large = check_tree({"budgets": {f"b{number}": {"share": 0.01} for number in range(10_000)}})
    tree = edit_tree(large, edits=[edit("b9999", 0)], merge=True, in_use=large.leaves)
    assert diff_trees(large, tree) == (ShareDifference(path=BudgetPath("b9999"), before_ppm=100, after_ppm=0),)
