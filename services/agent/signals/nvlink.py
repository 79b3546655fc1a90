"""`nvidia-smi nvlink --status` and `--errorcounters`: a head a GPU, a line a link."""

import re

from services.agent.signals.gpu import GpuReading, judge
from services.agent.signals.signal import as_text
from services.agent.signals.smi_failures import failures
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal

SOURCE = "nvlink"

_HEAD = re.compile(r"GPU (\d{1,4}): ")
_SPEED = re.compile(r"\s*Link (\d{1,3}): (?:<?(inactive|disabled)>?|([\d.]{1,12}) [GM]B/s)\s*$", re.IGNORECASE)
_COUNT = re.compile(r"\s*Link (\d{1,3}): (?:Replay|Recovery) Errors: (\d{1,18})\s*$")


def parse_nvlink(output: bytes | str, *, read_at: Millis) -> list[HealthSignal]:
    """The signals of an output read at `read_at` (epoch ms).

    A link that is down counts only where others of the same GPU are up: GPUs without bridges have none. Sentences in
    the place of links ("not supported for devices in MIG mode") are no links.
    """
    text = as_text(output)
    found = failures(text, source=SOURCE, at=read_at)
    for index, links, errors in _gpus(text):
        down = tuple(link for link, up in sorted(links.items()) if not up)
        reading = GpuReading(
            device=f"gpu{index}",
            links_down=down if len(down) < len(links) else (),
            link_errors=errors,
        )
        found += judge(reading, source=SOURCE, at=read_at)
    return found


def _gpus(text: str) -> list[tuple[int, dict[int, bool], int]]:
    """Per GPU: which links are up, and how often they had to recover or replay. A half last line is left."""
    gpus: list[tuple[int, dict[int, bool], int]] = []
    for line in text[: text.rfind("\n") + 1].splitlines():
        head, speed, count = _HEAD.match(line), _SPEED.match(line), _COUNT.match(line)
        if head is not None:
            gpus.append((int(head.group(1)), {}, 0))
        elif gpus and speed is not None:
            gpus[-1][1][int(speed.group(1))] = speed.group(2) is None
        elif gpus and count is not None:
            index, links, errors = gpus[-1]
            gpus[-1] = (index, links, errors + int(count.group(2)))
    return gpus
