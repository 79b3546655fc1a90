"""Budgets of a history: names, shares by GPU-time, maps, and a file that `tenure` reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.traces.shares import BudgetNames, budgets_yaml, load_map, shares_ppm
from tenure.domain.refusal import Refusal
from tenure.domain.tree import PPM
from tenure.runtime.budgets_file import load_budgets


def test_names_are_made_usable_and_stay_different():
    names = BudgetNames(prefix="vc-")
    words = ["11cb48", "a b", "a/b", "", "été", "x" * 99]
    assert [names.path(word) for word in words] == [
        "vc-11cb48", "vc-a-b", "vc-a-b-2", "unknown", "vc--t", "vc-" + 53 * "x",
    ]  # fmt: skip
    assert names.path("a/b") == "vc-a-b-2"


def test_shares_follow_gpu_time_and_leave_nobody_without():
    assert shares_ppm({"b": 3, "a": 1, "c": 0}) == {"a": 250_025, "b": 749_875, "c": 100}
    assert shares_ppm({"a": 0, "b": 0, "c": 0}) == {"a": 333_334, "b": 333_333, "c": 333_333}


@given(st.dictionaries(st.text(min_size=1, max_size=4), st.integers(0, 10**15), min_size=1, max_size=40))
def test_shares_sum_to_one(weights):
    shares = shares_ppm(weights)
    assert sum(shares.values()) == PPM
    assert list(shares) == sorted(weights)
    assert min(shares.values()) >= 100


def test_the_file_is_read_as_it_was_meant(tmp_path):
    path = tmp_path / "budgets.yaml"
    path.write_text("\n".join(budgets_yaml({"no": 10, "1e5": 20, "science/chem": 60, "science/bio": 10})))
    tree = load_budgets(path)
    assert tree.leaves == ("1e5", "no", "science/bio", "science/chem")
    assert {node.path: node.share_ppm for node in tree.nodes} == {
        "1e5": 200_040, "no": 100_070, "science": 699_890, "science/bio": 142_929, "science/chem": 857_071,
    }  # fmt: skip


def test_a_map_gives_groups_their_budgets(tmp_path):
    path = tmp_path / "map.csv"
    path.write_text('budget,group\nscience/chem,11cb48\nscience/bio,"a, b"\nplatform,*\n')
    names = BudgetNames(prefix="vc-", given=load_map(path))
    assert [names.path(group) for group in ("11cb48", "a, b", "other")] == ["science/chem", "science/bio", "platform"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,budget\na,b\n", "map.csv:1: no column group in the header"),
        ("group,budget\na\n", "map.csv:2: 1 cells; write group,budget"),
        ("group,budget\na,b c\n", "'b c' is not a usable name"),
        ("group,budget\na,b\na,c\n", "map.csv:3: 'a' is given twice"),
        ("group,budget\na,b\nc,b/d\n", "map.csv: b cannot fund jobs, b/d is below it"),
    ],
)
def test_bad_maps_are_refused(tmp_path, text, message):
    path = tmp_path / "map.csv"
    path.write_text(text)
    with pytest.raises(Refusal) as caught:
        load_map(path)
    assert message in str(caught.value)


def test_a_group_that_the_map_does_not_name_is_refused():
    with pytest.raises(Refusal, match="--budget-map: no budget for 'b'; add a line for it, or one for \\*"):
        BudgetNames(given={"a": "x"}).path("b")
