"""The gateway's read model: every job, host and budget as people see them, folded from the whole log.

Everything is found in constant time. Of the jobs that are over the newest `OVER_KEPT` are kept; older ones are told by
ClickHouse. How each fact changes the model is in `evolve`.
"""

from collections import Counter, deque
from functools import cached_property

import msgspec

from services.gateway.entries import BudgetChange, Counts, Held, HostEntry, JobEntry
from services.gateway.incidents import Incident, Incidents
from services.gateway.keys import Keys, Packed
from tenure.domain.ids import LOG_START, BudgetPath, HostId, JobId, Position, RunId, UserName
from tenure.domain.policy import Policy
from tenure.domain.reasons import JobState
from tenure.domain.shape import ClusterShape, shape_of
from tenure.domain.tree import BudgetTree
from tenure.events.policy import PolicyChanged
from tenure.events.ranking import RankingPublished, Standing

OVER_KEPT = 20_000
POLICIES_KEPT = 1_000
WAITING = (JobState.SUBMITTED, JobState.QUEUED)


class Ranking:
    """The latest fair-share order and the numbers behind it."""

    def __init__(self, fact: RankingPublished) -> None:
        self.fact = fact

    @cached_property
    def ranks(self) -> dict[JobId, int]:
        """The place of each listed job, from 1."""
        return {job: place for place, job in enumerate(self.fact.order, start=1)}

    @cached_property
    def standings(self) -> dict[BudgetPath, Standing]:
        """The standings by budget."""
        return {standing.path: standing for standing in self.fact.standings}


class State:
    """What is known at `position`. One owner, one thread; `evolve` changes it in place."""

    def __init__(self) -> None:
        self.position: Position = LOG_START
        self.jobs: dict[JobId, JobEntry] = {}
        self.live: dict[JobState, dict[JobId, None]] = {state: {} for state in JobState if not state.final}
        self.over: deque[JobId] = deque()
        """Jobs that are over, in the order they ended."""
        self.forgotten = 0
        """How many jobs that are over are no longer kept."""
        self.counts: dict[tuple[BudgetPath, UserName], Counts] = {}
        self.waiting: Counter[UserName] = Counter()
        """How many jobs of each user are not started yet."""
        self.held: dict[BudgetPath, Held] = {}
        self.hosts: dict[HostId, HostEntry] = {}
        self._shape: ClusterShape | None = None
        self.tree = BudgetTree()
        self.tree_position: Position = LOG_START
        self.changes: list[BudgetChange] = []
        self.budget_lane: Position = LOG_START
        """The last fact in the lane that a change of the tree is conditional on."""
        self.policy_facts: list[tuple[Position, PolicyChanged]] = []
        """The latest changes of the policy, oldest first."""
        self.ranking: Ranking | None = None
        self.incidents = Incidents()
        self.keys = Keys()
        self.contracts_broken = 0
        """Since the log began. Anything but 0 is a mistake in the program."""
        self.changed: dict[str, None] = {}
        """Scratch: ids of jobs and hosts that changed since the last `decide`."""

    def rank(self, job: JobId) -> int:
        """The place of a job in the latest order, from 1; 0 when it is not listed."""
        return 0 if self.ranking is None else self.ranking.ranks.get(job, 0)

    @property
    def policy(self) -> Policy | None:
        """The log's; None: it has none, and what the gateway was started with counts."""
        return self.policy_facts[-1][1].policy if self.policy_facts else None

    @property
    def policy_position(self) -> Position:
        """Where it was changed last."""
        return self.policy_facts[-1][0] if self.policy_facts else LOG_START

    @property
    def shape(self) -> ClusterShape:
        """The empty cluster: every registered host, whatever its state."""
        if self._shape is None:
            self._shape = shape_of(entry.spec for entry in self.hosts.values())
        return self._shape

    def reshape(self) -> None:
        """A host registered: the shape is to be derived again."""
        self._shape = None

    def move(self, entry: JobEntry, state: JobState) -> None:
        """Put a job into another state and keep the indexes and counts right."""
        if entry.state is not state:
            self._count(entry, -1)
            self.live[entry.state].pop(entry.job, None)
            entry.state = state
            self.index(entry)
            self._count(entry, +1)

    def add(self, entry: JobEntry) -> None:
        """A job that was not known."""
        self.jobs[entry.job] = entry
        self.index(entry)
        self._count(entry, +1)

    def index(self, entry: JobEntry) -> None:
        """Find the job under its state; forget the oldest that is over when there are too many."""
        if not entry.state.final:
            self.live[entry.state][entry.job] = None
            return
        self.over.append(entry.job)
        if len(self.over) > OVER_KEPT:
            del self.jobs[self.over.popleft()]
            self.forgotten += 1

    def _count(self, entry: JobEntry, change: int) -> None:
        spec = entry.spec
        if entry.state in WAITING:
            self.waiting[spec.user] += change
        counts = self.counts.get((spec.budget, spec.user))
        if counts is None:
            counts = Counts(budget=spec.budget, user=spec.user, by_state={})
            self.counts[spec.budget, spec.user] = counts
        counts.by_state[entry.state] = counts.by_state.get(entry.state, 0) + change


class Saved(msgspec.Struct, kw_only=True):
    """The state as a snapshot holds it: jobs that are not over, then those that are, oldest first."""

    position: Position
    live: list[JobEntry]
    over: list[JobEntry]
    forgotten: int
    counts: list[Counts]
    held: dict[BudgetPath, Held]
    hosts: list[HostEntry]
    tree: BudgetTree
    tree_position: Position
    changes: list[BudgetChange]
    budget_lane: Position
    policy_facts: list[tuple[Position, PolicyChanged]]
    ranking: RankingPublished | None
    incidents: list[Incident]
    lost_on: list[tuple[RunId, HostId]]
    keys: list[Packed]
    contracts_broken: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Saved)


def initial() -> State:
    """Nothing known."""
    return State()


def dump(state: State) -> bytes:
    """The state as bytes."""
    jobs = state.jobs
    return _encoder.encode(
        Saved(
            position=state.position,
            live=[jobs[job] for ids in state.live.values() for job in ids],
            over=[jobs[job] for job in state.over],
            forgotten=state.forgotten,
            counts=list(state.counts.values()),
            held=state.held,
            hosts=list(state.hosts.values()),
            tree=state.tree,
            tree_position=state.tree_position,
            changes=state.changes,
            budget_lane=state.budget_lane,
            policy_facts=state.policy_facts,
            ranking=None if state.ranking is None else state.ranking.fact,
            incidents=list(state.incidents.by_id.values()),
            lost_on=list(state.incidents.lost_on.items()),
            keys=state.keys.packed(),
            contracts_broken=state.contracts_broken,
        )
    )


def load(payload: bytes) -> State:
    """The inverse of `dump`. Raises ValueError on damage."""
    saved = _decoder.decode(payload)
    state = State()
    state.position = saved.position
    for entry in (*saved.live, *saved.over):
        state.jobs[entry.job] = entry
        state.index(entry)
        state.waiting[entry.spec.user] += entry.state in WAITING
    state.forgotten = saved.forgotten
    state.counts = {(counts.budget, counts.user): counts for counts in saved.counts}
    state.held = saved.held
    state.hosts = {entry.spec.host: entry for entry in saved.hosts}
    state.tree, state.tree_position = saved.tree, saved.tree_position
    state.changes, state.budget_lane = saved.changes, saved.budget_lane
    state.policy_facts = saved.policy_facts
    state.ranking = None if saved.ranking is None else Ranking(saved.ranking)
    state.incidents = Incidents(saved.incidents, saved.lost_on)
    state.keys = Keys(saved.keys)
    state.contracts_broken = saved.contracts_broken
    return state
