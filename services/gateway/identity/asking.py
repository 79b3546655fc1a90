"""The call that is being answered: who asks, and whether their right was looked at. One context variable."""

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from services.gateway.refusals import Denied
from tenure.domain.ids import BudgetPath, UserName
from tenure.domain.nearest import shown
from tenure.domain.refusal import Refusal
from tenure.domain.rights import GROUP, Caller, Right, may, who_can_help
from tenure.domain.tree import BudgetTree
from tenure.events.fact import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """An identified caller. `how` is the proof in words, without the secret; `address` is where the call came from."""

    caller: Caller
    how: str
    address: str

    @property
    def origin(self) -> Origin:
        """The same as a fact carries it."""
        return Origin(user=self.caller.user, how=self.how, address=self.address)


@dataclass(slots=True)
class Asking:
    """One call."""

    identity: Identity
    judged: bool = False
    """Whether `require` was asked: a method that forgot to is a defect."""


asking: ContextVar[Asking] = ContextVar("asking")


def who() -> Identity:
    """Who makes the present call."""
    return asking.get().identity


def require(right: Right, *, tree: BudgetTree, budget: BudgetPath | None = None, owner: UserName | None = None) -> None:
    """Raise `Denied` unless who calls has `right` over the budget, or over a job of `owner` in it."""
    present = asking.get()
    present.judged = True
    caller = present.identity.caller
    if not may(right, caller, tree=tree, budget=budget, owner=owner):
        raise _denied(right, caller, tree=tree, budget=budget)


def allowed(right: Right, *, tree: BudgetTree, budget: BudgetPath, owner: UserName) -> bool:
    """Whether who calls has `right` over a job of `owner`: for answers that show more to some than to others."""
    return may(right, who().caller, tree=tree, budget=budget, owner=owner)


def acting_as(requested: str, *, field: str) -> UserName:
    """The user a request is for: who calls, unless an admin names another. Raises `Denied`, `Refusal` for a group."""
    caller = who().caller
    name = UserName(requested.strip())
    if not name or name == caller.user:
        return caller.user
    if not may(Right.ACT_FOR_OTHERS, caller, tree=BudgetTree()):
        raise Denied(
            field=field,
            problem=f"you are {caller.user}, and only an admin acts for others such as {shown(str(name))}",
            fix="leave the user out, or ask an admin",
        )
    if name.startswith(GROUP):
        raise Refusal(field=field, problem=f"{shown(str(name))} is a group", fix="name one user")
    return name


def _denied(right: Right, caller: Caller, *, tree: BudgetTree, budget: BudgetPath | None) -> Denied:
    words = _WORDS[right](str(budget or ""))
    limited = f" with the role {', '.join(sorted(caller.roles))}" if caller.roles else ""
    help_from = who_can_help(right, tree=tree, budget=budget)
    return Denied(
        field="rights",
        problem=f"{caller.user}{limited} may not {words} (missing: the right to {right})",
        fix=f"ask {help_from}; `tenure whoami` shows what you may do",
    )


_WORDS: dict[Right, Callable[[str], str]] = {
    Right.KNOW_ONESELF: lambda _: "ask who it is",
    Right.LOOK: lambda _: "look at jobs, budgets and hosts",
    Right.SUBMIT: lambda budget: f"submit to {budget}",
    Right.CANCEL: lambda budget: f"cancel this job of {budget}",
    Right.READ_OUTPUT: lambda budget: f"read the output of this job of {budget}",
    Right.SET_SHARE: lambda budget: f"set, add or remove the share of {budget}",
    Right.NAME_MANAGERS: lambda budget: f"name the managers of {budget}",
    Right.NAME_MEMBERS: lambda budget: f"say who may submit to {budget}, and how they share it",
    Right.TEND_HOSTS: lambda _: "drain, resume or repair hosts",
    Right.SET_POLICY: lambda _: "change the policy",
    Right.ACT_FOR_OTHERS: lambda _: "act for others",
}
