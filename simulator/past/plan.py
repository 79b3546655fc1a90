"""What is asked of a past: from when on, under which other rules. Read and checked before anything is replayed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.knobs import parse_knobs, work_knob_names
from simulator.past.planned import funded, with_all
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
    """The question in these options. Raises `Refusal`.

    A new tree comes from a file, and has to have the budgets of all jobs; or it is planned, and gets those it lacks.
    """
    start, end = window(past, since=since)
    _, work = parse_knobs(settings)
    of_work = work_knob_names()
    knobs = {name: value for name, value in parse_settings(settings).items() if name not in of_work}
    hosts = None if cluster is None else load_cluster(cluster)
    told: list[str] = []
    if budgets is not None:
        tree, told = load_budgets(budgets), [f"budgets of {budgets}"]
        _check_budgets(funded(past, start=start), tree, where=str(budgets))
    elif tree is not None:
        tree, added = with_all(tree, funded(past, start=start))
        told = ["the new tree", *added]
    changes = Changes(tree=tree, settings=knobs, hosts=hosts)
    _check_named(past, changes, hosts=hosts)
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


def _check_budgets(jobs: Mapping[BudgetPath, int], tree: BudgetTree, *, where: str) -> None:
    """Raise `Refusal` unless every job that is replayed has its budget in the new tree."""
    missing = {path: count for path, count in jobs.items() if not tree.is_leaf(path)}
    if not missing:
        return
    names = sorted(missing)
    count = sum(missing.values())
    who = "1 job of the log is" if count == 1 else f"{count:,} jobs of the log are"
    near = did_you_mean(names[0], tree.leaves)
    raise Refusal(
        field=where,
        problem=f"{who} funded by {listed(names)}, which {'are' if len(names) > 1 else 'is'} no leaf of this tree",
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
