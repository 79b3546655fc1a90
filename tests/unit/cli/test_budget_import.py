"""`tenure budget import`: Slurm's accounts as sacctmgr 22.05 prints them become a tree that is taken as it is."""

from pathlib import Path

import pytest

from simulator.traces.shares import load_map
from tenure.cli.slurm_accounts import accounts_of, budgets_yaml
from tenure.domain.ids import BudgetPath
from tenure.domain.refusal import Refusal
from tenure.domain.tree import BudgetTree
from tenure.runtime.budgets_file import load_budgets
from tests.unit.cli.conftest import Run

PAGE = Path(__file__).parents[3] / "docs/from-slurm.md"
HEADER = "Account|ParentName|User|Share\n"
LAB = (
    HEADER
    + """\
root|||1
root||root|1
language|root||60
language||fay|1
alignment|language||2
alignment||cy|parent
pretraining|language||3
pretraining||ana|1
pretraining||bo|1
pretraining||bo|1
robotics|root||15
vision|root||25
vision||dan|3
vision||eve|1
"""
)
DEEP = "a0|root||1\n" + "".join(f"a{n + 1}|a{n}||1\n" for n in range(2_000))


def imported(text: str, tmp_path: Path) -> tuple[BudgetTree, list[str]]:
    page = budgets_yaml(accounts_of(text, name="assoc.txt"))
    (tmp_path / "budgets.yaml").write_text(page.text)
    return load_budgets(tmp_path / "budgets.yaml"), page.notes


def test_raw_shares_become_parts_of_the_parent_and_users_members(tmp_path: Path) -> None:
    tree, _ = imported(LAB, tmp_path)
    found = {node.path: (node.share_ppm, node.members, node.users_equal) for node in tree.nodes}
    assert found == {
        "language": (600_000, (), False),
        "language/alignment": (333_333, ("cy",), False),
        "language/direct": (166_667, ("fay",), False),
        "language/pretraining": (500_000, ("ana", "bo"), True),
        "robotics": (150_000, (), False),
        "vision": (250_000, ("dan", "eve"), True),
    }


def test_what_cannot_be_the_same_is_told(tmp_path: Path) -> None:
    assert imported(LAB + "root||admin|1\n", tmp_path)[1] == [
        "admin: of the account root itself; left out, since nobody submits to the top",
        "language: has users and accounts below it; its users submit to language/direct",
        "robotics: has no users; here everybody may submit until it has members",
        "vision: its users had different shares; here they have equal ones",
    ]


def test_columns_may_stand_anywhere_and_names_be_words_of_yaml(tmp_path: Path) -> None:
    text = "Cluster|User|Account|Par Name|Share|QOS\nc|| root||1|\nc|| on|root|1|\nc|007|  on||1|x\nc|| 12|root|3|\n"
    tree, _ = imported(text, tmp_path)
    assert [(node.path, node.share_ppm, node.members) for node in tree.nodes] == [
        ("12", 750_000, ()),
        ("on", 250_000, ("007",)),
    ]


def test_shares_sum_to_all_and_nothing_is_all_alike(tmp_path: Path) -> None:
    tree, _ = imported(HEADER + "root|||1\n" + "".join(f"a{n}|root||0\n" for n in range(7)), tmp_path)
    assert sum(node.share_ppm for node in tree.nodes) == 1_000_000
    assert {node.share_ppm for node in tree.nodes} == {142_857, 142_858}


def test_a_share_that_becomes_nothing_is_told(tmp_path: Path) -> None:
    text = HEADER + "root|||1\nlab|root||1\nbig|lab||3000000\nnone|lab||0\ntiny|lab||1\nsmall|lab||3\n"
    text += "".join(f"{name}||ana|1\n" for name in ("big", "none", "tiny", "small"))
    tree, notes = imported(text, tmp_path)
    assert {node.path: node.share_ppm for node in tree.nodes if node.path != "lab"} == {
        "lab/big": 999_999,
        "lab/none": 0,
        "lab/small": 1,
        "lab/tiny": 0,
    }
    told = (
        "lab/tiny: its share, 1 of 3000004 is too little to be written; here it has 0 percent: give it more, or leave"
    )
    assert [note.rpartition(" it out")[0] for note in notes] == [told], "none had nothing before, too"


def test_an_account_that_is_called_direct_keeps_its_name(tmp_path: Path) -> None:
    text = HEADER + "root|||1\na|root||1\na||ana|1\ndirect|a||1\ndirect||bo|1\n"
    tree, _ = imported(text, tmp_path)
    assert tree.by_path[BudgetPath("a/direct")].members == ("bo",)
    assert tree.by_path[BudgetPath("a/direct-")].members == ("ana",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "assoc.txt: empty; write it with: sacctmgr show assoc -P"),
        ("Account|User|Share\nroot||1\n", "assoc.txt:1: no column ParentName"),
        (HEADER + "root||1\n", "assoc.txt:2: 3 cells, the first line has 4"),
        (HEADER + "root|||1\na|root||much\n", "assoc.txt:3: the share 'much' is no number"),
        (HEADER + "root|||1\na|root||1\na|root||2\n", "assoc.txt:4: account 'a' again, of another cluster"),
        (HEADER + "root|||1\nb||ana|1\n", "assoc.txt:3: a user of 'b', which has no line"),
        (HEADER + "a|b||1\nb|a||1\n", "assoc.txt: no account root"),
        (HEADER + "root|||1\na|b||1\nb|a||1\n", "which does not lead to root"),
        (HEADER + "root|||1\na|root||" + "9" * 5_000, "is no number"),
        (
            HEADER + "root|||1\n" + "".join(f"a{n}|{f'a{n - 1}' if n else 'root'}||1\n" for n in range(2_000)),
            "use at most",
        ),
        (HEADER + "root|||1\n", "budgets: "),
        (HEADER + "root|||1\na b|root||1\n", "'a b' is not a usable name"),
    ],
)
def test_a_file_that_cannot_be_read_names_line_and_fix(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refused:
        imported(text, tmp_path)
    assert said in str(refused.value)


def test_the_command_writes_the_file_and_tells_on_stderr(tenure: Run, tmp_path: Path) -> None:
    (tmp_path / "assoc.txt").write_text(LAB)
    out, groups = tmp_path / "budgets.yaml", tmp_path / "groups.csv"
    file = str(tmp_path / "assoc.txt")
    done = tenure("budget", "import", file, "--from", "sacctmgr", "--out", str(out), "--map-out", str(groups))
    assert load_map(groups) == {
        "alignment": "language/alignment",
        "language": "language/direct",
        "pretraining": "language/pretraining",
        "robotics": "robotics",
        "vision": "vision",
    }
    assert (done.status, load_budgets(out).by_path[BudgetPath("vision")].share_ppm) == (0, 250_000)
    assert done.err.startswith("note: language: has users") and f"tenure budget set --file {out}" in done.out


def test_the_command_leaves_nothing_where_it_refuses(tenure: Run, tmp_path: Path) -> None:
    out = tmp_path / "budgets.yaml"
    (tmp_path / "latin").write_bytes(b"\xff")
    for file, said in (("nowhere", "name a readable file"), ("latin", "save it as UTF-8")):
        done = tenure("budget", "import", str(tmp_path / file), "--from", "sacctmgr", "--out", str(out))
        assert done.status != 0 and said in done.err and not out.exists()


def test_the_worked_example_of_the_page_is_what_is_made(tmp_path: Path) -> None:
    rows = [row.strip("|").split("|") for row in PAGE.read_text().splitlines() if row.count("|") == 9]
    cells = [[cell.strip(" `") for cell in row] for row in rows if not row[0].startswith("---")]
    tree, _ = imported("\n".join("|".join(row[:4]) for row in cells), tmp_path)
    shown = {row[5]: (row[6], row[7]) for row in cells[1:] if row[4] == "→"}
    assert shown == {
        node.path: (f"{node.share_ppm / 10_000:g} %", ", ".join(node.members) or "everybody")
        for node in tree.nodes
        if tree.is_leaf(node.path)
    } | {"language": ("60 %", "")}
