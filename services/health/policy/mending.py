"""P9, the way back of an empty host: repair plug, acceptance test, a clear spell, or a person.

Automation ends with an answer that is not ok, with one that does not come, and with a host that breaks again and again
in a day (flap damping): then it is failed, and a person resumes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from services.health.policy.evidence import asking
from services.health.policy.transitions import Verdict
from services.health.state import AT_WORK, Host, Repair
from tenure.domain.host import HostState, RepairStep
from tenure.domain.ids import FactId
from tenure.domain.policy import Policy
from tenure.domain.reasons import Number, Reason, Why
from tenure.domain.units import DAY, Millis

_PASSING = (Reason.HOST_SIGNALS, Reason.HOST_GPUS_MISSING)
"""What was evidence for a drain may be over by itself. A host that runs died on, or a lost GPU, is looked after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plug:
    """What the repair plug of this installation can do."""

    repairs: bool = False
    tests: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mending:
    """The rules at one instant. `heard`: the host really is there."""

    policy: Policy
    plug: Plug
    now: Millis

    def mend(self, host: Host, *, heard: bool) -> Verdict | None:
        """What an empty host goes to next."""
        if host.returned is not None and host.drain is None:
            return self._sound(host, host.returned.reason, {}, host.returned.asked_by) if heard else None
        match host.state:
            case HostState.DRAINED if host.drain is not None and host.drain.automatic:
                return self._drained(host, heard=heard)
            case HostState.REPAIRING | HostState.PROBATION if host.repair is not None:
                return self._answered(host, host.repair, heard=heard)
            case _:
                return None

    def next_at(self, host: Host) -> Millis | None:
        """When that changes by itself (P11)."""
        if host.state in AT_WORK and host.repair is not None:
            return host.repair.asked_at + self._policy(host).repair_limit_ms
        if host.state in (HostState.DRAINED, HostState.DRAINING) and host.drain is not None and host.drain.automatic:
            return self._clear_at(host)
        return None

    def cleared(self, host: Host) -> Verdict | None:
        """A drain goes on and what it was for is over: it is taken back, unless the host is to be repaired."""
        if host.drain is None or not host.drain.automatic or host.drain.fatal or self.plug.repairs:
            return None
        return self._cleared(host, self._incidents(host))

    def _drained(self, host: Host, *, heard: bool) -> Verdict | None:
        number = self._incidents(host)
        if number >= self._policy(host).incidents_max:
            numbers = {"incidents": number, "incidents_max": self._policy(host).incidents_max, "window_ms": DAY}
            return Verdict(state=HostState.FAILED, why=_why(Reason.HOST_BREAKS_AGAIN, numbers))
        if self.plug.repairs:
            why = _why(Reason.HOST_REPAIR_BEGUN, {"incidents": number, "signals": len(asking(host))})
            return Verdict(state=HostState.REPAIRING, why=why, asks=RepairStep.REPAIR)
        return self._cleared(host, number) if heard else None

    def lost(self, host: Host) -> Verdict | None:
        """A lost host, once its runs are given up: the plug is asked to bring it back (to cut its power, say).

        One that a person had drained, or called dead, is that person's.
        """
        of_a_person = host.drain is not None and not host.drain.automatic
        return None if of_a_person or host.runs or not self.plug.repairs else self._drained(host, heard=False)

    def _cleared(self, host: Host, number: int) -> Verdict | None:
        clear_at = self._clear_at(host)
        if clear_at is None or self.now < clear_at:
            return None
        numbers = {"clear_ms": self.now - host.signals_over_at, "incidents": number}
        return self._sound(host, Reason.HOST_CLEARED, numbers, host.signals_fact)

    def _answered(self, host: Host, repair: Repair, *, heard: bool) -> Verdict | None:
        waited = {"step": repair.step.value, "waited_ms": self.now - repair.asked_at}
        if repair.answered_at is not None and not repair.ok:
            return Verdict(
                state=HostState.FAILED,
                why=_why(Reason.HOST_REPAIR_FAILED, {**waited, "ok": False}),
                cause=repair.answer,
            )
        if repair.answered_at is not None and heard and host.lacking_since is None:
            tested = repair.step is RepairStep.TEST
            return self._sound(host, Reason.HOST_TESTED if tested else Reason.HOST_REPAIRED, waited, repair.answer)
        if self.now >= repair.asked_at + self._policy(host).repair_limit_ms:
            numbers: dict[str, Number] = {**waited, "limit_ms": self._policy(host).repair_limit_ms, "heard": heard}
            if host.lacking_since is not None:
                numbers |= {"gpus": host.gpus, "gpus_registered": host.gpus_expected}
            return Verdict(state=HostState.FAILED, why=_why(Reason.HOST_REPAIR_FAILED, numbers))
        return None

    def _sound(self, host: Host, reason: Reason, numbers: Mapping[str, Number], cause: FactId | None) -> Verdict:
        """Back in service, by way of the acceptance test unless it was passed or a person answers for it."""
        tests = self.plug.tests and reason in (Reason.HOST_REPAIRED, Reason.HOST_CLEARED)
        if tests and host.state not in (HostState.PROBATION, HostState.DRAINING):
            return Verdict(state=HostState.PROBATION, why=_why(reason, numbers), cause=cause, asks=RepairStep.TEST)
        return Verdict(state=HostState.HEALTHY, why=_why(reason, numbers), cause=cause)

    def _policy(self, host: Host) -> Policy:
        """What counts in its cluster."""
        return self.policy.of_cluster(host.spec.cluster)

    def _incidents(self, host: Host) -> int:
        return sum(self.now - began < DAY for began in host.incidents)

    def _clear_at(self, host: Host) -> Millis | None:
        """When its signals will have been over for long enough; None while they are not, or cannot be."""
        assert host.drain is not None, "only a drain is cleared"
        if host.drain.reason not in _PASSING or asking(host) or host.lacking_since is not None:
            return None
        return host.signals_over_at + (self._policy(host).host_clear_ms << max(0, self._incidents(host) - 1))


def _why(reason: Reason, numbers: Mapping[str, Number]) -> Why:
    return Why(rule="P9", reason=reason, numbers=numbers)
