"""The port to a host's GPUs: which there are, and how busy each is. Two adapters: `virtual` and `nvidia`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Utilisation = Mapping[int, float | None]
"""Per GPU index the busy fraction 0..1 since the last question, or None where it cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU of a host. `device` is what CUDA_VISIBLE_DEVICES calls it.

    `fault` is "" or what the driver says is wrong with it, in one line. A GPU divided by MIG (`mig`) cannot be held
    whole, so its host should not offer it.
    """

    index: int
    uuid: str
    type: str
    memory_mib: int
    device: str
    mig: bool = False
    fault: str = ""


class GpuProviderError(Exception):
    """The host's GPUs cannot be seen at all; the message is one line with the fix."""


class GpuProvider(Protocol):
    """Where a host's GPUs come from. Both calls may block for milliseconds, a sick driver's for long: use a thread."""

    def gpus(self) -> Sequence[Gpu]:
        """The host's GPUs by index. One that was seen once stays in the list, with its fault when it has one."""

    def utilisation(self, held: Mapping[int, Sequence[int]]) -> Utilisation:
        """How busy each GPU is. `held`: GPU index to the keepers of the replicas that hold it (`keeper_pid`)."""


def mean_share(shares: Utilisation, gpus: Sequence[int]) -> int | None:
    """Mean utilisation of these GPUs in thousandths; None where none of them can be measured."""
    known = [share for share in (shares.get(gpu) for gpu in gpus) if share is not None]
    return round(1000 * sum(known) / len(known)) if known else None
