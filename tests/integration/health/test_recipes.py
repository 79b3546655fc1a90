"""The recipes of deploy/repair as programs, on a pretended tenure and a pretended ssh."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.architecture.sources import ROOT

FOLDER = ROOT / "deploy" / "repair"
RECIPES = ("gpu-reset", "reboot", "diagnose", "acceptance")
TENURE = """#!{python}
import json
one = {{"gpus": 1, "gpu_type": "H100", "runs": []}}
cpus = {{"host": "cpus", "gpus": 48, "gpu_type": "CPU", "runs": []}}
print(json.dumps({{"hosts": [one | {{"host": "h000"}}, one | {{"host": "h001", "runs": ["7.1"]}}, cpus]}}))
"""
SSH = """#!{python}
import pathlib, sys
host, command = sys.argv[1:]
folder = pathlib.Path({folder!r})
with (folder / "asked").open("a") as file:
    print(host, command, file=file)
boots = (folder / "asked").read_text().count("reboot")
if command in (folder / "fails").read_text().splitlines():
    sys.exit("it fails")
print(f"boot {{boots}}" if "boot_id" in command else "GPU 0: H100")
"""


@pytest.fixture
def pretended(tmp_path: Path) -> Path:
    for name, text in (("tenure", TENURE), ("ssh", SSH)):
        (tmp_path / name).write_text(text.format(python=sys.executable, folder=str(tmp_path)))
        (tmp_path / name).chmod(0o755)
    (tmp_path / "fails").touch()
    (tmp_path / "asked").touch()
    return tmp_path


def call(recipe: str, arguments: Sequence[str], folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "TENURE_CLI": str(folder / "tenure"),
        "TENURE_REPAIR_SSH": str(folder / "ssh"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        **more,
    }
    words = [str(FOLDER / recipe), *arguments]
    return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=60, check=False)


@pytest.mark.parametrize("recipe", [*RECIPES, "repair"])
def test_each_tells_what_it_is(recipe: str, pretended: Path) -> None:
    done = call(recipe, ["--help"], pretended)
    assert done.returncode == 0 and "--dry-run" in done.stdout


@pytest.mark.parametrize("recipe", [*RECIPES, "repair"])
def test_none_touches_a_host_with_a_run(recipe: str, pretended: Path) -> None:
    done = call(recipe, ["h001"], pretended)
    assert done.returncode == 75 and "refused: h001 has 1 runs, 7.1 first" in done.stderr
    assert (pretended / "asked").read_text() == ""


@pytest.mark.parametrize("recipe", [*RECIPES, "repair"])
def test_a_dry_run_does_nothing(recipe: str, pretended: Path) -> None:
    done = call(recipe, ["h000", "--dry-run"], pretended)
    assert done.returncode == 0 and "would run" in done.stdout, done.stderr
    assert (pretended / "asked").read_text() == ""


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_cannot_be_asked_is_left_alone(recipe: str, pretended: Path) -> None:
    done = call(recipe, ["h000"], pretended, TENURE_CLI="/no/such/tenure")
    assert done.returncode == 75 and "cannot be asked what runs on h000" in done.stderr
    done = call(recipe, ["h009"], pretended)
    assert done.returncode == 1 and "knows no host h009" in done.stderr
    assert (pretended / "asked").read_text() == ""


def test_the_plug_resets_and_diagnoses(pretended: Path) -> None:
    done = call("repair", [], pretended, TENURE_HOST="h000", TENURE_STEP="repair")
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "h000: `dcgmi diag -r 2` finds nothing"
    reset, *then = (pretended / "asked").read_text().splitlines()
    assert "sudo -n nvidia-smi --gpu-reset" in reset
    assert then == ["h000 nvidia-smi -L", "h000 dcgmi diag -r 2"]


MACHINE = """#!/bin/sh
cd {folder}
echo "$(basename "$0") $*" >> done
case "$(basename "$0") $*" in
  "ssh "*) eval "$2" ;;
  "sudo "*) shift; "$@" ;;
  "systemctl -q is-active "*) grep -qx "$3" active ;;
  "nvidia-smi --gpu-reset") test ! -e broken ;;
  "nvidia-smi -L") cat listed ;;
esac
"""


@pytest.fixture
def machine(pretended: Path) -> Path:
    """Here a machine with two units that watch its GPU, of which one runs; what was done to it is in `done`."""
    for name in ("ssh", "sudo", "systemctl", "nvidia-smi"):
        (pretended / name).write_text(MACHINE.format(folder=pretended))
        (pretended / name).chmod(0o755)
    (pretended / "active").write_text("tenure-agent\n")
    (pretended / "listed").write_text("GPU 0: H100 (UUID: GPU-1)\n  MIG 1g.10gb Device 0: (UUID: MIG-1)\n")
    return pretended


def reset(machine: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return call("gpu-reset", ["h000"], machine, PATH=f"{machine}:{os.environ['PATH']}", **more)


def done_to(machine: Path) -> list[str]:
    told = (machine / "done").read_text().splitlines()
    return [line for line in told if not line.startswith(("ssh", "sudo", "systemctl -q"))]


@pytest.mark.parametrize("broken", [False, True], ids=["well", "broken"])
def test_who_watches_the_gpus_is_stopped_for_a_reset_and_started_after_it(machine: Path, broken: bool) -> None:
    if broken:
        (machine / "broken").touch()
    done = reset(machine)
    assert done.returncode == int(broken), done.stderr
    assert done_to(machine)[:3] == [
        "systemctl stop tenure-agent",
        "nvidia-smi --gpu-reset",
        "systemctl start tenure-agent",
    ]


def test_units_that_watch_the_gpus_can_be_named(machine: Path) -> None:
    assert reset(machine, TENURE_GPU_UNITS="").returncode == 0
    assert done_to(machine) == ["nvidia-smi --gpu-reset", "nvidia-smi -L"]


def test_a_reset_after_which_a_gpu_is_missing_is_none(machine: Path) -> None:
    (machine / "listed").write_text("  MIG 1g.10gb Device 0: (UUID: MIG-1)\n")
    done = reset(machine)
    assert done.returncode == 1 and "0 of 1 GPUs answer after a reset" in done.stderr


def test_the_plug_reboots_when_a_reset_does_not_help(pretended: Path) -> None:
    (pretended / "fails").write_text("nvidia-smi -L\n")
    done = call("repair", ["h000"], pretended)
    assert done.returncode == 0 and "h000: up again" in done.stdout and "it fails" in done.stderr


def test_a_lost_host_that_does_not_answer_has_its_power_cut(pretended: Path) -> None:
    (pretended / "fails").write_text("cat /proc/sys/kernel/random/boot_id\n")
    done = call("repair", ["h000"], pretended, TENURE_REASON="host_silent_too_long")
    assert done.returncode == 1 and "it fails" in done.stderr, "nobody said how"
    power = pretended / "power"
    power.write_text(f'#!/bin/sh\necho "$1" >> {pretended}/cut; : > {pretended}/fails\n')
    power.chmod(0o755)
    done = call("repair", ["h000"], pretended, TENURE_REASON="host_silent_too_long", TENURE_POWER=str(power))
    assert done.returncode == 0 and "h000: up again" in done.stdout, done.stderr
    assert (pretended / "cut").read_text() == "h000\n"
    assert "gpu-reset" not in (pretended / "asked").read_text()


def test_a_diagnosis_that_finds_something_is_a_failure(pretended: Path) -> None:
    (pretended / "fails").write_text("dcgmi diag -r 2\n")
    done = call("repair", ["h000"], pretended)
    assert done.returncode == 1 and "`dcgmi diag -r 2` ended with status 1: it fails" in done.stderr


def test_the_acceptance_test_is_the_operators_own(pretended: Path) -> None:
    done = call("repair", ["h000"], pretended, TENURE_STEP="test", TENURE_ACCEPTANCE="our-burn 60")
    assert done.returncode == 0 and "`our-burn 60` is passed" in done.stdout
    assert (pretended / "asked").read_text() == "h000 our-burn 60\n"


def test_the_plug_says_how_many_gpus_there_are_to_be(machine: Path) -> None:
    done = call("gpu-reset", ["h000"], machine, PATH=f"{machine}:{os.environ['PATH']}", TENURE_GPUS="2")
    assert done.returncode == 1 and "1 of 2 GPUs answer after a reset" in done.stderr


def test_a_host_of_cpus_is_rebooted_and_has_to_answer(pretended: Path) -> None:
    done = call("repair", ["cpus"], pretended)
    assert done.returncode == 0 and "it has no GPUs to reset" in done.stderr, done.stderr
    assert done.stdout.splitlines()[-1] == "cpus: `uptime` finds nothing"
    assert "nvidia-smi" not in (pretended / "asked").read_text()
    done = call("repair", ["cpus"], pretended, TENURE_STEP="test")
    assert done.returncode == 0 and (pretended / "asked").read_text().splitlines()[-1] == "cpus python3 - 0"


def test_the_default_burn_is_not_passed_without_a_driver() -> None:
    environment = os.environ | {"BURN_S": "0.1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, str(FOLDER / "burn.py"), "8"],
        capture_output=True, text=True, env=environment, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "0 of 8 GPUs answer: there is no nvidia-smi" in done.stderr


def test_a_driver_without_a_gpu_is_no_fault_of_a_host_of_cpus(machine: Path) -> None:
    (machine / "nvidia-smi").write_text("#!/bin/sh\necho No devices were found; exit 6\n")
    environment = os.environ | {"BURN_S": "0.1", "PATH": f"{machine}:/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, str(FOLDER / "burn.py"), "0"],
        capture_output=True, text=True, env=environment, timeout=60, check=True,
    )  # fmt: skip
    assert "cores agree; no GPUs" in done.stdout


def test_the_default_burn_burns() -> None:
    environment = os.environ | {"BURN_S": "0.2", "PATH": "/usr/bin:/bin"}
    burn = (FOLDER / "burn.py").read_text()
    done = subprocess.run(
        [sys.executable, "-"], input=burn, capture_output=True, text=True, env=environment, timeout=60, check=True
    )
    assert "cores agree" in done.stdout


def test_the_default_burn_is_not_passed_with_a_gpu_less(machine: Path) -> None:
    environment = os.environ | {"BURN_S": "0.1", "PATH": f"{machine}:/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, str(FOLDER / "burn.py"), "2"],
        capture_output=True, text=True, env=environment, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "1 of 2 GPUs answer" in done.stderr
