"""The sources of one machine: each reads its device or tool, and remembers what it needs."""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from services.agent.log_clock import LogClock
from services.agent.signals.check import Outcome, check_source, judge_check
from services.agent.signals.dcgm import parse_dcgm_diag
from services.agent.signals.disks import judge_errors, judge_mounts, judge_room, read_errors
from services.agent.signals.fabric import SOURCE as FABRIC
from services.agent.signals.fabric import UNIT_SOURCE, parse_fabric_unit
from services.agent.signals.nvml import driver_fault, gpus_on_bus, read_nvml
from services.agent.signals.ports import Port, judge_ports, read_ports
from services.agent.signals.signal import raise_signal
from services.agent.signals.smi_query import parse_smi_query
from services.agent.signals.time_sync import judge_log_clock, parse_chrony
from services.agent.watch.logs import FabricLog, KernelLog
from services.agent.watch.tool import Tool
from tenure.domain.severity import Severity
from tenure.domain.units import MINUTE, SECOND, Millis
from tenure.events.reports import HealthSignal
from tenure.runtime.signal_options import CheckOption, SignalOptions

Read = Callable[[Millis], Sequence[HealthSignal]]

CHECK_OUTPUT_MAX = 1 << 16
_FABRIC_MANAGER = ("systemctl", "show", "nvidia-fabricmanager", "-p", "LoadState,UnitFileState,ActiveState,SubState")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Something that is read every `every_ms`, in a thread of its own that is given up after `limit_ms`.

    `key` is the `source` of its signals. `events`: it tells what happened, not how things are.
    """

    name: str
    key: str
    read: Read
    every_ms: Millis
    limit_ms: Millis = MINUTE
    events: bool = False


class Nvml:
    """The source `nvml`. The driver's library is loaded when it is first read."""

    def __init__(self, *, sysfs: Path, expected: int | None, library: Any = None) -> None:
        self._sysfs, self._expected, self._library = sysfs, expected, library
        self._started = False
        self._seen: dict[str, None] = {}

    def __call__(self, now: Millis) -> Sequence[HealthSignal]:
        """The signals of all GPUs."""
        library = self._library = self._library or importlib.import_module("pynvml")
        if not self._started:
            try:
                library.nvmlInit()
            except library.NVMLError as error:
                return driver_fault(library, error, read_at=now)
            self._started = True
        found, present = read_nvml(
            library, read_at=now, seen=self._seen, on_bus=gpus_on_bus(self._sysfs), expected=self._expected
        )
        self._seen |= dict.fromkeys(present)
        return found


class Ports:
    """The source `ports`."""

    def __init__(self, *, sysfs: Path, must_be_up: Sequence[str]) -> None:
        self._sysfs, self._must_be_up = sysfs, dict.fromkeys(must_be_up)
        self._before: dict[str, Port] = {}
        """The last reading of each port, with the best rate it was up with."""

    def __call__(self, now: Millis) -> Sequence[HealthSignal]:
        """The signals of all ports. One that was up once must stay up."""
        read = read_ports(self._sysfs)
        before = list(self._before.values())
        found = judge_ports(read, read_at=now, must_be_up=self._must_be_up, before=before)
        for port in read:
            earlier = self._before.get(port.name)
            best = max(port.gbit if port.up else 0.0, 0.0 if earlier is None else earlier.gbit)
            self._before[port.name] = replace(port, gbit=best)
            if port.up:
                self._must_be_up[port.name] = None
        return found


class Disks:
    """The source `disks`."""

    def __init__(self, *, paths: Sequence[Path], sysfs: Path, proc: Path) -> None:
        self._paths, self._sysfs, self._proc = tuple(dict.fromkeys(paths)), sysfs, proc
        self._errors: dict[str, int] | None = None

    def __call__(self, now: Millis) -> Sequence[HealthSignal]:
        """The signals of all disks."""
        errors = read_errors(self._sysfs)
        before, self._errors = self._errors, errors
        return [
            *judge_room(self._paths, read_at=now),
            *judge_mounts(self._proc, read_at=now),
            *judge_errors(errors, read_at=now, before=errors if before is None else before),
        ]


class OfTool:
    """A source that is the output of a tool. A tool that is not there raises nothing; one that hangs does."""

    def __init__(self, tool: Tool, *, source: str, parse: Callable[..., Sequence[HealthSignal]]) -> None:
        self._tool, self._source, self._parse = tool, source, parse

    def __call__(self, now: Millis) -> Sequence[HealthSignal]:
        """What its output says."""
        outcome = self._tool.run()
        if outcome.problem:
            return []
        if outcome.late or outcome.flooded:
            how = "did not end in time" if outcome.late else "wrote too much"
            text = f"{self._tool.command[0]} {how} and was stopped"
            return [raise_signal("tool_broken", Severity.WATCH, text, source=self._source, at=now)]
        return self._parse(outcome.output, read_at=now)


class Check:
    """A custom check."""

    def __init__(self, option: CheckOption, *, environment: Mapping[str, str]) -> None:
        self._name, self._reads = option.name, option.reads
        self._tool = Tool(
            option.command, limit_ms=option.limit_ms, output_max=CHECK_OUTPUT_MAX, environment=environment
        )

    def __call__(self, now: Millis) -> Sequence[HealthSignal]:
        """How it ended."""
        outcome: Outcome = self._tool.run()
        return judge_check(self._name, outcome, read_at=now, reads=self._reads)


class ClockOf:
    """The source `clock`: what chrony says, and how far the machine's clock is from the log's."""

    def __init__(self, clock: LogClock, chrony: OfTool) -> None:
        self._clock, self._chrony = clock, chrony

    def __call__(self, now: Millis) -> Sequence[HealthSignal]:
        """The signals of the machine's clock."""
        return [*judge_log_clock(self._clock.offset_ms, read_at=now), *self._chrony(now)]


def sources_of(
    options: SignalOptions, *, host: str, data: Path, clock: LogClock, last_read: Mapping[str, Millis]
) -> list[Source]:
    """What is read for `host`. `last_read`: until when an earlier agent had read each log, by source (epoch ms)."""
    every = options.every_ms
    found = [
        Source(name=name, key=key, read=read, every_ms=every[name], limit_ms=limit_ms, events=events)
        for name, key, limit_ms, events, read in _known(options, data, clock, last_read)
        if name in every
    ]
    if "fabric" in every:
        log = FabricLog(options.fabric_log, after=last_read.get(FABRIC))
        found.append(Source(name="fabric-log", key=FABRIC, read=log, every_ms=every["fabric"], events=True))
    for check in options.checks:
        found.append(
            Source(
                name=f"check {check.name}",
                key=check_source(check.name),
                read=Check(check, environment={"TENURE_HOST": host}),
                every_ms=check.every_ms,
                limit_ms=check.limit_ms + 10 * SECOND,
            )
        )
    return found


def _known(
    options: SignalOptions, data: Path, log_clock: LogClock, last_read: Mapping[str, Millis]
) -> Iterator[tuple[str, str, Millis, bool, Read]]:
    """Name, source of its signals, time limit, whether it tells events, and the reader of each built-in source."""
    paths = (*options.paths, data)
    kernel = KernelLog(options.kernel_log, proc=options.proc, after=last_read.get("kernel"))
    yield "kernel", "kernel", MINUTE, True, kernel
    yield "nvml", "nvml", MINUTE, False, Nvml(sysfs=options.sysfs, expected=options.gpus)
    yield "ports", "ports", MINUTE, False, Ports(sysfs=options.sysfs, must_be_up=options.ports_up)
    yield "disks", "disks", MINUTE, False, Disks(paths=paths, sysfs=options.sysfs, proc=options.proc)
    manager = Tool(_FABRIC_MANAGER, limit_ms=10 * SECOND)
    yield "fabric", UNIT_SOURCE, MINUTE, False, OfTool(manager, source=UNIT_SOURCE, parse=parse_fabric_unit)
    chrony = Tool(("chronyc", "-c", "tracking"), limit_ms=10 * SECOND)
    of_chrony = OfTool(chrony, source="clock", parse=parse_chrony)
    yield "clock", "clock", MINUTE, False, ClockOf(log_clock, of_chrony)
    smi = Tool(options.smi, limit_ms=2 * MINUTE)
    yield "smi", "nvidia-smi", 3 * MINUTE, False, OfTool(smi, source="nvidia-smi", parse=parse_smi_query)
    diagnosis = Tool(options.dcgm, limit_ms=30 * MINUTE)
    yield "dcgm", "dcgm", 31 * MINUTE, False, OfTool(diagnosis, source="dcgm", parse=parse_dcgm_diag)
