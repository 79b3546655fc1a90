"""The repair plug on real processes and a real web server: answers, time-outs, 500s, and what becomes of the host."""

import asyncio
import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest

from services.health.decider import role
from services.health.hands import Hands
from services.health.instructions import Mend
from services.health.plug import Passing, run_command, send, signature
from services.health.policy.mending import Plug
from tenure.domain.host import HostSpec, HostState, RepairStep
from tenure.domain.ids import FactId, HostId
from tenure.domain.policy import Policy
from tenure.domain.reasons import Reason
from tenure.domain.severity import Severity
from tenure.events.fact import Fact
from tenure.events.hosts import HostStateChanged
from tenure.events.intake import RepairCompleted
from tenure.events.reports import HealthSignal, Heartbeat, HostBeat, HostRegistered, HostSignal
from tenure.log.memory import MemoryLog
from tenure.runtime.clock import WallClock
from tenure.runtime.loop import Loop
from tenure.runtime.repair_options import RepairOptions

ORDER = Mend(
    host=HostId("h000"),
    incident="h000@1",
    step=RepairStep.REPAIR,
    reason=Reason.HOST_SIGNAL_FATAL,
    asked_at=5,
    gpus=8,
    evidence=("fatal kernel xid_79 gpu3: gone",),
)
SPEC = HostSpec(host=HostId("h000"), gpus=8, gpu_type="H100", block="b", cluster="c")
SECRET = b"a secret"
Reply = Callable[[int], tuple[int, bytes]]


def python(code: str, **options: object) -> RepairOptions:
    return RepairOptions(command=(sys.executable, "-c", code), **options)  # type: ignore[arg-type]


@contextlib.contextmanager
def web_server(reply: Reply) -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """A server that answers its n-th request (from 1) as told, and what it was sent."""
    got: list[tuple[dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((dict(self.headers), body))
            status, said = reply(len(got))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

        def log_message(self, *_: object) -> None:
            """Not on the screen."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mend", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def answered(log: MemoryLog) -> RepairCompleted:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        for entry in log.recorded:
            if isinstance(entry.fact, RepairCompleted):
                return entry.fact
        await asyncio.sleep(0.01)
    raise AssertionError("no answer came")


async def mend(options: RepairOptions) -> tuple[RepairCompleted, MemoryLog]:
    log = MemoryLog()
    hands = Hands(log, WallClock(), options, cluster="test", wait_first_s=0.01)
    await hands.perform([ORDER, ORDER])
    fact = await answered(log)
    await hands.rest()
    return fact, log


def test_a_command_is_told_everything_and_its_last_line_is_kept() -> None:
    code = (
        "import json, os, sys; told = json.load(sys.stdin); print('noise'); sys.stdout.buffer.write(b'\\xff\\x00\\n');"
        "of = [os.environ[f'TENURE_{name}'] for name in ('HOST', 'STEP', 'GPUS')];"
        "print(told['key'], *of, told['evidence'][0][:5])"
    )
    fact, log = asyncio.run(mend(python(code)))
    assert fact.ok and fact.comment == "h000@1-repair-5 h000 repair 8 fatal"
    assert (fact.incident, fact.step, fact.by) == ("h000@1", RepairStep.REPAIR, "repair-plug")
    assert len(log.recorded) == 1, "asked twice, done and said once"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("print('no CUDA'); raise SystemExit(3)", "no CUDA"),
        ("raise SystemExit(2)", "the command ended with status 2"),
        ("import sys; sys.stdin.close(); raise SystemExit(4)", "the command ended with status 4"),
    ],
)
def test_a_command_that_fails_needs_a_person(code: str, said: str) -> None:
    fact, _ = asyncio.run(mend(python(code)))
    assert (fact.ok, fact.comment) == (False, said)


def test_a_command_that_may_go_better_later_is_tried_again(tmp_path: Path) -> None:
    code = f"import os, pathlib; p = pathlib.Path({str(tmp_path)!r}, 'seen'); there = p.exists(); p.touch()\n"
    fact, _ = asyncio.run(mend(python(code + "raise SystemExit(0 if there else 75)")))
    assert fact.ok


def test_a_command_that_hangs_is_killed_with_its_children() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    began = time.monotonic()
    fact, _ = asyncio.run(mend(python(code, time_limit_ms=300, attempts=2)))
    assert not fact.ok and "longer than" in fact.comment and "(2 attempts)" in fact.comment
    assert time.monotonic() - began < 15


def test_a_command_that_floods_costs_no_memory_and_one_that_is_not_there_is_said() -> None:
    fact, _ = asyncio.run(mend(python("print('x' * 3_000_000); print('end')")))
    assert fact.ok and fact.comment == "end"
    answer = asyncio.run(run_command(ORDER, RepairOptions(command=("/no/such/command",))))
    assert not answer.ok and "cannot be run" in answer.detail


def test_a_webhook_gets_a_signed_body_and_the_key_once_more_after_a_500() -> None:
    def reply(number: int) -> tuple[int, bytes]:
        return (500, b"oops") if number < 3 else (200, b'{"ok": true, "detail": "gpu reset"}')

    with web_server(reply) as (url, got):
        fact, _ = asyncio.run(mend(RepairOptions(webhook=url, secret=SECRET)))
    assert fact.ok and fact.comment == "gpu reset" and len(got) == 3
    assert len({body for _, body in got}) == 1 and json.loads(got[0][1])["host"] == "h000"
    for headers, body in got:
        assert headers["X-Tenure-Signature"] == signature(body, SECRET) != signature(body, b"another")
        assert headers["Idempotency-Key"] == "h000@1-repair-5"


def test_a_webhook_that_answers_500_for_ever_is_said_and_needs_a_person() -> None:
    with web_server(lambda _: (500, b"")) as (url, got):
        fact, _ = asyncio.run(mend(RepairOptions(webhook=url, secret=SECRET, attempts=3)))
    assert not fact.ok and fact.comment == "the webhook answered 500 (3 attempts)" and len(got) == 3


def test_a_webhook_that_hangs_is_given_up() -> None:
    hang = threading.Event()

    def reply(_: int) -> tuple[int, bytes]:
        hang.wait(20)
        return 200, b"{}"

    with web_server(reply) as (url, _):
        fact, _ = asyncio.run(mend(RepairOptions(webhook=url, secret=SECRET, attempts=2, time_limit_ms=200)))
        hang.set()
    assert not fact.ok and "did not answer within 0.2 s" in fact.comment


@pytest.mark.parametrize(
    ("status", "said", "detail"),
    [
        (403, b"who are you", "the webhook answered 403: who are you"),
        (200, b"<html>", "the webhook's answer cannot be read"),
        (200, b'{"ok": false, "detail": "no spare"}', "no spare"),
        (302, b"", "the webhook answered 302"),
    ],
)
def test_other_answers_of_a_webhook_need_a_person_at_once(status: int, said: bytes, detail: str) -> None:
    with web_server(lambda _: (status, said)) as (url, got):
        fact, _ = asyncio.run(mend(RepairOptions(webhook=url, secret=SECRET)))
    assert not fact.ok and fact.comment.startswith(detail) and len(got) == 1


def test_a_webhook_may_answer_later_and_one_that_is_away_is_passing() -> None:
    with web_server(lambda _: (202, b"")) as (url, _):
        assert asyncio.run(send(ORDER, RepairOptions(webhook=url, secret=SECRET))) is None
    with pytest.raises(Passing, match="cannot be reached"):
        asyncio.run(send(ORDER, RepairOptions(webhook=url, secret=SECRET)))


def test_from_a_signal_to_a_healthy_host_without_a_person() -> None:
    """The whole loop: evidence, drain, repair, acceptance test, back."""
    asyncio.run(_from_signal_to_healthy())


async def _from_signal_to_healthy() -> None:
    log, clock = MemoryLog(), WallClock()
    options = python("import os; print(os.environ['TENURE_STEP'])")
    hands = Hands(log, clock, options, cluster="test", wait_first_s=0.01)
    loop = Loop(role(Policy(), plug=Plug(repairs=True, tests=True)), log, clock, cluster="test", perform=hands.perform)
    stop = asyncio.Event()
    running = asyncio.create_task(loop.run(stop))
    await say(log, HostRegistered(at=clock.now(), agent="a", hosts=(SPEC,)))
    await beating(log, clock, until=HostState.HEALTHY)
    at = clock.now()
    gone = HealthSignal(
        source="kernel", device="gpu3", code="xid_79", severity=Severity.FATAL, text="gone", first_at=at, last_at=at
    )
    await say(log, HostSignal(at=at, host=SPEC.host, signals=(gone,)))
    await beating(log, clock, until=HostState.DRAINING)
    await beating(log, clock, until=HostState.HEALTHY)
    stop.set()
    await running
    await hands.rest()
    assert states(log) == ["healthy", "draining", "drained", "repairing", "probation", "healthy"]
    assert [entry.fact.comment for entry in log.recorded if isinstance(entry.fact, RepairCompleted)] == [
        "repair",
        "test",
    ]


async def beating(log: MemoryLog, clock: WallClock, *, until: HostState) -> None:
    """The host beats until it has been in this state since now."""
    seen, deadline = len(states(log)), time.monotonic() + 30
    while until not in states(log)[seen:]:
        assert time.monotonic() < deadline, states(log)
        await say(log, Heartbeat(at=clock.now(), agent="a", hosts=(HostBeat(host=SPEC.host, gpus=8),)))
        await asyncio.sleep(0.02)


def states(log: MemoryLog) -> list[HostState]:
    return [entry.fact.state for entry in log.recorded if isinstance(entry.fact, HostStateChanged)]


async def say(log: MemoryLog, fact: Fact) -> None:
    await log.append([msgspec.structs.replace(fact, id=FactId(f"t{len(log.recorded)}"), cluster="test")])
