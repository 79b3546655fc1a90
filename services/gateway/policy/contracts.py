"""Whether a contract was broken: what must never happen, so it is looked for in every fact (I3)."""

from services.gateway.entries import RunEntry
from tenure.domain.reasons import Reason
from tenure.events.placing import RunPreemptionRequested


def breaks_contract(fact: RunPreemptionRequested, run: RunEntry) -> bool:
    """An allocated run is told to end before its minimum runtime is over (P5), and its host is not the reason."""
    if not run.allocated or fact.why.reason is Reason.DISRUPT_HOST_FATAL:
        return False
    return run.protected_until is None or fact.at < run.protected_until
