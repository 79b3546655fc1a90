"""Slurm's accounts as a tree of budgets: raw shares become percentages of the parent, users become members.

    sacctmgr show assoc -P  ->  accounts_of  ->  Accounts  ->  budgets_yaml  ->  budgets.yaml, and notes

In Slurm the users of an account stand beside the accounts below it and share with them. Here a leaf funds jobs and
nothing else does, so an account with both gets a leaf of its own for its users: `direct`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tenure.domain.refusal import Refusal
from tenure.domain.tree import DEPTH_MAX, PPM
from tenure.domain.tree_check import check_tree
from tenure.runtime.yaml_file import parse_yaml

TOP = "root"
DIRECT = "direct"
DIGITS_MAX = 12
COMMAND = "sacctmgr show assoc -P format=Account,ParentName,User,Share"
_COLUMNS = {"account": ("Account",), "parent": ("ParentName", "Par Name"), "user": ("User",), "share": ("Share",)}
_PLAIN = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_YAML_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


@dataclass(slots=True, kw_only=True)
class Account:
    """An account: its raw share, and the raw shares of its users. None: `parent`, no share of their own."""

    name: str
    parent: str
    share: int | None
    users: dict[str, int | None] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Page:
    """What is written: lines of `budgets.yaml`, and what a person should know of them.

    `leaves`: the budget that pays for an account's jobs. `below`: the accounts below each.
    """

    below: Mapping[str, list[str]]
    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    leaves: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The file."""
        return "\n".join(self.lines) + "\n"

    @property
    def budget_map(self) -> str:
        """The lines `group,budget` that `tenure trace import --budget-map` reads."""
        return "group,budget\n" + "".join(f"{account},{path}\n" for account, path in sorted(self.leaves.items()))


def load_accounts(path: Path) -> dict[str, Account]:
    """The accounts in a file that sacctmgr wrote. Raises `Refusal`."""
    try:
        return accounts_of(path.read_text(), name=path.name)
    except OSError as error:
        problem = error.strerror or "cannot be read"
        raise Refusal(field=str(path), problem=problem, fix="name a readable file") from error
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 at byte {error.start}"
        raise Refusal(field=str(path), problem=problem, fix="save it as UTF-8") from error


def accounts_of(text: str, *, name: str) -> dict[str, Account]:
    """The accounts that sacctmgr lists; `name` is what errors call the file. Raises `Refusal` naming line and fix."""
    rows = [(number, line.split("|")) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not rows:
        raise Refusal(field=name, problem="empty", fix=f"write it with: {COMMAND}")
    places = _places(rows[0][1], name=name)
    accounts: dict[str, Account] = {}
    users: list[tuple[str, str, int | None, str]] = []
    for number, cells in rows[1:]:
        where = f"{name}:{number}"
        if len(cells) != len(rows[0][1]):
            problem = f"{len(cells)} cells, the first line has {len(rows[0][1])}"
            raise Refusal(field=where, problem=problem, fix=f"write it with: {COMMAND}")
        account, parent, user, raw = (cells[places[column]].strip() for column in _COLUMNS)
        share = _share(raw, where=where)
        if user:
            users.append((account, user, share, where))
        elif account in accounts:
            fix = "add cluster=NAME to the command"
            raise Refusal(field=where, problem=f"account {account!r} again, of another cluster", fix=fix)
        else:
            accounts[account] = Account(name=account, parent=parent, share=share)
    for account, user, share, where in users:
        if account not in accounts:
            raise Refusal(field=where, problem=f"a user of {account!r}, which has no line", fix="list all accounts")
        accounts[account].users.setdefault(user, share)  # again for each partition
    _check_parents(accounts, name=name)
    return accounts


def budgets_yaml(accounts: Mapping[str, Account]) -> Page:
    """A `budgets.yaml` with these accounts. Raises `Refusal` where it would not be one."""
    below: dict[str, list[str]] = {}
    for account in accounts.values():
        if account.name != TOP:
            below.setdefault(account.parent, []).append(account.name)
    page = Page(below=below, lines=["budgets:"])
    others = sorted(accounts[TOP].users.keys() - {"root"})
    if others:
        page.notes.append(f"{_listed(others)}: of the account root itself; left out, since nobody submits to the top")
    _write_below(accounts, TOP, page, indent=2, path="")
    check_tree(parse_yaml(page.text.encode(), name="budgets.yaml"))
    return page


def _places(header: list[str], *, name: str) -> dict[str, int]:
    """Where the columns stand. Raises `Refusal` for one that is missing."""
    cells = [cell.strip() for cell in header]
    found = {}
    for column, titles in _COLUMNS.items():
        at = next((cells.index(title) for title in titles if title in cells), None)
        if at is None:
            raise Refusal(field=f"{name}:1", problem=f"no column {titles[0]}", fix=f"write it with: {COMMAND}")
        found[column] = at
    return found


def _share(raw: str, *, where: str) -> int | None:
    if raw == "parent":
        return None
    if not raw.isdecimal() or len(raw) > DIGITS_MAX:
        raise Refusal(field=where, problem=f"the share {raw[:40]!r} is no number", fix="write a raw share, or parent")
    return int(raw)


def _check_parents(accounts: Mapping[str, Account], *, name: str) -> None:
    """Every account is below root. Raises `Refusal`."""
    if TOP not in accounts:
        raise Refusal(field=name, problem="no account root", fix=f"list all accounts: {COMMAND}")
    for account in accounts.values():
        seen = {account.name}
        while account.name != TOP:
            if len(seen) > DEPTH_MAX:
                problem = f"{len(seen)} accounts above each other"
                raise Refusal(field=name, problem=problem, fix=f"use at most {DEPTH_MAX} levels")
            if account.parent not in accounts or account.parent in seen:
                problem = f"account {account.name!r} has the parent {account.parent!r}, which does not lead to root"
                raise Refusal(field=name, problem=problem, fix="list all accounts of one cluster")
            account = accounts[account.parent]
            seen.add(account.name)


def _write_below(accounts: Mapping[str, Account], parent: str, page: Page, *, indent: int, path: str) -> None:
    """The budgets of the accounts below one, in order of name, and of its own users beside them."""
    below = {name: accounts[name] for name in page.below.get(parent, ())}
    raw = {name: _alone(account.share) for name, account in below.items()}
    users = accounts[parent].users if parent != TOP else {}
    if users:
        direct = DIRECT
        while direct in below:
            direct += "-"
        raw[direct] = sum(_alone(share) for share in users.values())
        page.notes.append(f"{path}: has users and accounts below it; its users submit to {path}/{direct}")
    pad = " " * indent
    for name, share_ppm in sorted(_shares_ppm(raw).items()):
        percent = f"{share_ppm * 100 / PPM:.4f}".rstrip("0").rstrip(".")
        page.lines += [f"{pad}{_word(name)}:", f"{pad}  share: {percent}"]
        here = f"{path}/{name}" if path else name
        if raw[name] and not share_ppm:
            small = f"{raw[name]} of {sum(raw.values())} is too little to be written"
            page.notes.append(f"{here}: its share, {small}; here it has 0 percent: give it more, or leave it out")
        if name not in below:
            page.leaves[parent] = here
            _write_users(users, page, pad=pad, path=here)
        elif name in page.below:
            page.lines.append(f"{pad}  children:")
            _write_below(accounts, name, page, indent=indent + 4, path=here)
        else:
            page.leaves[name] = here
            _write_users(below[name].users, page, pad=pad, path=here)


def _write_users(users: Mapping[str, int | None], page: Page, *, pad: str, path: str) -> None:
    """The members of a leaf."""
    if not users:
        page.notes.append(f"{path}: has no users; here everybody may submit until it has members")
        return
    page.lines.append(f"{pad}  members: [{', '.join(_word(user) for user in sorted(users))}]")
    if len(users) > 1:
        page.lines.append(f"{pad}  users: equal")
    if len({_alone(share) for share in users.values()}) > 1:
        page.notes.append(f"{path}: its users had different shares; here they have equal ones")


def _alone(share: int | None) -> int:
    """`parent`: equal among those beside it, which is a raw share of 1, as everybody has who was not given any."""
    return 1 if share is None else share


def _shares_ppm(raw: Mapping[str, int]) -> dict[str, int]:
    """Parts of one whole, in proportion; what does not divide goes to the largest remainders, by name among equals."""
    total = sum(raw.values())
    weights = raw if total else dict.fromkeys(raw, 1)
    total = total or len(weights)
    shares = {name: PPM * weight // total for name, weight in weights.items()}
    by_remainder = sorted(weights, key=lambda name: (-(PPM * weights[name] % total), name))
    for name in by_remainder[: PPM - sum(shares.values())]:
        shares[name] += 1
    return shares


def _word(text: str) -> str:
    """A name as YAML takes it for text."""
    return text if _PLAIN.fullmatch(text) and text.lower() not in _YAML_WORDS else json.dumps(text)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
