"""Tools and checks that hang, flood, fork or die: real processes, stopped with all they started."""

import sys
import time
from pathlib import Path

import pytest

from services.agent.signals.check import Outcome
from services.agent.watch.tool import Tool
from tests.integration.agent.conftest import is_running

LIMIT_MS = 10_000


def run(script: str, *, limit_ms: int = LIMIT_MS, output_max: int = 1000, **environment: str) -> Outcome:
    tool = Tool((sys.executable, "-c", script), limit_ms=limit_ms, output_max=output_max, environment=environment)
    return tool.run()


def test_code_and_words_of_both_streams() -> None:
    outcome = run("import sys; print('a', flush=True); print('b', file=sys.stderr); sys.exit(2)")
    assert (outcome.code, outcome.output) == (2, b"a\nb\n")
    assert not (outcome.late or outcome.flooded or outcome.problem)


def test_the_environment_is_the_checks_own() -> None:
    outcome = run("import os; print(os.environ['TENURE_HOST'], 'TENURE_NATS' in os.environ)", TENURE_HOST="h7")
    assert outcome.output == b"h7 False\n"


def test_one_that_hangs_is_stopped(tmp_path: Path) -> None:
    began = time.monotonic()
    script = f"import os, time; open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); print('x', flush=True)"
    outcome = run(f"{script}; time.sleep(60)", limit_ms=700)
    assert (outcome.late, outcome.code, outcome.limit_ms) == (True, None, 700)
    assert time.monotonic() - began < LIMIT_MS / 1000
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_one_that_ignores_signals_and_closes_its_output_is_stopped() -> None:
    script = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.close(1); os.close(2);"
        "time.sleep(60)"
    )
    assert run(script, limit_ms=500).late


def test_one_that_floods_is_stopped() -> None:
    outcome = run("while True: print('x' * 4096)")
    assert (outcome.flooded, outcome.code, len(outcome.output)) == (True, None, 1000)


def test_bytes_that_are_no_text_pass() -> None:
    outcome = run("import sys; sys.stdout.buffer.write(bytes(range(256)))")
    assert (outcome.code, outcome.output) == (0, bytes(range(256)))


def test_children_it_leaves_go_with_it(tmp_path: Path) -> None:
    """They hold its output open; it counts as ended all the same."""
    script = (
        "import os, time\n"
        "pid = os.fork()\n"
        f"if pid: open({str(tmp_path / 'pid')!r}, 'w').write(str(pid)); print('done', flush=True)\n"
        "else: time.sleep(60)\n"
    )
    outcome = run(script)
    assert (outcome.code, outcome.output) == (0, b"done\n")
    deadline = time.monotonic() + 5
    while is_running(int((tmp_path / "pid").read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_one_ended_by_a_signal() -> None:
    assert run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)").code == -9


@pytest.mark.parametrize("content", [None, b"\x7fELF nonsense", b""])
def test_what_cannot_be_run_says_why(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "check"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o755 if content else 0o644)
    outcome = Tool((str(path),), limit_ms=LIMIT_MS).run()
    assert outcome.code is None
    assert outcome.problem


def test_it_can_be_run_again() -> None:
    tool = Tool((sys.executable, "-c", "print(1)"), limit_ms=LIMIT_MS)
    assert tool.run() == tool.run()
