"""P9, what speaks against a host that is heard: its devices' signals, GPUs it lacks, runs that die on it.

Nothing acts on one doubtful word. A device's fatal signal stands alone; a custom check never does; what asks for a
drain has to last, or a second source has to agree; meanwhile nothing new starts there. A signal that comes and goes is
watched.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from services.health.policy.blame import blamed
from services.health.state import Core, Host
from tenure.domain.ids import FactId
from tenure.domain.policy import Policy
from tenure.domain.reasons import Number, Reason
from tenure.domain.severity import Severity
from tenure.domain.units import SECOND, Millis
from tenure.events.reports import HealthSignal

CUSTOM = "check:"
"""Sources of people's own checks begin so."""
EVENTS = ("kernel", "fabric")
"""Sources of what happened, not of what is so: a signal of theirs that goes on has happened again."""
CLOCKS_APART_MS = 10 * SECOND
"""Agents' clocks may differ by so much before they are corrected by the log's."""
AGREEING = 2
"""So many sources need not wait for each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is to be done with the host, and the numbers that say why."""

    fatal: bool
    reason: Reason
    numbers: Mapping[str, Number]
    cause: FactId | None = None


def weigh(host: Host, core: Core, now: Millis, *, policy: Policy) -> Evidence | None:
    """The gravest evidence against the host; None when it is sound for all we know."""
    found = _signals(host, now, policy=policy) or _lacking(host, now, policy=policy) or _doubled(host)
    if found is None and (against := blamed(host, core, now, policy=policy)) is not None:
        found = Evidence(fatal=False, reason=against[0], numbers=against[1])
    return found


def doubt(host: Host, *, policy: Policy) -> Evidence | None:
    """What would be evidence if it lasted (S63): no reason to end anything yet, but one to start nothing there."""
    signals = asking(host)
    if signals:
        first = signals[0]
        numbers: Mapping[str, Number] = {
            "source": first.source,
            "device": first.device,
            "code": first.code,
            "severity": first.severity.value,
            "confirm_ms": policy.signal_confirm_ms,
        }
        return Evidence(fatal=False, reason=Reason.HOST_DOUBTED, numbers=numbers, cause=host.signals_fact)
    if host.lacking_since is not None:
        numbers = {"gpus": host.gpus, "gpus_registered": host.gpus_expected, "confirm_ms": policy.signal_confirm_ms}
        return Evidence(fatal=False, reason=Reason.HOST_DOUBTED, numbers=numbers)
    return None


def next_at(host: Host, now: Millis, *, policy: Policy) -> Millis | None:
    """When what is doubtful now will have lasted long enough (P11)."""
    instants = [signal.first_at + policy.signal_confirm_ms for signal in asking(host)]
    if host.lacking_since is not None:
        instants.append(host.lacking_since + policy.signal_confirm_ms)
    return min((instant for instant in instants if instant > now), default=None)


def asking(host: Host) -> list[HealthSignal]:
    """Open signals that ask for more than to be watched, were seen after the host was last taken for sound, and not
    by the person who said so; but what is fatal and happens again nobody has excused."""
    open_signals = [
        signal
        for signal in host.signals
        if signal.severity is not Severity.WATCH and _is_news(signal, host) and not _is_excused(signal, host)
    ]
    return sorted(open_signals, key=lambda signal: (-signal.severity.rank, signal.first_at, signal.key))


def _is_news(signal: HealthSignal, host: Host) -> bool:
    """One that was not open when the host was taken for sound may have a stamp of a clock that is behind."""
    slack_ms = 0 if signal.incident in host.settled else CLOCKS_APART_MS
    return signal.last_at > host.cleared_at - slack_ms


def _is_excused(signal: HealthSignal, host: Host) -> bool:
    again = signal.severity is Severity.FATAL and signal.source in EVENTS
    return signal.incident in host.excused and not again


def _signals(host: Host, now: Millis, *, policy: Policy) -> Evidence | None:
    signals = asking(host)
    if not signals:
        return None
    agreeing = len({signal.source for signal in signals}) >= AGREEING
    for signal in signals:
        lasted_ms = now - signal.first_at
        numbers = {
            "source": signal.source,
            "device": signal.device,
            "code": signal.code,
            "severity": signal.severity.value,
            "lasted_ms": lasted_ms,
            "signals": len(signals),
        }
        if signal.severity is Severity.FATAL and (agreeing or not signal.source.startswith(CUSTOM)):
            return Evidence(fatal=True, reason=Reason.HOST_SIGNAL_FATAL, numbers=numbers, cause=host.signals_fact)
        if agreeing or lasted_ms >= policy.signal_confirm_ms:
            numbers["confirm_ms"] = policy.signal_confirm_ms
            return Evidence(fatal=False, reason=Reason.HOST_SIGNALS, numbers=numbers, cause=host.signals_fact)
    return None


def _doubled(host: Host) -> Evidence | None:
    """Two machines were given one name: what one says of its runs and GPUs is no word about the other."""
    if host.doubled_at <= host.cleared_at:
        return None
    agent, other = host.agents
    return Evidence(fatal=False, reason=Reason.HOST_NAMED_TWICE, numbers={"agent": agent, "other_agent": other})


def _lacking(host: Host, now: Millis, *, policy: Policy) -> Evidence | None:
    """S62: its beats name fewer working GPUs than it ever registered, for a while."""
    since = host.lacking_since
    if since is None or now - since < policy.signal_confirm_ms:
        return None
    numbers = {"gpus": host.gpus, "gpus_registered": host.gpus_expected, "lasted_ms": now - since}
    return Evidence(fatal=False, reason=Reason.HOST_GPUS_MISSING, numbers=numbers)
