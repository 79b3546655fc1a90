"""What is installed is what was locked: each package by version and hash, from no registry of our own; and its list."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text()
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s\\]+) \\\n((?: {4}--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)
NOWHERE = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": ""}


def pinned() -> dict[str, tuple[str, set[str]]]:
    """Version and hashes of each package."""
    return {
        match[1]: (match[2], set(re.findall(r"sha256:([0-9a-f]{64})", match[3]))) for match in PINNED.finditer(LOCK)
    }


def make(target: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """A target with the tools of this Python, whatever `.venv` there is."""
    given = [f"{name}={value}" for name, value in {"BIN": str(Path(sys.executable).parent), **variables}.items()]
    command = ["make", "--no-print-directory", "--old-file", ".venv/.ready", target, *given]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120, env={**os.environ, **NOWHERE}
    )


def test_every_package_is_locked_by_version_and_hash() -> None:
    begun = [line for line in LOCK.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(begun) > 50
    assert [line.split("==")[0] for line in begun] == list(pinned())


def test_the_lock_names_no_registry() -> None:
    assert "://" not in LOCK
    assert not re.search(r"^\s*--(index-url|extra-index-url|find-links|trusted-host)|^-[if] ", LOCK, re.MULTILINE)


def test_the_list_of_what_it_is_made_of_is_the_lock_and_the_same_each_time(tmp_path: Path) -> None:
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file in files:
        done = make("sbom", SBOM=str(file))
        assert done.returncode == 0, done.stderr
    assert files[0].read_bytes() == files[1].read_bytes()
    listed = json.loads(files[0].read_text())
    assert listed["bomFormat"] == "CycloneDX"
    assert listed["metadata"]["component"]["name"] == "tenure"
    found = {
        each["name"]: (each["version"], {hashed["content"] for hashed in each["externalReferences"][0]["hashes"]})
        for each in listed["components"]
    }
    assert found == pinned()


def test_an_audit_that_cannot_ask_says_that_nothing_is_known() -> None:
    done = make("audit", AUDIT="--timeout 5")
    assert done.returncode == 2, done.stdout
    assert "cannot be asked, so nothing is known" in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
