"""The cluster as metrics: what is waiting, what hosts do, the figures of `tenure queue --fragmentation`, now and then.

An instant is no label: what protections to come will free is told for a few lengths of time from now. No label is a
job, a run, a user or a host; of budgets only the topmost are told, and of those at most `BUDGETS_MAX`.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from services.gateway.gateway import Gateway
from services.gateway.history import History
from services.gateway.policy.figures import drains_overdue, silent_hosts, started, waiting
from services.gateway.policy.fragmentation import Placeable, fragmentation
from services.gateway.policy.host_report import host_report
from services.gateway.policy.totals import cluster_total
from services.gateway.refusals import Away
from services.gateway.state import State
from tenure.domain.host import HostState
from tenure.domain.ids import HostId
from tenure.domain.policy import Policy
from tenure.domain.units import DAY, HOUR, SECOND, Millis, format_duration
from tenure.log.dead import DeadLetters
from tenure.log.link import Lost, Refused
from tenure.runtime.metric import counter, gauge, histogram
from tenure.runtime.telemetry import Counts, Gauges, Reading

if TYPE_CHECKING:
    from tenure.clickhouse.report import BudgetRow

EVERY_S, SOON_S, REPORT_EVERY_S = 15.0, 0.5, 60.0
"""How often; while the log is still being read; how often ClickHouse is asked."""
REPORT_MS = 7 * DAY
WITHIN: tuple[Millis, ...] = (HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR)
BUDGETS_MAX = 50
"""So many topmost budgets are told, those that are owed most; the rest together, as `(other)`."""
OTHER = "(other)"

QUEUE_JOBS = gauge("tenure.queue.jobs", "{job}", "jobs that wait to start", "class")
QUEUE_GPUS = gauge("tenure.queue.gpus", "{gpu}", "GPUs that those ask for", "class")
QUEUE_LONGEST = gauge("tenure.queue.wait.longest", "s", "since when the oldest that never started waits", "class")
WAITS = histogram(
    "tenure.job.wait.duration",
    "s",
    "from submission to the first start, of jobs that started since the gateway did",
    "class",
    bounds=(1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0),
)
GPUS_AVAILABLE = gauge("tenure.gpus.available", "{gpu}", "GPUs of hosts that are neither drained, draining nor lost")
GPUS_HELD = gauge("tenure.gpus.held", "{gpu}", "GPUs that runs hold", "allocated")
DELIVERED = gauge(
    "tenure.budgets.delivered",
    "1",
    "of what the leaves below a topmost budget were owed in the last seven days: the part that each got",
    "budget",
)
OWED = gauge("tenure.budgets.owed", "s", "GPU-seconds that it was owed in the last seven days", "budget")
DRAINS_OVERDUE = gauge("tenure.drains.overdue", "{host}", "draining hosts whose runs should be gone by now")
SILENT = gauge(
    "tenure.hosts.silent", "{host}", "hosts in service whose agent is silent for longer than `suspect_after`"
)
DEAD_LETTERS = gauge("tenure.log.dead_letters", "{letter}", "what stands in the log and is passed over")
CONTRACTS_BROKEN = counter(
    "tenure.contracts.broken",
    "{contract}",
    "runs that were told to end while protected, since the log began: must be 0",
)
IN_STATE = gauge("tenure.hosts.in_state", "{host}", "hosts now", "state")
FREE = gauge("tenure.gpus.free", "{gpu}", "free GPUs of hosts that take runs", "cluster", "gpu_type")
LARGEST_HOLE = gauge("tenure.gpus.largest_hole", "{gpu}", "free GPUs of the host that has most", "cluster", "gpu_type")
GIVING_WAY = gauge("tenure.gpus.giving_way", "{gpu}", "held by unallocated runs", "cluster", "gpu_type")
IN_ESCROW = gauge("tenure.gpus.in_escrow", "{gpu}", "held for askers (P7)", "cluster", "gpu_type")
RESERVED = gauge("tenure.gpus.reserved", "{gpu}", "kept for blocked gangs (P8)", "cluster", "gpu_type")
PAST_PROTECTION = gauge("tenure.gpus.past_protection", "{gpu}", "held by runs that P5 may end", "cluster", "gpu_type")
WITH_FREE = gauge("tenure.hosts.with_gpus_free", "{host}", "hosts with a free GPU", "cluster", "gpu_type")
WHOLLY_FREE = gauge("tenure.hosts.wholly_free", "{host}", "hosts that hold nothing", "cluster", "gpu_type")
WHOLE_HOSTS = gauge(
    "tenure.placeable.whole_hosts",
    "{host}",
    "the largest gang of whole hosts",
    "cluster",
    "gpu_type",
    "within",
    "given",
)
REPLICAS = gauge(
    "tenure.placeable.replicas",
    "{replica}",
    "the largest gang of replicas of a size",
    "cluster",
    "gpu_type",
    "within",
    "given",
    "gpus_per_replica",
)
AVAILABILITY = gauge("tenure.hosts.availability", "1", "GPU-time in service of the last seven days")
OUT = gauge("tenure.hosts.out", "s", "GPU-seconds that hosts were out of service in the last seven days")
INCIDENTS = gauge("tenure.incidents", "{incident}", "incidents of the last seven days", "cause", "ending")
INCIDENTS_TIME = gauge("tenure.incidents.time", "s", "how long they took, in the last seven days", "step", "of")
AUTOMATIC = gauge("tenure.incidents.automatic_share", "1", "those that ended without a person, in the last seven days")
REFUNDED = gauge("tenure.incidents.refunded", "s", "GPU-seconds refunded for them in the last seven days")

GAUGES = (
    *(QUEUE_JOBS, QUEUE_GPUS, QUEUE_LONGEST, GPUS_AVAILABLE, GPUS_HELD, DELIVERED, OWED, DRAINS_OVERDUE, SILENT),
    *(DEAD_LETTERS, CONTRACTS_BROKEN, IN_STATE, FREE, LARGEST_HOLE, GIVING_WAY, IN_ESCROW, RESERVED),
    *(PAST_PROTECTION, WITH_FREE, WHOLLY_FREE, WHOLE_HOSTS, REPLICAS, AVAILABILITY, OUT, INCIDENTS),
    *(INCIDENTS_TIME, AUTOMATIC, REFUNDED),
)
METRICS = (*GAUGES, WAITS)


class Measuring:
    """Looks at the gateway's read model, the database and the dead letters now and then, if anybody is told."""

    def __init__(self, gateway: Gateway, history: History, dead: DeadLetters | None) -> None:
        """`dead` None: there is no stream of them."""
        self._gateway, self._history, self._dead = gateway, history, dead
        self._gauges, self._waits = Gauges(GAUGES), Counts([WAITS])
        self._waited_until = gateway.now()
        self._of_database: dict[str, list[Reading]] = {}
        self._of_letters: dict[str, list[Reading]] = {}
        self._asked_at = -REPORT_EVERY_S

    async def run(self, *, every_s: float = EVERY_S) -> None:
        """Set the gauges again and again until the gateway stops."""
        gateway = self._gateway
        while self._gauges.wanted and not gateway.progress.stopping:
            pause_s = every_s
            try:
                found = readings(gateway.state, seen=gateway.sightings.at, now=gateway.now(), policy=gateway.policy)
                self._record_waits(gateway.state)
                self._gauges.set({**found, **await self._letters(), **await self._budgets()})
            except Away:  # still reading the log
                pause_s = min(every_s, SOON_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(gateway.progress.stopped.wait(), pause_s)

    def _record_waits(self, state: State) -> None:
        fresh = started(state, after=self._waited_until)
        self._waited_until = fresh.until
        for of_class, wait_ms in fresh.waits_ms:
            self._waits.record(WAITS, wait_ms / SECOND, **{"class": of_class.value})

    async def _letters(self) -> dict[str, list[Reading]]:
        """How many dead letters there are; while that cannot be asked, as many as there were."""
        if self._dead is not None:
            with contextlib.suppress(Lost, Refused):
                self._of_letters = {DEAD_LETTERS.name: [(await self._dead.count(), {})]}
        return self._of_letters

    async def _budgets(self) -> dict[str, list[Reading]]:
        """What budgets got of what they were owed, asked now and then; nothing while the database is away."""
        if time.monotonic() - self._asked_at >= REPORT_EVERY_S:
            self._asked_at = time.monotonic()
            now = self._gateway.now()
            try:
                rows = await self._history.report(since=now - REPORT_MS, until=now, path="")
                self._of_database = delivered_readings(rows)
            except Away:
                self._of_database = {}
        return self._of_database


def delivered_readings(rows: "Iterable[BudgetRow]") -> dict[str, list[Reading]]:
    """The topmost budgets that were owed something, by the leaves below each."""
    owed: dict[str, int] = {}
    got: dict[str, int] = {}
    for row in rows:
        if row.leaf and row.owed_gpu_ms > 0:
            top = row.path.partition("/")[0]
            owed[top] = owed.get(top, 0) + row.owed_gpu_ms
            got[top] = got.get(top, 0) + min(row.owed_gpu_ms, row.delivered_gpu_ms)
    told = sorted(owed, key=lambda budget: (-owed[budget], budget))[:BUDGETS_MAX]
    rest = [budget for budget in owed if budget not in told]
    sums = [(budget, owed[budget], got[budget]) for budget in told]
    if rest:
        sums.append((OTHER, sum(owed[budget] for budget in rest), sum(got[budget] for budget in rest)))
    return {
        OWED.name: [(of / SECOND, {"budget": budget}) for budget, of, _ in sums],
        DELIVERED.name: [(had / of, {"budget": budget}) for budget, of, had in sums],
    }


def readings(state: State, *, seen: Mapping[HostId, Millis], now: Millis, policy: Policy) -> dict[str, list[Reading]]:
    """The value of each gauge that follows from the read model; `seen`: the last heartbeat of each host."""
    found: dict[str, list[Reading]] = {metric.name: [] for metric in GAUGES}
    _add_queue(found, state, now=now)
    found[DRAINS_OVERDUE.name].append((len(drains_overdue(state, now=now, policy=policy)), {}))
    found[SILENT.name].append((len(silent_hosts(state, seen=seen, now=now, policy=policy)), {}))
    found[CONTRACTS_BROKEN.name].append((state.contracts_broken, {}))
    _add_pools(found, state, now=now)
    _add_hosts(found, state, now=now)
    return found


def _add_queue(found: dict[str, list[Reading]], state: State, *, now: Millis) -> None:
    for of_class, sums in waiting(state, now=now).items():
        of = {"class": of_class.value}
        found[QUEUE_JOBS.name].append((sums.jobs, of))
        found[QUEUE_GPUS.name].append((sums.gpus, of))
        found[QUEUE_LONGEST.name].append((sums.longest_ms / SECOND, of))
    total = cluster_total(state)
    found[GPUS_AVAILABLE.name].append((total.available, {}))
    found[GPUS_HELD.name] += [(total.allocated, {"allocated": "true"}), (total.unallocated, {"allocated": "false"})]


def _add_pools(found: dict[str, list[Reading]], state: State, *, now: Millis) -> None:
    """What could be placed in each pool, and for the prospects for each length of time."""
    for pool in fragmentation(state, now=now, instants=[now + within for within in WITHIN]):
        of = {"cluster": pool.cluster, "gpu_type": pool.gpu_type}
        for metric, value in (
            (FREE, pool.free),
            (LARGEST_HOLE, pool.largest_hole),
            (GIVING_WAY, pool.giving_way),
            (IN_ESCROW, pool.in_escrow),
            (RESERVED, pool.reserved),
            (PAST_PROTECTION, pool.past_protection),
            (WITH_FREE, pool.hosts_with_free),
            (WHOLLY_FREE, pool.hosts_wholly_free),
        ):
            found[metric.name].append((value, of))
        for prospect in pool.prospects:
            within = format_duration(prospect.at - now)
            for p5, placeable in (("sure", prospect.placeable), ("if_p5_gives", prospect.if_p5_gives)):
                _add_placeable(found, placeable, {**of, "within": within, "given": p5})


def _add_hosts(found: dict[str, list[Reading]], state: State, *, now: Millis) -> None:
    """`tenure host report` of the last seven days, and how many hosts are in each state now."""
    states = [entry.state for entry in state.hosts.values()]
    for name in HostState:
        found[IN_STATE.name].append((states.count(name), {"state": name.value}))
    report = host_report(state, since=now - REPORT_MS, until=now)
    for cause in report.causes:
        for ending, number in (("automatic", cause.automatic), ("human", cause.human), ("open", cause.still_open)):
            found[INCIDENTS.name].append((number, {"cause": cause.reason.value, "ending": ending}))
    found[REFUNDED.name].append((report.refunded_gpu_ms / SECOND, {}))
    found[OUT.name].append((report.out_gpu_ms / SECOND, {}))
    for step, spread in (("detect", report.detect), ("drain", report.drain), ("repair", report.repair)):
        if spread.count:
            for of, length_ms in (("p50", spread.p50_ms), ("p90", spread.p90_ms), ("longest", spread.longest_ms)):
                found[INCIDENTS_TIME.name].append((length_ms / SECOND, {"step": step, "of": of}))
    if report.availability is not None:
        found[AVAILABILITY.name].append((report.availability, {}))
    if report.automatic_share is not None:
        found[AUTOMATIC.name].append((report.automatic_share, {}))


def _add_placeable(found: dict[str, list[Reading]], placeable: Placeable, of: dict[str, str]) -> None:
    found[WHOLE_HOSTS.name].append((placeable.whole_hosts, of))
    for size, replicas in placeable.replicas.items():
        found[REPLICAS.name].append((replicas, {**of, "gpus_per_replica": str(size)}))
