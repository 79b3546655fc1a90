"""Custom checks: what an executable's end says. Its exit code is the verdict, its first line of output the words.
Or its output is that of a known tool, and is read as such.

| exit code | means |
|---|---|
| 0 | well: nothing is raised |
| 1 | watch |
| 2 | drain: at the ends of contracts |
| 7 | fatal: what runs on the host is lost |
| others, a signal, no end in time, too much output, no text | the check is unwell, not the host: watch |
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from services.agent.signals.burn import parse_gpu_burn
from services.agent.signals.dcgm import parse_dcgm_diag, parse_dcgm_policy
from services.agent.signals.nvlink import parse_nvlink
from services.agent.signals.signal import TEXT_MAX, clean, raise_signal
from services.agent.signals.smi_csv import parse_smi_csv
from services.agent.signals.smi_query import parse_smi_query
from services.agent.signals.smi_table import parse_smi_table
from tenure.domain.severity import Severity
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal

VERDICTS = {1: Severity.WATCH, 2: Severity.DRAIN, 7: Severity.FATAL}
"""What each exit code but 0 asks for. 3 is no verdict: plugins of Nagios say "unknown" with it."""


PARSERS: Mapping[str, Callable[..., Sequence[HealthSignal]]] = {
    "dcgm-diag": parse_dcgm_diag,
    "dcgm-policy": parse_dcgm_policy,
    "gpu-burn": parse_gpu_burn,
    "nvidia-smi": parse_smi_table,
    "nvidia-smi-csv": parse_smi_csv,
    "nvidia-smi-q": parse_smi_query,
    "nvlink": parse_nvlink,
}
"""How the output of each tool is read: those of `tenure.runtime.signal_options.READABLE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a program ended. `code` is its exit code, negative the signal that ended it, None: it was not waited for.

    `problem` says why it could not be started. `flooded`: it wrote more than is read of it and was stopped; `late`: it
    did not end within its time limit, `limit_ms`, and was stopped.
    """

    code: int | None
    output: bytes = b""
    late: bool = False
    flooded: bool = False
    problem: str = ""
    limit_ms: Millis = 0


def check_source(name: str) -> str:
    """The source of the signals of the check `name`."""
    return f"check:{name}"


def judge_check(name: str, outcome: Outcome, *, read_at: Millis, reads: str | None = None) -> list[HealthSignal]:
    """The signals of the check `name` that ended so at `read_at` (epoch ms); none if all is well.

    `reads`: its output is that of this tool (a key of `PARSERS`), whose exit code says nothing.
    """
    first = outcome.output.lstrip().partition(b"\n")[0]
    fault = _unfinished(outcome)
    if fault is None and reads is not None:
        found = PARSERS[reads](outcome.output, read_at=read_at)
        return [msgspec.structs.replace(signal, source=check_source(name)) for signal in found]
    fault = fault or _no_verdict(outcome, first)
    code = None if fault is not None else outcome.code
    if code == 0:
        return []
    severity = Severity.WATCH if code is None else VERDICTS[code]
    words = fault if fault is not None else clean(first, TEXT_MAX) or f"exit code {code}, no words"
    return [
        raise_signal(
            "check_failed" if fault is None else "check_broken",
            severity,
            words,
            source=check_source(name),
            at=read_at,
            evidence=first,
        )
    ]


def _unfinished(outcome: Outcome) -> str | None:
    """Why the check did not come to its end, or None."""
    if outcome.problem:
        return f"the check cannot be run: {outcome.problem}"
    if outcome.late:
        return f"the check did not end within {outcome.limit_ms / 1000:g} s and was stopped"
    if outcome.flooded:
        return f"the check wrote more than {len(outcome.output)} bytes and was stopped"
    if outcome.code is None or outcome.code < 0:
        return f"the check was ended by signal {-(outcome.code or 0)}"
    return None


def _no_verdict(outcome: Outcome, first: bytes) -> str | None:
    """What is wrong with the end of the check, or None: its exit code is a verdict."""
    if outcome.code != 0 and outcome.code not in VERDICTS:
        return f"the check ended with exit code {outcome.code}, which is no verdict"
    if outcome.code != 0 and _is_binary(first):
        return f"the check ended with exit code {outcome.code} and wrote no text"
    return None


def _is_binary(line: bytes) -> bool:
    """Whether the line is no text: it holds zeros, or is no UTF-8."""
    try:
        return "\0" in line.decode()
    except UnicodeDecodeError:
        return True
