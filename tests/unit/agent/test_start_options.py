"""What an agent's operator may ask of what is started, and what the process must be able to see to."""

import os
from pathlib import Path

import pytest

from services.agent.gpu.provider import Gpu
from services.agent.process import cgroups
from services.agent.shell import make_hosts, type_of
from services.agent.start_options import start_rules
from services.agent.starting import Rules
from tenure.domain.host import HostSpec
from tenure.domain.refusal import Refusal
from tenure.runtime.run_signing import make_signing_keys
from tenure.runtime.service import argument_parser, make_service
from tenure.runtime.signal_options import build_signal_options


def rules(tmp_path: Path, *options: str, provider: str = "virtual", url: str = "nats://127.0.0.1:1") -> Rules:
    parser = argument_parser("agent", "An agent.")
    given = ["--provider", provider, "--nats", url, "--data", str(tmp_path), *options]
    return start_rules(make_service("agent", parser.parse_args(given)))


def test_a_lost_gpu_gives_its_host_no_other_type() -> None:
    lost = Gpu(index=0, uuid="", type="unknown", memory_mib=0, device="0", fault="GPU is lost")
    well = Gpu(index=1, uuid="GPU-1", type="H100", memory_mib=81_559, device="GPU-1")
    assert type_of([lost, well]) == "H100"
    with pytest.raises(Refusal, match="none of 1 NVIDIA GPUs answers: GPU is lost; restart the driver"):
        type_of([lost])


def test_by_default_a_machine_of_its_own_trusts_itself(tmp_path: Path) -> None:
    assert rules(tmp_path) == Rules()


def test_runs_from_a_log_elsewhere_are_signed_or_the_agent_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="--run-keys-file: not given"):
        rules(tmp_path, url="tls://log:4222")
    _, public = make_signing_keys(tmp_path)
    assert rules(tmp_path, "--run-keys-file", str(public), url="tls://log:4222").trust is not None


def test_on_real_hosts_jobs_are_their_submitters_where_root_can_see_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cgroups, "parent_for", lambda name, *, limits: f"/{name}/{limits}")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert rules(tmp_path, provider="nvidia").as_submitter
    assert not rules(tmp_path, "--run-as", "agent", provider="nvidia").as_submitter
    assert "run as root here" in caplog.text
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert not rules(tmp_path, provider="nvidia").as_submitter
    with pytest.raises(Refusal, match="--run-as: only root"):
        rules(tmp_path, "--run-as", "submitter")


def test_where_control_groups_cannot_be_had_that_is_said_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def nowhere(name: str, *, limits: bool) -> str:
        raise OSError("this host has no cgroups of version 2")

    monkeypatch.setattr(cgroups, "parent_for", nowhere)
    assert rules(tmp_path, "--run-as", "agent", provider="nvidia").cgroups == ""
    assert "no control groups here" in caplog.text
    for limit in (["--pids-max", "9"], ["--memory-per-gpu", "1G"]):
        with pytest.raises(Refusal, match="Delegate=yes"):
            rules(tmp_path, *limit)


def test_limits_are_per_replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "parent_for", lambda name, *, limits: f"/{name}/{limits}")
    given = rules(tmp_path, "--memory-per-gpu", "120G", "--pids-max", "4096")
    assert (given.memory_per_gpu_bytes, given.pids_max) == (120 << 30, 4096)
    assert given.cgroups.endswith("/True")


def hosts_of(*options: str) -> tuple[HostSpec, ...]:
    parser = argument_parser("agent", "An agent.")
    given = ["--nats", "nats://127.0.0.1:1", "--data", "x", "--host", "dev7", *options]  # of two, the last counts
    return make_hosts(make_service("agent", parser.parse_args(given)))[1]


def test_a_real_host_may_count_its_cpus_and_looks_for_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (host,) = hosts_of("--provider", "cpus", "--cpus", "16", "--host-cluster", "dev", "--address", "10.0.0.7")
    assert (host.host, host.gpus, host.gpu_type, host.cluster, host.address) == ("dev7", 16, "CPU", "dev", "10.0.0.7")
    monkeypatch.setattr(os, "cpu_count", lambda: 96)
    (host,) = hosts_of("--provider", "cpus")
    assert host.address == "127.0.0.1", "the log is here: there are no others"
    assert (host.gpus, host.cluster) == (64, "CPU"), "at most 64: one counts for several there"
    read = build_signal_options({}, real_host=True, has_gpus=False).every_ms
    assert "kernel" in read and "nvml" not in read and "fabric" not in read
    monkeypatch.setattr(cgroups, "parent_for", lambda name, *, limits: "/group")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert rules(tmp_path, provider="cpus").as_submitter, "as on any real host"


def test_of_a_log_elsewhere_no_host_is_told_as_loopback() -> None:
    with pytest.raises(Refusal, match=r"agent\.address: 127\.0\.0\.1 is every host's own"):
        hosts_of("--provider", "cpus", "--nats", "tls://log.invalid:4222", "--address", "127.0.0.1")
    (host,) = hosts_of("--provider", "cpus", "--nats", "tls://log.invalid:4222", "--address", "dev7.lab")
    assert host.address == "dev7.lab"
    (virtual, *_) = hosts_of("--hosts", "2x8", "--nats", "tls://log.invalid:4222")
    assert virtual.address == "127.0.0.1", "virtual hosts are all here"
