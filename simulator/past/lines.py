"""`events.jsonl[.gz]`, as `tenure log export` and `tenure simulate --log` write it, as the facts it was made of.

What the lines leave out is made up so that it changes nothing: a replica's place is cut from what its run holds on
each host, a host's last sign of life is the instant of its change. Reservations and escrows are left out: the lines do
not say when they end, and the deciders make them anew.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from simulator import csv_file
from simulator.agents import SIGTERM
from tenure.domain.host import HostSpec, HostState
from tenure.domain.ids import BudgetPath, HostId, JobId, RunId, UserName
from tenure.domain.job import DEFAULT_GRACE, JobSpec, Launch, Placement, ReplicaPlace, Topology
from tenure.domain.nearest import listed
from tenure.domain.policy import CLUSTERS, KNOBS, RATES, UNIT, Policy
from tenure.domain.rates import MILLI
from tenure.domain.reasons import EndCause, JobState, Reason, Why
from tenure.domain.refusal import Refusal
from tenure.domain.tree import PPM, BudgetNode, BudgetTree
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

Line = Mapping[str, Any]
LINE_BYTES_MAX = 64 << 20
AGENT, NOBODY = "exported", UserName("exported")
CLUSTER = "cluster"
"""Of hosts whose line names none, where no job names one either."""
_LAUNCH = Launch(command=("exported",))
_CODES = {EndCause.COMPLETED: 0, EndCause.FAILED: 1}
"""What replicas exit with; of other causes they die by a signal."""
_CHARGE = Why(rule="P2", reason=Reason.CHARGE_RUN)


def facts_of(path: Path) -> list[Fact]:
    """The facts of a file, in the order of its lines. Raises `Refusal` naming the line that cannot be read."""
    reader = _Reader()
    number, decode = 0, msgspec.json.Decoder(dict[str, Any]).decode
    try:
        with csv_file.opened(path) as file:
            for raw in iter(partial(file.readline, LINE_BYTES_MAX), b""):
                number += 1
                reader.read(decode(raw))
    except Refusal:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)[:80]
        raise _refused(f"{path}:{number}", f"no line of an export ({what})") from error
    if not reader.has_hosts:
        raise _refused(str(path), "no host is in it")
    return reader.finished()


def _refused(where: str, problem: str) -> Refusal:
    return Refusal(field=where, problem=problem, fix="name a file of tenure log export, or of tenure simulate --log")


class _Reader:
    """Turns line after line into facts."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self._origin_ms: Millis | None = None
        self._policy = Policy()
        self._specs: dict[JobId, tuple[JobSpec, Millis]] = {}
        self._open: dict[RunId, tuple[RunAssigned, Millis | None]] = {}
        """Runs that have not ended, and since when every replica is there."""
        self.has_hosts = False
        self._clusters_asked: dict[str, None] = {}

    def read(self, line: Line) -> None:
        """One line more; of a type that tells nothing here, nothing."""
        kind = line["type"]
        if self._origin_ms is None:
            if kind != "origin":
                raise ValueError("the first line of an export is its origin")
            self._origin_ms = round(line["epoch_ms"])
            return
        read = _READ.get(kind)
        if read is not None:
            read(self, line, self.at(line["t"]))

    def finished(self) -> list[Fact]:
        """All facts, hosts in the cluster that jobs name where there is only one."""
        names = list(self._clusters_asked)
        unnamed = [fact for fact in self.facts if isinstance(fact, HostRegistered) and not fact.hosts[0].cluster]
        if unnamed and len(names) > 1:
            problem = f"jobs ask for clusters ({listed(names)}), and hosts do not say which they are in"
            raise Refusal(field="cluster", problem=problem, fix="export the log again with this version of tenure")
        name = names[0] if names else CLUSTER
        return [_in_cluster(fact, name) for fact in self.facts]

    def at(self, seconds: float) -> Millis:
        """The instant of a time in the lines."""
        return (self._origin_ms or 0) + round(seconds * SECOND)

    def host(self, line: Line, at: Millis) -> None:
        cluster = line.get("cluster", "")
        spec = HostSpec(
            host=HostId(line["host"]),
            gpus=int(line["gpus"]),
            gpu_type=line["gpu_type"],
            block=line["block"],
            cluster=cluster,
        )
        self.has_hosts = True
        self.facts.append(HostRegistered(at=at, agent=AGENT, hosts=(spec,)))

    def capacity(self, line: Line, at: Millis) -> None:
        fact = CapacityChanged(at=at, host=HostId(line["host"]), gpus=line["gpus"], gpu_type=line["gpu_type"])
        self.facts.append(fact)

    def host_state(self, line: Line, at: Millis) -> None:
        previous, window = line["previous"], line.get("window")
        fact = HostStateChanged(
            at=at,
            host=HostId(line["host"]),
            state=HostState(line["state"]),
            previous=None if previous is None else HostState(previous),
            last_seen=at,
            why=_why(line),
            fatal=line["fatal"],
            deadline=None if window is None else self.at(window),
            accepts=window is not None,
        )
        self.facts.append(fact)

    def tree(self, line: Line, at: Millis) -> None:
        equal = frozenset(line["users_equal"])
        nodes = [
            BudgetNode(path=BudgetPath(path), share_ppm=round(share * PPM), users_equal=path in equal)
            for path, share in sorted(line["shares"].items())
        ]
        self.facts.append(BudgetTreeChanged(at=at, tree=BudgetTree(nodes=tuple(nodes)), by=NOBODY))

    def policy(self, line: Line, at: Millis) -> None:
        for knob, (_, after) in line["knobs"].items():
            self._policy = _with_knob(self._policy, knob, after)
        self.facts.append(PolicyChanged(at=at, policy=self._policy, by=NOBODY))

    def submitted(self, line: Line, at: Millis) -> None:
        cluster = line.get("gpu_cluster")
        if cluster is not None:
            self._clusters_asked[cluster] = None
        spec = JobSpec(
            budget=BudgetPath(line["budget"]),
            user=UserName(line["user"]),
            replicas=line["replicas"],
            gpus_per_replica=line["gpus_per_replica"],
            min_runtime_ms=round(line["min_runtime_s"] * SECOND),
            resumable=line["resumable"],
            priority=line["priority"],
            gpu_type=line["gpu_type"],
            cluster=cluster,
            topology=Topology(line.get("topology", Topology.ANY)),
            hosts=tuple(map(HostId, line.get("only_hosts", ()))),
            hosts_excluded=tuple(map(HostId, line.get("excluded_hosts", ()))),
            grace_ms=round(line["grace_s"] * SECOND) if "grace_s" in line else DEFAULT_GRACE,
            launch=_LAUNCH,
        )
        job = JobId(line["job"])
        self._specs[job] = (spec, at)
        self.facts.append(JobAdmitted(at=at, job=job, spec=spec, submitted_at=at))

    def assigned(self, line: Line, at: Millis) -> None:
        run, job = RunId(line["run"]), JobId(line["job"])
        spec = self._specs[job][0]
        fact = RunAssigned(
            at=at,
            run=run,
            job=job,
            number=int(run.rpartition(".")[2]),
            budget=spec.budget,
            user=spec.user,
            placement=_placement(line["hosts"], gpus=spec.gpus_per_replica),
            launch=_LAUNCH,
            min_runtime_ms=spec.min_runtime_ms,
            resumable=spec.resumable,
            grace_ms=spec.grace_ms,
            resume_count=0,
            master_address="",
            master_port=0,
            why=_why(line),
        )
        self._open[run] = (fact, None)
        self.facts.append(fact)

    def started(self, line: Line, at: Millis) -> None:
        run = RunId(line["run"])
        fact = self._open[run][0]
        self._open[run] = (fact, at)
        starts = tuple(ReplicaStart(replica=place.replica, host=place.host, at=at) for place in fact.placement)
        self.facts += [
            ReplicasStarted(at=at, run=run, job=fact.job, replicas=starts),
            RunStarted(
                at=at,
                run=run,
                job=fact.job,
                protected_until=self.at(line["protected_until"]),
                charged=line["charged"],
                hosts={HostId(host): tuple(gpus) for host, gpus in line["hosts"].items()},
            ),
        ]

    def preemption(self, line: Line, at: Millis) -> None:
        run, job = RunId(line["run"]), JobId(line["job"])
        self.facts.append(RunPreemptionRequested(at=at, run=run, job=job, by=line["by"], why=_why(line)))

    def ended(self, line: Line, at: Millis) -> None:
        run = RunId(line["run"])
        fact, started_at = self._open.pop(run)
        if "checkpoint" in line:
            saved_at, host = self.at(line["checkpoint"]), fact.placement[0].host
            self.facts.append(CheckpointReported(at=saved_at, run=run, job=fact.job, host=host))
        cause = EndCause(line["cause"])
        code = _CODES.get(cause)
        exits = tuple(
            ReplicaExit(
                replica=place.replica,
                host=place.host,
                at=at,
                started_at=started_at,
                code=code,
                signal=SIGTERM if code is None else None,
                lost=cause is EndCause.HOST_LOST,
            )
            for place in fact.placement
        )
        self.facts += [
            ReplicasExited(at=at, run=run, job=fact.job, replicas=exits),
            RunEnded(at=at, run=run, job=fact.job, cause_of_end=cause, by=line["by"], why=_why(line)),
        ]
        if "charged_gpu_s" in line:
            self._charge(line, fact, at)

    def _charge(self, line: Line, run: RunAssigned, at: Millis) -> None:
        """What was refunded was the last that it held."""
        refunded = round(line["refunded_gpu_s"] * SECOND)
        gpus = sum(len(place.gpus) for place in run.placement)
        charged = RunCharged(
            at=at,
            run=run.run,
            job=run.job,
            budget=run.budget,
            user=run.user,
            charged_gpu_ms=round(line["charged_gpu_s"] * SECOND),
            refunded_gpu_ms=refunded,
            refund_since=at - refunded // gpus if refunded else None,
            refund_until=at if refunded else None,
            why=_CHARGE,
        )
        self.facts.append(charged)

    def requeued(self, line: Line, at: Millis) -> None:
        job = JobId(line["job"])
        fact = JobRequeued(
            at=at,
            job=job,
            run=RunId(line["run"]),
            submitted_at=self._specs[job][1],
            resume_count=line["resume_count"],
            why=_why(line),
        )
        self.facts.append(fact)

    def finished_job(self, line: Line, at: Millis) -> None:
        fact = JobFinished(at=at, job=JobId(line["job"]), state=JobState(line["state"]), why=_why(line))
        self.facts.append(fact)

    def cancel(self, line: Line, at: Millis) -> None:
        self.facts.append(JobCancelRequested(at=at, job=JobId(line["job"]), by=UserName(line["by"])))


_READ: dict[str, Callable[[_Reader, Line, Millis], None]] = {
    "host": _Reader.host,
    "capacity": _Reader.capacity,
    "host_state": _Reader.host_state,
    "budget_tree": _Reader.tree,
    "policy_changed": _Reader.policy,
    "job_submitted": _Reader.submitted,
    "run_assigned": _Reader.assigned,
    "run_started": _Reader.started,
    "preemption_requested": _Reader.preemption,
    "run_ended": _Reader.ended,
    "run_not_started": _Reader.ended,
    "job_requeued": _Reader.requeued,
    "job_finished": _Reader.finished_job,
    "cancel_requested": _Reader.cancel,
}


def _why(line: Line) -> Why:
    return msgspec.convert(line["reason"], Why)


def _placement(hosts: Mapping[str, list[int]], *, gpus: int) -> Placement:
    """What a run holds on each host, cut into its replicas."""
    parts = [
        (HostId(host), tuple(held[first : first + gpus]))
        for host, held in hosts.items()
        for first in range(0, len(held), gpus)
    ]
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
        return spoken + UNIT, round(value * SECOND)
    if spoken not in KNOBS:
        raise ValueError(f"unknown knob {spoken[:40]}")
    return spoken, value
