"""Tenure as it is installed: a wheel of this checkout in a virtual environment of its own."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGED = ("pyproject.toml", "README.md", "tenure", "services", "simulator", "deploy/clickhouse")
"""What a wheel is made from: the image's first stage copies the same."""


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The virtual environment. It finds its dependencies where these tests have them, and tenure in itself alone."""
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"
    for name in PACKAGED:
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet"]
    _run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source)])
    (wheel,) = folder.glob("*.whl")
    shutil.rmtree(source)
    venv = folder / "venv"
    _run([sys.executable, "-m", "venv", "--without-pip", str(venv)])
    _run([*pip, "--python", str(venv / "bin" / "python"), "install", "--no-deps", "--no-index", str(wheel)])
    (site,) = (venv / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return venv


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
