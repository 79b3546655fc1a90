"""Two clusters of different GPUs and one that counts CPUs, one budget tree, exchange rates: all of it for real."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.command_line import CommandLine, until

CLUSTERS = """
clusters:
  - {name: h100, hosts: 2, gpus_per_host: 4, gpu_type: H100}
  - {name: b200, hosts: 1, gpus_per_host: 4, gpu_type: B200}
  - {name: dev, hosts: 1, cpus_per_host: 16}
"""


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    folder = tmp_path_factory.mktemp("up")
    (folder / "cluster.yaml").write_text(CLUSTERS)
    system = CommandLine(folder, hosts="")
    try:
        system.start("--cluster", str(folder / "cluster.yaml"), "--set", "rates={B200: 2.5, CPU: 0.05}")
        yield system
    finally:
        system.close()


def test_a_process_runs_on_cpus_and_sees_no_gpu(system: CommandLine) -> None:
    options = ("--budget", "default", "--min-runtime", "1m", "--cluster", "dev", "--cpus", "12")
    job = system.ask("submit", *options, "--", "sh", "-c", "echo [$CUDA_VISIBLE_DEVICES]").strip()
    assert system.run("job", job, "--wait").returncode == 0
    assert system.ask("logs", job) == "[]\n"
    shown = system.json("job", job)
    assert (shown["cluster"], shown["gpu_type"]) == ("dev", "CPU")
    assert shown["runs"][0]["hosts"] == {"dev-h000": list(range(12))}
    told = system.ask("why", job)
    assert "asked default for 12 CPUs, in cluster dev" in told
    assert "was given 12 CPUs on" in told
    assert "CPUs" in system.ask("job", job)
    assert system.json("queue")["cluster"]["gpus"] == 12, "CPUs are no GPUs"


def is_running(system: CommandLine, job: str) -> bool:
    return system.state(job) == "running"


def test_a_cluster_a_type_or_any(system: CommandLine) -> None:
    """Any is placed once, on the cheaper of two that are free."""
    jobs = {
        "b200-h000": system.submit("--cluster", "b200", "--", "sleep", "60", gpus=4),
        "h100-h000": system.submit("--gpu-type", "any", "--cluster", "any", "--", "sleep", "60", gpus=4),
    }
    for host, job in jobs.items():
        until(partial(is_running, system, job), f"{job} to run")
        (run,) = system.json("job", job)["runs"]
        assert list(run["hosts"]) == [host]
        system.ask("cancel", job)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ("--gpus", "1", "--cluster", "h10"),
            "there is no cluster 'h10'; did you mean h100? known: b200, dev, h100",
        ),
        (("--gpus", "1", "--gpu-type", "B20"), "gpu_type: no host has GPUs of type 'B20'; did you mean B200?"),
        (("--gpus", "1", "--cluster", "dev"), "cluster dev counts CPUs and has no GPUs"),
        (("--gpus", "4", "--replicas", "3"), "3 replicas x 4 GPUs do not fit the empty cluster"),
    ],
)
def test_what_there_is_not_is_refused(system: CommandLine, options: tuple[str, ...], words: str) -> None:
    done = system.run("submit", "--budget", "default", "--min-runtime", "1m", *options, "--", "true")
    assert done.returncode == 1 and words in " ".join(done.stderr.split())


@pytest.mark.parametrize("options", [(), ("--gpus", "1", "--cpus", "1")])
def test_a_job_asks_for_gpus_or_for_cpus(system: CommandLine, options: tuple[str, ...]) -> None:
    assert system.run("submit", "--budget", "default", "--min-runtime", "1m", *options, "--", "true").returncode == 2


def test_rates_change_while_it_runs(system: CommandLine, tmp_path: Path) -> None:
    assert {each["knob"]: each["after"] for each in _apply(system, "rates={B200: 3}")} == {
        "rates.B200": "3",
        "rates.CPU": "0.02",
    }
    assert system.json("config", "policy")["knobs"]["rates"] == "{B200: 3}"
    file = tmp_path / "tenure.yaml"
    file.write_text("policy:\n  rates: {B200: 2.5}\n  clusters: {dev: {min_runtime_cap: 2h}}\n")
    system.ask("config", "apply", str(file))
    told = system.run("submit", "--budget", "default", "--min-runtime", "3h", "--cpus", "1", "--", "true").stderr
    assert "3h is above the cap of 2h in cluster dev" in " ".join(told.split())


def _apply(system: CommandLine, setting: str) -> list[dict[str, str]]:
    changes: list[dict[str, str]] = system.json("config", "apply", "--set", setting)["changes"]
    return changes
