"""A month of a lab as its log would have it, for the dashboards: hundreds of GPUs, thousands of jobs.

    constructed trace + outages -> the simulator (the services' own deciders) -> facts
    + what real agents and several processes of a role would have said meanwhile -> positions -> the journal's batches

The simulated agents report no occupancy and nobody competes for a lease, so `_reports` and `_leads` say that: segments
cut at full hours, as an agent cuts them, from the same starts and exits that the deciders saw.
"""

import random
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from clickhouse_connect.driver import Client

from services.journal.batch import Batch, begin
from services.journal.writer import Writer
from simulator.agents import Work
from simulator.faults import Fault
from simulator.simulation import Simulation
from simulator.traces.generate import Month, generate
from simulator.traces.write import TraceRow
from simulator.workload import TraceJob
from tenure.domain.host import HostSpec
from tenure.domain.ids import BudgetPath, FactId, HostId, JobId, Position, RunId, UserName
from tenure.domain.job import JobSpec, Launch, Topology
from tenure.domain.policy import Policy
from tenure.domain.tree import PPM, BudgetNode, BudgetTree
from tenure.domain.units import DAY, HOUR, MINUTE, SECOND, Millis
from tenure.events.fact import Fact, Recorded
from tenure.events.leading import BudgetLeadTaken, HealthLeadTaken, LeadTaken, PlacerLeadTaken, RankerLeadTaken
from tenure.events.placing import RunAssigned
from tenure.events.reports import Heartbeat, HostBeat, ReplicasExited, ReplicasStarted, Segment

T0: Millis = 495_240 * HOUR
"""The month begins here: 2026-07-01 00:00 UTC."""
DAYS = 30
HOSTS, GPUS_PER_HOST, HOSTS_PER_BLOCK = 32, 8, 16
SEED = 7
CLUSTER = "sim"
WORK = Work()
INSTANTS = frozenset(
    {
        *("at", "deadline", "first_at", "held_until", "last_at", "last_seen", "latest_start", "protected_until"),
        *("refund_since", "refund_until", "since", "started_at", "submitted_at", "until"),
    }
)
"""Fields of facts that are instants. The simulator's clock begins at 0, so these move to `T0`."""


TAKES = {
    "JobSubmitted": -8,
    "RankingPublished": 25,
    "RunAssigned": -600,
    "RunPreemptionRequested": -6_000,
    "RunStopRequested": -2_000,
    "RunCharged": 12,
}
"""How much later (or earlier) than in the simulator such facts are said, about, in milliseconds."""


@dataclass(frozen=True, kw_only=True)
class Lab:
    """What happened: `simulated` as the simulator counts time, `recorded` as the log has it."""

    simulated: list[Recorded]
    recorded: list[Recorded]
    end: Millis
    """Of the month, on the simulator's clock."""


@cache
def month(days: int = DAYS) -> Lab:
    """The month, or its first days; the same every time."""
    tree, hosts = budgets(), tuple(_hosts())
    rows = generate(
        Month(hosts=hosts, tree=tree, days=days, seed=SEED, demand=2.6, users=60, largest=0.5, unallocated=0.02)
    )
    simulation = Simulation(
        hosts=hosts,
        tree=tree,
        policy=Policy(),
        jobs=[_job(row) for row in rows],
        work=WORK,
        faults=_faults(hosts, days=days),
        edits=[(days * DAY * 2 // 3, budgets(chem=30, bio=35))],
    )
    simulated = simulation.run(days * DAY)
    told = [entry.fact for entry in simulated]
    said = sorted([*told, *reports(told, until=days * DAY), *_leads(days)], key=lambda fact: fact.at)
    recorded = [
        Recorded(Position(at), msgspec.structs.replace(moved(taking_time(fact)), id=FactId(f"f{at}"), cluster=CLUSTER))
        for at, fact in enumerate(said, start=1)
    ]
    return Lab(simulated=simulated, recorded=recorded, end=days * DAY)


def batches(facts: Iterable[Recorded]) -> Iterator[Batch]:
    """As the journal makes them."""
    batch = None
    for recorded in facts:
        if batch is not None and batch.takes(recorded):
            batch.add(recorded)
            continue
        if batch is not None:
            yield batch
        batch = begin(recorded)
    if batch is not None:
        yield batch


def load(client: Client, facts: Iterable[Recorded]) -> None:
    """Write facts as the journal does, to an empty database."""
    writer = Writer(client)
    writer.resume("log")
    for batch in batches(facts):
        writer.write(batch)


def budgets(*, chem: int = 45, bio: int = 20) -> BudgetTree:
    """A tree of eleven leaves; two of its shares are edited in the month."""
    shares = {
        "language": 40,
        "language/pretraining": 60,
        "language/posttraining": 25,
        "language/evaluation": 15,
        "science": 30,
        "science/bio": bio,
        "science/chem": chem,
        "science/climate": 35,
        "robotics": 15,
        "robotics/manipulation": 55,
        "robotics/navigation": 45,
        "systems": 10,
        "vision": 5,
        "vision/medical": 50,
        "vision/video": 50,
    }
    return BudgetTree(
        nodes=tuple(
            BudgetNode(path=BudgetPath(path), share_ppm=share * PPM // 100) for path, share in sorted(shares.items())
        )
    )


def _hosts() -> Iterator[HostSpec]:
    for number in range(HOSTS):
        block = f"rack{number // HOSTS_PER_BLOCK}"
        yield HostSpec(host=HostId(f"h{number:03}"), gpus=GPUS_PER_HOST, gpu_type="H100", block=block, cluster=CLUSTER)


def _job(row: TraceRow) -> TraceJob:
    spec = JobSpec(
        budget=BudgetPath(row.budget),
        user=UserName(row.user),
        gpus_per_replica=row.gpus_per_replica,
        replicas=row.replicas,
        min_runtime_ms=row.min_runtime_s * SECOND,
        resumable=row.resumable,
        priority=row.priority,
        topology=Topology.ANY,
        launch=Launch(command=("simulated",)),
    )
    return TraceJob(
        job=JobId(row.job_id),
        submitted_at=row.submit_s * SECOND,
        spec=spec,
        runs_for_ms=row.runtime_s * SECOND,
        kind=row.kind,
    )


def _faults(hosts: Sequence[HostSpec], *, days: int) -> list[Fault]:
    """An outage every sixteen hours or so; some only warn. Outages of a rack lie apart, so that automation may act."""
    chance = random.Random(SEED)
    kinds = ("xid_79", "ecc_dbe", "nvlink", "drain-fan", "psu", "ib-link")
    racks = HOSTS // HOSTS_PER_BLOCK
    faults = []
    for number in range(days * 3 // 2):
        down = (number * 16 + 1) * HOUR + chance.randrange(8 * HOUR)
        host = hosts[number % racks * HOSTS_PER_BLOCK + chance.randrange(HOSTS_PER_BLOCK)].host
        up = down + HOUR + chance.randrange(18 * HOUR)
        faults.append(Fault(host=host, down_at=down, up_at=up, kind=chance.choice(kinds)))
    return faults


def reports(told: Iterable[Fact], *, until: Millis) -> Iterator[Heartbeat]:
    """One heartbeat an hour with what each replica held in it, and how busy that was."""
    assigned: dict[RunId, RunAssigned] = {}
    since: dict[tuple[RunId, int], Millis] = {}
    by_hour: dict[Millis, dict[HostId, list[Segment]]] = {}

    def hold(run: RunId, replica: int, end: Millis) -> None:
        fact = assigned[run]
        place = next(place for place in fact.placement if place.replica == replica)
        begun = since.pop((run, replica))
        while begun < end:
            cut = min(end, (begun // HOUR + 1) * HOUR)
            segment = Segment(
                run=run,
                job=fact.job,
                budget=fact.budget,
                user=fact.user,
                charged=fact.allocated,
                gpus=len(place.gpus),
                since=begun,
                until=cut,
                busy_milli=busy_milli(run, begun),
                replica=replica,
            )
            by_hour.setdefault(-(-cut // HOUR) * HOUR, {}).setdefault(place.host, []).append(segment)
            begun = cut

    for fact in told:
        match fact:
            case RunAssigned():
                assigned[fact.run] = fact
            case ReplicasStarted():
                since.update({(fact.run, start.replica): start.at for start in fact.replicas})
            case ReplicasExited():
                for gone in fact.replicas:
                    if (fact.run, gone.replica) in since:
                        hold(fact.run, gone.replica, gone.at)
    for run, replica in list(since):
        hold(run, replica, until)
    for at, held in sorted(by_hour.items()):
        beats = tuple(
            HostBeat(host=host, gpus=GPUS_PER_HOST, segments=tuple(segments)) for host, segments in sorted(held.items())
        )
        yield Heartbeat(at=min(at, until), agent="virtual", hosts=beats)


def busy_milli(run: RunId, at: Millis) -> int | None:
    """How busy the GPUs of a run are: each run has its level, a tenth of them cannot be measured."""
    drawn = zlib.crc32(run.encode())
    if drawn % 10 == 0:
        return None
    return min(1000, 350 + drawn % 550 + (at // HOUR * 37 + drawn) % 100)


def _leads(days: int) -> Iterator[LeadTaken]:
    """Every role is led from the beginning; the placer and the ranker change hands, one of them after an upgrade."""
    for number, kind in enumerate((HealthLeadTaken, BudgetLeadTaken, RankerLeadTaken, PlacerLeadTaken)):
        yield kind(at=number, holder="m1:4711")
    yield PlacerLeadTaken(at=days * DAY // 3 + 17 * MINUTE, holder="m2:812")
    for number, kind in enumerate((RankerLeadTaken, PlacerLeadTaken, BudgetLeadTaken)):
        yield kind(at=days * DAY // 2 + number * MINUTE, holder="m3:97")


def taking_time(fact: Fact) -> Fact:
    """The simulated services answer at once; real ones take milliseconds, and processes seconds to start and stop.

    Only instants move that no account is kept by: what leads to a start or an end is said so much earlier.
    """
    drawn = zlib.crc32(fact.id.encode()) % 1000 / 1000
    took = TAKES.get(type(fact).__name__)
    return fact if took is None else msgspec.structs.replace(fact, at=fact.at + int(took * (0.3 + drawn**6 * 4)))


def moved(fact: Fact) -> Fact:
    """The fact at its place in the month."""
    return _moved(fact)


def _moved(value: Any) -> Any:
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_moved(each) for each in value)
    if not isinstance(value, msgspec.Struct):
        return value
    changes = {}
    for name in value.__struct_fields__:
        old = getattr(value, name)
        if name in INSTANTS and isinstance(old, int) and not isinstance(old, bool):
            changes[name] = old + T0
        elif isinstance(old, tuple | msgspec.Struct):
            changes[name] = _moved(old)
    return msgspec.structs.replace(value, **changes) if changes else value
