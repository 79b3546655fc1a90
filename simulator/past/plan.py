"""What is asked of a past: from when on, under which other rules. Read and checked before anything is replayed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.knobs import parse_knobs, work_knob_names
from simulator.past.replay import Changes
from simulator.past.story import Past
from simulator.simulation import Work
from tenure.domain.host import HostSpec
from tenure.domain.ids import BudgetPath
from tenure.domain.nearest import did_you_mean, listed
from tenure.domain.policy import Policy, check_clusters, types_unknown
from tenure.domain.refusal import Refusal
from tenure.domain.tree import BudgetTree
from tenure.domain.units import DAY, Millis, format_duration
from tenure.runtime.budgets_file import load_budgets
from tenure.runtime.cluster_file import load_cluster
from tenure.runtime.options import parse_settings

USUAL: Millis = 30 * DAY
"""So far back, or to where the log begins, without a word about it."""


class NothingHappened(Refusal):
    """The log has nothing that could be replayed."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A past, the time of it that is looked at (epoch milliseconds), and what is to be other. `told`: that in words."""

    past: Past
    start: Millis
    end: Millis
    changes: Changes
    work: Work
    told: tuple[str, ...]


def read_question(
    past: Past,
    *,
    since: Millis | None,
    settings: Sequence[str] = (),
    budgets: Path | None = None,
    tree: BudgetTree | None = None,
    cluster: Path | None = None,
) -> Question:
    """The question in these options; a new tree comes from a file or is given. Raises `Refusal`."""
    start, end = window(past, since=since)
    _, work = parse_knobs(settings)
    of_work = work_knob_names()
    knobs = {name: value for name, value in parse_settings(settings).items() if name not in of_work}
    hosts = None if cluster is None else load_cluster(cluster)
    if budgets is not None:
        tree = load_budgets(budgets)
    if tree is not None:
        _check_budgets(past, tree, where="--budgets" if budgets is None else str(budgets), start=start)
    changes = Changes(tree=tree, settings=knobs, hosts=hosts)
    _check_named(past, changes, hosts=hosts)
    told = [f"budgets of {budgets}" if budgets else "the new tree"] if tree is not None else []
    told += [f"hosts of {cluster}"] if cluster is not None else []
    told += list(settings)
    return Question(past=past, start=start, end=end, changes=changes, work=work, told=tuple(told))


def window(past: Past, *, since: Millis | None) -> tuple[Millis, Millis]:
    """From when to when; `since` is counted back from the end of the log. Raises `Refusal`."""
    if not past.jobs:
        raise NothingHappened(field="the log", problem="no job is in the log", fix="ask again when jobs have run")
    if not past.trees or not past.hosts:
        raise NothingHappened(field="the log", problem="no budgets or no hosts are in the log", fix="name a whole log")
    first, end = past.first, past.last
    if since is None:
        return max(first, end - USUAL), end
    if since <= 0:
        raise Refusal(field="--since", problem="nothing is looked at", fix="give a length of time such as 30d")
    if end - since < first:
        raise Refusal(
            field="--since",
            problem=f"{format_duration(since)} is before the log began: it is of the last {_in_words(end - first)}",
            fix=f"give at most {_in_words(end - first)}, or leave it out for all of it",
        )
    return end - since, end


def _in_words(length: Millis) -> str:
    """A length of time to the minute, not more than it is; a short one as it is."""
    unit = 60_000 if length > 600_000 else 1_000
    return format_duration(max(unit, length // unit * unit))


def _check_budgets(past: Past, tree: BudgetTree, *, where: str, start: Millis) -> None:
    """Raise `Refusal` unless every job that is replayed has its budget in the new tree."""
    missing: dict[BudgetPath, int] = {}
    for job in past.jobs.values():
        last = job.runs[-1].ended_at if job.runs else job.submitted_at
        over = job.state is not None and job.submitted_at < start and last is not None and last < start
        if not over and not tree.is_leaf(job.spec.budget):
            missing[job.spec.budget] = missing.get(job.spec.budget, 0) + 1
    if not missing:
        return
    names = sorted(missing)
    count = sum(missing.values())
    jobs = "1 job of the log is" if count == 1 else f"{count:,} jobs of the log are"
    near = did_you_mean(names[0], tree.leaves)
    raise Refusal(
        field=where,
        problem=f"{jobs} funded by {listed(names)}, which {'are' if len(names) > 1 else 'is'} no leaf of this tree",
        fix=f"{near}add what is missing, with a share of 0 if it is to get nothing",
    )


def _check_named(past: Past, changes: Changes, *, hosts: Sequence[HostSpec] | None) -> None:
    """Raise `Refusal` for own values of clusters, and for rates of types, that there are not."""
    if not changes.settings:
        return
    there = hosts if hosts is not None else [spec for _, spec in past.hosts]
    policy = changes.policy(past.policies[-1][1] if past.policies else Policy())
    if "clusters" in changes.settings:
        check_clusters(policy, known={host.cluster for host in there})
    if "rates" in changes.settings:
        for strange in types_unknown(policy, known={host.gpu_type for host in there}):
            raise strange
