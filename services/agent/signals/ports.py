"""InfiniBand and RoCE ports, from /sys/class/infiniband."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from services.agent.signals.signal import clean, raise_signal
from tenure.domain.severity import Severity
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal

SOURCE = "ports"

COUNTERS = ("link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors", "local_link_integrity_errors")
MANY = {"symbol_error": 100, "port_rcv_errors": 100}
"""Errors between two looks that are worth a signal; one is enough of the others."""
_PORTS_MAX = 256
_FILE_MAX = 256
_RATE = re.compile(r"([\d.]{1,9}) Gb/sec")


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One port: its state's words (`ACTIVE`, `LinkUp`), its rate in Gbit/s (0: not told), its error counters."""

    name: str
    state: str
    physical: str
    layer: str
    gbit: float
    errors: Mapping[str, int]

    @property
    def up(self) -> bool:
        """It carries traffic."""
        return self.state == "ACTIVE"


def read_ports(sysfs: Path) -> list[Port]:
    """All ports below `sysfs` (normally /sys), by name. What cannot be read is empty; without any there are none."""
    try:
        paths = sorted((sysfs / "class/infiniband").glob("*/ports/*"))[:_PORTS_MAX]
    except OSError:
        return []
    return [_port(path) for path in paths if path.is_dir()]


def judge_ports(
    ports: Collection[Port], *, read_at: Millis, must_be_up: Collection[str] = (), before: Collection[Port] = ()
) -> list[HealthSignal]:
    """The signals of the ports at `read_at` (epoch ms).

    A port that is down raises nothing by itself: many have no cable. Those of `must_be_up`, and those that were up
    `before` (an earlier reading), have one. Errors are those since that reading.
    """
    earlier = {port.name: port for port in before}
    named = {port.name: port for port in ports}
    found: list[HealthSignal] = []
    wanted = {*must_be_up, *(port.name for port in before if port.up)}
    for name in sorted({*named, *wanted}):
        port = named.get(name)
        if port is None:
            found.append(_signal("port_missing", Severity.DRAIN, "the port is gone", name, "", read_at))
            continue
        line = f"state={port.state} phys_state={port.physical} link_layer={port.layer} rate={port.gbit:g} Gb/s"
        if not port.up and name in wanted:
            text = f"the port is down ({port.state or 'unreadable'}, {port.physical or 'unreadable'})"
            found.append(_signal("port_down", Severity.DRAIN, text, name, line, read_at))
        elif not port.up and port.physical == "LinkUp":
            text = f"the link is up, but the port is not in use ({port.state}): no subnet manager?"
            found.append(_signal("port_not_active", Severity.WATCH, text, name, line, read_at))
        if name in earlier:
            found += _changes(earlier[name], port, line, read_at)
    return found


def _changes(before: Port, port: Port, line: str, at: Millis) -> list[HealthSignal]:
    found = []
    if port.up and 0 < port.gbit < before.gbit:
        text = f"the port is slower than it was: {port.gbit:g} of {before.gbit:g} Gbit/s"
        found.append(_signal("port_slow", Severity.WATCH, text, port.name, line, at))
    grown = {
        counter: port.errors[counter] - before.errors[counter]
        for counter in COUNTERS
        if counter in port.errors and counter in before.errors
    }
    told = {counter: count for counter, count in grown.items() if count >= MANY.get(counter, 1)}
    if told:
        words = ", ".join(f"{counter} +{count}" for counter, count in told.items())
        found.append(_signal("port_errors", Severity.WATCH, f"errors on the port: {words}", port.name, words, at))
    return found


def _signal(code: str, severity: Severity, text: str, device: str, line: str, at: Millis) -> HealthSignal:
    return raise_signal(code, severity, text, source=SOURCE, at=at, device=device, evidence=line)


def _port(path: Path) -> Port:
    rate = _RATE.search(_read(path / "rate"))
    errors: dict[str, int] = {}
    for counter in COUNTERS:
        text = _read(path / "counters" / counter)
        if text.isascii() and text.isdigit():
            errors[counter] = int(text)
    return Port(
        name=clean(f"{path.parent.parent.name}/{path.name}", 64),
        state=_word(_read(path / "state")),
        physical=_word(_read(path / "phys_state")),
        layer=_read(path / "link_layer"),
        gbit=_number(rate.group(1)) if rate is not None else 0.0,
        errors=errors,
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _word(text: str) -> str:
    """`ACTIVE` of `4: ACTIVE`."""
    return text.partition(":")[2].strip() or text


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return clean(file.read(_FILE_MAX), _FILE_MAX)
    except OSError:
        return ""
