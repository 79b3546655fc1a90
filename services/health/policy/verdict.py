"""What a host's state should be now (P9 and the silence rule). None: as it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.health.policy import evidence
from services.health.policy.capacity import in_window
from services.health.policy.mending import Mending
from services.health.policy.radius import Radius
from services.health.policy.silence import Silence, Survey
from services.health.policy.transitions import Verdict
from services.health.state import Core, Host
from tenure.domain.host import HostSpec, HostState, RepairStep
from tenure.domain.ids import FactId
from tenure.domain.policy import Policy
from tenure.domain.reasons import Number, Reason, Why
from tenure.domain.units import Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """The rules applied to one host at one instant. `surveys` and `blocks`: of clusters, and of their blocks, as they
    were asked for.
    """

    silence: Silence
    mending: Mending
    radius: Radius
    core: Core
    now: Millis
    surveys: dict[str, Survey] = field(default_factory=dict)
    blocks: dict[tuple[str, str], Survey] = field(default_factory=dict)

    def judge(self, host: Host) -> Verdict | None:
        """The verdict on one host, by its present state."""
        match host.state:
            case None:
                return self._unheard(host)
            case HostState.HEALTHY:
                return self._silent(host) or self._drain_asked(host) or self._against(host) or self._overdue(host)
            case HostState.DRAINING:
                return self._silent(host) or self._draining(host)
            case HostState.SUSPECT if host.is_held_up:
                return self._silent(host) or self._held_up(host)
            case HostState.SUSPECT:
                return self._still_overdue(host) or self._back(host) or self._lost(host)
            case HostState.LOST:
                return (None if host.strange_runs else self._back(host)) or self._to_repair(host)
            case _:
                heard = self.silence.is_heard(host, self.now) and not host.strange_runs
                return self._unless_at_rest(host, self.mending.mend(host, heard=heard))

    def _policy(self, host: Host) -> Policy:
        """What counts in its cluster."""
        return self.silence.policy.of_cluster(host.spec.cluster)

    def next_at(self, host: Host) -> Millis | None:
        """When the verdict may be another without a fact, beside silence (P11)."""
        instants = [self.mending.next_at(host), evidence.next_at(host, self.now, policy=self._policy(host))]
        if host.drain is not None and host.drain.accepts:
            instants.append(host.drain.deadline)
        return min((instant for instant in instants if instant is not None and instant > self.now), default=None)

    def _unheard(self, host: Host) -> Verdict | None:
        """A registered host becomes usable with its first beat, if that is fresh."""
        if host.gpus is None or not self.silence.is_fresh(host, self.now):
            return None
        numbers = {"gpus": host.gpus}
        state = resting_state(host, self.now)
        return Verdict(state=state, why=_why("P1", Reason.HOST_REGISTERED, numbers), cause=_asker(host))

    def _silent(self, host: Host) -> Verdict | None:
        if not self.silence.is_silent(host, self.core, self.now):
            return None
        numbers = {"silent_ms": self.now - host.last_seen, "suspect_after_ms": self.silence.policy.suspect_after_ms}
        return Verdict(state=HostState.SUSPECT, why=_why("P2", Reason.HOST_SILENT, numbers))

    def _overdue(self, host: Host) -> Verdict | None:
        """P7: runs that were told to end are still there, beyond their grace. Whatever holds them may hold others."""
        if not host.overdue:
            return None
        numbers: dict[str, Number] = {"runs": len(host.overdue), "run": min(host.overdue)}
        return Verdict(state=HostState.SUSPECT, why=_why("P7", Reason.HOST_OVERDUE, numbers))

    def _held_up(self, host: Host) -> Verdict | None:
        """What ends that: a drain, a fatal one as for a dead host (P9), the end of these runs or of the doubt."""
        if host.is_doubted:
            return self._drain_asked(host) or self._accused(host) or self._overdue(host) or self._undoubted(host)
        if host.drain is not None:
            return self._given_up(host) or _to_draining(host)
        return self._accused(host) or self._released(host)

    def _released(self, host: Host) -> Verdict | None:
        return None if host.overdue else Verdict(state=HostState.HEALTHY, why=_why("P7", Reason.HOST_RELEASED, {}))

    def _to_repair(self, host: Host) -> Verdict | None:
        """A lost host is sent to the plug, but not while most hosts are silent, and not too many at a time."""
        verdict = self.mending.lost(host)
        if verdict is None or self._frozen(host) or self.radius.refuses_repair(host.spec):
            return None
        self.radius.mended.append(host.spec)
        return verdict

    def _against(self, host: Host) -> Verdict | None:
        """What is said against a healthy host: evidence, or what is none yet, for which nothing starts there (S63)."""
        return self._accused(host) or self._doubted(host)

    def _doubted(self, host: Host) -> Verdict | None:
        found = evidence.doubt(host, policy=self._policy(host))
        if found is None:
            return None
        doubted = Verdict(state=HostState.SUSPECT, why=_why("P9", found.reason, found.numbers), cause=found.cause)
        return self._within_limits(host, found, doubted)

    def _undoubted(self, host: Host) -> Verdict | None:
        if evidence.doubt(host, policy=self._policy(host)) is not None:
            return None
        numbers = {"clear_ms": self.now - host.signals_over_at}
        return Verdict(state=HostState.HEALTHY, why=_why("P9", Reason.HOST_CLEARED, numbers), cause=host.signals_fact)

    def _still_overdue(self, host: Host) -> Verdict | None:
        """It was silent and is heard again, but does not release what it should have."""
        back = self.silence.is_heard(host, self.now) and host.drain is None
        return self._overdue(host) if back else None

    def _drain_asked(self, host: Host) -> Verdict | None:
        if host.drain is None:
            return None
        return _to_draining(host)

    def _accused(self, host: Host) -> Verdict | None:
        """Evidence drains a healthy host, unless automation holds enough already or most hosts are in trouble."""
        found = evidence.weigh(host, self.core, self.now, policy=self._policy(host))
        if found is None:
            return None
        numbers = {**found.numbers, "runs": len(host.runs), "fatal": found.fatal}
        draining = Verdict(
            state=HostState.DRAINING,
            why=_why("P9", found.reason, numbers),
            cause=found.cause,
            fatal=found.fatal,
            automatic=True,
        )
        return self._within_limits(host, found, draining)

    def _within_limits(self, host: Host, found: evidence.Evidence, verdict: Verdict) -> Verdict | None:
        """The verdict, if automation may take one more host; else why it was held back."""
        limit = self._frozen(host) or self.radius.refuses(host.spec)
        if limit is not None:
            return self._held_back(host, found, limit)
        self.radius.taken.append(host.spec)
        return verdict

    def _held_back(self, host: Host, found: evidence.Evidence, limit: Mapping[str, Number]) -> Verdict | None:
        """It stays as it is for want of room; of one in service that is said once."""
        if host.held_back or host.state is HostState.SUSPECT:
            return None
        why = _why("P9", Reason.HOST_HELD_BACK, {**found.numbers, **limit, "evidence": found.reason.value})
        return Verdict(state=HostState.HEALTHY, why=why, cause=found.cause)

    def _frozen(self, host: Host) -> Mapping[str, Number] | None:
        """S66, S67: while most hosts of its cluster are silent nothing is drained by evidence: is it our fault?

        Also at the instant at which they are, before any of it is on record.
        """
        survey = self._survey(host.spec.cluster)
        if host.spec.cluster not in self.core.mass_silence and not survey.is_mass:
            return None
        return {"hosts_silent": survey.silent, "hosts_watched": survey.watched}

    def _survey(self, cluster: str) -> Survey:
        if cluster not in self.surveys:
            self.surveys[cluster] = self.silence.survey(self.core, self.now, cluster=cluster)
        return self.surveys[cluster]

    def _block(self, spec: HostSpec) -> Survey:
        name = spec.cluster, spec.block
        if name not in self.blocks:
            self.blocks[name] = self.silence.survey(self.core, self.now, cluster=spec.cluster, block=spec.block)
        return self.blocks[name]

    def _is_off(self, host: Host) -> bool:
        """Automation is turned off in its cluster."""
        return not self._policy(host).automation_share

    def _unless_at_rest(self, host: Host, verdict: Verdict | None) -> Verdict | None:
        """The verdict, but the repair plug is asked for nothing while automation rests or is off."""
        if verdict is None or verdict.asks is not RepairStep.REPAIR:
            return verdict
        return None if self._is_off(host) or self._frozen(host) is not None else verdict

    def _draining(self, host: Host) -> Verdict | None:
        drain = host.drain
        if drain is None:
            return self.mending.mend(host, heard=True)
        if not host.runs and not in_window(host, self.now):
            why = _why("P9", Reason.HOST_EMPTY, {"drained_ms": self.now - drain.asked_at})
            return Verdict(state=HostState.DRAINED, why=why, cause=drain.asked_by, automatic=drain.automatic)
        said = (host.said_fatal, host.said_deadline, host.said_accepts)
        if (drain.fatal, drain.deadline, drain.accepts) != said:
            return _to_draining(host)
        return self._graver(host) or self.mending.cleared(host)

    def _graver(self, host: Host) -> Verdict | None:
        """A host that drains has lost a GPU meanwhile: its runs cannot go on. Before a maintenance window any evidence
        counts, and ends what it still takes (S63).
        """
        found = None if host.said_fatal else evidence.weigh(host, self.core, self.now, policy=self._policy(host))
        if found is None or self._is_off(host) or self._frozen(host) is not None:
            return None
        if not found.fatal and not in_window(host, self.now):
            return None
        numbers = {**found.numbers, "runs": len(host.runs), "fatal": found.fatal}
        assert host.drain is not None, "only a draining host is judged so"
        return Verdict(
            state=HostState.DRAINING,
            why=_why("P9", found.reason, numbers),
            cause=found.cause,
            fatal=found.fatal,
            automatic=host.drain.automatic,
            ends_window=True,
        )

    def _back(self, host: Host) -> Verdict | None:
        """A silent host is heard again: it goes back to what it was, or to what a drain meanwhile asks for."""
        if not self.silence.is_heard(host, self.now):
            return None
        numbers = {"signs": host.signs, "last_seen_ms_ago": self.now - host.last_seen}
        state = resting_state(host, self.now)
        return Verdict(state=state, why=_why("P2", Reason.HOST_HEARD_AGAIN, numbers), cause=_asker(host))

    def _given_up(self, host: Host) -> Verdict | None:
        if host.drain is None or not host.drain.fatal:
            return None
        why = _why("P9", Reason.HOST_DRAIN_REQUESTED, {"fatal": True, "silent_ms": self.now - host.last_seen})
        return Verdict(state=HostState.LOST, why=why, cause=host.drain.asked_by)

    def _lost(self, host: Host) -> Verdict | None:
        """Lost on evidence only: long silence while others are heard, or a silent host that people call dead (P9)."""
        given_up = self._given_up(host)
        if given_up is not None:
            return given_up
        lost_at = self.silence.lost_at(host, self.core)
        if self.now < lost_at:
            return None
        survey = self._survey(host.spec.cluster)
        numbers: dict[str, Number] = {
            "silent_ms": self.now - host.last_seen,
            "lost_after_ms": self.silence.policy.lost_after_ms,
            "hosts_silent": survey.silent,
            "hosts_watched": survey.watched,
        }
        block = self._block(host.spec)
        waits = block.is_whole and self.silence.is_block_waited_for(host, self.core, self.now)
        if waits:
            numbers |= {"block_silent": block.silent, "block_lost_after_ms": self.silence.policy.block_lost_after_ms}
        if survey.is_mass or waits or self.silence.is_too_late(host, self.core, self.now):
            late = {**numbers, "late_ms": self.now - lost_at}
            return Verdict(state=HostState.SUSPECT, why=_why("P2", Reason.HOST_SILENT, late))
        return Verdict(state=HostState.LOST, why=_why("P2", Reason.HOST_SILENT_TOO_LONG, numbers))


def resting_state(host: Host, now: Millis) -> HostState:
    """The state of a host that is heard, by its drain alone."""
    if host.drain is None:
        return HostState.HEALTHY
    return HostState.DRAINING if host.runs or in_window(host, now) else HostState.DRAINED


def _to_draining(host: Host) -> Verdict:
    drain = host.drain
    assert drain is not None, "only a drain drains"
    numbers = {"runs": len(host.runs), "fatal": drain.fatal, "deadline": drain.deadline}
    why = _why("P9", Reason.HOST_DRAIN_REQUESTED, numbers)
    return Verdict(
        state=HostState.DRAINING, why=why, cause=drain.asked_by, fatal=drain.fatal, automatic=drain.automatic
    )


def _asker(host: Host) -> FactId | None:
    return host.drain.asked_by if host.drain is not None else None


def _why(rule: str, reason: Reason, numbers: Mapping[str, Number]) -> Why:
    return Why(rule=rule, reason=reason, numbers=numbers)
