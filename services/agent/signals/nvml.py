"""NVML, the driver's library, as nvidia-ml-py binds it: each GPU's state, and which GPUs are not there.

What a GPU or a driver does not support is no fault: the question is passed over.
"""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from services.agent.signals.gpu import GpuReading, judge, name_of
from services.agent.signals.signal import HOST, pci_id, raise_signal
from tenure.domain.severity import Severity
from tenure.domain.units import Millis
from tenure.events.reports import HealthSignal

SOURCE = "nvml"
T = TypeVar("T")

BUSY_PERCENT, CLOCK_LOW = 50, 0.5
"""A GPU that is busier than this and whose clock is below this part of its maximum is slow, if no reason is given."""
_NVIDIA, _DISPLAY = "0x10de", ("0x0300", "0x0302")
"""PCI vendor, and the classes of GPUs (with and without a monitor)."""
_MISSING_CODES = ("NVML_ERROR_LIBRARY_NOT_FOUND", "NVML_ERROR_DRIVER_NOT_LOADED", "NVML_ERROR_UNINITIALIZED")


def read_nvml(
    nvml: Any, *, read_at: Millis, seen: Collection[str] = (), on_bus: Collection[str] = (), expected: int | None = None
) -> tuple[list[HealthSignal], list[str]]:
    """The signals of all GPUs at `read_at` (epoch ms), and the PCI addresses of those that answered.

    `nvml` is the module pynvml, initialized. `seen`: addresses that answered before: one that is gone is lost.
    `on_bus`: GPUs the kernel knows (`gpus_on_bus`): one that the driver does not list is missing. `expected`: how many
    there should be, if somebody said so.
    """
    try:
        count = int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        return [_of_driver(nvml, error, read_at)], []
    found: list[HealthSignal] = []
    present: list[str] = []
    unnamed = 0
    for index in range(count):
        reading, address = _read_one(nvml, index)
        if address is None:
            unnamed += 1
        else:
            present.append(address)
        found += judge(reading, source=SOURCE, at=read_at)
    known = {*present, *(signal.device for signal in found)}
    gone = sorted({pci_id(address) or address for address in seen} - known)
    missing = sorted({pci_id(address) or address for address in on_bus} - known - set(gone))
    if not unnamed:  # else it may be one of these that did not tell its address
        found += [_missing("gpu_lost", Severity.FATAL, "the GPU was there and is gone", read_at, each) for each in gone]
        text = "the GPU is on the bus, but the driver does not list it"
        found += [_missing("gpu_missing", Severity.DRAIN, text, read_at, each) for each in missing]
    if expected is not None and count < expected and not gone and not missing:
        found.append(_missing("gpu_missing", Severity.DRAIN, f"{count} of {expected} GPUs are there", read_at, HOST))
    return found, present


def driver_fault(nvml: Any, error: Exception, *, read_at: Millis) -> list[HealthSignal]:
    """What a failure to initialize NVML says: nothing where there is no driver at all, else that it is broken."""
    value = getattr(error, "value", None)
    absent = [getattr(nvml, name, None) for name in _MISSING_CODES]
    return [] if value in absent else [_of_driver(nvml, error, read_at)]


def gpus_on_bus(sysfs: Path) -> list[str]:
    """PCI addresses of the NVIDIA GPUs the kernel knows of, from `sysfs` (normally /sys). Unreadable is none."""
    try:
        devices = sorted((sysfs / "bus/pci/devices").iterdir())
    except OSError:
        return []
    return [device.name for device in devices if _first_line(device / "vendor") == _NVIDIA and _is_gpu(device)]


def _is_gpu(device: Path) -> bool:
    return _first_line(device / "class")[:6] in _DISPLAY


def _first_line(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _missing(code: str, severity: Severity, text: str, at: Millis, device: str) -> HealthSignal:
    return raise_signal(code, severity, text, source=SOURCE, at=at, device=device, evidence=f"NVML lists no {device}")


def _of_driver(nvml: Any, error: Exception, at: Millis) -> HealthSignal:
    value = getattr(error, "value", None)
    mismatch = value == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    code = "driver_mismatch" if mismatch else "driver_down"
    text = "the NVIDIA driver and its library are of different versions" if mismatch else "the driver does not answer"
    return raise_signal(code, Severity.DRAIN, text, source=SOURCE, at=at, evidence=f"NVML: {error} (code {value})")


def _read_one(nvml: Any, index: int) -> tuple[GpuReading, str | None]:
    """The reading of GPU `index`, and its PCI address if it tells one."""
    address: str | None = None
    name = name_of(index, None)
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        name = name_of(index, _or_none(nvml, lambda: _text(nvml.nvmlDeviceGetUUID(handle))))
        address = pci_id(_text(nvml.nvmlDeviceGetPciInfo(handle).busId))
        nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError as error:
        device = address or f"gpu{index}"
        told = f"NVML: {error} (code {error.value})"
        if error.value == nvml.NVML_ERROR_GPU_IS_LOST:
            return GpuReading(device=device, name=name, lost=str(error), lines={"lost": told}), address
        if error.value == nvml.NVML_ERROR_RESET_REQUIRED:
            return GpuReading(device=device, name=name, reset_required=True, lines={"reset_required": told}), address
        if address is None or error.value not in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NO_PERMISSION):
            return GpuReading(device=device, name=name, unreadable=(str(error),), lines={"unreadable": told}), address
    return _reading(nvml, handle, address or f"gpu{index}", name), address


def _reading(nvml: Any, handle: Any, device: str, name: str) -> GpuReading:
    def ask(question: Callable[[], T]) -> T | None:
        return _or_none(nvml, question)

    rows = ask(lambda: nvml.nvmlDeviceGetRemappedRows(handle))
    mig = ask(lambda: nvml.nvmlDeviceGetMigMode(handle))
    reasons = ask(lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    links_down, link_errors = _links(nvml, handle)
    fabric_state, fabric_status = _fabric(nvml, handle)
    return GpuReading(
        device=device,
        name=name,
        ecc_uncorrected=_ecc(nvml, handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        ecc_corrected=_ecc(nvml, handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
        sram_threshold_exceeded=_sram_threshold(nvml, handle),
        remap_pending=None if rows is None else bool(rows[2]),
        remap_failed=None if rows is None else bool(rows[3]),
        retired_pending=_flag(ask(lambda: nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle))),
        thermal_slowdown=None if reasons is None else bool(reasons & _heat(nvml)),
        power_brake=None if reasons is None else bool(reasons & nvml.nvmlClocksEventReasonHwPowerBrakeSlowdown),
        clocks_low=None if reasons is None else reasons == 0 and _is_slow(nvml, handle),
        mig_enabled=None if mig is None else mig[0] == nvml.NVML_DEVICE_MIG_ENABLE,
        mig_changing=None if mig is None else mig[0] != mig[1],
        fabric_state=fabric_state,
        fabric_status=fabric_status,
        pcie_lanes=ask(lambda: int(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle))),
        pcie_lanes_max=ask(lambda: int(nvml.nvmlDeviceGetMaxPcieLinkWidth(handle))),
        links_down=links_down,
        link_errors=link_errors,
    )


def _heat(nvml: Any) -> int:
    return int(nvml.nvmlClocksEventReasonHwThermalSlowdown | nvml.nvmlClocksEventReasonSwThermalSlowdown)


def _ecc(nvml: Any, handle: Any, kind: int) -> int | None:
    return _or_none(nvml, lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_VOLATILE_ECC)))


def _sram_threshold(nvml: Any, handle: Any) -> bool | None:
    def question() -> bool:
        status = nvml.c_nvmlEccSramErrorStatus_v1_t()
        status.version = nvml.nvmlEccSramErrorStatus_v1
        nvml.nvmlDeviceGetSramEccErrorStatus(handle, nvml.byref(status))
        return bool(status.bThresholdExceeded)

    return _or_none(nvml, question)


def _fabric(nvml: Any, handle: Any) -> tuple[str | None, str | None]:
    """State and outcome of joining the NVLink fabric; None for both where there is none, no outcome before the end."""

    def question() -> tuple[int, int]:
        info = nvml.c_nvmlGpuFabricInfo_t()
        nvml.nvmlDeviceGetGpuFabricInfo(handle, nvml.byref(info))
        return int(info.state), int(info.status)

    told = _or_none(nvml, question)
    if told is None or told[0] == nvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
        return None, None
    state, status = told
    if state == nvml.NVML_GPU_FABRIC_STATE_COMPLETED:
        return "completed", "success" if status == nvml.NVML_SUCCESS else f"NVML error {status}"
    return ("not started" if state == nvml.NVML_GPU_FABRIC_STATE_NOT_STARTED else "in progress"), None


def _is_slow(nvml: Any, handle: Any) -> bool:
    def question() -> bool:
        busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
        clock = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
        most = nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)
        return bool(busy > BUSY_PERCENT and 0 < clock < CLOCK_LOW * most)

    return bool(_or_none(nvml, question))


def _links(nvml: Any, handle: Any) -> tuple[tuple[int, ...], int | None]:
    """Links that are down though others are up, and how often links had to recover or replay."""
    up: list[int] = []
    down: list[int] = []
    errors: list[int] = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        state = _or_none(nvml, lambda link=link: nvml.nvmlDeviceGetNvLinkState(handle, link))  # type: ignore[misc]
        if state is None:
            break
        (up if state == nvml.NVML_FEATURE_ENABLED else down).append(link)
        for kind in (nvml.NVML_NVLINK_ERROR_DL_RECOVERY, nvml.NVML_NVLINK_ERROR_DL_REPLAY):
            count = _or_none(
                nvml,
                lambda link=link, kind=kind: int(nvml.nvmlDeviceGetNvLinkErrorCounter(handle, link, kind)),  # type: ignore[misc]
            )
            errors += [] if count is None else [count]
    return (tuple(down) if up else ()), (sum(errors) if errors else None)


def _or_none(nvml: Any, question: Callable[[], T]) -> T | None:
    """The answer, or None where this GPU, driver or binding has none. A fault shows in `_read_one`."""
    try:
        return question()
    except (nvml.NVMLError, AttributeError):
        return None


def _flag(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _text(value: str | bytes) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value
