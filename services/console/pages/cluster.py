"""The cluster: what each host holds and held, how large a gang could be placed, what is kept for gangs, what drains."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.console import questions
from services.console.asked import Asked, Page
from services.console.gateway import NoAnswer
from services.console.history import Rows
from services.console.pages.job import words_of_hosts
from services.console.tables import Column, Kind, Row, Table
from tenure.domain.units import HOUR, Millis
from tenure.v1 import hosts_pb2, jobs_pb2

HOURS = ("1", "6", "24")
WIDE = 1000
"""Units across a timeline."""
COLOURS = 6

HOSTS = (
    Column(key="host", title="Host", kind=Kind.HOST, below="block"),
    Column(key="state", title="State", kind=Kind.STATE),
    Column(key="gpus_held", title="Held", kind=Kind.NUMBER),
    Column(key="gpus", title="GPUs", kind=Kind.NUMBER),
    Column(key="gpu_type", title="Type"),
    Column(key="cluster", title="Cluster"),
)
POOLS = (
    Column(key="cluster", title="Cluster", below="gpu_type"),
    Column(key="hosts", title="Hosts", kind=Kind.NUMBER),
    Column(key="gpus", title="GPUs", kind=Kind.NUMBER),
    Column(key="gpus_free", title="Free", kind=Kind.NUMBER),
    Column(key="hosts_with_gpus_free", title="On hosts", kind=Kind.NUMBER, says="Hosts that have a free GPU"),
    Column(key="largest_hole", title="Largest hole", kind=Kind.NUMBER, says="Most free GPUs on one host"),
    Column(key="hosts_wholly_free", title="Hosts wholly free", kind=Kind.NUMBER),
    Column(key="gpus_giving_way", title="Give way", kind=Kind.NUMBER, says="GPUs of unallocated or stopping runs"),
    Column(key="gpus_in_escrow", title="In escrow", kind=Kind.NUMBER, says="Being freed for a gang (P7)"),
    Column(key="gpus_reserved", title="Reserved", kind=Kind.NUMBER, says="Kept for gangs (P8)"),
    Column(key="gpus_past_protection", title="Past protection", kind=Kind.NUMBER, says="P5 gives them to some budgets"),
)
PROSPECTS = (
    Column(key="at_ms", title="When", kind=Kind.INSTANT),
    Column(key="pool", title="Hosts of"),
    Column(key="gpus", title="GPUs to be had", kind=Kind.NUMBER),
    Column(key="whole_hosts", title="Largest gang of whole hosts", kind=Kind.NUMBER),
    Column(key="gpus_if_p5", title="GPUs if P5 gives", kind=Kind.NUMBER),
    Column(key="whole_hosts_if_p5", title="Whole hosts if P5 gives", kind=Kind.NUMBER),
)
RESERVATIONS = (
    Column(key="job", title="Job", kind=Kind.JOB, below="name"),
    Column(key="budget", title="Budget", kind=Kind.BUDGET, below="user"),
    Column(key="gpus", title="GPUs", kind=Kind.NUMBER),
    Column(key="latest_start_ms", title="Starts within", kind=Kind.UNTIL),
    Column(key="runs_in_the_way", title="Runs in the way", kind=Kind.NUMBER),
    Column(key="hosts", title="Hosts kept", wide=True),
)
DRAINS = (
    Column(key="host", title="Host", kind=Kind.HOST),
    Column(key="state", title="State", kind=Kind.STATE),
    Column(key="gpus_held", title="Held", kind=Kind.NUMBER),
    Column(key="empty_at_ms", title="Empty within", kind=Kind.UNTIL, below="waits_for"),
    Column(key="deadline_ms", title="Deadline", kind=Kind.INSTANT),
    Column(key="comment", title="Why", wide=True),
)
AWAY = ("draining", "drained", "repairing", "probation", "failed", "lost", "suspect")


@dataclass(frozen=True, slots=True)
class Bar:
    """A run on a host: where it is drawn, and what it is. `y` and `height` in GPUs."""

    run: str
    job: str
    x: float
    y: int
    width: float
    height: int
    colour: str
    says: str


async def show(asked: Asked) -> Page:
    """The page."""
    hours = int(asked.choice("hours", "6", HOURS))
    step = hours * HOUR // WIDE
    until = -(-time.time_ns() // 1_000_000 // step) * step  # the picture moves on by whole units
    since = until - hours * HOUR
    answer = await asked.hosts()
    hosts = sorted(answer.hosts, key=lambda host: (host.cluster, host.block, host.host))
    fragments = await asked.share(
        "fragments", asked.console.gateway.hosts.Fragmentation, hosts_pb2.FragmentationRequest(), keep_s=1.0
    )
    queued = await asked.jobs(jobs_pb2.ListJobsRequest(states=["queued"], limit=2_000))
    rows, trouble = await _held(asked, since, until)
    tree = await asked.tree()
    colours = colours_of([budget.path for budget in tree.budgets if budget.leaf])
    bars = bars_by_host(rows, {host.host: host.gpus for host in hosts}, since, until, colours)
    tables = [
        Table(name="hosts", caption="Hosts", columns=HOSTS, rows=[_host(each) for each in hosts], key="host"),
        _pools(fragments),
        _prospects(fragments),
        _reservations(queued),
        _drains(hosts),
    ]
    held = sum(host.gpus_held for host in hosts)
    total = sum(host.gpus for host in hosts)
    return Page(
        section="cluster",
        title="Cluster",
        template="cluster.html",
        tables=tables,
        seen=[trouble, since, {host: [[bar.run, bar.y, bar.height] for bar in each] for host, each in bars.items()}],
        context={
            "live": True,
            "hours": str(hours),
            "all_hours": HOURS,
            "hosts": hosts,
            "bars": bars,
            "trouble": trouble,
            "since": since,
            "until": until,
            "held": held,
            "total": total,
            "out": sum(1 for host in hosts if host.state in AWAY),
            "legend": list(colours.items())[:24],
            "more_budgets": max(0, len(colours) - 24),
            "lowest": max([host.gpus for host in hosts], default=1),
        },
    )


async def _held(asked: Asked, since: Millis, until: Millis) -> tuple[Rows, str]:
    try:
        rows = await asked.rows(questions.TIMELINE, about=f"{until - since} ms", since=since, until=until)
    except NoAnswer as away:
        return [], f"What hosts held cannot be read now: {away.said}"
    return ([], "What hosts held is being read.") if rows is None else drawn_of(rows)


def drawn_of(rows: Rows) -> tuple[Rows, str]:
    """The rows that are drawn, and what is said where those are not all."""
    most = questions.TIMELINE_ROWS_MAX
    if len(rows) <= most:
        return rows, ""
    said = f"More than {most:,} runs: bars from {rows[most][0]} on, by the names of hosts, are left out."
    return rows[:most], f"{said} Choose fewer hours."


def colours_of(budgets: Sequence[str]) -> Mapping[str, str]:
    """The class of each budget's colour. There are six, so that people tell them apart; more budgets share them."""
    return {path: f"c{number % COLOURS + 1}" for number, path in enumerate(sorted(budgets))}


def bars_by_host(
    rows: Rows, gpus: Mapping[str, int], since: Millis, until: Millis, colours: Mapping[str, str]
) -> dict[str, list[Bar]]:
    """Each run as a bar that is as high as the GPUs it held, and lies where nobody else was then."""
    bars: dict[str, list[Bar]] = {}
    lanes: dict[str, list[Millis]] = {host: [0] * count for host, count in gpus.items()}
    scale = WIDE / max(1, until - since)
    for host, run, budget, charged, held, from_ms, to_ms in rows:
        free = lanes.get(host)
        if not free:
            continue
        begin, end = max(from_ms, since), min(to_ms, until)
        says = f"{run}, {budget}, {held} GPUs{'' if charged else ', unallocated'}"
        for lane, height in _pieces(_lanes_for(free, held, from_ms)):
            free[lane : lane + height] = [to_ms] * height
            bars.setdefault(host, []).append(
                Bar(
                    run=run,
                    job=run.rpartition(".")[0],
                    x=round((begin - since) * scale, 1),
                    y=lane,
                    width=round(max(1.0, (end - begin) * scale), 1),
                    height=height,
                    colour=colours.get(budget, "c5") if charged else "f-unallocated",
                    says=says,
                )
            )
    return bars


def _lanes_for(lanes: Sequence[Millis], width: int, when: Millis) -> list[int]:
    """So many of a host's GPUs that were free by then, side by side if there are such; which ones is not told.

    Where too few were, as hosts' reports overlap a little, those that were free first.
    """
    free = [lane for lane, end in enumerate(lanes) if end <= when]
    together = (free[at : at + width] for at in range(len(free) - width + 1))
    beside = next((place for place in together if place[-1] - place[0] == width - 1), None)
    if beside is not None:
        return beside
    first = sorted(range(len(lanes)), key=lambda lane: (max(when, lanes[lane]), lane))
    return sorted(first[:width])


def _pieces(lanes: Sequence[int]) -> list[tuple[int, int]]:
    """Where lanes lie side by side: the first of them, and how many."""
    pieces: list[tuple[int, int]] = []
    for lane in lanes:
        if pieces and lane == sum(pieces[-1]):
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + 1)
        else:
            pieces.append((lane, 1))
    return pieces


def _host(host: hosts_pb2.Host) -> Row:
    return {
        "host": host.host,
        "block": host.block,
        "state": host.state,
        "gpus_held": host.gpus_held,
        "gpus": host.gpus,
        "gpu_type": host.gpu_type,
        "cluster": host.cluster,
    }


def _pools(answer: hosts_pb2.FragmentationResponse) -> Table:
    keys = [key for column in POOLS for key in (column.key, column.below) if key]
    rows: list[Row] = [
        {**{key: getattr(pool, key) for key in keys}, "pool": f"{pool.cluster}/{pool.gpu_type}"}
        for pool in answer.pools
    ]
    return Table(
        name="fragmentation", caption="In how many pieces the free GPUs are", columns=POOLS, rows=rows, key="pool"
    )


def _prospects(answer: hosts_pb2.FragmentationResponse) -> Table:
    rows: list[Row] = [
        {
            "at_ms": prospect.at_ms,
            "pool": f"{pool.cluster} {pool.gpu_type}",
            "gpus": prospect.placeable.gpus,
            "whole_hosts": prospect.placeable.whole_hosts,
            "gpus_if_p5": prospect.if_p5_gives.gpus,
            "whole_hosts_if_p5": prospect.if_p5_gives.whole_hosts,
        }
        for pool in answer.pools
        for prospect in pool.prospects
    ]
    caption = "How large a gang could be placed, now and when protections end"
    return Table(name="prospects", caption=caption, columns=PROSPECTS, rows=rows, key="")


def _reservations(answer: jobs_pb2.ListJobsResponse) -> Table:
    rows: list[Row] = [
        {
            "job": job.job_id,
            "name": job.spec.name,
            "budget": job.spec.budget,
            "user": job.spec.user,
            "gpus": job.spec.replicas * job.spec.gpus_per_replica,
            "latest_start_ms": job.latest_start_ms,
            "runs_in_the_way": len(job.reservation.waits_for),
            "hosts": words_of_hosts(job.reservation.hosts),
        }
        for job in answer.jobs
        if job.HasField("reservation")
    ]
    empty = "Nothing is kept for any gang."
    return Table(name="reservations", caption="Reservations", columns=RESERVATIONS, rows=rows, key="job", empty=empty)


def _drains(hosts: Sequence[hosts_pb2.Host]) -> Table:
    rows: list[Row] = [
        {
            "host": host.host,
            "state": host.state,
            "gpus_held": host.gpus_held,
            "empty_at_ms": host.empty_at_ms or None,
            "waits_for": f"waits for {host.waits_for}" if host.waits_for else "",
            "deadline_ms": host.deadline_ms or None,
            "comment": host.comment,
        }
        for host in hosts
        if host.state in AWAY
    ]
    empty = "Every host takes runs."
    return Table(
        name="drains", caption="Out of service, or on the way", columns=DRAINS, rows=rows, key="host", empty=empty
    )
