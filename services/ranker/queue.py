"""The queue: jobs that are alike stand in one line, lines in groups, one group for each budget (or each equal user).

Arriving and leaving cost a bisection in the job's line; a group's listing is made again only after one of its lines
has changed. Everything here is an index over the state's jobs and is rebuilt when a snapshot is loaded.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from services.ranker.job import Job
from services.ranker.policy.alike import Alike, at_once
from services.ranker.policy.setback import Key, place_in_budget
from tenure.domain.ids import BudgetPath, JobId, UserName
from tenure.domain.policy import Policy
from tenure.domain.tree import BudgetTree

LISTED_MAX = 512
"""Jobs that are listed strictly in order; after them only the first of each line that is not listed yet."""


class Entry(NamedTuple):
    """A queued job in the order. `key` is unique, so entries never compare further than that."""

    key: Key
    commitment: float
    """GPU-milliseconds that picking it adds to its path (P4): a whole number, as a float because that is faster."""
    job: JobId
    line: "Line"


class Line:
    """Jobs that are alike, in order. The first `at_once` of them are to be listed."""

    __slots__ = ("alike", "at_once", "entries", "group")

    def __init__(self, alike: Alike, group: "Group", listed: int) -> None:
        self.alike, self.group, self.at_once = alike, group, listed
        self.entries: list[Entry] = []


class Group:
    """The lines of one budget, or of one of its users where those are equal."""

    __slots__ = ("_listing", "lines")

    def __init__(self) -> None:
        self.lines: dict[Alike, Line] = {}
        self._listing: list[Entry] | None = None

    def changed(self) -> None:
        """A line of the group is not what it was."""
        self._listing = None

    def listing(self) -> list[Entry]:
        """The group's jobs that are to be listed, in order. Not to be changed by the caller."""
        if self._listing is None:
            entries = [entry for line in self.lines.values() for entry in line.entries[: line.at_once]]
            entries.sort()
            self._listing = shortened(entries)
        return self._listing


Users = dict[UserName | None, Group]
"""The groups of one budget by user; only `None` where users are not equal."""


def shortened(entries: list[Entry]) -> list[Entry]:
    """The first `LISTED_MAX`, and of those behind them the first of each line that is not among them."""
    if len(entries) <= LISTED_MAX:
        return entries
    listed = entries[:LISTED_MAX]
    seen = {id(entry.line) for entry in listed}
    for entry in entries[LISTED_MAX:]:
        if id(entry.line) not in seen:
            seen.add(id(entry.line))
            listed.append(entry)
    return listed


class Queue:
    """All queued jobs. One owner, one thread."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._tree = BudgetTree()
        self._gpus_by_type: Mapping[str, int] = {}
        self._said: frozenset[JobId] = frozenset()
        self._lines: dict[Alike, Line] = {}
        self._entries: dict[JobId, Entry] = {}
        self._line_of: dict[JobId, Line] = {}
        self.allocated: dict[BudgetPath, Users] = {}
        self.unallocated: dict[BudgetPath, Users] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, job: JobId) -> bool:
        return job in self._entries

    def jobs(self) -> Iterable[JobId]:
        """The ids of the queued jobs."""
        return self._entries.keys()

    def add(self, job: Job, *, reserved: bool) -> bool:
        """A job comes in. Returns whether it is one that is to be listed."""
        line = self._line(job, reserved=reserved)
        commitment = job.commitment_gpu_ms
        key = place_in_budget(
            job=job.job,
            priority=job.priority,
            submitted_at=job.submitted_at,
            commitment_gpu_ms=commitment,
            policy=self._policy,
        )
        entry = Entry(key, 0.0 if reserved else float(commitment), job.job, line)
        insort(line.entries, entry)
        line.group.changed()
        self._entries[job.job] = entry
        self._line_of[job.job] = line
        return len(line.entries) <= line.at_once or entry < line.entries[line.at_once]

    def remove(self, job: JobId) -> bool:
        """A job leaves. Returns whether too few of those alike are left in the last ranking, and more should be said.

        Half of what could run at once is enough: otherwise each of a thousand identical starts would be news.
        """
        entry = self._entries.pop(job)
        line = self._line_of.pop(job)
        index = bisect_left(line.entries, entry)
        assert line.entries[index].key == entry.key, f"{job} does not stand where it should"
        del line.entries[index]
        line.group.changed()
        listed = line.entries[: line.at_once]
        if not listed:
            self._close(line)
            return False
        return 2 * sum(entry.job in self._said for entry in listed) < len(listed)

    def note_said(self, order: tuple[JobId, ...]) -> None:
        """A ranking was published with this order."""
        self._said = frozenset(order)

    def resize(self, gpus_by_type: Mapping[str, int]) -> None:
        """The empty cluster has so many GPUs of each type."""
        self._gpus_by_type = gpus_by_type
        for line in self._lines.values():
            line.at_once = at_once(line.alike, gpus_by_type=gpus_by_type)
            line.group.changed()

    def regroup(self, tree: BudgetTree, jobs: Iterable[tuple[Job, bool]]) -> None:
        """The tree is another one. `jobs` are the queued ones, each with whether it is reserved."""
        self._tree = tree
        self._lines, self._entries, self._line_of = {}, {}, {}
        self.allocated, self.unallocated = {}, {}
        for job, reserved in jobs:
            self.add(job, reserved=reserved)

    def _line(self, job: Job, *, reserved: bool) -> Line:
        node = self._tree.by_path.get(job.budget)
        user = job.user if node is not None and node.users_equal and job.allocated else None
        alike = Alike(
            job.budget,
            user,
            job.replicas,
            job.gpus_per_replica,
            job.gpu_type,
            job.min_runtime_ms,
            job.priority,
            reserved,
        )
        line = self._lines.get(alike)
        if line is None:
            budgets = self.allocated if job.allocated else self.unallocated
            if job.budget not in budgets:
                budgets[job.budget] = {}
            group = budgets[job.budget].setdefault(user, Group())
            line = Line(alike, group, at_once(alike, gpus_by_type=self._gpus_by_type))
            self._lines[alike] = group.lines[alike] = line
        return line

    def _close(self, line: Line) -> None:
        """Drop an empty line, and what holds nothing without it."""
        alike = line.alike
        del self._lines[alike], line.group.lines[alike]
        if line.group.lines:
            return
        budgets = self.allocated if alike.min_runtime_ms > 0 else self.unallocated
        users = budgets[alike.budget]
        del users[alike.user]
        if not users:
            del budgets[alike.budget]
