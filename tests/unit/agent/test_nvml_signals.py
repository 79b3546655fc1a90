"""NVML's answers as signals, with a driver library made up here; its names and numbers are nvidia-ml-py's."""

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from services.agent.signals.nvml import driver_fault, gpus_on_bus, read_nvml
from tenure.events.reports import HealthSignal

Told = list[tuple[str, str, str]]


class FakeNvml:
    """The part of pynvml that is asked; every answer of GPU i is `answers[i][question]`, an error or a value."""

    def __init__(self, *gpus: dict[str, Any]) -> None:
        self.answers = [{**healthy(number), **gpu} for number, gpu in enumerate(gpus)]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet"):
            return getattr(pynvml, name)
        if name == "nvmlDeviceGetCount":
            return lambda: len(self.answers)
        if name == "nvmlDeviceGetHandleByIndex":
            return lambda index: self._answer(index, name, ()) and index
        return lambda handle, *rest: self._answer(handle, name, rest)

    def _answer(self, index: int, name: str, rest: tuple[Any, ...]) -> Any:
        answer = self.answers[index].get(name.removeprefix("nvmlDeviceGet"), NOT_SUPPORTED)
        answer = answer(*rest) if callable(answer) and not isinstance(answer, type) else answer
        if isinstance(answer, pynvml.NVMLError):
            raise answer
        return answer


NOT_SUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
LOST = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)


def fabric(state: int, status: int) -> Any:
    def fill(pointer: Any) -> int:
        pointer._obj.state, pointer._obj.status = state, status
        return 0

    return fill


def sram(exceeded: int) -> Any:
    def fill(pointer: Any) -> int:
        pointer._obj.bThresholdExceeded = exceeded
        return 0

    return fill


def ecc(kind: int, count: int) -> Any:
    """So many errors of one kind, none of the other."""
    return lambda asked, _: count if asked == kind else 0


def healthy(number: int) -> dict[str, Any]:
    return {
        "HandleByIndex": True,
        "PciInfo": SimpleNamespace(busId=f"00000000:{number + 10:02X}:00.0".encode()),
        "MemoryInfo": SimpleNamespace(total=1),
        "TotalEccErrors": 0,
        "RemappedRows": (0, 0, 0, 0),
        "SramEccErrorStatus": sram(0),
        "CurrentClocksEventReasons": pynvml.nvmlClocksEventReasonGpuIdle,
        "MigMode": (0, 0),
        "NvLinkState": lambda link: 1 if link < 4 else NOT_SUPPORTED,
        "NvLinkErrorCounter": 0,
        "GpuFabricInfo": fabric(3, 0),
        "CurrPcieLinkWidth": 16,
        "MaxPcieLinkWidth": 16,
        "UtilizationRates": SimpleNamespace(gpu=0),
        "ClockInfo": 300,
        "MaxClockInfo": 1980,
    }


def told(signals: list[HealthSignal]) -> Told:
    return [(signal.device, signal.code, signal.severity.value) for signal in signals]


def read(*gpus: dict[str, Any], **options: Any) -> Told:
    return told(read_nvml(FakeNvml(*gpus), read_at=1, **options)[0])


def test_healthy_gpus_raise_nothing_and_tell_their_addresses() -> None:
    found, present = read_nvml(FakeNvml({}, {}), read_at=1, on_bus=["0000:0a:00.0", "0000:0b:00.0"], expected=2)
    assert (found, present) == ([], ["0000:0a:00.0", "0000:0b:00.0"])


@pytest.mark.parametrize(
    ("answers", "code", "severity"),
    [
        ({"TotalEccErrors": ecc(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, 3)}, "ecc_uncorrected", "drain"),
        ({"TotalEccErrors": ecc(pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, 20_000)}, "ecc_corrected", "watch"),
        ({"SramEccErrorStatus": sram(1)}, "sram_threshold", "drain"),
        ({"RemappedRows": (0, 4, 1, 0)}, "row_remap_pending", "drain"),
        ({"RemappedRows": (0, 4, 0, 1)}, "row_remap_failed", "drain"),
        ({"RetiredPagesPendingStatus": 1}, "page_retire_pending", "drain"),
        ({"CurrentClocksEventReasons": pynvml.nvmlClocksEventReasonHwThermalSlowdown}, "thermal_slowdown", "watch"),
        ({"CurrentClocksEventReasons": pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown}, "power_brake", "watch"),
        ({"CurrentClocksEventReasons": 0, "UtilizationRates": SimpleNamespace(gpu=99)}, "clocks_low", "watch"),
        ({"MigMode": (1, 1)}, "mig_enabled", "watch"),
        ({"MigMode": (0, 1)}, "mig_changing", "watch"),
        ({"NvLinkState": lambda link: [1, 0, 1, 1, NOT_SUPPORTED][link]}, "nvlink_down", "watch"),
        ({"NvLinkErrorCounter": 2}, "nvlink_errors", "watch"),
        ({"GpuFabricInfo": fabric(3, 999)}, "fabric_error", "drain"),
        ({"GpuFabricInfo": fabric(2, 0)}, "fabric_not_joined", "watch"),
        ({"CurrPcieLinkWidth": 8}, "pcie_narrow", "watch"),
        ({"HandleByIndex": LOST, "PciInfo": LOST}, "gpu_lost", "fatal"),
        ({"MemoryInfo": LOST}, "gpu_lost", "fatal"),
        ({"MemoryInfo": pynvml.NVMLError(pynvml.NVML_ERROR_RESET_REQUIRED)}, "reset_required", "drain"),
        ({"MemoryInfo": pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)}, "unreadable", "watch"),
    ],
)  # fmt: skip
def test_each_answer_that_tells_of_trouble(answers: dict[str, Any], code: str, severity: str) -> None:
    device = "gpu1" if "PciInfo" in answers else "0000:0b:00.0"
    assert read({}, answers) == [(device, code, severity)]


@pytest.mark.parametrize(
    ("answers", "name"),
    [
        ({"UUID": b"GPU-1f2e", "RemappedRows": (0, 4, 1, 0)}, "GPU 1, GPU-1f2e: a memory row waits"),
        ({"RemappedRows": (0, 4, 1, 0)}, "GPU 1: a memory row waits"),
        ({"UUID": "GPU-1f2e", "MemoryInfo": LOST}, "GPU 1, GPU-1f2e: the GPU is lost"),
        ({"HandleByIndex": LOST}, "GPU 1: the GPU is lost"),
    ],
)
def test_a_gpu_is_named_as_jobs_and_tools_know_it(answers: dict[str, Any], name: str) -> None:
    (signal,), _ = read_nvml(FakeNvml({}, answers), read_at=1)
    assert signal.text.startswith(name)


def test_what_a_gpu_does_not_support_is_passed_over() -> None:
    known = ("HandleByIndex", "PciInfo", "MemoryInfo")
    bare = {question: NOT_SUPPORTED for question in healthy(0) if question not in known}
    assert read(bare) == []


def test_gpus_that_are_not_there() -> None:
    first, second = "0000:0a:00.0", "0000:0b:00.0"
    assert read({}, seen=[first, second]) == [(second, "gpu_lost", "fatal")]
    assert read({}, on_bus=[first, second]) == [(second, "gpu_missing", "drain")]
    assert read({}, expected=8) == [("host", "gpu_missing", "drain")]
    assert read({}, {"HandleByIndex": LOST}, seen=[first, second]) == [("gpu1", "gpu_lost", "fatal")], "said once"


def test_a_driver_that_does_not_answer() -> None:
    def fault(value: int) -> Told:
        return told(driver_fault(pynvml, pynvml.NVMLError(value), read_at=1))

    assert fault(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND) == fault(pynvml.NVML_ERROR_DRIVER_NOT_LOADED) == []
    assert fault(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH) == [("host", "driver_mismatch", "drain")]
    assert fault(pynvml.NVML_ERROR_UNKNOWN) == [("host", "driver_down", "drain")]


def test_gpus_the_kernel_knows(tmp_path) -> None:
    for address, vendor, kind in (
        ("0000:0a:00.0", "0x10de", "0x030200"),
        ("0000:0b:00.0", "0x10de", "0x030000"),
        ("0000:0c:00.0", "0x10de", "0x068000"),  # an NVSwitch
        ("0000:0d:00.0", "0x8086", "0x030000"),
    ):
        folder = tmp_path / "bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "class").write_text(kind + "\n")
    assert gpus_on_bus(tmp_path) == ["0000:0a:00.0", "0000:0b:00.0"]
    assert gpus_on_bus(tmp_path / "nothing") == []
