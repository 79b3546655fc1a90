"""The table `nvidia-smi` prints by itself: three lines a GPU, in columns. It tells little, but people paste it."""

import re

from services.agent.signals.gpu import GpuReading, judge
from services.agent.signals.signal import as_text, pci_id
from services.agent.signals.smi_failures import failures
from services.agent.signals.smi_values import number
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal

SOURCE = "nvidia-smi"

_FIRST = re.compile(
    r"\|\s*\d+\s.*?\|\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s+\S+\s*\|\s*(\S+)\s*\|\s*$"
)
_SECOND = re.compile(r"\|([^|]*)\|([^|]*)\|([^|]*)\|\s*$")
_THIRD = re.compile(r"\|[^|]*\|[^|]*\|\s*(\S+)\s*\|\s*$")
_COLUMNS = (("Fan", "Temp", "Perf", "Pwr", "/", "Cap"), ("Memory-Usage",), ("GPU-Util",))


def parse_smi_table(output: bytes | str, *, read_at: Millis) -> list[HealthSignal]:
    """The signals of a table read at `read_at` (epoch ms)."""
    text = as_text(output)
    found = failures(text, source=SOURCE, at=read_at)
    lines = text[: text.rfind("\n") + 1].splitlines()
    for index, line in enumerate(lines):
        first = _FIRST.match(line)
        if first is None:
            continue
        second = _SECOND.match(lines[index + 1]) if index + 1 < len(lines) else None
        third = _THIRD.match(lines[index + 2]) if index + 2 < len(lines) else None
        unreadable = () if second is None else _unreadable(second.groups())
        reading = GpuReading(
            device=pci_id(first.group(1)) or first.group(1),
            ecc_uncorrected=number(first.group(2)),
            mig_enabled=None if third is None else third.group(1).startswith("Enabled"),
            unreadable=unreadable,
            lines={"ecc_uncorrected": line, "unreadable": lines[index + 1] if unreadable else ""},
        )
        found += judge(reading, source=SOURCE, at=read_at)
    return found


def _unreadable(cells: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the columns that say `ERR!`."""
    names: list[str] = []
    for cell, columns in zip(cells, _COLUMNS, strict=True):
        words = cell.split()
        names += [columns[min(place, len(columns) - 1)] for place, word in enumerate(words) if word == "ERR!"]
    return tuple(names)
