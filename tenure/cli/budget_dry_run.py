"""`tenure budget set --dry-run`: the last month replayed under the shares that there were and under the new ones."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tenure.cli.connection import find
from tenure.cli.outcome import Outputs
from tenure.cli.terminal import print_json
from tenure.cli.whatif import Source, answer, tell_gains
from tenure.domain.ids import BudgetPath
from tenure.domain.refusal import Refusal
from tenure.domain.tree import PPM, BudgetNode, BudgetTree
from tenure.domain.units import Millis

if TYPE_CHECKING:
    from tenure.v1 import budgets_pb2

NOTHING = Outputs(report=None, log=None, html=None, png=None, svg=None)


def show_gains(planned: "Iterable[budgets_pb2.Budget]", *, since: Millis | None, as_json: bool) -> None:
    """Who would have gained and lost, as a table or as JSON. Raises `Refusal`."""
    began = time.monotonic()
    if find().endpoint is None:
        raise Refusal(
            field="--dry-run",
            problem="the new tree is valid, but the system's log is not on this machine",
            fix="export it there with tenure log export -o FILE, then tenure simulate --from-log FILE --budgets NEW",
        )
    from simulator.past.plan import NothingHappened

    try:
        question = Source(since=since).question(tree=_tree(planned))
    except NothingHappened as empty:
        if as_json:
            print_json({"position": None, "what_if": None})
        else:
            print(f"Nothing is changed. The new tree is valid. There is nothing to replay: {empty.problem}.")
        return
    report = answer(question, outputs=NOTHING, began=began)
    if as_json:
        print_json({"position": None, "what_if": report["what_if"]})
        return
    print("Nothing is changed. With these shares:")
    tell_gains(report["what_if"])


def _tree(planned: "Iterable[budgets_pb2.Budget]") -> BudgetTree:
    nodes = [
        BudgetNode(
            path=BudgetPath(one.path), share_ppm=round(one.share_percent * PPM / 100), users_equal=one.users_equal
        )
        for one in planned
    ]
    return BudgetTree(nodes=tuple(sorted(nodes, key=lambda node: node.path)))
