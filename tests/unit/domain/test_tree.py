"""The rules of a budgets file, one a test: what is read, and the exact place of every refusal."""

import math
from typing import Any

import pytest

from tenure.domain.ids import BudgetPath
from tenure.domain.refusal import Refusal
from tenure.domain.tree import DEPTH_MAX, NODES_MAX, BudgetTree, field_of
from tenure.domain.tree_check import check_tree


def refused(budgets: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        check_tree({"budgets": budgets})
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_tree_is_read_from_nested_mappings() -> None:
    tree = check_tree(
        {
            "budgets": {
                "science": {
                    "share": 16,
                    "managers": ["ana", "bo"],
                    "children": {"chem": {"share": 45.5, "users": "equal"}, "bio": {"share": 0}},
                },
                "art": {"share": 84},
            }
        }
    )
    assert [(node.path, node.share_ppm) for node in tree.nodes] == [
        ("art", 840_000),
        ("science", 160_000),
        ("science/bio", 0),
        ("science/chem", 455_000),
    ]
    assert tree.by_path[BudgetPath("science")].managers == ("ana", "bo")
    assert tree.by_path[BudgetPath("science/chem")].users_equal
    assert tree.leaves == ("art", "science/bio", "science/chem")
    assert tree.fractions[BudgetPath("science/chem")] == pytest.approx(0.16 * 0.455)


def test_empty_sections_are_as_if_left_out() -> None:
    plain = check_tree({"budgets": {"a": {"share": 1}}})
    assert check_tree({"budgets": {"a": {"share": 1, "children": None, "managers": None, "users": None}}}) == plain


@pytest.mark.parametrize("share", [-1, -0.001, 100.001, 101, math.nan, math.inf, -math.inf, 2**62, 10**400, 1e-9])
def test_a_share_outside_0_to_100_is_refused(share: float) -> None:
    refusal = refused({"science": {"share": 16, "children": {"chem": {"share": share}}}})
    assert refusal.field == "budgets.science.children.chem.share"
    assert "0" in refusal.fix


@pytest.mark.parametrize("share", ["16", "16%", True, [16], {"of": 16}, b"16"])
def test_a_share_that_is_no_number_is_refused(share: object) -> None:
    refusal = refused({"science": {"share": share}})
    assert refusal.field == "budgets.science.share"
    assert "not a number" in refusal.problem


def test_a_missing_share_is_refused() -> None:
    assert refused({"science": {}}).field == "budgets.science.share"


def test_siblings_may_sum_to_exactly_100() -> None:
    tenths = check_tree({"budgets": {f"b{number}": {"share": 0.1} for number in range(1_000)}})
    assert sum(node.share_ppm for node in tenths.nodes) == 1_000_000
    thirds = check_tree({"budgets": {name: {"share": 100 / 3} for name in "abc"}})
    assert {node.share_ppm for node in thirds.nodes} == {333_333}
    sixths = check_tree({"budgets": {name: {"share": 16.66666} for name in "abcdef"}})
    assert sum(node.share_ppm for node in sixths.nodes) <= 1_000_000


@pytest.mark.parametrize(
    ("shares", "total"),
    [([60, 40.0001], "100.0001"), ([100, 100], "200"), ([0.01009] * 10_000, "100.9")],
)
def test_siblings_that_sum_over_100_are_refused_with_the_sum(shares: list[float], total: str) -> None:
    children = {f"b{number}": {"share": share} for number, share in enumerate(shares)}
    top = refused(children)
    assert (top.field, top.problem) == ("budgets", f"the shares sum to {total} %")
    assert refused({"a": {"share": 1, "children": children}}).field == "budgets.a.children"


def test_shares_of_different_parents_are_not_summed() -> None:
    check_tree({"budgets": {name: {"share": 50, "children": {"x": {"share": 100}}} for name in ("a", "b")}})


def test_an_unknown_key_is_refused_with_the_nearest_known() -> None:
    refusal = refused({"science": {"share": 1, "manager": ["ana"]}})
    assert refusal.field == "budgets.science.manager"
    assert "did you mean managers?" in refusal.fix


def test_an_unknown_key_at_the_top_is_refused() -> None:
    with pytest.raises(Refusal) as caught:
        check_tree({"budget": {"science": {"share": 1}}})
    assert caught.value.field == "budget"
    assert "did you mean budgets?" in caught.value.fix


@pytest.mark.parametrize("key", ["\x1b[31m", "x" * 10_000, 7, None, ("a",)])
def test_an_ugly_key_is_shown_safely(key: object) -> None:
    refusal = refused({"science": {"share": 1, key: 2}})
    assert refusal.field.startswith("budgets.science.")
    assert len(str(refusal)) < 300
    assert str(refusal).isprintable()


@pytest.mark.parametrize("document", [None, [], "budgets", {}, {"budgets": None}, {"budgets": ["a"]}, {"budgets": {}}])
def test_a_document_without_budgets_is_refused(document: object) -> None:
    with pytest.raises(Refusal) as caught:
        check_tree(document)
    assert caught.value.field == "budgets"


def test_a_budget_that_is_no_mapping_is_refused() -> None:
    assert refused({"science": 16}).field == "budgets.science"
    assert refused({"science": {"share": 16, "children": ["chem"]}}).field == "budgets.science.children"


@pytest.mark.parametrize("name", ["", "a/b", "a b", "-a", "a\n", "\x1b[31m", "é", "x" * 64, 2024, None, True])
def test_a_name_that_is_no_word_is_refused(name: object) -> None:
    assert refused({name: {"share": 1}}).field == "budgets"
    assert refused({"a": {"share": 1, "children": {name: {"share": 1}}}}).field == "budgets.a.children"


@pytest.mark.parametrize("managers", ["ana", 7, {"ana": 1}, [7], [""], [None], ["\x07"], ["x" * 129], ["ana", "ana"]])
def test_managers_are_a_list_of_labels(managers: object) -> None:
    assert refused({"a": {"share": 1, "managers": managers}}).field == "budgets.a.managers"


def test_a_thousand_managers_are_refused() -> None:
    assert refused({"a": {"share": 1, "managers": [f"m{n}" for n in range(1_000)]}}).field == "budgets.a.managers"


@pytest.mark.parametrize("users", ["fair", True, ["equal"], 1])
def test_users_is_equal_or_nothing(users: object) -> None:
    assert refused({"a": {"share": 1, "users": users}}).field == "budgets.a.users"


def test_only_a_leaf_shares_among_its_users() -> None:
    refusal = refused({"a": {"share": 1, "users": "equal", "children": {"b": {"share": 1}}}})
    assert refusal.field == "budgets.a.users"


def nested(levels: int) -> dict[str, Any]:
    budgets: dict[str, Any] = {}
    for _ in range(levels):
        budgets = {"a": {"share": 1, "children": budgets}}
    return budgets


def test_the_deepest_tree_allowed_is_read() -> None:
    assert len(check_tree({"budgets": nested(DEPTH_MAX)}).nodes) == DEPTH_MAX


@pytest.mark.parametrize("levels", [DEPTH_MAX + 1, 10_000])
def test_a_deeper_tree_is_refused(levels: int) -> None:
    refusal = refused(nested(levels))
    assert refusal.field == "budgets"
    assert refusal.fix == f"use at most {DEPTH_MAX} levels"


def test_a_cycle_is_refused() -> None:
    cycle: dict[str, Any] = {"share": 1}
    cycle["children"] = {"a": cycle}
    assert "levels" in refused({"a": cycle}).fix


def test_an_alias_that_multiplies_is_refused() -> None:
    bomb: dict[str, Any] = {}
    for _ in range(DEPTH_MAX):
        bomb = {f"b{number}": {"share": 1, "children": bomb} for number in range(9)}
    assert refused(bomb).fix == f"use at most {NODES_MAX}"


def test_ten_thousand_budgets_are_read() -> None:
    budgets = {
        f"p{outer}": {"share": 1, "children": {f"c{inner}": {"share": 1} for inner in range(99)}}
        for outer in range(100)
    }
    tree = check_tree({"budgets": budgets})
    assert len(tree.nodes) == 10_000
    assert len(tree.leaves) == 9_900


def test_more_than_the_most_are_refused() -> None:
    assert refused({f"b{number}": {"share": 0} for number in range(NODES_MAX + 1)}).field == "budgets"


def test_a_place_as_errors_name_it() -> None:
    assert field_of(BudgetPath("science/chem")) == "budgets.science.children.chem"
    assert BudgetTree().leaves == ()
