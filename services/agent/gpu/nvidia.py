"""The `nvidia` provider: a host's real GPUs, through NVML (the driver's library) as nvidia-ml-py binds it.

The list of GPUs is taken once, at the start: a GPU that falls off the bus later stays in it, with its fault, under the
index and UUID it had. Whatever NVML cannot tell of one GPU leaves the others untouched.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pynvml

from services.agent.gpu.provider import Gpu, GpuProviderError, Utilisation

T = TypeVar("T")

_MIB = 1 << 20
_NOT_A_FAULT = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,  # consumer cards without utilisation or MIG
    pynvml.NVML_ERROR_NOT_FOUND,  # no sample yet
    pynvml.NVML_ERROR_NO_PERMISSION,
)
_NAME_PREFIXES = ("NVIDIA", "Tesla", "GeForce", "Quadro")
_MODEL = re.compile(r"[A-Z]{1,3}\d{1,4}[A-Za-z]*")
"""What people call a data-centre GPU: H100, A100, B200, GH200, L40S, V100, T4, RTX A6000's `A6000`."""


class NvidiaProvider:
    """All GPUs the driver shows, in NVML's index order (that of the PCI bus)."""

    def __init__(self) -> None:
        """Raises GpuProviderError when there is no working driver."""
        try:
            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise GpuProviderError(
                f"NVML does not answer ({error}): install or restart the NVIDIA driver, or choose the virtual provider"
            ) from error
        self._handles: dict[int, Any] = {}
        self._gpus = tuple(self._first_look(index) for index in range(count))

    def gpus(self) -> Sequence[Gpu]:
        """See `GpuProvider`."""
        return tuple(gpu if gpu.fault else replace(gpu, fault=self._fault_of(gpu.index)) for gpu in self._gpus)

    def utilisation(self, held: Mapping[int, Sequence[int]]) -> Utilisation:  # noqa: ARG002 (the driver knows)
        """See `GpuProvider`: the share of time in which a kernel ran, over NVML's last sample (1/6 to 1 second)."""
        return {gpu.index: self._utilisation_of(gpu.index) for gpu in self._gpus}

    def close(self) -> None:
        """Let the driver go."""
        pynvml.nvmlShutdown()

    def _first_look(self, index: int) -> Gpu:
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            unique = pynvml.nvmlDeviceGetUUID(handle)
            name = pynvml.nvmlDeviceGetName(handle)
        except pynvml.NVMLError as error:
            return Gpu(index=index, uuid="", type="unknown", memory_mib=0, device=str(index), fault=_line(error))
        self._handles[index] = handle
        memory = _or_none(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).total)
        mig = _or_none(lambda: pynvml.nvmlDeviceGetMigMode(handle)[0] == pynvml.NVML_DEVICE_MIG_ENABLE)
        return Gpu(
            index=index,
            uuid=unique,
            type=gpu_type_of(name),
            memory_mib=(memory or 0) // _MIB,  # some share the host's memory and have no number of their own
            device=unique,
            mig=bool(mig),
        )

    def _fault_of(self, index: int) -> str:
        """Ask for something every GPU can tell; what it answers instead is its fault."""
        try:
            pynvml.nvmlDeviceGetMemoryInfo(self._handles[index])
        except pynvml.NVMLError as error:
            return "" if error.value in _NOT_A_FAULT else _line(error)
        return ""

    def _utilisation_of(self, index: int) -> float | None:
        handle = self._handles.get(index)
        if handle is None:
            return None
        return _or_none(lambda: min(1.0, pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100))


def gpu_type_of(name: str) -> str:
    """The type people ask for, from the name the driver gives: `NVIDIA H100 80GB HBM3` is an `H100`.

    A name without a model number of that kind is kept, its blanks as dashes, so that it can be asked for at all.
    """
    words = name.split()
    while words and words[0] in _NAME_PREFIXES:
        words.pop(0)
    if words and words[0] == "RTX" and len(words) > 1 and words[1].isdigit():
        return f"RTX{words[1]}"
    for word in words:
        if match := _MODEL.match(word):
            return match.group()
    return "-".join(words) or "unknown"


def _or_none(ask: Callable[[], T]) -> T | None:
    """The answer, or None when NVML has none, for whatever reason: faults are said by `gpus`."""
    try:
        return ask()
    except pynvml.NVMLError:
        return None


def _line(error: pynvml.NVMLError) -> str:
    return f"NVML: {error} (code {error.value})"
