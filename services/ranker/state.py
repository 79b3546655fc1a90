"""What the ranker knows: shares and capacity over the window, the books of every budget, the queue, what it said last.

`Core` is what a snapshot holds: plain values, folded from the log (`evolve.py`). `State` adds curves and indexes, which
are rebuilt from it.
"""

import msgspec

from services.ranker.job import Job
from services.ranker.ledger import AHEAD, Account, Ledger
from services.ranker.policy.entitlement import Shares
from services.ranker.queue import Queue
from services.ranker.run import Run
from services.ranker.weighed import DumpedByType, Weighed
from tenure.domain.ids import LOG_START, BudgetPath, HostId, JobId, Position, RunId, UserName
from tenure.domain.job import Placement
from tenure.domain.policy import Policy
from tenure.domain.rates import Rates, weighed
from tenure.domain.tree import BudgetTree
from tenure.domain.units import GpuMillis, Millis
from tenure.events.ranking import RankingPublished, Standing

Jump = tuple[Position, BudgetPath, GpuMillis]
"""At this position the use of this budget changed at once by so much."""


Books = tuple[DumpedByType, DumpedByType, DumpedByType]
"""The curves of an account by GPU type: held, refunded, spare."""


class Host(msgspec.Struct, array_like=True):
    """A host: GPUs available now and at most so far, and since when it is silent, if it is."""

    gpus: int = 0
    gpus_most: int = 0
    gpu_type: str = ""
    silent_since: Millis | None = None
    lost: bool = False
    cluster: str = ""


class Core(msgspec.Struct, kw_only=True):
    """Everything that is folded from the log."""

    lookback_ms: Millis
    """The window that the curves below reach back to; a longer one cannot be served from them."""
    window_ms: Millis
    policy: Policy | None
    position: Position
    clock: Millis
    """The latest instant that a role (not an agent, whose clock may be off) spoke of."""
    began: Millis | None
    """The instant of the first fact."""
    forgotten_to: Millis | None
    """Steps of the curves before this are folded together."""
    capacity_since: Millis | None
    """When the first capacity was known: from then on the window fills."""
    news_at: Position
    """The last fact after which the order must be said again, whatever the ratios are."""
    said: RankingPublished | None
    """The last ranking."""
    looked_at: Millis
    """When the drift of the ratios was looked at last."""
    jumps: list[Jump]
    """What changed at once since the last ranking, of what matters to it."""
    tree: BudgetTree
    eras: dict[BudgetPath, list[tuple[Millis, str]]]
    """Products of shares are larger than 64 bits in a deep tree."""
    edited_at: Millis
    capacity: DumpedByType
    rates: list[tuple[Millis, dict[str, int]]]
    """Since when which exchange rates count."""
    hosts: dict[HostId, Host]
    jobs: dict[JobId, Job]
    queued: list[JobId]
    reserved: dict[JobId, str]
    runs: dict[RunId, Run]
    budgets: list[tuple[BudgetPath, Books]]
    users: list[tuple[BudgetPath, UserName, Books]]


class State:
    """The folded state. One owner, one thread; `evolve` changes it in place."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.policy_of_log: Policy | None = None
        """None: it has none, and what the role was started with counts."""
        self.window_ms: Millis = policy.lookback_ms
        """The window that is looked at: the lookback of the policy, or as much of it as is remembered."""
        self.position = LOG_START
        self.clock: Millis = 0
        self.began: Millis | None = None
        self.forgotten_to: Millis | None = None
        self.capacity_since: Millis | None = None
        self.news_at = LOG_START
        self.said: RankingPublished | None = None
        self.looked_at: Millis = 0
        self.jumps: list[Jump] = []
        self.tree = BudgetTree()
        self.shares = Shares()
        self.rates = Rates(policy.rates_milli)
        self.capacity = Weighed(self.rates)
        self.hosts: dict[HostId, Host] = {}
        self.jobs: dict[JobId, Job] = {}
        self.reserved: dict[JobId, str] = {}
        """Jobs with a reservation, each with the type of the GPUs that are kept for it."""
        self.runs: dict[RunId, Run] = {}
        self.ledger = Ledger(self.rates)
        self.queue = Queue(policy)
        self.held_on: dict[HostId, dict[tuple[RunId, int], None]] = {}
        """The replicas on each host whose end is not known."""
        self.gpus_by_pool: dict[tuple[str, str], int] = {}
        """By cluster of hosts and type, GPUs of it when it is empty and every host works. No pool is without any."""
        self.said_standings: dict[BudgetPath, Standing] = {}
        self.said_ratios: dict[BudgetPath, tuple[float, float]] | None = None
        """Scratch of `news`: each ratio that was said, and by how much it may differ."""
        self.look_every_ms: Millis | None = None
        """Scratch of `news`: how long to let ratios drift."""
        self.branches: tuple[tuple[BudgetPath, ...], dict[BudgetPath, list[BudgetPath]]] = ((), {})
        """Scratch of `order`: the budgets with queued jobs, and the tree above them."""
        self.jumped: dict[BudgetPath, GpuMillis] = {}
        """The sum of the jumps, on each budget of their paths."""
        self.idle: tuple[Position, Millis] | None = None
        """Scratch of `decide`: at this position and instant there was nothing to say."""

    def set_window(self, length_ms: Millis) -> None:
        """Look at another window: all that is drawn over the old one is drawn again."""
        self.window_ms = length_ms
        self.ledger.redraw()
        self.look_every_ms = None

    def set_rates(self, rates: dict[str, int], *, at: Millis, are_first: bool) -> None:
        """Rates that were changed at an instant; the first that a log has count for all of it."""
        if self.rates.are_newest(rates):
            return
        if are_first:
            self.rates.begin_with(rates)
        else:
            self.rates.change(rates, at=at)
        self.ledger.redraw()
        self.ledger.break_promises()
        for run in self.runs.values():
            promise(self, run, +1)
        for job in self.reserved:
            promise_reservation(self, self.jobs[job], +1)

    def regroup(self) -> None:
        """What the place or the commitment of queued jobs depends on has changed."""
        self.queue.regroup(self.tree, [(self.jobs[job], job in self.reserved) for job in self.queue.jobs()])

    def commitment_of(self, run: Run, now: Millis) -> GpuMillis:
        """P3: what the run is promised and has not had, in the unit of account."""
        return weighed(run.commitment_at(now), milli=self.rates.newest_milli(run.gpu_type))

    def type_of(self, placement: Placement) -> str:
        """The type of the GPUs of a gang, which lies in one pool."""
        known = self.hosts.get(placement[0].host) if placement else None
        return "" if known is None else known.gpu_type

    def accounts(self, run: Run) -> tuple[Account, Account]:
        """The books that a run is kept in: its budget's and its user's."""
        return self.ledger.accounts(run.budget, run.user)

    def index_run(self, run: Run) -> None:
        """Count what the run promises, and note where it may hold GPUs."""
        promise(self, run, +1)
        for number, held in run.replicas.items():
            if held.end is None:
                self.held_on.setdefault(held.host, {})[run.run, number] = None

    def note_said(self, ranking: RankingPublished) -> None:
        """This is what was said last."""
        self.said = ranking
        self.said_standings = {standing.path: standing for standing in ranking.standings}
        self.said_ratios = None
        self.queue.note_said(ranking.order)

    def note_look(self, at: Millis) -> None:
        """The drift of the ratios was looked at."""
        self.looked_at = at
        self.look_every_ms = None

    def note_jump(self, jump: Jump) -> None:
        """Add a jump up its path."""
        self.jumps.append(jump)
        _, budget, gpu_ms = jump
        for path in self.ledger.lineage(budget):
            self.jumped[path] = self.jumped.get(path, 0) + gpu_ms

    def count_gpus(self, host: Host, sign: int) -> None:
        """Count a host in its pool (+1), or take it out (-1)."""
        pool = host.cluster, host.gpu_type
        gpus = self.gpus_by_pool.pop(pool, 0) + sign * host.gpus_most
        if gpus:
            self.gpus_by_pool[pool] = gpus


def promise(state: State, run: Run, sign: int) -> None:
    """Count the run's commitment in its books (+1), or take it out of them (-1)."""
    if not run.allocated or run.ended_at is not None:
        return
    weight = sign * run.gpus * state.rates.newest_milli(run.gpu_type)
    for account in state.accounts(run):
        if run.protected_until is None:
            account.commitment.whole += weight * run.min_runtime_ms
        else:
            account.commitment.protect(weight=weight, until=run.protected_until)
        account.changed(AHEAD)


def promise_reservation(state: State, job: Job, sign: int) -> None:
    """Count the whole commitment of a job with a reservation (P8), or take it out again."""
    amount = sign * job.commitment_gpu_ms * state.rates.newest_milli(state.reserved[job.job])
    for account in state.ledger.accounts(job.budget, job.user):
        account.commitment.whole += amount
        account.changed(AHEAD)


def books(account: Account) -> Books:
    """What a snapshot holds of an account; its commitment follows from the runs."""
    return account.held.dump(), account.refunded.dump(), account.spare.dump()


def _account(rates: Rates, kept: Books) -> Account:
    return Account(rates, *[Weighed.load(rates, part) for part in kept])


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Core)


def dump(state: State) -> bytes:
    """The state as bytes; equal states have equal bytes."""
    core = Core(
        lookback_ms=state.policy.lookback_ms,
        window_ms=state.window_ms,
        policy=state.policy_of_log,
        position=state.position,
        clock=state.clock,
        began=state.began,
        forgotten_to=state.forgotten_to,
        capacity_since=state.capacity_since,
        news_at=state.news_at,
        said=state.said,
        looked_at=state.looked_at,
        jumps=state.jumps,
        tree=state.tree,
        eras={path: [(since, str(share)) for since, share in known] for path, known in state.shares.eras.items()},
        edited_at=state.shares.latest,
        capacity=state.capacity.dump(),
        rates=[(since, dict(rates)) for since, rates in state.rates.eras],
        hosts=state.hosts,
        jobs=state.jobs,
        queued=sorted(state.queue.jobs()),
        reserved={job: state.reserved[job] for job in sorted(state.reserved)},
        runs=state.runs,
        budgets=[(path, books(account)) for path, account in state.ledger.budgets.items()],
        users=[(path, user, books(account)) for (path, user), account in state.ledger.users.items()],
    )
    return _encoder.encode(core)


def load(payload: bytes, policy: Policy) -> State:
    """The inverse of `dump`. Raises ValueError on damage, and when the policy looks back further than was kept."""
    try:
        core = _decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a state of the ranker: {error}") from error
    if core.policy is not None:
        policy = core.policy
    elif core.lookback_ms < policy.lookback_ms:
        raise ValueError(f"it looks back {core.lookback_ms} ms, the policy {policy.lookback_ms} ms")
    state = State(policy)
    state.policy_of_log, state.window_ms = core.policy, min(core.window_ms, policy.lookback_ms)
    state.position, state.clock = core.position, core.clock
    state.began, state.forgotten_to = core.began, core.forgotten_to
    state.capacity_since, state.news_at, state.looked_at = core.capacity_since, core.news_at, core.looked_at
    state.tree = core.tree
    eras = {path: [(since, int(share)) for since, share in known] for path, known in core.eras.items()}
    state.shares = Shares(eras, latest=core.edited_at)
    state.rates.restore(core.rates)
    state.capacity = Weighed.load(state.rates, core.capacity)
    state.hosts, state.jobs, state.runs = core.hosts, core.jobs, core.runs
    state.reserved = core.reserved
    for path, kept in core.budgets:
        state.ledger.budgets[path] = _account(state.rates, kept)
    for path, user, kept in core.users:
        state.ledger.users[path, user] = _account(state.rates, kept)
    for run in state.runs.values():
        state.index_run(run)
    for job in state.reserved:
        promise_reservation(state, state.jobs[job], +1)
    for host in state.hosts.values():
        state.count_gpus(host, +1)
    state.queue.resize(state.gpus_by_pool)
    state.queue.regroup(state.tree, ((state.jobs[job], job in state.reserved) for job in core.queued))
    if core.said is not None:
        state.note_said(core.said)
    for jump in core.jumps:
        state.note_jump(jump)
    return state
