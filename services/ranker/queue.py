"""The queue: jobs that are alike stand in one line, lines in groups, one group for each budget (or each equal user).

A group keeps the jobs of its lines that are to be listed in order, so arriving and leaving cost bisections, and an
order is put together from what the groups hold already. Everything here is an index over the state's jobs and is
rebuilt when a snapshot is loaded.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from services.ranker.job import Job
from services.ranker.policy.alike import Alike, Pool, at_once
from services.ranker.policy.commitment import dearest_milli
from services.ranker.policy.setback import Key, place_in_budget
from tenure.domain.ids import BudgetPath, JobId, UserName
from tenure.domain.policy import Policy
from tenure.domain.rates import weighed
from tenure.domain.tree import BudgetTree

LISTED_MAX = 512
"""Jobs that are listed strictly in order; after them only the first of each line that is not listed yet."""


class Entry(NamedTuple):
    """A queued job in the order. `key` is unique, so entries never compare further than that."""

    key: Key
    commitment: float
    """GPU-milliseconds of account that picking it adds to its path (P4): whole, as a float because that is faster."""
    job: JobId


JOB: Callable[[Entry], JobId] = itemgetter(2)


class Line:
    """Jobs that are alike, in order. The first `at_once` of them are to be listed."""

    __slots__ = ("alike", "at_once", "entries", "group")

    def __init__(self, alike: Alike, group: "Group", listed: int) -> None:
        self.alike, self.group, self.at_once = alike, group, listed
        self.entries: list[Entry] = []

    def add(self, entry: Entry) -> bool:
        """One more. Returns whether it is to be listed; then it may take the place of the last that was."""
        entries, most = self.entries, self.at_once
        index = bisect_left(entries, entry)
        entries.insert(index, entry)
        if index >= most:
            return False
        self.group.put(entry)
        if len(entries) > most:
            self.group.take(entries[most])
        return True

    def remove(self, entry: Entry) -> None:
        """One less; if it was listed, the next one is."""
        entries, most = self.entries, self.at_once
        index = bisect_left(entries, entry)
        assert entries[index].key == entry.key, f"{entry.job} does not stand where it should"
        del entries[index]
        if index < most:
            self.group.take(entry)
            if len(entries) >= most:
                self.group.put(entries[most - 1])


class Group:
    """The lines of one budget, or of one of its users where those are equal."""

    __slots__ = ("_head_jobs", "_heads", "entries", "jobs", "lines")

    def __init__(self) -> None:
        self.lines: dict[Alike, Line] = {}
        self.entries: list[Entry] = []
        """Those that are to be listed, in order. Not to be changed by others, as little as `jobs`."""
        self.jobs: list[JobId] = []
        """The same, only the ids."""
        self._heads: list[Entry] | None = None
        self._head_jobs: list[JobId] = []

    def put(self, entry: Entry) -> None:
        """It is to be listed."""
        index = bisect_left(self.entries, entry)
        self.entries.insert(index, entry)
        self.jobs.insert(index, entry.job)
        self._heads = None

    def take(self, entry: Entry) -> None:
        """It is not to be listed any more."""
        index = bisect_left(self.entries, entry)
        del self.entries[index], self.jobs[index]
        self._heads = None

    def resize(self) -> None:
        """Lines are to list another number of jobs."""
        self.entries = sorted([entry for line in self.lines.values() for entry in line.entries[: line.at_once]])
        self.jobs = [entry.job for entry in self.entries]

    def heads(self, *, listed: int) -> Sequence[Entry]:
        """In order, the first of each line of which none is among the first `listed` jobs of the group."""
        if self._heads is None:
            self._heads = sorted([line.entries[0] for line in self.lines.values() if line.entries])
            self._head_jobs = [entry.job for entry in self._heads]
        return self._heads[bisect_right(self._heads, self.entries[listed - 1]) :] if listed else self._heads

    def head_jobs(self, *, listed: int) -> Sequence[JobId]:
        """The same, only the ids."""
        heads = self.heads(listed=listed)
        return self._head_jobs[len(self._head_jobs) - len(heads) :]


Users = dict[UserName | None, Group]
"""The groups of one budget by user; only `None` where users are not equal."""


class Queue:
    """All queued jobs. One owner, one thread."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._tree = BudgetTree()
        self._gpus_by_pool: Mapping[Pool, int] = {}
        self._said: Iterable[JobId] = ()
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
        added = 0 if reserved else weighed(commitment, milli=dearest_milli(job, self._gpus_by_pool, self._policy))
        entry = Entry(key, float(added), job.job)
        self._entries[job.job] = entry
        self._line_of[job.job] = line
        return line.add(entry)

    def remove(self, job: JobId) -> bool:
        """A job leaves. Returns whether too few of those alike are left in the last ranking, and more should be said.

        Half of what could run at once is enough: otherwise each of a thousand identical starts would be news.
        """
        entry = self._entries.pop(job)
        line = self._line_of.pop(job)
        line.remove(entry)
        listed = line.entries[: line.at_once]
        if not listed:
            self._close(line)
            return False
        if not isinstance(self._said, frozenset):
            self._said = frozenset(self._said)
        return 2 * sum(map(self._said.__contains__, map(JOB, listed))) < len(listed)

    def note_said(self, order: tuple[JobId, ...]) -> None:
        """A ranking was published with this order."""
        self._said = order  # made a set when it is asked: not every ranking is

    def resize(self, gpus_by_pool: Mapping[Pool, int]) -> None:
        """The empty clusters have so many GPUs of each type."""
        self._gpus_by_pool = gpus_by_pool
        resized: dict[Group, None] = {}
        for line in self._lines.values():
            listed = at_once(line.alike, gpus_by_pool=gpus_by_pool)
            if listed != line.at_once:
                line.at_once = listed
                resized[line.group] = None
        for group in resized:
            group.resize()

    def set_policy(self, policy: Policy) -> None:
        """Jobs have another place in their budget from now on; to be followed by `regroup`."""
        self._policy = policy

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
            job.topology,
            job.choice,
            job.cluster,
        )
        line = self._lines.get(alike)
        if line is None:
            budgets = self.allocated if job.allocated else self.unallocated
            if job.budget not in budgets:
                budgets[job.budget] = {}
            group = budgets[job.budget].setdefault(user, Group())
            line = Line(alike, group, at_once(alike, gpus_by_pool=self._gpus_by_pool))
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
