"""`budgets.yaml` as a file: what YAML itself can get wrong is refused with the line."""

from pathlib import Path

import pytest

from tenure.domain.refusal import Refusal
from tenure.runtime.budgets_file import load_budgets


def refused(folder: Path, text: str) -> Refusal:
    file = folder / "budgets.yaml"
    file.write_text(text)
    with pytest.raises(Refusal) as caught:
        load_budgets(file)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "budgets.yaml"
    file.write_text(
        "budgets:\n  science:\n    share: 16\n    managers: [ana]\n    children:\n      chem: {share: 45}\n"
    )
    assert load_budgets(file).leaves == ("science/chem",)


def test_a_duplicate_key_is_refused_with_its_line(tmp_path: Path) -> None:
    assert refused(tmp_path, "budgets:\n  a: {share: 1}\n  a: {share: 2}\n").field.endswith("budgets.yaml:3")


def test_an_alias_inside_itself_is_refused(tmp_path: Path) -> None:
    assert "cycle" in refused(tmp_path, "budgets:\n  a: &a {share: 1, children: {b: *a}}\n").problem


def test_ten_thousand_levels_are_refused(tmp_path: Path) -> None:
    text = "budgets: " + "{a: {share: 1, children: " * 10_000 + "{}" + "}}" * 10_000
    assert "levels" in refused(tmp_path, text).fix


def test_not_a_number_is_refused(tmp_path: Path) -> None:
    assert refused(tmp_path, "budgets: {a: {share: .nan}}").field == "budgets.a.share"


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as caught:
        load_budgets(tmp_path / "none.yaml")
    assert "none.yaml" in caught.value.field
