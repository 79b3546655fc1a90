"""What a host's state should be now (P9 and the silence rule). None: as it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.health.policy.silence import Silence, Survey
from services.health.state import Core, Host
from tenure.domain.host import HostState
from tenure.domain.ids import FactId
from tenure.domain.reasons import Number, Reason, Why
from tenure.domain.units import Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The state a host goes to, why, and the request that led to it."""

    state: HostState
    why: Why
    cause: FactId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """The rules applied to one host at one instant. `survey` is None where nobody can be lost."""

    silence: Silence
    core: Core
    now: Millis
    survey: Survey | None = field(default=None)

    def judge(self, host: Host) -> Verdict | None:
        """The verdict on one host, by its present state."""
        match host.state:
            case None:
                return self._unheard(host)
            case HostState.HEALTHY:
                return self._silent(host) or self._drain_asked(host) or self._overdue(host)
            case HostState.DRAINING:
                return self._silent(host) or self._draining(host)
            case HostState.DRAINED:
                return self._returned(host) if self.silence.is_heard(host, self.now) else None
            case HostState.SUSPECT if host.is_held_up:
                return self._silent(host) or self._held_up(host)
            case HostState.SUSPECT:
                return self._still_overdue(host) or self._back(host) or self._lost(host)
            case HostState.LOST:
                return None if host.strange_runs else self._back(host)

    def _unheard(self, host: Host) -> Verdict | None:
        """A registered host becomes usable with its first beat, if that is fresh."""
        if host.gpus is None or not self.silence.is_fresh(host, self.now):
            return None
        numbers = {"gpus": host.gpus}
        return Verdict(state=resting_state(host), why=_why("P1", Reason.HOST_REGISTERED, numbers), cause=_asker(host))

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
        """What ends that: a drain, a fatal one as for a dead host (P9), or the end of these runs."""
        if host.drain is not None:
            return self._given_up(host) or _to_draining(host)
        return None if host.overdue else Verdict(state=HostState.HEALTHY, why=_why("P7", Reason.HOST_RELEASED, {}))

    def _still_overdue(self, host: Host) -> Verdict | None:
        """It was silent and is heard again, but does not release what it should have."""
        back = self.silence.is_heard(host, self.now) and host.drain is None
        return self._overdue(host) if back else None

    def _drain_asked(self, host: Host) -> Verdict | None:
        if host.drain is None:
            return None
        return _to_draining(host)

    def _draining(self, host: Host) -> Verdict | None:
        if host.drain is None:
            return self._returned(host)
        if not host.runs:
            why = _why("P9", Reason.HOST_EMPTY, {"drained_ms": self.now - host.drain.asked_at})
            return Verdict(state=HostState.DRAINED, why=why, cause=host.drain.asked_by)
        if (host.drain.fatal, host.drain.deadline) != (host.said_fatal, host.said_deadline):
            return _to_draining(host)
        return None

    def _returned(self, host: Host) -> Verdict | None:
        if host.drain is not None or host.returned is None:
            return None
        return Verdict(state=HostState.HEALTHY, why=_why("P9", host.returned.reason, {}), cause=host.returned.asked_by)

    def _back(self, host: Host) -> Verdict | None:
        """A silent host is heard again: it goes back to what it was, or to what a drain meanwhile asks for."""
        if not self.silence.is_heard(host, self.now):
            return None
        numbers = {"signs": host.signs, "last_seen_ms_ago": self.now - host.last_seen}
        return Verdict(state=resting_state(host), why=_why("P2", Reason.HOST_HEARD_AGAIN, numbers), cause=_asker(host))

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
        assert self.survey is not None, "whoever may be lost must be judged with all others in view"
        numbers = {
            "silent_ms": self.now - host.last_seen,
            "lost_after_ms": self.silence.policy.lost_after_ms,
            "hosts_silent": self.survey.silent,
            "hosts_watched": self.survey.watched,
        }
        if self.survey.is_mass or self.silence.is_too_late(host, self.core, self.now):
            late = {**numbers, "late_ms": self.now - lost_at}
            return Verdict(state=HostState.SUSPECT, why=_why("P2", Reason.HOST_SILENT, late))
        return Verdict(state=HostState.LOST, why=_why("P2", Reason.HOST_SILENT_TOO_LONG, numbers))


def resting_state(host: Host) -> HostState:
    """The state of a host that is heard, by its drain alone."""
    if host.drain is None:
        return HostState.HEALTHY
    return HostState.DRAINING if host.runs else HostState.DRAINED


def _to_draining(host: Host) -> Verdict:
    assert host.drain is not None, "only a drain drains"
    numbers = {"runs": len(host.runs), "fatal": host.drain.fatal, "deadline": host.drain.deadline}
    why = _why("P9", Reason.HOST_DRAIN_REQUESTED, numbers)
    return Verdict(state=HostState.DRAINING, why=why, cause=host.drain.asked_by)


def _asker(host: Host) -> FactId | None:
    return host.drain.asked_by if host.drain is not None else None


def _why(rule: str, reason: Reason, numbers: Mapping[str, Number]) -> Why:
    return Why(rule=rule, reason=reason, numbers=numbers)
