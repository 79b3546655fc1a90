"""I1-I10 checked from recorded facts alone, in order of position. `check_log` raises AssertionError with the story."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from tenure.domain.host import HostState
from tenure.domain.ids import HostId, JobId, RunId
from tenure.domain.job import JobSpec, Placement, gpus_by_host
from tenure.domain.reasons import EndCause, Reason
from tenure.domain.units import GpuMillis, Millis
from tenure.events.budgets import JobAdmitted, JobRejected, RunCharged
from tenure.events.fact import Fact, Recorded
from tenure.events.hosts import HostStateChanged
from tenure.events.intake import JobCancelRequested, JobSubmitted
from tenure.events.placing import (
    JobFinished,
    JobRequeued,
    PlacementDeferred,
    ReservationDropped,
    ReservationMade,
    RunAssigned,
    RunEnded,
    RunPreemptionRequested,
    RunStarted,
    RunStopRequested,
)
from tenure.events.reports import Heartbeat, HostRegistered, ReplicasExited, ReplicasStarted


def check_log(recorded: Sequence[Recorded]) -> None:
    """Assert every invariant that can be seen in a log, which may end at any moment."""
    facts = [entry.fact for entry in recorded]
    assert [entry.position for entry in recorded] == sorted({entry.position for entry in recorded})
    assert len({fact.id for fact in facts}) == len(facts), "an id stands for two facts"
    check_holding(facts)
    check_jobs(facts)
    check_gangs(facts)
    check_ends(facts)
    check_escrows(facts)
    check_occupancy(facts)
    check_segments(facts)


def check_holding(facts: Iterable[Fact]) -> None:
    """I1: a GPU is never held by two runs.

    I7: nothing starts on a host that is not healthy (or opens a window, P9), or is overdue (P7).
    """
    holders: dict[tuple[HostId, int], RunId] = {}
    overdue: dict[RunId, list[HostId]] = defaultdict(list)
    states: dict[HostId, HostState] = {}
    windows: dict[HostId, int] = {}
    placed: dict[RunId, RunAssigned] = {}
    for fact in facts:
        if isinstance(fact, HostStateChanged):
            states[fact.host] = fact.state
            windows[fact.host] = fact.deadline or 0 if fact.accepts and fact.state is HostState.DRAINING else 0
        elif isinstance(fact, RunAssigned):
            placed[fact.run] = fact
            for host, gpus in gpus_by_host(fact.placement).items():
                stuck = sorted(run for run, hosts in overdue.items() if host in hosts)
                assert not stuck, f"I7: {fact.run} on {host}, which does not release {stuck}"
                in_time = fact.at + fact.min_runtime_ms <= windows.get(host, 0)
                healthy = states.get(host) is HostState.HEALTHY
                assert healthy or in_time, f"I7: {fact.run} on {host}, which is {states.get(host)}"
                for gpu in gpus:
                    assert (host, gpu) not in holders, f"I1: {fact.run} and {holders[host, gpu]} hold {host}/{gpu}"
                    holders[host, gpu] = fact.run
        elif isinstance(fact, PlacementDeferred):
            for host, runs in fact.overdue.items():
                for run in runs:
                    overdue[run].append(host)
        elif isinstance(fact, RunEnded):
            overdue.pop(fact.run, None)
            for host, gpus in gpus_by_host(placed[fact.run].placement).items():
                for gpu in gpus:
                    del holders[host, gpu]


def check_jobs(facts: Iterable[Fact]) -> None:
    """I4: an accepted job never disappears, ends once, and nothing happens to it afterwards."""
    submitted: set[JobId] = set()
    admitted: set[JobId] = set()
    ended: dict[JobId, Fact] = {}
    active: dict[JobId, RunId] = {}
    requeued: set[RunId] = set()
    for fact in facts:
        job = getattr(fact, "job", None)
        if job is None:
            continue
        if isinstance(fact, JobSubmitted):
            assert job not in submitted, f"I4: {job} was submitted twice"
            submitted.add(job)
        elif isinstance(fact, JobAdmitted | JobRejected):
            assert job in submitted and job not in admitted and job not in ended, f"I4: {job} was answered twice"
            if isinstance(fact, JobAdmitted):
                admitted.add(job)
            else:
                ended[job] = fact
        elif isinstance(fact, RunAssigned):
            assert job in admitted and job not in ended, f"I4: {fact.run} starts although {job} is over"
            assert job not in active, f"{job} has {active[job]} and gets {fact.run} as well"
            active[job] = fact.run
        elif isinstance(fact, RunEnded):
            assert active.pop(job) == fact.run, f"I4: {fact.run} ended twice"
        elif isinstance(fact, JobFinished):
            assert job not in ended, f"I4: {job} ended twice: {ended[job]}"
            assert job not in active, f"I4: {job} ended while {active.get(job)} was there"
            ended[job] = fact
        elif isinstance(fact, JobRequeued):
            assert job not in ended and job not in active, f"I4: {job} was requeued in the wrong place"
            assert fact.run not in requeued, f"I4: {job} was requeued twice for {fact.run}"
            requeued.add(fact.run)


def check_gangs(facts: Iterable[Fact]) -> None:
    """I2: a gang has all its replicas; it starts when the last one has, and ends when the last one is gone."""
    placed: dict[RunId, RunAssigned] = {}
    specs: dict[JobId, JobSpec] = {}
    started: dict[RunId, dict[int, Millis]] = defaultdict(dict)
    exited: dict[RunId, dict[int, Millis]] = defaultdict(dict)
    lost: dict[HostId, bool] = {}
    for fact in facts:
        if isinstance(fact, JobAdmitted):
            specs[fact.job] = fact.spec
        elif isinstance(fact, RunAssigned):
            placed[fact.run] = fact
            spec = specs[fact.job]
            assert [place.replica for place in fact.placement] == list(range(spec.replicas)), (
                f"I2: {fact.run} is not whole"
            )
            assert all(len(place.gpus) == spec.gpus_per_replica for place in fact.placement)
        elif isinstance(fact, ReplicasStarted):
            for start in fact.replicas:
                started[fact.run].setdefault(start.replica, start.at)
        elif isinstance(fact, ReplicasExited):
            for gone in fact.replicas:
                exited[fact.run].setdefault(gone.replica, gone.at)
                if gone.started_at is not None:
                    started[fact.run].setdefault(gone.replica, gone.started_at)
        elif isinstance(fact, HostStateChanged):
            lost[fact.host] = fact.state is HostState.LOST
        elif isinstance(fact, RunStarted):
            assert len(started[fact.run]) == len(placed[fact.run].placement), f"I2: {fact.run} started in parts"
            assert fact.at == max(started[fact.run].values()), "a run starts with its last replica"
        elif isinstance(fact, RunEnded):
            for place in placed[fact.run].placement:
                gone_or_lost = place.replica in exited[fact.run] or lost.get(place.host)
                assert gone_or_lost, f"I2: {fact.run} ended while replica {place.replica} was there"


def check_ends(facts: Iterable[Fact]) -> None:
    """I3, I8, I9, I10: who ended a run, by which right, with which numbers."""
    placed: dict[RunId, RunAssigned] = {}
    protected: dict[RunId, Millis] = {}
    specs: dict[JobId, JobSpec] = {}
    cancelled: set[JobId] = set()
    told: dict[RunId, Fact] = {}
    promised: dict[str, Placement] = {}
    for fact in facts:
        if isinstance(fact, JobAdmitted):
            specs[fact.job] = fact.spec
        elif isinstance(fact, ReservationMade):
            promised[fact.job] = fact.placement
        elif isinstance(fact, JobCancelRequested):
            cancelled.add(fact.job)
        elif isinstance(fact, RunAssigned):
            placed[fact.run] = fact
        elif isinstance(fact, RunStarted):
            protected[fact.run] = fact.protected_until
            assert fact.protected_until == fact.at + placed[fact.run].min_runtime_ms, f"I3: {fact}"
        elif isinstance(fact, RunPreemptionRequested):
            assert fact.run not in told, f"{fact.run} was told to end twice"
            told[fact.run] = fact
            _check_preemption(fact, placed[fact.run], protected, specs)
            if fact.why.reason is Reason.DISRUPT_PROMISED:
                assert shares_gpus(promised[fact.by], placed[fact.run].placement), f"P8: not promised: {fact}"
        elif isinstance(fact, RunStopRequested):
            assert fact.run not in told, f"{fact.run} was told to end twice"
            told[fact.run] = fact
            allowed = (EndCause.CANCELLED, EndCause.HOST_LOST, EndCause.FAILED)
            assert fact.cause_of_end in allowed, f"I3: {fact}"
            assert fact.cause_of_end is not EndCause.CANCELLED or fact.job in cancelled
        elif isinstance(fact, RunEnded):
            assert fact.why.rule and fact.why.numbers, f"I10: {fact}"
            early = fact.cause_of_end in (EndCause.PREEMPTED, EndCause.DRAINED, EndCause.CANCELLED)
            assert not early or fact.run in told, f"I10: {fact} was never asked for"


def _check_preemption(
    fact: RunPreemptionRequested,
    victim: RunAssigned,
    protected: dict[RunId, Millis],
    specs: dict[JobId, JobSpec],
) -> None:
    if victim.allocated and fact.why.reason is not Reason.DISRUPT_HOST_FATAL:
        assert fact.run in protected, f"I3: {fact.run} never started, so it is protected"
        assert fact.at >= protected[fact.run], f"I3: {fact.run} is protected until {protected[fact.run]}: {fact}"
    if not fact.escrow:
        return
    asker = specs[JobId(fact.by)]
    assert asker.allocated, f"I8: unallocated {fact.by} displaces {fact.run}"
    if fact.why.reason is Reason.DISRUPT_LOWER_RATIO:
        numbers = fact.why.numbers
        assert float(numbers["ratio"] or 0) + float(numbers["margin"] or 0) < float(numbers["victim_ratio"] or 0), "I9"
    elif victim.allocated and fact.why.reason is not Reason.DISRUPT_PROMISED:
        assert fact.why.reason is Reason.DISRUPT_HIGHER_PRIORITY and asker.budget == victim.budget, f"I9: {fact}"
        assert asker.priority > specs[victim.job].priority


def check_escrows(facts: Iterable[Fact]) -> None:
    """P7: GPUs that are freed for a job are given to nobody else until it starts, is over, or they are given up.

    Where they were being freed for two, for a promised gang as well, they go to whom they were kept for first.
    """
    kept: dict[JobId, Placement] = {}
    for fact in facts:
        if isinstance(fact, RunPreemptionRequested) and fact.escrow:
            kept[JobId(fact.by)] = fact.escrow
        elif isinstance(fact, RunAssigned):
            before = list(kept)[: list(kept).index(fact.job)] if fact.job in kept else list(kept)
            kept.pop(fact.job, None)
            for asker in before:
                assert not shares_gpus(kept[asker], fact.placement), f"P7: {fact.run} takes what is kept for {asker}"
        elif isinstance(fact, JobFinished) or (
            isinstance(fact, PlacementDeferred) and fact.why.reason is Reason.DEFER_ESCROW_EXPIRED
        ):
            kept.pop(fact.job, None)


def shares_gpus(one: Placement, other: Placement) -> bool:
    """Whether there is a GPU in both."""
    held = gpus_by_host(other)
    return any(set(gpus) & set(held.get(host, ())) for host, gpus in gpus_by_host(one).items())


def check_reservations(facts: Iterable[Fact]) -> None:
    """P8: a latest start never moves later while a reservation stands, and is kept but for a grace that took longer."""
    standing: dict[JobId, Millis] = {}
    for fact in facts:
        if isinstance(fact, ReservationMade):
            assert fact.latest_start <= standing.get(fact.job, fact.latest_start), f"P8: {fact.job} slips"
            standing[fact.job] = fact.latest_start
        elif isinstance(fact, ReservationDropped | JobFinished):
            standing.pop(fact.job, None)
        elif isinstance(fact, RunAssigned) and fact.job in standing:
            late = fact.at - standing.pop(fact.job)
            assert late <= 0, f"P8: {fact.job} starts {late} ms after its latest start"


def check_occupancy(facts: Sequence[Fact]) -> None:
    """I5: on every GPU the times held do not overlap, and what was charged and refunded is what was occupied."""
    placed = {fact.run: fact for fact in facts if isinstance(fact, RunAssigned)}
    held: dict[tuple[HostId, int], list[tuple[Millis, Millis]]] = defaultdict(list)
    occupied: dict[RunId, GpuMillis] = defaultdict(int)
    spans = replica_spans(facts)
    for (run, replica), (since, until) in spans.items():
        place = next(place for place in placed[run].placement if place.replica == replica)
        occupied[run] += len(place.gpus) * (until - since)
        for gpu in place.gpus:
            held[place.host, gpu].append((since, until))
    for (host, gpu), times in held.items():
        times.sort()
        for (_, until), (since, _) in pairwise(times):
            assert since >= until, f"I5: {host}/{gpu} was held twice at {since}"
    sizes = {spec.host: spec.gpus for fact in facts if isinstance(fact, HostRegistered) for spec in fact.hosts}
    assert all(gpu < sizes[host] for host, gpu in held), "a GPU that no host has was held"
    for fact in facts:
        if isinstance(fact, RunCharged):
            assert fact.charged_gpu_ms >= 0 and fact.refunded_gpu_ms >= 0, f"I5: {fact}"
            assert placed[fact.run].allocated, f"P2: unallocated {fact.run} was charged"
            assert fact.charged_gpu_ms + fact.refunded_gpu_ms == occupied[fact.run], f"I5: {fact}, {occupied[fact.run]}"


def check_segments(facts: Sequence[Fact], *, complete: bool = False) -> None:
    """I5: heartbeats report no more of a run on a host than its replicas held; `complete`: and no less."""
    placed = {fact.run: fact for fact in facts if isinstance(fact, RunAssigned)}
    held: dict[tuple[RunId, HostId], GpuMillis] = defaultdict(int)
    live = {(run, place.host) for run, assigned in placed.items() for place in assigned.placement}
    spans = replica_spans(facts)
    for run, assigned in placed.items():
        gone = [place for place in assigned.placement if (run, place.replica) in spans]
        for place in gone:
            since, until = spans[run, place.replica]
            held[run, place.host] += len(place.gpus) * (until - since)
        if len(gone) == len(assigned.placement):
            live -= {(run, place.host) for place in gone}
    told: dict[tuple[RunId, HostId], GpuMillis] = defaultdict(int)
    for fact in facts:
        for beat in fact.hosts if isinstance(fact, Heartbeat) else ():
            for segment in beat.segments:
                told[segment.run, beat.host] += segment.gpus * (segment.until - segment.since)
    for key in (told.keys() | held.keys()) - live:
        assert told[key] <= held[key], f"I5: {key} was reported to hold {told[key]} GPU-ms, and held {held[key]}"
        assert told[key] == held[key] or not complete, f"I5: {key} held {held[key]} GPU-ms, reported were {told[key]}"


def replica_spans(facts: Iterable[Fact]) -> dict[tuple[RunId, int], tuple[Millis, Millis]]:
    """When each replica that has ended held its GPUs; a lost host's to the last sign of life.

    What was never heard of a replica before its host was lost is nobody's, whatever the host tells when it is back.
    """
    given_up: set[tuple[RunId, int]] = set()
    since: dict[tuple[RunId, int], Millis] = {}
    until: dict[tuple[RunId, int], Millis] = {}
    placed: dict[RunId, RunAssigned] = {}
    for fact in facts:
        if isinstance(fact, RunAssigned):
            placed[fact.run] = fact
        elif isinstance(fact, ReplicasStarted):
            for start in fact.replicas:
                if (fact.run, start.replica) not in given_up:
                    since.setdefault((fact.run, start.replica), start.at)
        elif isinstance(fact, ReplicasExited):
            for gone in fact.replicas:
                until.setdefault((fact.run, gone.replica), gone.at)
        elif isinstance(fact, HostStateChanged) and fact.state is HostState.LOST:
            for run, assigned in placed.items():
                for place in assigned.placement:
                    key = (run, place.replica)
                    if place.host == fact.host and key in since:
                        until.setdefault(key, max(since[key], fact.last_seen))
                    elif place.host == fact.host:
                        given_up.add(key)
    return {key: (since[key], until[key]) for key in since if key in until}
