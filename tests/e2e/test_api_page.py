"""The program that docs/api.md shows does what the page says, on a running system."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.system import running

PAGE = Path(__file__).parents[2] / "docs/api.md"


def test_the_program_on_the_page_submits_waits_and_reads(tmp_path: Path) -> None:
    (program, *others) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for other in others:
        compile(other, PAGE.name, "exec")
    with running(tmp_path, hosts="1x2") as system:
        here = program.replace('budget="default"', 'budget="a"')
        assert here != program
        environment = os.environ | {"TENURE_SERVER": system.address}
        ran = subprocess.run(
            [sys.executable, "-c", here], env=environment, capture_output=True, text=True, timeout=90, check=False
        )
        assert ran.returncode == 0, ran.stderr
        states = re.findall(r"^\S+ (\w+)$", ran.stdout, re.MULTILINE)
        assert states[-1] == "completed" and ran.stdout.endswith("hello\n\n"), ran.stdout
        (job,) = system.client.jobs().jobs
        assert job.spec.command == ["echo", "hello"]
        assert system.stop() == 0
