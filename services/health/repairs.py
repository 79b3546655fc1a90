"""What the repair plug is told, and which of its answers are still awaited."""

from services.health.policy.evidence import asking
from services.health.state import Host

LINES_MAX = 20
"""Evidence given with one request."""


def evidence_lines(host: Host) -> tuple[str, ...]:
    """A line for each signal that asks for care, the gravest first."""
    return tuple([signal.line for signal in asking(host)[:LINES_MAX]])
