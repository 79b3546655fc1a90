"""No parser of signals ever raises, whatever the bytes: not on noise, not on any beginning of a valid text."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent.signals.burn import parse_gpu_burn
from services.agent.signals.check import Outcome, judge_check
from services.agent.signals.dcgm import parse_dcgm_diag, parse_dcgm_policy
from services.agent.signals.fabric import parse_fabric_log, parse_fabric_unit
from services.agent.signals.kernel import parse_kernel_log
from services.agent.signals.nvlink import parse_nvlink
from services.agent.signals.ports import judge_ports, read_ports
from services.agent.signals.signal import EVIDENCE_MAX, TEXT_MAX
from services.agent.signals.smi_csv import parse_smi_csv
from services.agent.signals.smi_query import parse_smi_query
from services.agent.signals.smi_table import parse_smi_table
from services.agent.signals.time_sync import parse_chrony
from tenure.events.reports import HealthSignal
from tests.unit.agent.test_gpu_outputs import DIAGNOSIS, TABLE, WHOLE
from tests.unit.agent.test_machine_signals import chrony

Parse = Callable[..., list[HealthSignal]]

KERNEL = """\
4,17,2500000,-;NVRM: Xid (PCI:0000:0a:00): 48, pid=7, name=a::b
[Thu Jan  1 00:01:00 1970] nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
kern  :warn  : 1970-01-01T00:01:00,250000+00:00 NVRM: Xid (PCI:0000:0a:00): 154, from 0x0 (None) to 0x4 (Drain and R)
NVRM: The NVIDIA GPU 0000:b3:00.0
NVRM: fallen off the bus
pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0
"""
SAMPLES: dict[Parse, str] = {
    parse_kernel_log: KERNEL,
    parse_smi_query: WHOLE,
    parse_smi_table: TABLE.format(ecc="1", fan="ERR!"),
    parse_smi_csv: "pci.bus_id, index, remapped_rows.pending\n00000000:0A:00.0, 0, Yes\n",
    parse_nvlink: "GPU 0: G (UUID: GPU-1)\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n",
    parse_dcgm_diag: DIAGNOSIS,
    parse_dcgm_policy: "A thermal event has violated policy manager values.\n",
    parse_gpu_burn: "\tGPU 0: FAULTY\n",
    parse_fabric_log: "[Jan 01 1970 00:00:01] [ERROR] detected NVSwitch fatal error 20034 on bus id 0:86:00.0\n",
    parse_fabric_unit: "LoadState=loaded\nActiveState=failed\n",
    parse_chrony: chrony("12.5"),
}  # fmt: skip
RECORDED = {
    parse_kernel_log: "kernel/*",
    parse_smi_query: "nvidia-smi-*/**/*.txt",
    parse_smi_table: "nvidia-smi-*/**/*.txt",
    parse_smi_csv: "*/*/*.csv",
    parse_nvlink: "*/nvlink*",
    parse_dcgm_diag: "dcgmi/*",
    parse_fabric_log: "fabric/*",
}
parsers = pytest.mark.parametrize("parse", SAMPLES, ids=lambda parse: parse.__name__)


def check(signals: list[HealthSignal]) -> None:
    for signal in signals:
        assert signal.device
        assert 0 < len(signal.text) <= TEXT_MAX
        assert len(signal.evidence) <= EVIDENCE_MAX
        assert signal.text.isprintable()
        assert signal.evidence.isprintable()
        assert signal.first_at <= signal.last_at
        assert signal.count >= 1


@parsers
@given(noise=st.binary(max_size=400))
def test_noise(parse: Parse, noise: bytes) -> None:
    check(parse(noise, read_at=1))


@parsers
@given(data=st.data())
def test_a_valid_text_with_noise_in_it(parse: Parse, data: st.DataObject) -> None:
    sample = SAMPLES[parse].encode()
    start = data.draw(st.integers(0, len(sample)))
    end = data.draw(st.integers(start, min(len(sample), start + 20)))
    check(parse(sample[:start] + data.draw(st.binary(max_size=20)) + sample[end:], read_at=1))


@parsers
def test_any_beginning_of_a_valid_text_says_no_more_than_the_whole(parse: Parse) -> None:
    sample = SAMPLES[parse].encode()
    whole = {signal.code for signal in parse(sample, read_at=1)}
    for end in range(len(sample)):
        signals = parse(sample[:end], read_at=1)
        check(signals)
        if parse not in (parse_kernel_log, parse_fabric_log):  # a log's line may have its end in its next piece
            assert {each.code for each in signals} <= whole | {"smi_cut_off"}


@pytest.mark.parametrize("parse", RECORDED, ids=lambda parse: parse.__name__)
def test_recorded_files_cut_anywhere(shared: Path, parse: Parse) -> None:
    paths = [path for path in sorted((shared / "health").glob(RECORDED[parse])) if path.is_file()]
    assert paths
    for path in paths:
        data = path.read_bytes()[:20_000]
        for end in range(0, len(data), 97):
            check(parse(data[:end], read_at=1))


@given(st.binary(max_size=300), st.integers(-64, 300))
def test_any_end_of_a_check(output: bytes, code: int) -> None:
    check(judge_check("c", Outcome(code=code, output=output), read_at=1))


@given(st.dictionaries(st.sampled_from(["state", "phys_state", "rate", "link_layer"]), st.binary(max_size=40)))
def test_any_port(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    root = tmp_path_factory.mktemp("sys")
    folder = root / "class/infiniband/x/ports/1"
    (folder / "counters").mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "counters/link_downed").write_bytes(files.get("state", b""))
    check(judge_ports(read_ports(root), read_at=1, must_be_up=["x/1"], before=read_ports(root)))
