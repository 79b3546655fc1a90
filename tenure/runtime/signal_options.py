"""Which sources of signals are read, how often, and from where: the `signals:` section of the configuration."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tenure.domain.names import check_word
from tenure.domain.nearest import unknown_key
from tenure.domain.refusal import Refusal
from tenure.domain.units import MINUTE, SECOND, Millis, parse_duration

INTERVALS: Mapping[str, Millis | None] = {
    "kernel": 5 * SECOND,
    "nvml": 30 * SECOND,
    "fabric": MINUTE,
    "ports": 30 * SECOND,
    "disks": MINUTE,
    "clock": 5 * MINUTE,
    "smi": None,
    "dcgm": None,
}
"""Each source and how often it is read on a real host; None: only if the configuration says how often."""
OF_GPUS = ("nvml", "fabric")
"""Those that ask the driver of GPUs, or the manager of their switches."""
SIGNALS = "signals"
READABLE = ("dcgm-diag", "dcgm-policy", "gpu-burn", "nvidia-smi", "nvidia-smi-csv", "nvidia-smi-q", "nvlink")
"""Tools whose output a check can have read, instead of going by its exit code."""
_SHORTEST_MS: Millis = SECOND // 10
_OFF = ("off", "false", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOption:
    """One custom check: its name, its command, how often it runs and how long it may take.

    `reads`: one of `READABLE`, or none.
    """

    name: str
    command: tuple[str, ...]
    every_ms: Millis = 10 * MINUTE
    limit_ms: Millis = 30 * SECOND
    reads: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalOptions:
    """All of it. `every_ms`: the sources that are read and how often."""

    every_ms: Mapping[str, Millis] = field(default_factory=dict)
    host: str | None = None
    """Of which of the agent's hosts the machine's signals are; None: the first."""
    kernel_log: Path = Path("/dev/kmsg")
    fabric_log: Path = Path("/var/log/fabricmanager.log")
    sysfs: Path = Path("/sys")
    proc: Path = Path("/proc")
    paths: tuple[Path, ...] = (Path("/"),)
    """File systems whose room is watched."""
    ports_up: tuple[str, ...] = ()
    """Ports (`mlx5_0/1`) that must be up from the start; any other that was up once must stay up."""
    gpus: int | None = None
    """How many GPUs the host should have; None: as many as were seen."""
    smi: tuple[str, ...] = ("nvidia-smi", "-q")
    dcgm: tuple[str, ...] = ("dcgmi", "diag", "-r", "1")
    checks: tuple[CheckOption, ...] = ()


_CHECK_KEYS = ("name", "command", "every", "limit", "reads")


def build_signal_options(values: Mapping[str, object], *, real_host: bool, has_gpus: bool = True) -> SignalOptions:
    """The options with `values` over the defaults. Raises `Refusal`.

    On a real host the sources of `INTERVALS` are read, without GPUs not those of GPUs; for made-up hosts only those
    that `values` names.
    """
    every_ms = {name: length for name, length in INTERVALS.items() if length is not None} if real_host else {}
    for name in () if has_gpus else OF_GPUS:
        every_ms.pop(name, None)
    chosen: dict[str, object] = {}
    for key, value in values.items():
        if key not in READERS:
            raise unknown_key(key, known=READERS, where=SIGNALS)
        read = READERS[key](value, key)
        if key not in INTERVALS:
            chosen[_FIELDS.get(key, key)] = read
        elif read is None:
            every_ms.pop(key, None)
        else:
            every_ms[key] = read  # type: ignore[assignment]
    return dataclasses.replace(SignalOptions(every_ms=every_ms), **chosen)  # type: ignore[arg-type]


def _every(value: object, key: str) -> Millis | None:
    return None if value is False or str(value).lower() in _OFF else _interval(value, key)


def _interval(value: object, key: str) -> Millis:
    length = parse_duration(str(value), field=f"signals.{key}")
    if length < _SHORTEST_MS:
        raise Refusal(field=f"signals.{key}", problem="too often", fix=f"give at least {_SHORTEST_MS} ms, or off")
    return length


def _words(value: object, key: str) -> tuple[str, ...]:
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, list) or not words or not all(isinstance(word, str | int) for word in words):
        raise Refusal(field=f"signals.{key}", problem="not a list of words", fix="write [one, two]")
    return tuple(str(word) for word in words)


def _count(value: object, key: str) -> int:
    text = str(value)
    if not text.isascii() or not text.isdigit() or int(text) > 1024:
        raise Refusal(field=f"signals.{key}", problem=f"{text[:40]!r} is no number of GPUs", fix="write gpus: 8")
    return int(text)


def _path(value: object, _key: str) -> Path:
    return Path(str(value))


def _paths(value: object, key: str) -> tuple[Path, ...]:
    return tuple(Path(path) for path in _words(value, key))


def _host(value: object, _key: str) -> str:
    return check_word(str(value), field="signals.host")


def _checks(value: object, _key: str) -> tuple[CheckOption, ...]:
    if not isinstance(value, list):
        raise Refusal(field="signals.checks", problem="not a list", fix="write - {name: N, command: [PATH]} lines")
    checks = tuple(_check(entry) for entry in value)
    names = [check.name for check in checks]
    for name in names:
        if names.count(name) > 1:
            raise Refusal(field="signals.checks", problem=f"two checks are named {name}", fix="rename one")
    return checks


def _check(entry: object) -> CheckOption:
    where = "signals.checks"
    if not isinstance(entry, dict) or "name" not in entry or "command" not in entry:
        raise Refusal(field=where, problem="a check without name or command", fix="write {name: N, command: [PATH]}")
    for key in entry:
        if key not in _CHECK_KEYS:
            raise unknown_key(str(key), known=_CHECK_KEYS, where=where)
    name = check_word(str(entry["name"]), field=f"{where}.name")
    lengths = {f"{key}_ms": _interval(entry[key], f"checks.{name}.{key}") for key in ("every", "limit") if key in entry}
    reads = entry.get("reads")
    if reads is not None and reads not in READABLE:
        raise Refusal(
            field=f"{where}.{name}.reads",
            problem=f"{str(reads)[:40]!r} is not known",
            fix=f"one of {', '.join(READABLE)}",
        )
    return CheckOption(name=name, command=_words(entry["command"], f"checks.{name}.command"), reads=reads, **lengths)


READERS: Mapping[str, Callable[[object, str], object]] = {
    **dict.fromkeys(INTERVALS, _every),
    "host": _host,
    "kernel_log": _path,
    "fabric_log": _path,
    "sysfs": _path,
    "proc": _path,
    "paths": _paths,
    "ports_up": _words,
    "gpus": _count,
    "smi_command": _words,
    "dcgm_command": _words,
    "checks": _checks,
}
"""What is made of each key, from its value as people write it and its name."""
_FIELDS = {"smi_command": "smi", "dcgm_command": "dcgm"}
