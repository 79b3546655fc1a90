"""Lines of an export, in the order of the log, as the facts they were made of: a method a type of line.

What the lines leave out is made up so that it changes nothing: a replica's place is cut from what its run holds on
each host, a host's last sign of life is the instant of its change. Reservations and escrows are left out: the lines do
not say when they end, and the deciders make them anew.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec

from simulator import csv_file
from simulator.agents import SIGTERM
from tenure.domain.admission import PRIORITY_MAX, REPLICAS_MAX
from tenure.domain.host import HostSpec
from tenure.domain.ids import HostId, JobId, RunId, UserName
from tenure.domain.job import DEFAULT_GRACE, JobSpec, Launch, Placement, ReplicaPlace, Topology
from tenure.domain.names import check_word
from tenure.domain.nearest import listed
from tenure.domain.policy import CLUSTERS, KNOBS, RATES, UNIT, Policy, check_policy
from tenure.domain.rates import MILLI
from tenure.domain.reasons import EndCause, Reason, Why
from tenure.domain.refusal import Refusal
from tenure.domain.shape import GPUS_PER_HOST_MAX
from tenure.domain.tree import PPM
from tenure.domain.tree_check import Draft, build_tree, check_path
from tenure.domain.units import SECOND, Millis
from tenure.events.budgets import BudgetTreeChanged, JobAdmitted, RunCharged
from tenure.events.fact import Fact
from tenure.events.hosts import CapacityChanged, HostStateChanged
from tenure.events.intake import JobCancelRequested
from tenure.events.placing import (
    JobFinished,
    JobRequeued,
    RunAssigned,
    RunEnded,
    RunPreemptionRequested,
    RunStarted,
)
from tenure.events.policy import PolicyChanged
from tenure.events.reports import (
    CheckpointReported,
    HostRegistered,
    ReplicaExit,
    ReplicasExited,
    ReplicasStarted,
    ReplicaStart,
)
from tenure.export import lines as line

AGENT, NOBODY = "exported", UserName("exported")
CLUSTER = "cluster"
"""Of hosts whose line names none, where no job names one either."""
_LAUNCH = Launch(command=("exported",))
_CODES = {EndCause.COMPLETED: 0, EndCause.FAILED: 1}
"""What replicas exit with; of other causes they die by a signal."""
_CHARGE = Why(rule="P2", reason=Reason.CHARGE_RUN)


class Reader:
    """Turns line after line into facts. Raises ValueError, LookupError and `Refusal` for what is none."""

    def __init__(self, origin_ms: Millis) -> None:
        self.facts: list[Fact] = []
        self._origin_ms = origin_ms
        self._policy_now = Policy()
        self._specs: dict[JobId, tuple[JobSpec, Millis]] = {}
        self._open: dict[RunId, tuple[RunAssigned, Millis | None]] = {}
        """Runs that have not ended, and since when every replica is there."""
        self._hosts: dict[HostId, None] = {}
        self._clusters_asked: dict[str, None] = {}

    def finished(self) -> list[Fact]:
        """All facts, hosts in the cluster that jobs name where there is only one."""
        if not self._hosts:
            raise ValueError("there is no host in it")
        names = list(self._clusters_asked)
        unnamed = [fact for fact in self.facts if isinstance(fact, HostRegistered) and not fact.hosts[0].cluster]
        if unnamed and len(names) > 1:
            problem = f"jobs ask for clusters ({listed(names)}), and hosts do not say which they are in"
            raise Refusal(field="cluster", problem=problem, fix="export the log again with this version of tenure")
        name = names[0] if names else CLUSTER
        return [_in_cluster(fact, name) for fact in self.facts]

    def at(self, seconds: float) -> Millis:
        """The instant of a time in the lines."""
        return self._origin_ms + within(round(seconds * SECOND), most=csv_file.SECONDS_MAX * SECOND)

    def _host(self, told: line.Host, at: Millis) -> None:
        spec = HostSpec(
            host=told.host,
            gpus=within(told.gpus, least=1, most=GPUS_PER_HOST_MAX),
            gpu_type=check_word(told.gpu_type, field="gpu_type"),
            block=told.block,
            cluster="" if told.cluster is msgspec.UNSET else check_word(told.cluster, field="cluster"),
        )
        self._hosts[spec.host] = None
        self.facts.append(HostRegistered(at=at, agent=AGENT, hosts=(spec,)))

    def _capacity(self, told: line.Capacity, at: Millis) -> None:
        gpus = within(told.gpus, most=GPUS_PER_HOST_MAX)
        self.facts.append(CapacityChanged(at=at, host=self._known(told.host), gpus=gpus, gpu_type=told.gpu_type))

    def _host_state(self, told: line.HostStateChange, at: Millis) -> None:
        fact = HostStateChanged(
            at=at,
            host=self._known(told.host),
            state=told.state,
            previous=told.previous,
            last_seen=at,
            why=told.reason,
            fatal=told.fatal,
            deadline=None if told.window is msgspec.UNSET else self.at(told.window),
            accepts=told.window is not msgspec.UNSET,
        )
        self.facts.append(fact)

    def _tree(self, told: line.Tree, at: Millis) -> None:
        equal = frozenset(told.users_equal)
        drafts = [
            Draft(path=check_path(path), share_ppm=_share(share), users_equal=path in equal)
            for path, share in told.shares.items()
        ]
        self.facts.append(BudgetTreeChanged(at=at, tree=build_tree(drafts), by=NOBODY))

    def _policy(self, told: line.PolicyChange, at: Millis) -> None:
        for knob, (_, after) in told.knobs.items():
            self._policy_now = _with_knob(self._policy_now, knob, after)
        check_policy(self._policy_now)
        self.facts.append(PolicyChanged(at=at, policy=self._policy_now, by=NOBODY))

    def _submitted(self, told: line.JobSubmission, at: Millis) -> None:
        cluster = None if told.gpu_cluster is msgspec.UNSET else told.gpu_cluster
        if cluster is not None:
            self._clusters_asked[cluster] = None
        spec = JobSpec(
            budget=told.budget,
            user=told.user,
            replicas=within(told.replicas, least=1, most=REPLICAS_MAX),
            gpus_per_replica=within(told.gpus_per_replica, least=1, most=GPUS_PER_HOST_MAX),
            min_runtime_ms=_length(told.min_runtime_s),
            resumable=told.resumable,
            priority=within(told.priority, least=-PRIORITY_MAX, most=PRIORITY_MAX),
            gpu_type=told.gpu_type,
            cluster=cluster,
            topology=Topology.ANY if told.topology is msgspec.UNSET else told.topology,
            hosts=() if told.only_hosts is msgspec.UNSET else told.only_hosts,
            hosts_excluded=() if told.excluded_hosts is msgspec.UNSET else told.excluded_hosts,
            grace_ms=DEFAULT_GRACE if told.grace_s is msgspec.UNSET else _length(told.grace_s),
            launch=_LAUNCH,
        )
        if told.job in self._specs:
            raise ValueError(f"{told.job} is submitted twice")
        self._specs[told.job] = (spec, at)
        self.facts.append(JobAdmitted(at=at, job=told.job, spec=spec, submitted_at=at))

    def _assigned(self, told: line.RunAssignment, at: Millis) -> None:
        spec = self._specs[told.job][0]
        fact = RunAssigned(
            at=at,
            run=told.run,
            job=told.job,
            number=int(told.run.rpartition(".")[2]),
            budget=spec.budget,
            user=spec.user,
            placement=_placement({self._known(host): gpus for host, gpus in told.hosts.items()}, spec),
            launch=_LAUNCH,
            min_runtime_ms=spec.min_runtime_ms,
            resumable=spec.resumable,
            grace_ms=spec.grace_ms,
            resume_count=0,
            master_address="",
            master_port=0,
            why=told.reason,
        )
        if told.run in self._open:
            raise ValueError(f"{told.run} is there twice")
        self._open[told.run] = (fact, None)
        self.facts.append(fact)

    def _started(self, told: line.RunStart, at: Millis) -> None:
        fact = self._open[told.run][0]
        self._open[told.run] = (fact, at)
        starts = tuple(ReplicaStart(replica=place.replica, host=place.host, at=at) for place in fact.placement)
        until = self.at(told.protected_until)
        self.facts += [
            ReplicasStarted(at=at, run=told.run, job=fact.job, replicas=starts),
            RunStarted(
                at=at, run=told.run, job=fact.job, protected_until=until, charged=told.charged, hosts=told.hosts
            ),
        ]

    def _preemption(self, told: line.PreemptionRequest, at: Millis) -> None:
        if told.run in self._open:  # else its host was given up later, and its end was before this
            job = self._open[told.run][0].job
            self.facts.append(RunPreemptionRequested(at=at, run=told.run, job=job, by=told.by, why=told.reason))

    def _ended(self, told: line.RunEnd, at: Millis) -> None:
        fact, started_at = self._open.pop(told.run)
        if told.checkpoint is not msgspec.UNSET:
            saved_at, host = self.at(told.checkpoint), fact.placement[0].host
            self.facts.append(CheckpointReported(at=saved_at, run=fact.run, job=fact.job, host=host))
        code = _CODES.get(told.cause)
        exits = tuple(
            ReplicaExit(
                replica=place.replica,
                host=place.host,
                at=at,
                started_at=started_at,
                code=code,
                signal=SIGTERM if code is None else None,
                lost=told.cause is EndCause.HOST_LOST,
            )
            for place in fact.placement
        )
        self.facts += [
            ReplicasExited(at=at, run=fact.run, job=fact.job, replicas=exits),
            RunEnded(at=at, run=fact.run, job=fact.job, cause_of_end=told.cause, by=told.by, why=told.reason),
        ]
        if told.charged_gpu_s is not msgspec.UNSET:
            self._charge(told.charged_gpu_s, told.refunded_gpu_s, fact, at)

    def _charge(self, charged_gpu_s: float, refunded_gpu_s: float, run: RunAssigned, at: Millis) -> None:
        """What was refunded was the last that it held."""
        refunded = _length(refunded_gpu_s)
        gpus = sum(len(place.gpus) for place in run.placement)
        charged = RunCharged(
            at=at,
            run=run.run,
            job=run.job,
            budget=run.budget,
            user=run.user,
            charged_gpu_ms=_length(charged_gpu_s),
            refunded_gpu_ms=refunded,
            refund_since=at - refunded // gpus if refunded else None,
            refund_until=at if refunded else None,
            why=_CHARGE,
        )
        self.facts.append(charged)

    def _requeued(self, told: line.Requeue, at: Millis) -> None:
        fact = JobRequeued(
            at=at,
            job=told.job,
            run=told.run,
            submitted_at=self._specs[told.job][1],
            resume_count=told.resume_count,
            why=told.reason,
        )
        self.facts.append(fact)

    def _finished_job(self, told: line.JobEnd, at: Millis) -> None:
        self._specs[told.job]  # it was submitted
        self.facts.append(JobFinished(at=at, job=told.job, state=told.state, why=told.reason))

    def _cancel(self, told: line.CancelRequest, at: Millis) -> None:
        self.facts.append(JobCancelRequested(at=at, job=told.job, by=told.by))

    def _known(self, host: HostId) -> HostId:
        if host not in self._hosts:
            raise LookupError(host)
        return host


def _reader(kind: type[line.Line], read: Callable[[Reader, Any, Millis], None]) -> "_Read":
    return msgspec.json.Decoder(kind), read


_Read = tuple[msgspec.json.Decoder[Any], Callable[[Reader, Any, Millis], None]]
READ: dict[str, _Read] = {
    "host": _reader(line.Host, Reader._host),
    "capacity": _reader(line.Capacity, Reader._capacity),
    "host_state": _reader(line.HostStateChange, Reader._host_state),
    "budget_tree": _reader(line.Tree, Reader._tree),
    "policy_changed": _reader(line.PolicyChange, Reader._policy),
    "job_submitted": _reader(line.JobSubmission, Reader._submitted),
    "run_assigned": _reader(line.RunAssignment, Reader._assigned),
    "run_started": _reader(line.RunStart, Reader._started),
    "preemption_requested": _reader(line.PreemptionRequest, Reader._preemption),
    "run_ended": _reader(line.RunEnd, Reader._ended),
    "run_not_started": _reader(line.RunEnd, Reader._ended),
    "job_requeued": _reader(line.Requeue, Reader._requeued),
    "job_finished": _reader(line.JobEnd, Reader._finished_job),
    "cancel_requested": _reader(line.CancelRequest, Reader._cancel),
}


def _placement(hosts: Mapping[HostId, tuple[int, ...]], spec: JobSpec) -> Placement:
    """What a run holds on each host, cut into its replicas."""
    gpus = spec.gpus_per_replica
    parts = [(host, held[first : first + gpus]) for host, held in hosts.items() for first in range(0, len(held), gpus)]
    if len(parts) != spec.replicas or any(len(held) != gpus for _, held in parts):
        raise ValueError("a run holds other GPUs than its job asked for")
    return tuple(ReplicaPlace(replica=number, host=host, gpus=held) for number, (host, held) in enumerate(parts))


def _in_cluster(fact: Fact, name: str) -> Fact:
    if not isinstance(fact, HostRegistered) or fact.hosts[0].cluster:
        return fact
    return msgspec.structs.replace(fact, hosts=tuple(replace(spec, cluster=name) for spec in fact.hosts))


def _with_knob(policy: Policy, knob: str, value: float) -> Policy:
    """The policy with one knob as a line has it: lengths of time in seconds, rates as people write them."""
    section, _, key = knob.partition(".")
    if section == RATES:
        return replace(policy, rates_milli={**policy.rates_milli, key: round(value * MILLI)})
    if section == CLUSTERS:
        cluster, _, spoken = key.rpartition(".")
        name, given = _field(spoken, value)
        own = {**policy.clusters.get(cluster, {}), name: given}
        return replace(policy, clusters={**policy.clusters, cluster: own})
    name, given = _field(knob, value)
    return replace(policy, **{name: given})  # type: ignore[arg-type]


def _field(spoken: str, value: float) -> tuple[str, int | float]:
    if spoken + UNIT in KNOBS:
        return spoken + UNIT, _length(value)
    if spoken not in KNOBS:
        raise ValueError(f"unknown knob {spoken[:40]}")
    return spoken, int(value) if isinstance(KNOBS[spoken].least, int) else value


def _share(fraction: float) -> Fraction:
    """Parts per million of a share, as they were before they were written as a fraction."""
    return Fraction(within(round(fraction * PPM), most=PPM))


def _length(seconds: float) -> Millis:
    return within(round(seconds * SECOND), most=10**18)


def within(value: int, *, most: int, least: int = 0) -> int:
    """A number that lies there. Raises ValueError."""
    if not least <= value <= most:
        raise ValueError(f"{str(value)[:30]} is out of range")
    return value
