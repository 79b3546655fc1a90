"""Who may do what: every role, every place in the tree, every right, against a table written down once more here."""

import re
from itertools import product
from pathlib import Path

import pytest

from tenure.domain.rights import (
    RIGHTS,
    Caller,
    Right,
    Role,
    Standing,
    is_member,
    may,
    rights_of,
    rights_of_edit,
    standings,
    who_can_help,
)
from tenure.domain.tree import ROOT, BudgetNode, BudgetTree

DOCUMENT = Path(__file__).parents[3] / "docs" / "security.md"
TARGET = "science/chem"
PLACES = {
    "nowhere": "",
    "far above": "science",
    "own": TARGET,
    "below": "science/chem/x",
    "beside": "science/bio",
    "elsewhere": "robotics",
}
PATHS = ("robotics", "science", "science/bio", "science/chem", "science/chem/x")
LIMITED = ({Role.VIEWER}, {Role.AGENT}, {Role.VIEWER, Role.AGENT})
ROLE_SETS = (set(), {Role.ADMIN}, {Role.OPERATOR}, {Role.ADMIN, Role.VIEWER}, {Role.OPERATOR, Role.AGENT}, *LIMITED)


def tree_with(*, manages: str = "", member_of: str = "", closed: bool = True) -> BudgetTree:
    """A tree in which ana manages and is a member of at most one budget each. `closed`: each names other members."""
    return BudgetTree(
        nodes=tuple(
            BudgetNode(
                path=path,
                share_ppm=1,
                managers=("mia", *(["ana"] if path == manages else [])),
                members=("ben", *(["ana"] if path == member_of else [])) if closed else (),
            )
            for path in PATHS
        )
    )


def expected(right: Right, roles: set[Role], *, manages: str, member: str, owner: bool) -> bool:
    """The rules in words, without the table."""
    if roles in LIMITED:
        return right is Right.KNOW_ONESELF or (right is Right.LOOK and Role.VIEWER in roles)
    if Role.ADMIN in roles or right in (Right.KNOW_ONESELF, Right.LOOK):
        return True
    if Role.OPERATOR in roles and right in (Right.TEND_HOSTS, Right.CANCEL):
        return True
    above, here = manages == "far above", manages == "own"
    return {
        Right.SUBMIT: above or here or member == "own",
        Right.CANCEL: above or here or owner,
        Right.READ_OUTPUT: above or here or owner,
        Right.SET_SHARE: above,
        Right.NAME_MANAGERS: above,
        Right.NAME_MEMBERS: above or here,
        Right.TEND_HOSTS: False,
        Right.SET_POLICY: False,
        Right.ACT_FOR_OTHERS: False,
    }[right]


@pytest.mark.parametrize("right", Right)
@pytest.mark.parametrize("roles", ROLE_SETS, ids=lambda roles: "+".join(sorted(roles)) or "none")
def test_every_role_and_place(right: Right, roles: set[Role]) -> None:
    caller = Caller(user="ana", roles=frozenset(roles))
    for manages, member, owner in product(PLACES, PLACES, (True, False)):
        tree = tree_with(manages=PLACES[manages], member_of=PLACES[member])
        allowed = may(right, caller, tree=tree, budget=TARGET, owner="ana" if owner else "eve")
        wanted = expected(right, roles, manages=manages, member=member, owner=owner)
        assert allowed is wanted, f"{right} as {roles}: manages {manages}, member of {member}, owner {owner}"


@pytest.mark.parametrize("right", Right)
def test_every_standing_gives_what_the_table_says(right: Right) -> None:
    for standing in Standing:
        assert (right in rights_of(frozenset({standing}))) is (standing in RIGHTS[right])


def test_the_document_shows_the_table() -> None:
    rows = re.findall(r"^\| right \|.*\n(?:\|.*\n)+", DOCUMENT.read_text(), re.MULTILINE)
    assert len(rows) == 1
    head, _, *lines = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in rows[0].splitlines()]
    assert head == ["right", *Standing]
    shown = {line[0]: {head[place] for place, cell in enumerate(line) if cell == "yes"} for line in lines}
    assert {cell for line in lines for cell in line[1:]} == {"yes", "-"}
    assert shown == {right: set(RIGHTS[right]) for right in Right}


def test_who_is_not_named_may_submit_only_where_nobody_is() -> None:
    eve = Caller(user="eve")
    assert not may(Right.SUBMIT, eve, tree=tree_with(), budget=TARGET)
    assert may(Right.SUBMIT, eve, tree=tree_with(closed=False), budget=TARGET)


@pytest.mark.parametrize(
    ("members", "ana", "eve"),
    [
        ({}, True, True),
        ({"science": ("ana",)}, True, False),
        ({"science": ("eve",), "science/chem": ("ana",)}, True, False),
        ({"science/chem/x": ("eve",)}, True, True),
        ({"science/bio": ("eve",)}, True, True),
        ({"science": ("group:lab",)}, True, False),
        ({"science/chem": ("lab",)}, False, False),
    ],
)
def test_the_nearest_members_count(members: dict[str, tuple[str, ...]], ana: bool, eve: bool) -> None:
    tree = BudgetTree(nodes=tuple(BudgetNode(path=path, share_ppm=1, members=members.get(path, ())) for path in PATHS))
    in_the_lab = Caller(user="ana", groups=frozenset({"lab"}))
    assert is_member(in_the_lab, tree=tree, budget=TARGET) is ana
    assert is_member(Caller(user="eve"), tree=tree, budget=TARGET) is eve


def test_a_group_manages() -> None:
    tree = BudgetTree(nodes=(BudgetNode(path="science", share_ppm=1, managers=("group:pis",)),))
    assert Standing.MANAGER in standings(Caller(user="x", groups=frozenset({"pis"})), tree=tree, budget="science")
    assert Standing.MANAGER not in standings(Caller(user="pis"), tree=tree, budget="science")


def test_an_edit_needs_the_right_for_each_change() -> None:
    def node(path: str, **changed: object) -> BudgetNode:
        return BudgetNode(**{"path": path, "share_ppm": 5, "managers": ("mia",), **changed})  # type: ignore[arg-type]

    before = BudgetTree(nodes=(node("a"), node("a/gone"), node("b"), node("c"), node("d"), node("e")))
    after = BudgetTree(
        nodes=(
            node("a"),
            node("a/new", members=("ana",)),
            node("b", share_ppm=6),
            node("c", managers=()),
            node("d", members=("ana",)),
            node("e", users_equal=True),
        )
    )
    assert list(rights_of_edit(before, after)) == [
        (Right.SET_SHARE, "a/gone"),
        (Right.SET_SHARE, "a/new"),
        (Right.NAME_MANAGERS, "a/new"),
        (Right.NAME_MEMBERS, "a/new"),
        (Right.SET_SHARE, "b"),
        (Right.NAME_MANAGERS, "c"),
        (Right.NAME_MEMBERS, "d"),
        (Right.NAME_MEMBERS, "e"),
    ]
    assert list(rights_of_edit(before, before)) == []


def test_managers_reach_downwards_only() -> None:
    """Whatever a manager of `science` does to the tree in one step, science itself and all beside it stay."""
    manager = Caller(user="ana")
    tree = tree_with(manages="science")
    for path in (*PATHS, "science/new", "science/chem/x/new", "new", ROOT):
        below = path.startswith("science/")
        for right in (Right.SET_SHARE, Right.NAME_MANAGERS):
            assert may(right, manager, tree=tree, budget=path) is below, (right, path)


def test_who_can_help_is_named() -> None:
    tree = tree_with(manages="science")
    assert who_can_help(Right.SUBMIT, tree=tree, budget=TARGET) == "mia, ana or an admin"
    assert who_can_help(Right.SET_SHARE, tree=tree, budget="science") == "an admin"
    assert who_can_help(Right.TEND_HOSTS, tree=tree, budget=None) == "an admin"
