"""What gpu-burn prints at its end: `GPU 0: OK` or `GPU 0: FAULTY`, a line a GPU."""

import re

from services.agent.signals.signal import as_text, raise_signal
from tenure.domain.severity import Severity
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal

SOURCE = "gpu-burn"
_VERDICT = re.compile(r"\s*GPU (\d{1,4}): (OK|FAULTY)\s*$", re.MULTILINE)


def parse_gpu_burn(output: bytes | str, *, read_at: Millis) -> list[HealthSignal]:
    """A signal for each GPU that computed wrongly."""
    return [
        raise_signal(
            "gpu_burn_faulty",
            Severity.DRAIN,
            "the GPU computed wrong results under load",
            source=SOURCE,
            at=read_at,
            device=f"gpu{verdict.group(1)}",
            evidence=verdict.group().strip(),
        )
        for verdict in _VERDICT.finditer(as_text(output))
        if verdict.group(2) == "FAULTY"
    ]
