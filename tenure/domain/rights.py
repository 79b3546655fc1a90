"""Who may do what: one table, `RIGHTS`, and the few rules of what somebody is to a budget or a job. Pure.

A person is not given rights one by one. What they are *to the thing that is asked about* (its owner, a manager above
it, ...) is looked up in the tree, and the table says what that may do. docs/security.md shows the same table.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tenure.domain.ids import BudgetPath, UserName
from tenure.domain.nearest import listed
from tenure.domain.tree import BudgetNode, BudgetTree, lineage

GROUP = "group:"
"""What stands before a group's name where users are named: `group:chem`. No user has such a name."""


class Role(StrEnum):
    """What an identity brings along: from its token, or from the lists of the configuration."""

    ADMIN = "admin"
    OPERATOR = "operator"
    VIEWER = "viewer"
    AGENT = "agent"


class Standing(StrEnum):
    """What a caller is to what is asked about."""

    ADMIN = "admin"
    OPERATOR = "operator"
    MANAGER_ABOVE = "manager above"
    MANAGER = "manager"
    MEMBER = "member"
    OWNER = "owner"
    USER = "user"
    VIEWER = "viewer"
    AGENT = "agent"


class Right(StrEnum):
    """What can be asked for."""

    KNOW_ONESELF = "know oneself"
    LOOK = "look"
    SUBMIT = "submit"
    CANCEL = "cancel"
    READ_OUTPUT = "read output"
    SET_SHARE = "set share"
    NAME_MANAGERS = "name managers"
    NAME_MEMBERS = "name members"
    TEND_HOSTS = "tend hosts"
    SET_POLICY = "set policy"
    ACT_FOR_OTHERS = "act for others"


_A, _O, _ABOVE, _M = Standing.ADMIN, Standing.OPERATOR, Standing.MANAGER_ABOVE, Standing.MANAGER

RIGHTS: Mapping[Right, frozenset[Standing]] = {
    Right.KNOW_ONESELF: frozenset(Standing),
    Right.LOOK: frozenset(Standing) - {Standing.AGENT},
    Right.SUBMIT: frozenset({_A, _ABOVE, _M, Standing.MEMBER}),
    Right.CANCEL: frozenset({_A, _O, _ABOVE, _M, Standing.OWNER}),
    Right.READ_OUTPUT: frozenset({_A, _ABOVE, _M, Standing.OWNER}),
    Right.SET_SHARE: frozenset({_A, _ABOVE}),
    Right.NAME_MANAGERS: frozenset({_A, _ABOVE}),
    Right.NAME_MEMBERS: frozenset({_A, _ABOVE, _M}),
    Right.TEND_HOSTS: frozenset({_A, _O}),
    Right.SET_POLICY: frozenset({_A}),
    Right.ACT_FOR_OTHERS: frozenset({_A}),
}
"""Who has each right: enough to be one of them."""

_LIMITED = {Role.VIEWER: Standing.VIEWER, Role.AGENT: Standing.AGENT}
"""Roles that take away: who has only these is nothing else, whatever the tree says of their name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Somebody who was identified. `groups` are names without `group:`."""

    user: UserName
    roles: frozenset[Role] = frozenset()
    groups: frozenset[str] = frozenset()

    def is_among(self, names: tuple[str, ...]) -> bool:
        """Whether a list of users and `group:NAME` names them."""
        return self.user in names or any(
            name.startswith(GROUP) and name.removeprefix(GROUP) in self.groups for name in names
        )


def may(
    right: Right,
    caller: Caller,
    *,
    tree: BudgetTree,
    budget: BudgetPath | None = None,
    owner: UserName | None = None,
) -> bool:
    """Whether `caller` has `right` over a budget of `tree`, over a job of `owner` in it, or where neither matters."""
    return not RIGHTS[right].isdisjoint(standings(caller, tree=tree, budget=budget, owner=owner))


def rights_of(found: frozenset[Standing]) -> tuple[Right, ...]:
    """All rights of somebody with these standings."""
    return tuple(right for right in Right if not RIGHTS[right].isdisjoint(found))


def standings(
    caller: Caller, *, tree: BudgetTree, budget: BudgetPath | None = None, owner: UserName | None = None
) -> frozenset[Standing]:
    """All that `caller` is to what is asked about."""
    if caller.roles and all(role in _LIMITED for role in caller.roles):
        return frozenset(_LIMITED[role] for role in sorted(caller.roles))
    found = {Standing.USER}
    found.update(Standing(role.value) for role in sorted(caller.roles))
    if owner is not None and owner == caller.user:
        found.add(Standing.OWNER)
    if budget:
        if _manages(caller, tree.by_path.get(budget)):
            found.add(Standing.MANAGER)
        if any(_manages(caller, tree.by_path.get(above)) for above in lineage(budget)[:-1]):
            found.add(Standing.MANAGER_ABOVE)
        if is_member(caller, tree=tree, budget=budget):
            found.add(Standing.MEMBER)
    return frozenset(found)


def is_member(caller: Caller, *, tree: BudgetTree, budget: BudgetPath) -> bool:
    """Whether `caller` is a member of a budget: the nearest list of members at it or above counts, none means all."""
    closed_by = closing(tree, budget)
    return closed_by is None or caller.is_among(closed_by.members)


def closing(tree: BudgetTree, budget: BudgetPath) -> BudgetNode | None:
    """The budget whose list of members counts for `budget`: itself or the nearest above; None where it is open."""
    for path in reversed(lineage(budget)):
        node = tree.by_path.get(path)
        if node is not None and node.members:
            return node
    return None


def rights_of_edit(before: BudgetTree, after: BudgetTree) -> Iterator[tuple[Right, BudgetPath]]:
    """What somebody must be allowed to do to turn one tree into the other, in order of path."""
    for path in sorted(before.by_path.keys() | after.by_path.keys()):
        old, new = before.by_path.get(path), after.by_path.get(path)
        if old is None or new is None or old.share_ppm != new.share_ppm:
            yield Right.SET_SHARE, path
        if new is not None and new.managers != (() if old is None else old.managers):
            yield Right.NAME_MANAGERS, path
        if new is not None and (new.members, new.users_equal) != (
            ((), False) if old is None else (old.members, old.users_equal)
        ):
            yield Right.NAME_MEMBERS, path


def who_can_help(right: Right, *, tree: BudgetTree, budget: BudgetPath | None) -> str:
    """Whom somebody without `right` can ask: those the tree names, then an admin."""
    named: list[str] = []
    for path in reversed(lineage(budget) if budget else ()):
        node = tree.by_path.get(path)
        if node is not None and (path != budget or Standing.MANAGER in RIGHTS[right]):
            named += [name for name in node.managers if name not in named]
    return f"{listed(named, most=5)} or an admin" if named else "an admin"


def _manages(caller: Caller, node: BudgetNode | None) -> bool:
    return node is not None and caller.is_among(node.managers)
