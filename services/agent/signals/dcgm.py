"""`dcgmi diag` tables of DCGM 3 and 4, and the violations `dcgmi policy` prints."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from services.agent.signals.signal import HOST, as_text, raise_signal
from tenure.domain.severity import Severity
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal

SOURCE = "dcgm"

_ROW = re.compile(r"\|([^|]*)\|(.*)\|\s*$")
_SECTION = re.compile(r"[|+]-+  (\S.*?)  -+\+")
_RESULT = re.compile(r"(Pass|Fail|Skip|Warn)\b", re.IGNORECASE)
_OF_GPU = re.compile(r"GPU\s?(\d{1,4}): (Pass|Fail|Skip|Warn)", re.IGNORECASE)
_GPUS = re.compile(r"GPUs?:? ?([\d, ]+)")
_NUMBERS = re.compile(r"\d{1,4}")
_SETTINGS = frozenset(
    (
        "denylist",
        "nvml library",
        "cuda main library",
        "cuda toolkit library",
        "permissions and os blocks",
        "persistence mode",
        "environment variables",
        "graphics processes",
        "software",
    )
)
"""Tests of the machine's set-up, not of its devices: their failure is worth a look, not a drain."""
_FAILED = (
    re.compile(r"unable to establish a connection", re.IGNORECASE),
    re.compile(r"unable to complete diagnostic", re.IGNORECASE),
)
_VIOLATION = re.compile(r"An? (.{1,60}?) (?:event |error )?has violated policy", re.IGNORECASE)
_GRAVE = ("double-bit", "double bit", "dbe", "xid", "retired pages")


@dataclass(slots=True)
class _Test:
    name: str
    section: str
    result: str
    value: str
    gpus: list[str] = field(default_factory=list)
    says: str = ""


def parse_dcgm_diag(output: bytes | str, *, read_at: Millis) -> list[HealthSignal]:
    """A signal for each test, and each GPU it names, that failed (or warned) in an output read at `read_at`."""
    text = as_text(output)
    found: list[HealthSignal] = []
    for test in _tests(text[: text.rfind("\n") + 1]):
        if test.result not in ("fail", "warn"):
            continue
        code = "dcgm_" + re.sub(r"[^a-z0-9]+", "_", test.name.lower())[:40].strip("_")
        mild = test.result == "warn" or test.name.lower() in _SETTINGS
        says = f"DCGM: {test.name}: {test.result}{': ' if test.says else ''}{test.says}"
        for device in test.gpus or [HOST]:
            found.append(
                raise_signal(
                    code,
                    Severity.WATCH if mild else Severity.DRAIN,
                    says,
                    source=SOURCE,
                    at=read_at,
                    device=device,
                    evidence=f"{test.name} | {test.value} {test.says}",
                )
            )
    for line in text.splitlines():
        if any(pattern.search(line) for pattern in _FAILED):
            says = "DCGM could not run its diagnosis"
            found.append(raise_signal("dcgm_down", Severity.WATCH, says, source=SOURCE, at=read_at, evidence=line))
    return found


def _tests(text: str) -> Iterator[_Test]:
    """The tests of a table; wrapped texts are put together again, whatever column they were cut at."""
    section = ""
    last: _Test | None = None
    for line in text.splitlines():
        heading = _SECTION.match(line)
        row = _ROW.match(line)
        if heading is not None:
            section = heading.group(1)
            continue
        if row is None:
            continue
        name, value = row.group(1).strip(), row.group(2)
        if name in ("Error", "Warning", "Info") or not name:
            if last is not None:
                _continue(last, value)
        else:
            if last is not None:
                yield last
            result = _RESULT.match(value.strip())
            last = None
            if result is not None:
                last = _Test(name, section, result.group(1).lower(), value.strip())
                last.gpus += _named(value)
    if last is not None:
        yield last


def _continue(test: _Test, value: str) -> None:
    """A further line of a test: the result of one GPU, or more of its text."""
    of_gpu = _OF_GPU.match(value.strip())
    if of_gpu is None:
        test.says += value[1:].rstrip() if value.startswith(" ") else value.rstrip()
        return
    result = of_gpu.group(2).lower()
    if result == "fail" or (result == "warn" and test.result != "fail"):
        test.result = result
        test.gpus.append(f"gpu{of_gpu.group(1)}")


def _named(value: str) -> list[str]:
    named = _GPUS.search(value)
    return [] if named is None else [f"gpu{number}" for number in _NUMBERS.findall(named.group(1))]


def parse_dcgm_policy(output: bytes | str, *, read_at: Millis) -> list[HealthSignal]:
    """A signal for each policy that an output of `dcgmi policy` says was violated."""
    found = []
    for line in as_text(output).splitlines():
        violated = _VIOLATION.search(line)
        if violated is not None:
            what = violated.group(1)
            code = "dcgm_policy_" + re.sub(r"[^a-z0-9]+", "_", what.lower()).strip("_")
            grave = any(word in what.lower() for word in _GRAVE)
            severity = Severity.DRAIN if grave else Severity.WATCH
            says = f"DCGM policy violated: {what}"
            found.append(raise_signal(code, severity, says, source=SOURCE, at=read_at, evidence=line))
    return found
