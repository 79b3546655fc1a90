"""A constructed month: teams that keep submitting, so that what is outstanding stays near a level.

    cluster.yaml, budgets.yaml, seed -> teams, kinds -> closed loop with a fluid service -> TraceRows -> trace.csv

People start debug jobs and interactive sessions in their office hours. The rest is a closed loop: whenever less is
outstanding than wanted (after a job ended, or as the hour of the week changes), the team that lacks most for its
appetite submits the next sweep, small job or gang. The same month, cluster, tree and seed give the same rows.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from simulator.traces.fluid import UNALLOCATED, Fluid, Served
from simulator.traces.kinds import DAY_S, HOUR_S, Kind, kinds
from simulator.traces.teams import AT_WORK_ON_AVERAGE, make_teams
from simulator.traces.write import TraceRow, in_order
from tenure.domain.host import HostSpec
from tenure.domain.refusal import Refusal
from tenure.domain.shape import shape_of
from tenure.domain.tree import BudgetTree

TICK_S = 300
RAMP_S = 12 * HOUR_S
BAND = 0.5
"""Outstanding demand stays within this of the level asked for, in GPUs over capacity."""
BELOW, SWING = 0.1, 0.1
"""The loop aims so much below that level, as a gang goes above what it aims at; and it swings so far with the week."""
SWEEPS_OUTSTANDING = 0.25
"""The part of what is outstanding that is unallocated; served last, it waits longer than its part of the GPU-time."""
BURST_ROOM = 0.05
"""How far a sweep may go above what is wanted, as a part of it."""
DAYS_MAX = 1_000
BY_HAND_PER_GPU_DAY = {"debug": 0.19, "interactive": 0.023}
GANG_OF_APPETITE = 3
"""A team asks for no gang larger than this many times what it would have outstanding."""


class Month(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be constructed. `demand` is the level of outstanding demand, GPUs asked for over GPUs there."""

    hosts: tuple[HostSpec, ...]
    tree: BudgetTree
    days: int
    seed: int
    demand: float = 2.5
    users: int = 150
    largest: float = 0.5
    unallocated: float = UNALLOCATED

    @property
    def gpus(self) -> int:
        """GPUs of the whole cluster."""
        return sum(host.gpus for host in self.hosts)


def generate(month: Month, *, passed: Callable[[int], None] = lambda _: None) -> list[TraceRow]:
    """The rows of a constructed month; `passed` is told the days that are behind. Raises `Refusal`."""
    _check(month)
    loop = _Loop(month)
    at_s, end_s = 0, month.days * DAY_S
    while at_s < end_s:
        if at_s % DAY_S == 0:
            passed(at_s // DAY_S)
        loop.step(at_s)
        at_s = loop.next_s(at_s)
    return in_order(loop.rows)


class _Loop:
    """The closed loop: who has how much outstanding, and what is submitted next."""

    def __init__(self, month: Month) -> None:
        self.rows: list[TraceRow] = []
        self._random = Random(month.seed)
        self._month = month
        self._service = Fluid(gpus=month.gpus, unallocated=month.unallocated)
        self._teams = make_teams(month.tree, users=month.users, days=month.days, random=self._random)
        hosts, gpus_per_host = _most_alike(month.hosts)
        every = kinds(hosts=hosts, gpus_per_host=gpus_per_host, largest=month.largest)
        self._by_hand = [kind for kind in every if kind.name in BY_HAND_PER_GPU_DAY]
        self._bulk = {
            allocated: [kind for kind in every if kind.gpu_time > 0 and kind.allocated is allocated]
            for allocated in (True, False)
        }
        sweeps = SWEEPS_OUTSTANDING if month.unallocated else 0.0
        self._part = {True: 1.0 - sweeps, False: sweeps}
        self._one_host = gpus_per_host
        self._coming: deque[tuple[int, int, Kind]] = deque()
        """What people will start by hand until the next tick: second, team, kind."""
        self._appetites: list[float] = []
        """What each team wants outstanding, in proportion; looked at every tick."""
        self._asked = {allocated: [0] * len(self._teams) for allocated in (True, False)}
        """GPUs that each team has outstanding, allocated and unallocated."""
        self._submitted_gpu_s = {kind.name: 0.0 for kind in every}

    def step(self, at_s: int) -> None:
        """Come to `at_s`: some jobs have ended, others are submitted."""
        for job in self._service.advance(at_s):
            self._asked[job.allocated][job.owner] -= job.gpus
        if at_s % TICK_S == 0:
            self._coming.extend(self._started_by_hand(at_s))
            self._appetites = [team.fraction * team.appetite(at_s) for team in self._teams]
        while self._coming and self._coming[0][0] <= at_s:
            _, owner, kind = self._coming.popleft()
            if kind.smallest <= self._room(allocated=True):
                self._submit(kind, owner=owner, at_s=at_s, most=self._room(allocated=True))
        for allocated in (True, False):
            self._fill(self._wanted_gpus(at_s) * self._part[allocated], allocated=allocated, at_s=at_s)

    def _fill(self, wanted: float, *, allocated: bool, at_s: int) -> None:
        """Let those who lack most submit until `wanted` GPUs are asked for."""
        appetites, asked = self._appetites, self._asked[allocated]
        scale = wanted / sum(appetites)
        while self._service.asked_by(allocated=allocated) < wanted:
            owner = min(range(len(appetites)), key=lambda team: (asked[team] / appetites[team], team))
            gang = max(GANG_OF_APPETITE * scale * appetites[owner], self._one_host)
            most = min(self._room(allocated=allocated), gang)
            kind = self._next_kind(most, allocated=allocated)
            self._submit(kind, owner=owner, at_s=at_s, most=most, until=wanted * (1 + BURST_ROOM))

    def next_s(self, at_s: int) -> int:
        """The next second in which anything happens."""
        tick_s = (at_s // TICK_S + 1) * TICK_S
        end_s = self._service.next_end_s()
        ends_s = tick_s if end_s is None else max(math.ceil(end_s), at_s + 1)
        return min(tick_s, ends_s, self._coming[0][0] if self._coming else tick_s)

    def _wanted_gpus(self, at_s: int) -> float:
        """What is to be outstanding: the level, a little more in the middle of the week, and a ramp at the start."""
        level = self._month.demand - BELOW + SWING * math.sin(2 * math.pi * at_s / (7 * DAY_S))
        return self._month.gpus * level * min(1.0, (at_s + TICK_S) / RAMP_S)

    def _room(self, *, allocated: bool) -> float:
        """GPUs that may still be asked for, whatever the other ones will be, before too much would be outstanding."""
        other = (self._month.demand - BELOW + SWING) * self._part[not allocated] * (1 + BURST_ROOM) * self._month.gpus
        other = max(other, self._service.asked_by(allocated=not allocated))
        return (self._month.demand + BAND) * self._month.gpus - other - self._service.asked_by(allocated=allocated)

    def _started_by_hand(self, at_s: int) -> list[tuple[int, int, Kind]]:
        """Debug jobs and interactive sessions from `at_s` to the next tick: chance, by how many are at their desks."""
        coming = []
        for kind in self._by_hand:
            per_tick = BY_HAND_PER_GPU_DAY[kind.name] * self._month.gpus * TICK_S / DAY_S
            for owner, team in enumerate(self._teams):
                expected = per_tick * team.fraction * team.at_work(at_s) / AT_WORK_ON_AVERAGE
                for _ in range(_poisson(expected, self._random)):
                    coming.append((at_s + self._random.randrange(1, TICK_S), owner, kind))
        return sorted(coming, key=lambda one: (one[0], one[1], one[2].name))

    def _next_kind(self, most: float, *, allocated: bool) -> Kind:
        """The next kind of the closed loop: by its part of the GPU-time, sooner while it is behind that."""
        possible = [kind for kind in self._bulk[allocated] if kind.smallest <= max(most, 1)]
        total = sum(self._submitted_gpu_s[kind.name] for kind in self._bulk[allocated])
        weights = []
        for kind in possible:
            mean = kind.mean_gpu_s
            behind = (kind.gpu_time * total + mean) / (self._submitted_gpu_s[kind.name] + mean)
            weights.append(kind.gpu_time / mean * behind**2)
        return self._random.choices(possible, weights=weights)[0]

    def _submit(self, kind: Kind, *, owner: int, at_s: int, most: float, until: float = 0.0) -> None:
        """Submit a job of at most `most` GPUs (but at least one), or a burst while less than `until` is asked for."""
        random, team = self._random, self._teams[owner]
        replicas, each = random.choice([shape for shape in kind.shapes if shape[0] * shape[1] <= most] or [(1, 1)])
        user = min(int(random.expovariate(3.0) * len(team.users)), len(team.users) - 1)  # a few submit most of it
        min_runtime_s = random.choice(kind.min_runtimes_s)
        resumable = random.random() < kind.resumable
        for count in range(random.randint(1, kind.burst)):
            if count and self._service.asked_by(allocated=kind.allocated) + replicas * each > until:
                break
            row = TraceRow(
                job_id=f"j{len(self.rows):06d}",
                submit_s=at_s,
                budget=team.budget,
                user=team.users[user],
                replicas=replicas,
                gpus_per_replica=each,
                min_runtime_s=min_runtime_s,
                runtime_s=kind.runtime_s(random),
                resumable=resumable,
                priority=team.priorities[user],
                kind=kind.name,
            )
            self.rows.append(row)
            job = Served(gpus=row.gpus, owner=owner, allocated=kind.allocated)
            self._service.submit(job, runtime_s=row.runtime_s)
            self._asked[kind.allocated][owner] += row.gpus
            self._submitted_gpu_s[kind.name] += row.gpu_s


def _check(month: Month) -> None:
    """Raise `Refusal` unless a month can be made of it."""
    for field, value, least, most in (
        ("--days", month.days, 1, DAYS_MAX),
        ("--demand", month.demand, 0.5, 20.0),
        ("--users", month.users, 1, 100_000),
        ("--largest", month.largest, 0.0, 1.0),
        ("--unallocated", month.unallocated, 0.0, 0.9),
    ):
        if not least <= value <= most:
            raise Refusal(field=field, problem=f"{value:g} is out of range", fix=f"use {least:g} to {most:g}")


def _most_alike(hosts: Sequence[HostSpec]) -> tuple[int, int]:
    """How many hosts of the kind that has most GPUs, and the GPUs of each: gangs are cut for these."""
    sizes = [(count, gpus, pool) for pool in shape_of(hosts).pools for gpus, count in pool.hosts_by_size.items()]
    count, gpus, _ = max(sizes, key=lambda size: (size[0] * size[1], size[2].cluster, size[2].gpu_type, size[1]))
    return count, gpus


def _poisson(expected: float, random: Random) -> int:
    """A count with that mean (Knuth's way: multiply chances until they fall below e to the minus mean)."""
    floor, product, count = math.exp(-expected), random.random(), 0
    while product > floor:
        product *= random.random()
        count += 1
    return count
