"""The two kinds of repair plug: a command on this machine, or a web server that is sent a signed request.

Both are told the same JSON: `{"key", "epoch", "incident", "host", "step", "reason", "gpus", "evidence": [...]}`; a
command on its standard input and in `TENURE_*`, a web server as the body, signed in `X-Tenure-Signature:
sha256=HMAC(secret, body)`.
`epoch` grows whenever another process leads: who has been told a higher one may ignore a lower one.
"""

import asyncio
import contextlib
import hashlib
import hmac
import os
import signal
from asyncio.subprocess import PIPE, STDOUT
from pathlib import Path

import msgspec
import urllib3

from services.health.instructions import Mend
from tenure.domain.ids import LOG_START, Position
from tenure.domain.units import format_duration
from tenure.runtime.repair_options import RepairOptions

TRY_AGAIN = 75
"""Exit status of a command for what may pass (EX_TEMPFAIL of sysexits.h)."""
OUTPUT_MAX = 64 * 1024
DETAIL_MAX = 300
HTTP_LIMIT_S = 60.0
_PASSING = (408, 409, 425, 429)


class Passing(Exception):
    """What may go better the next time."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it. `detail` is a line for people."""

    ok: bool
    detail: str = ""


def body_of(order: Mend, *, epoch: Position) -> bytes:
    """What a plug is told."""
    return msgspec.json.encode({"key": order.key, "epoch": epoch, **msgspec.structs.asdict(order)})


def signature(body: bytes, secret: bytes) -> str:
    """As the header has it; the receiver computes the same and compares in constant time."""
    return "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()


async def run_command(order: Mend, options: RepairOptions, *, epoch: Position = LOG_START) -> Answer:
    """Exit status 0 is success, 75 is worth another attempt, another needs a person. Raises `Passing`."""
    environment = os.environ | {
        "TENURE_HOST": order.host,
        "TENURE_INCIDENT": order.incident,
        "TENURE_KEY": order.key,
        "TENURE_EPOCH": str(epoch),
        "TENURE_STEP": order.step,
        "TENURE_REASON": order.reason,
        "TENURE_GPUS": str(order.gpus),
    }
    command = options.command
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=STDOUT, env=environment, start_new_session=True
        )
    except OSError as error:
        return Answer(ok=False, detail=f"{Path(command[0]).name} cannot be run: {error.strerror}")
    reading = asyncio.create_task(_talk(process, body_of(order, epoch=epoch)))
    try:
        said = await asyncio.wait_for(asyncio.shield(reading), options.time_limit_ms / 1000)
    except TimeoutError:
        if process.returncode is None:
            raise Passing(f"the command took longer than {format_duration(options.time_limit_ms)}") from None
        said = ""  # it is over, and something that it left behind holds its output
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        reading.cancel()
    if process.returncode == TRY_AGAIN:
        raise Passing(said or f"the command ended with status {TRY_AGAIN}")
    return Answer(ok=process.returncode == 0, detail=said or f"the command ended with status {process.returncode}")


async def _talk(process: asyncio.subprocess.Process, body: bytes) -> str:
    """Tell the command; its last line of output, however much it prints and whatever bytes."""
    assert process.stdin is not None and process.stdout is not None, "both are pipes"
    try:
        process.stdin.write(body + b"\n")
        await process.stdin.drain()
        process.stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it does not read
    tail = b""
    while piece := await process.stdout.read(OUTPUT_MAX):
        tail = (tail + piece)[-OUTPUT_MAX:]
    await process.wait()
    return _one_line(tail)


async def send(order: Mend, options: RepairOptions, *, epoch: Position = LOG_START) -> Answer | None:
    """200 with `{"ok": ..., "detail": ...}` is the answer; 202 means that it comes later (None). Raises `Passing`."""
    body = body_of(order, epoch=epoch)
    headers = {
        "Content-Type": "application/json",
        "Idempotency-Key": order.key,
        "X-Tenure-Signature": signature(body, options.secret),
    }
    limit_s = min(HTTP_LIMIT_S, options.time_limit_ms / 1000)
    try:
        posting = asyncio.to_thread(_post, options.webhook, body, headers, limit_s)
        status, said = await asyncio.wait_for(posting, 2 * limit_s)  # each read has its own limit: many may not be
    except urllib3.exceptions.NewConnectionError as error:  # a kind of time-out to urllib3
        raise Passing(f"the webhook cannot be reached: {type(error).__name__}") from None
    except (TimeoutError, urllib3.exceptions.TimeoutError):
        raise Passing(f"the webhook did not answer within {limit_s:g} s") from None
    except urllib3.exceptions.HTTPError as error:
        raise Passing(f"the webhook cannot be reached: {type(error).__name__}") from None
    if status >= 500 or status in _PASSING:
        raise Passing(f"the webhook answered {status}")
    if status == 202:
        return None
    if status != 200:
        return Answer(ok=False, detail=f"the webhook answered {status}: {_one_line(said)}")
    try:
        answer = msgspec.json.decode(said, type=Answer)
    except msgspec.MsgspecError as error:
        return Answer(ok=False, detail=f"the webhook's answer cannot be read: {_one_line(str(error).encode())}")
    return msgspec.structs.replace(answer, detail=_one_line(answer.detail.encode()))


def _post(url: str, body: bytes, headers: dict[str, str], limit_s: float) -> tuple[int, bytes]:
    answer = urllib3.request(
        "POST", url, body=body, headers=headers, timeout=limit_s, retries=False, redirect=False, preload_content=False
    )
    try:
        return answer.status, answer.read(OUTPUT_MAX)
    finally:
        answer.close()


def _one_line(raw: bytes) -> str:
    lines = raw.decode(errors="replace").strip().splitlines()
    return "".join(letter for letter in (lines[-1] if lines else "") if letter.isprintable())[:DETAIL_MAX]
