"""Custom checks: what an executable's end says. Its exit code is the verdict, its first line of output the words.

| exit code | means |
|---|---|
| 0 | well: nothing is raised |
| 1 | watch |
| 2 | drain: at the ends of contracts |
| 7 | fatal: what runs on the host is lost |
| others, a signal, no end in time, too much output, no text | the check is unwell, not the host: watch |
"""

from dataclasses import dataclass

from services.agent.signals.signal import TEXT_MAX, clean, raise_signal
from tenure.domain.severity import Severity
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal

VERDICTS = {1: Severity.WATCH, 2: Severity.DRAIN, 7: Severity.FATAL}
"""What each exit code but 0 asks for. 3 is no verdict: plugins of Nagios say "unknown" with it."""


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


def judge_check(name: str, outcome: Outcome, *, read_at: Millis) -> list[HealthSignal]:
    """The signal of the check `name` that ended so at `read_at` (epoch ms), or none if all is well."""
    first = outcome.output.lstrip().partition(b"\n")[0]
    fault = _fault(outcome, first)
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


def _fault(outcome: Outcome, first: bytes) -> str | None:
    """What is wrong with the check itself, or None: its exit code is a verdict."""
    if outcome.problem:
        return f"the check cannot be run: {outcome.problem}"
    if outcome.late:
        return f"the check did not end within {outcome.limit_ms / 1000:g} s and was stopped"
    if outcome.flooded:
        return f"the check wrote more than {len(outcome.output)} bytes and was stopped"
    if outcome.code is None or outcome.code < 0:
        return f"the check was ended by signal {-(outcome.code or 0)}"
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
