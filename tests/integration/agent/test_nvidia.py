"""The nvidia provider against a driver library of our own: nvidia-ml-py is real, the GPUs are the test's."""

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from services.agent.gpu.nvidia import NvidiaProvider, gpu_type_of
from services.agent.gpu.provider import GpuProviderError

SOURCE = Path(__file__).with_name("fake_nvml.c")
COMPILER = shutil.which("cc") or shutil.which("gcc")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The fake driver, loaded under the name that nvidia-ml-py asks the linker for."""
    if COMPILER is None:
        pytest.skip("needs a C compiler for the fake NVML")
    path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run(
        [COMPILER, "-shared", "-fPIC", "-Wall", "-Werror", f"-Wl,-soname,{path.name}", "-o", path, SOURCE], check=True
    )
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


@pytest.fixture
def driver(library: ctypes.CDLL) -> ctypes.CDLL:
    library.fake_reset()
    return library


@pytest.fixture
def provider(driver: ctypes.CDLL) -> Iterator[NvidiaProvider]:
    provider = NvidiaProvider()
    yield provider
    provider.close()


def test_the_gpus_in_index_order(provider):
    first, second = provider.gpus()
    assert (first.index, first.type, first.memory_mib, first.mig, first.fault) == (0, "H100", 81559, False, "")
    assert first.uuid == first.device == "GPU-11111111-0000-0000-0000-000000000000"
    assert (second.index, second.uuid[:12]) == (1, "GPU-22222222")


def test_utilisation_is_a_fraction(driver, provider):
    driver.fake_busy(0, 73)
    driver.fake_busy(1, 100)
    assert provider.utilisation({0: [1]}) == {0: 0.73, 1: 1.0}


@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_UNKNOWN])
def test_a_gpu_that_falls_off_the_bus_stays_in_the_list_with_its_fault(driver, provider, error):
    before = provider.gpus()
    driver.fake_error(1, error)
    first, second = provider.gpus()
    assert first == before[0]
    assert (second.index, second.uuid) == (1, before[1].uuid)
    assert f"(code {error})" in second.fault
    assert provider.utilisation({}) == {0: 0.0, 1: None}
    driver.fake_error(1, 0)  # after a reset
    assert provider.gpus() == before


def test_a_gpu_that_is_lost_at_the_start_has_a_fault_and_keeps_its_index(driver):
    driver.fake_error(0, pynvml.NVML_ERROR_GPU_IS_LOST)
    provider = NvidiaProvider()
    first, second = provider.gpus()
    assert (first.index, first.type, first.memory_mib) == (0, "unknown", 0)
    assert first.fault == "NVML: GPU is lost (code 15)"
    assert (second.index, second.type, second.fault) == (1, "H100", "")
    assert provider.utilisation({}) == {0: None, 1: 0.0}
    provider.close()


def test_what_a_gpu_does_not_support_is_unknown_and_no_fault(driver, provider):
    driver.fake_utilisation_error(0, pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert provider.utilisation({}) == {0: None, 1: 0.0}
    assert provider.gpus()[0].fault == ""


@pytest.mark.parametrize(
    ("mode", "error", "expected"), [(1, 0, True), (0, 0, False), (0, pynvml.NVML_ERROR_NOT_SUPPORTED, False)]
)
def test_mig_on_off_and_unheard_of(driver, mode, error, expected):
    driver.fake_mig(0, mode, error)
    provider = NvidiaProvider()
    assert provider.gpus()[0].mig is expected
    provider.close()


def test_no_driver_is_one_line_with_the_fix(driver):
    driver.fake_init_error(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    with pytest.raises(GpuProviderError) as refusal:
        NvidiaProvider()
    assert "Driver Not Loaded" in str(refusal.value)
    assert "choose the virtual provider" in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 NVL", "H100"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla T4", "T4"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX6000"),
        ("NVIDIA TITAN Xp", "TITAN-Xp"),
        ("", "unknown"),
    ],
)
def test_types_are_named_as_people_name_them(name, expected):
    assert gpu_type_of(name) == expected
