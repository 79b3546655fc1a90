"""Messages to values and back. Only shape is looked at here; whether a value is acceptable is for the rules to say."""

from collections.abc import Iterable, Mapping

from services.gateway.entries import BudgetChange, HostEntry, JobEntry, ReservedEntry, RunEntry
from services.gateway.identity.asking import acting_as
from services.gateway.policy.charge_so_far import charged_so_far
from services.gateway.policy.emptying import emptied_at
from services.gateway.policy.fragmentation import Fragmentation, Placeable, Prospect
from services.gateway.policy.in_the_way import still_in_the_way
from services.gateway.policy.sides import reason_of
from services.gateway.policy.totals import BudgetTotal, ClusterTotal
from services.gateway.state import State
from tenure.domain.host import HostState
from tenure.domain.ids import BudgetPath, HostId
from tenure.domain.job import ANY, DEFAULT_GRACE, JobSpec, Launch, Placement, Topology, gpus_by_host
from tenure.domain.nearest import did_you_mean, listed, shown
from tenure.domain.reasons import JobState, Number, Why
from tenure.domain.refusal import Refusal
from tenure.domain.tree import PPM, BudgetNode
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal
from tenure.v1 import budgets_pb2, hosts_pb2, jobs_pb2

_NO_TOTAL = BudgetTotal()


def to_spec(job: jobs_pb2.JobSpec, *, field: str = "") -> JobSpec:
    """What the user asks for; `field` stands before the names of its fields.

    Raises `Refusal` for a topology that there is not, `Denied` for a user that the caller may not act for.
    """
    launch = Launch(
        command=tuple(job.command),
        working_directory=job.working_directory or None,
        environment=dict(job.environment),
    )
    return JobSpec(
        budget=BudgetPath(job.budget),
        user=acting_as(job.user, field=f"{field}user"),
        replicas=job.replicas,
        gpus_per_replica=job.gpus_per_replica,
        launch=launch,
        min_runtime_ms=job.min_runtime_ms,
        resumable=job.resumable,
        priority=job.priority,
        name=job.name,
        gpu_type=_unless_any(job.gpu_type),
        cluster=_unless_any(job.cluster),
        topology=_to_topology(job.topology, field=f"{field}topology"),
        grace_ms=job.grace_ms or DEFAULT_GRACE,
        hosts=_to_hosts(job.hosts),
        hosts_excluded=_to_hosts(job.hosts_excluded),
    )


def _unless_any(name: str) -> str | None:
    """A cluster or a type; None for any."""
    return None if name in ("", ANY) else name


def from_spec(spec: JobSpec) -> jobs_pb2.JobSpec:
    """The inverse of `to_spec`."""
    return jobs_pb2.JobSpec(
        budget=spec.budget,
        user=spec.user,
        replicas=spec.replicas,
        gpus_per_replica=spec.gpus_per_replica,
        min_runtime_ms=spec.min_runtime_ms,
        resumable=spec.resumable,
        priority=spec.priority,
        name=spec.name,
        gpu_type=spec.gpu_type or "",
        cluster=spec.cluster or "",
        command=spec.launch.command,
        working_directory=spec.launch.working_directory or "",
        environment=spec.launch.environment,
        grace_ms=spec.grace_ms,
        topology=spec.topology,
        hosts=spec.hosts,
        hosts_excluded=spec.hosts_excluded,
    )


def _to_hosts(names: Iterable[str]) -> tuple[HostId, ...]:
    """Each once, in order: jobs that name the same hosts are alike."""
    return tuple(HostId(name) for name in sorted(dict.fromkeys(names)))


def _to_topology(text: str, *, field: str) -> Topology:
    known = [topology.value for topology in Topology]
    if text and text not in known:
        near = did_you_mean(text, known)
        raise Refusal(field=field, problem=f"{shown(text)} is no topology", fix=f"{near}use one of {listed(known)}")
    return Topology(text) if text else Topology.ANY


def from_job(entry: JobEntry, state: State, *, now: Millis) -> jobs_pb2.Job:
    """The job as it is now."""
    return jobs_pb2.Job(
        job_id=entry.job,
        spec=from_spec(entry.spec),
        state=entry.state,
        submitted_at_ms=entry.submitted_at,
        first_started_at_ms=entry.first_started_at or 0,
        finished_at_ms=entry.finished_at or 0,
        resume_count=entry.resume_count,
        runs=[from_run(run) for run in entry.runs],
        why=None if (why := reason_of(entry)) is None else from_why(why),
        rank=state.rank(entry.job) if entry.state is JobState.QUEUED else 0,
        latest_start_ms=0 if entry.reservation is None else entry.reservation.latest_start,
        charged_gpu_ms=charged_so_far(entry, state, now=now),
        refunded_gpu_ms=entry.refunded_gpu_ms,
        reservation=None if entry.reservation is None else from_reservation(entry.reservation, state),
    )


def from_reservation(reservation: ReservedEntry, state: State) -> jobs_pb2.Reservation:
    """What is kept for a job, and the runs that are still there."""
    return jobs_pb2.Reservation(
        hosts=_from_placement(reservation.placement),
        waits_for=[
            jobs_pb2.RunInTheWay(
                run_id=run.run,
                job_id=entry.job,
                budget=entry.spec.budget,
                gpus=run.gpus,
                protected_until_ms=run.protected_until or 0,
                state=run.state,
            )
            for entry, run in still_in_the_way(reservation, state)
        ],
    )


def from_run(run: RunEntry) -> jobs_pb2.Run:
    """One attempt."""
    return jobs_pb2.Run(
        run_id=run.run,
        number=run.number,
        state=run.state,
        assigned_at_ms=run.assigned_at,
        started_at_ms=run.started_at or 0,
        protected_until_ms=run.protected_until or 0,
        ended_at_ms=run.ended_at or 0,
        hosts=_from_placement(run.placement),
        exit_code=run.exit_code,
        ended_by=run.ended_by or "",
    )


def _from_placement(placement: Placement) -> list[jobs_pb2.HostGpus]:
    return [jobs_pb2.HostGpus(host=host, gpus=gpus) for host, gpus in gpus_by_host(placement).items()]


def from_why(why: Why) -> jobs_pb2.Why:
    """Rule, reason and numbers; numbers as text, an absent one left out."""
    numbers = {name: number_text(value) for name, value in why.numbers.items() if value is not None}
    return jobs_pb2.Why(rule=why.rule, reason=why.reason, numbers=numbers)


def number_text(value: Number) -> str:
    """A number of a reason as text: floats to six digits, yes and no as true and false."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def from_host(entry: HostEntry, state: State, *, now: Millis, seen: Mapping[HostId, Millis]) -> hosts_pb2.Host:
    """The host as it is now. `seen`: when hosts were heard last, as far as is known beside their states."""
    empty_at, waits_for = emptied_at(state, entry, now=now) or (0, "")
    spec = entry.spec
    return hosts_pb2.Host(
        host=spec.host,
        cluster=spec.cluster,
        block=spec.block,
        gpu_type=spec.gpu_type,
        gpus=spec.gpus,
        gpus_held=entry.held,
        state=entry.state,
        last_seen_ms=max(entry.last_seen, seen.get(spec.host, 0)),
        runs=sorted(entry.runs),
        comment=entry.comment,
        empty_at_ms=empty_at,
        waits_for=waits_for,
        deadline_ms=entry.drain_deadline or 0,
        accepts=entry.drain_accepts,
        signals=[_from_signal(signal) for signal in sorted(entry.signals, key=_gravest_first)],
    )


def _gravest_first(signal: HealthSignal) -> tuple[int, tuple[str, str, str]]:
    return (-signal.severity.rank, signal.key)


def _from_signal(signal: HealthSignal) -> hosts_pb2.HostSignal:
    return hosts_pb2.HostSignal(
        source=signal.source,
        device=signal.device,
        code=signal.code,
        severity=signal.severity,
        text=signal.text,
        count=signal.count,
        first_at_ms=signal.first_at,
        last_at_ms=signal.last_at,
        evidence=signal.evidence,
    )


def from_pool(pool: Fragmentation) -> hosts_pb2.PoolFragmentation:
    """The figures of a pool, without its prospects, of which there may be thousands."""
    return hosts_pb2.PoolFragmentation(
        cluster=pool.cluster,
        gpu_type=pool.gpu_type,
        hosts=pool.hosts,
        gpus=pool.gpus,
        gpus_free=pool.free,
        hosts_with_gpus_free=pool.hosts_with_free,
        largest_hole=pool.largest_hole,
        hosts_wholly_free=pool.hosts_wholly_free,
        gpus_giving_way=pool.giving_way,
        gpus_in_escrow=pool.in_escrow,
        gpus_reserved=pool.reserved,
        gpus_past_protection=pool.past_protection,
    )


def from_prospect(prospect: Prospect) -> hosts_pb2.Prospect:
    """What is placeable at an instant."""
    return hosts_pb2.Prospect(
        at_ms=prospect.at,
        placeable=_from_placeable(prospect.placeable),
        if_p5_gives=_from_placeable(prospect.if_p5_gives),
    )


def _from_placeable(placeable: Placeable) -> hosts_pb2.Placeable:
    return hosts_pb2.Placeable(
        gpus=placeable.gpus,
        whole_hosts=placeable.whole_hosts,
        largest=[
            hosts_pb2.LargestGang(gpus_per_replica=size, replicas=replicas)
            for size, replicas in placeable.replicas.items()
        ],
    )


def from_budget(node: BudgetNode, state: State, totals: Mapping[BudgetPath, BudgetTotal]) -> budgets_pb2.Budget:
    """The budget with its standing in the latest ranking and what it has in the queue and on GPUs."""
    standing = None if state.ranking is None else state.ranking.standings.get(node.path)
    total = totals.get(node.path, _NO_TOTAL)
    return budgets_pb2.Budget(
        path=node.path,
        share_percent=percent_of(node.share_ppm),
        fraction=state.tree.fractions[node.path],
        managers=node.managers,
        members=node.members,
        users_equal=node.users_equal,
        leaf=state.tree.is_leaf(node.path),
        charged_gpu_ms=standing.charged_gpu_ms if standing else 0,
        commitment_gpu_ms=standing.commitment_gpu_ms if standing else 0,
        entitlement_gpu_ms=standing.entitlement_gpu_ms if standing else 0,
        jobs_queued=total.jobs_queued,
        jobs_running=total.jobs_running,
        gpus_allocated=total.gpus_allocated,
        gpus_unallocated=total.gpus_unallocated,
    )


def shares_of(node: BudgetNode) -> budgets_pb2.Budget:
    """The budget as it is written, without any standing."""
    return budgets_pb2.Budget(
        path=node.path,
        share_percent=percent_of(node.share_ppm),
        managers=node.managers,
        members=node.members,
        users_equal=node.users_equal,
    )


def from_change(change: BudgetChange) -> budgets_pb2.BudgetChange:
    """One change of a share, and who made it."""
    before, after, origin = change.share_ppm_before, change.share_ppm_after, change.origin
    return budgets_pb2.BudgetChange(
        position=change.position,
        at_ms=change.at,
        by=change.by,
        comment=change.comment,
        path=change.path,
        share_percent_before=None if before is None else percent_of(before),
        share_percent_after=None if after is None else percent_of(after),
        asked_by="" if origin is None else origin.user,
        asked_how="" if origin is None else origin.how,
        asked_from="" if origin is None else origin.address,
    )


def percent_of(share_ppm: int) -> float:
    """A share as people write it."""
    return share_ppm / (PPM // 100)


def from_cluster(total: ClusterTotal, *, now: Millis) -> jobs_pb2.ClusterSummary:
    """The whole cluster's GPUs."""
    return jobs_pb2.ClusterSummary(
        gpus=total.gpus,
        gpus_available=total.available,
        gpus_allocated=total.allocated,
        gpus_unallocated=total.unallocated,
        gpus_free=total.free,
        now_ms=now,
    )


def to_job_states(words: Iterable[str]) -> frozenset[JobState]:
    """The states of a filter. Raises `Refusal` for a word that is none."""
    return frozenset(JobState(_known(word, [state.value for state in JobState])) for word in words)


def to_host_states(words: Iterable[str]) -> frozenset[HostState]:
    """The states of a filter. Raises `Refusal` for a word that is none."""
    return frozenset(HostState(_known(word, [state.value for state in HostState])) for word in words)


def _known(word: str, known: list[str]) -> str:
    if word not in known:
        near = did_you_mean(word, known)
        raise Refusal(field="states", problem=f"{shown(word)} is no state", fix=f"{near}known: {listed(known)}")
    return word
