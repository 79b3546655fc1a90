"""The rules of a budget tree: what people write (percentages, nested or as paths) becomes a `BudgetTree` or a refusal.

Every way to a tree ends in `build_tree`: the budgets file through `check_tree`, an edit through `tree_edit`. Nothing
here recurses, so that no depth and no cycle of the input can exhaust the stack.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import islice

from tenure.domain.ids import BudgetPath
from tenure.domain.names import check_label, check_word
from tenure.domain.nearest import shown, unknown_key
from tenure.domain.refusal import Refusal
from tenure.domain.tree import DEPTH_MAX, NODES_MAX, PPM, ROOT, BudgetNode, BudgetTree, field_of

MANAGERS_MAX, MEMBERS_MAX = 100, 1_000
_KEYS = ("share", "managers", "members", "users", "children")
_PERCENT_FIX = "give a percentage from 0 to 100 of its parent, such as 16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A budget as asked for. `share_ppm` is exact: sums are checked before anything is cut to whole ppm."""

    path: BudgetPath
    share_ppm: Fraction
    managers: tuple[str, ...] = ()
    users_equal: bool = False
    members: tuple[str, ...] = ()


def check_tree(document: object) -> BudgetTree:
    """The tree of a budgets file: `{"budgets": {"science": {"share": 16, "children": {...}}}}`. Raises `Refusal`.

    `document` is what YAML or JSON gave: plain mappings, lists and scalars. Shares are percentages of the parent, cut
    to whole ppm. Errors name the place as `budgets.science.children.chem.share`.
    """
    fix = "write 'budgets:' and one 'name: {share: 16}' a line below it"
    if not isinstance(document, dict):
        raise Refusal(field="budgets", problem="missing", fix=fix)
    for key in document:
        if key != "budgets":
            raise unknown_key(key, known=["budgets"], where="")
    budgets = document.get("budgets")
    if not isinstance(budgets, dict):
        raise Refusal(field="budgets", problem=f"{shown(budgets)} is not a mapping of names", fix=fix)
    return build_tree(_drafts(budgets))


def build_tree(drafts: Iterable[Draft]) -> BudgetTree:
    """The tree of these budgets, in any order, parents included. Raises `Refusal` for a broken rule.

    Unique paths, every parent there, siblings sum to at most 100 %, `users: equal` on leaves only, at least one and at
    most `NODES_MAX` budgets.
    """
    by_path: dict[BudgetPath, Draft] = {}
    for draft in islice(drafts, NODES_MAX + 1):
        if draft.path in by_path:
            raise Refusal(field=field_of(draft.path), problem="given twice", fix="give each budget once")
        by_path[draft.path] = draft
    if not by_path:
        raise Refusal(field="budgets", problem="no budgets, so no job could run", fix="give at least one")
    if len(by_path) > NODES_MAX:
        raise Refusal(field="budgets", problem=f"more than {NODES_MAX} budgets", fix=f"use at most {NODES_MAX}")
    ordered = [by_path[path] for path in sorted(by_path)]
    nodes = tuple(
        BudgetNode(
            path=d.path,
            share_ppm=int(d.share_ppm),
            managers=d.managers,
            users_equal=d.users_equal,
            members=d.members,
        )
        for d in ordered
    )
    _check_siblings(ordered, by_path.keys() | {ROOT})
    tree = BudgetTree(nodes=nodes)
    for node in nodes:
        if node.users_equal and not tree.is_leaf(node.path):
            raise Refusal(
                field=f"{field_of(node.path)}.users",
                problem="only a budget without children shares among its users",
                fix="take out 'users' here, or the children",
            )
    return tree


def check_path(text: object) -> BudgetPath:
    """`text` if it is a budget path such as `science/chem`. Raises `Refusal`."""
    if not isinstance(text, str) or not text:
        raise Refusal(field="budgets", problem=f"{shown(text)} is not a path", fix="write a path such as science/chem")
    depth = text.count("/") + 1
    if depth > DEPTH_MAX:
        raise _too_deep(f"{shown(text)} has {depth} levels")
    for word in text.split("/"):
        check_word(word, field=f"budgets.{text}" if text.isprintable() and len(text) <= 128 else "budgets")
    return BudgetPath(text)


def check_share(value: object, *, field: str) -> Fraction:
    """A percentage as exact ppm. Raises `Refusal` for anything but a finite number from 0 to 100."""
    if value is None:
        raise Refusal(field=field, problem="missing", fix=_PERCENT_FIX)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refusal(field=field, problem=f"{shown(value)} is not a number", fix=_PERCENT_FIX)
    if isinstance(value, float) and not math.isfinite(value):
        raise Refusal(field=field, problem=f"{value} is not a finite number", fix=_PERCENT_FIX)
    if value < 0:
        raise Refusal(field=field, problem=f"{shown(value)} is negative", fix=_PERCENT_FIX)
    if value > 100:
        raise Refusal(field=field, problem=f"{shown(value)} is more than 100 %", fix=_PERCENT_FIX)
    ppm = Fraction(Decimal(repr(value))) * (PPM // 100)  # what was written, not its binary neighbour
    if 0 < ppm < 1:
        raise Refusal(field=field, problem=f"{value} % is too small", fix="give 0 or at least 0.0001")
    return ppm


def check_people(value: object, *, field: str, most: int = MANAGERS_MAX) -> tuple[str, ...]:
    """The names of a budget's managers or members, users and `group:NAME`; None is nobody. Raises `Refusal`."""
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise Refusal(field=field, problem=f"{shown(value)} is not a list", fix="write a list of names, such as [ana]")
    if len(value) > most:
        raise Refusal(field=field, problem=f"{len(value)} names", fix=f"use at most {most}, or a group")
    seen: set[str] = set()
    for name in value:
        if not isinstance(name, str) or not name.strip():
            raise Refusal(field=field, problem=f"{shown(name)} is not a name", fix="write names as text")
        check_label(name, field=field)
        if name in seen:
            raise Refusal(field=field, problem=f"{shown(name)} is given twice", fix="give each name once")
        seen.add(name)
    return tuple(value)


def _drafts(budgets: dict[object, object]) -> Iterator[Draft]:
    """The budgets of nested mappings, level by level. A cycle ends at `DEPTH_MAX`, a repeated alias at `NODES_MAX`."""
    todo: deque[tuple[BudgetPath, int, dict[object, object]]] = deque([(ROOT, 1, budgets)])
    while todo:
        parent, depth, children = todo.popleft()
        if children and depth > DEPTH_MAX:
            raise _too_deep(f"{shown(parent)} is at level {depth - 1} and has children")
        for name, body in children.items():
            draft, below = _draft(parent, name, body)
            yield draft
            todo.append((draft.path, depth + 1, below))


def _draft(parent: BudgetPath, name: object, body: object) -> tuple[Draft, dict[object, object]]:
    """One budget of a file and the mapping of its children."""
    level = f"{field_of(parent)}.children" if parent else "budgets"
    if not isinstance(name, str):
        raise Refusal(field=level, problem=f"the name {shown(name)} is not text", fix="put it in quotes")
    word = check_word(name, field=level)
    path = BudgetPath(f"{parent}/{word}" if parent else word)
    field = field_of(path)
    if not isinstance(body, dict):
        raise Refusal(field=field, problem=f"{shown(body)} is not a mapping", fix="write {share: 16}")
    for key in body:
        if key not in _KEYS:
            raise unknown_key(key, known=_KEYS, where=field)
    users = body.get("users")
    if users not in (None, "equal"):
        raise Refusal(
            field=f"{field}.users", problem=f"{shown(users)} is not known", fix="write 'equal' or leave it out"
        )
    below = body.get("children")
    if below is None:
        below = {}
    if not isinstance(below, dict):
        raise Refusal(
            field=f"{field}.children", problem=f"{shown(below)} is not a mapping", fix="write {name: {share: 16}}"
        )
    draft = Draft(
        path=path,
        share_ppm=check_share(body.get("share"), field=f"{field}.share"),
        managers=check_people(body.get("managers"), field=f"{field}.managers"),
        users_equal=users == "equal",
        members=check_people(body.get("members"), field=f"{field}.members", most=MEMBERS_MAX),
    )
    return draft, below


def _check_siblings(ordered: Sequence[Draft], known: Iterable[BudgetPath]) -> None:
    """Every parent exists; what the children of one parent are promised is at most all of it."""
    known = frozenset(known)
    total: dict[BudgetPath, Fraction] = {}
    for draft in ordered:
        parent = BudgetPath(draft.path.rpartition("/")[0])
        if parent not in known:
            raise Refusal(
                field=field_of(draft.path), problem=f"there is no budget {parent} above it", fix=f"add {parent} as well"
            )
        total[parent] = total.get(parent, Fraction(0)) + draft.share_ppm
    for parent, share_ppm in total.items():
        if int(share_ppm) > PPM:
            raise Refusal(
                field=f"{field_of(parent)}.children" if parent else "budgets",
                problem=f"the shares sum to {float(share_ppm) * 100 / PPM:.10g} %",
                fix="lower them to at most 100 %",
            )


def _too_deep(problem: str) -> Refusal:
    return Refusal(field="budgets", problem=problem, fix=f"use at most {DEPTH_MAX} levels")
