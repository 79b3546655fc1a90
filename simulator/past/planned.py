"""A tree that is planned, as a time is replayed under it that had other budgets: every job finds its own."""

from collections.abc import Mapping

from simulator.past.story import Past
from tenure.domain.ids import BudgetPath
from tenure.domain.refusal import Refusal
from tenure.domain.tree import BudgetNode, BudgetTree, lineage
from tenure.domain.units import Millis


def funded(past: Past, *, start: Millis) -> dict[BudgetPath, int]:
    """How many of the jobs that are replayed from `start` on each budget funds."""
    found: dict[BudgetPath, int] = {}
    for job in past.jobs.values():
        last = job.runs[-1].ended_at if job.runs else job.submitted_at
        over = job.state is not None and job.submitted_at < start and last is not None and last < start
        if not over:
            found[job.spec.budget] = found.get(job.spec.budget, 0) + 1
    return found


def with_all(tree: BudgetTree, jobs: Mapping[BudgetPath, int]) -> tuple[BudgetTree, list[str]]:
    """The tree in which each of these budgets is a leaf, and what is other than planned, in words.

    One that is planned no more is there with a share of 0; one that is to be split stays whole, as nobody had its
    parts. Raises `Refusal` where one of them is above another: the tree was split meanwhile.
    """
    missing = sorted(path for path in jobs if not tree.is_leaf(path))
    if not missing:
        return tree, []
    _check_split(jobs)
    whole = {path for path in missing if path in tree.by_path}
    kept = [node for node in tree.nodes if whole.isdisjoint(lineage(node.path)[:-1])]
    known = {node.path for node in kept}
    added = dict.fromkeys(above for path in missing for above in lineage(path) if above not in known)
    nodes = [*kept, *(BudgetNode(path=path, share_ppm=0) for path in added)]
    told = [
        f"{path} {'not split' if path in whole else 'at a share of 0'} (it funds {_jobs(jobs[path])})"
        for path in missing
    ]
    return BudgetTree(nodes=tuple(sorted(nodes, key=lambda node: node.path))), told


def _check_split(jobs: Mapping[BudgetPath, int]) -> None:
    for path in sorted(jobs):
        above = next((one for one in lineage(path)[:-1] if one in jobs), None)
        if above is not None:
            raise Refusal(
                field="--dry-run",
                problem=f"jobs of this time are funded by {above} and by {path}: no tree has both as leaves",
                fix=f"give a shorter --since, with jobs of {path} or of {above} only",
            )


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"
