"""The process: own the data path, open the engine, answer on loopback, and give everything back when told to stop."""

import contextlib
import fcntl
import http.client
import json
import logging
import os
import secrets
import signal
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

from services.clickhouse.engine_config import write_config
from services.clickhouse.options import HOST, Options, parse_options
from tenure.domain.refusal import Refusal
from tenure.runtime.log_lines import set_up_logging
from tenure.runtime.telemetry import tell_of

if TYPE_CHECKING:
    from services.clickhouse.engine import Engine
    from services.clickhouse.server import Server

logger = logging.getLogger(__name__)

_STOPS = (signal.SIGTERM, signal.SIGINT)
_KILLED_LEAVE_S = 3.0


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT. 0: stopped in order; 1: could not serve, with one line that says what to do."""
    try:
        options = parse_options(argv)
        set_up_logging("clickhouse", options.telemetry)
        _serve(options)
    except (Refusal, OSError) as trouble:
        print(f"tenure serve clickhouse: {trouble}", file=sys.stderr)
        return 1
    return 0


def _serve(options: Options) -> None:
    # Blocked before the engine starts its threads, and waited for: while a statement runs, the engine has a handler
    # of its own on SIGINT, and a Ctrl-C would be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    tell_of("clickhouse", log=os.environ.get("TENURE_CLUSTER", "tenure"), listen=options.telemetry.metrics_listen)
    with _own(options.data):
        _withdraw(options.ready_file)  # what a killed one left
        token = _token(options.token_file)
        # Imported only by the process that owns the data: it starts threads, takes signals, costs 200 ms.
        from services.clickhouse.engine import Engine
        from services.clickhouse.server import Server

        try:
            server = Server(
                port=options.port,
                token=token,
                connections_max=options.connections_max,
                body_bytes_max=options.body_bytes_max,
            )
        except OSError as error:
            raise Refusal(
                field=f"--port {options.port}", problem=error.strerror or str(error), fix="choose another one, or 0"
            ) from error
        config = write_config(
            options.data,
            memory_bytes=options.memory_bytes,
            fsync=options.fsync,
            statement_s_max=options.statement_s_max,
        )
        engine = Engine.open(options.data / "engine", config=config)
        server.start(engine)
        try:
            _announce(options.ready_file, port=server.port, token=token)
            signal.sigwait(_STOPS)
        finally:
            logger.info("stopping")
            _stop(server, engine, drain_s=options.drain_s)
            _withdraw(options.ready_file)


def _stop(server: "Server", engine: "Engine", *, drain_s: float) -> None:
    """Let what runs end, then what does not, then the engine."""
    server.stop_accepting()
    if not server.gate.close(drain_s):
        logger.warning("statements still run after %g s: killing them", drain_s)
        engine.kill_all()
        if not server.gate.close(_KILLED_LEAVE_S):
            # Closing the engine under a running statement may hang; what was acknowledged is on disk.
            logger.warning("a statement does not end: leaving it")
            os._exit(0)
    engine.close()


def _own(data: Path) -> IO[str]:
    """The lock on the data folder, held while the returned file is open. Raises `Refusal`.

    The engine, too, refuses a second owner, but gives no reason.
    """
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (data / "lock").open("a+")
    except OSError as error:
        raise Refusal(
            field=f"--data {data}", problem=error.strerror or str(error), fix="name a folder that can be written"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.seek(0)
        owner = lock.read(20).strip() or "?"
        lock.close()
        raise Refusal(
            field=f"--data {data}", problem=f"in use by process {owner}", fix="stop that one, or name another folder"
        ) from error
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def _token(path: Path) -> str:
    """The content of the token file, which is made if there is none. Raises `Refusal`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            token = path.read_text().strip()
        else:
            token = secrets.token_urlsafe(32)
            with os.fdopen(descriptor, "w") as file:
                file.write(token)
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(field=f"--token-file {path}", problem=str(error), fix="name a readable text file") from error
    if not token:
        raise Refusal(field=f"--token-file {path}", problem="empty", fix="put a long random word into it, or delete it")
    return token


def _announce(ready_file: Path | None, *, port: int, token: str) -> None:
    """Ask one query as a client would; when it is answered, write where."""
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    connection.request("POST", "/", body=b"SELECT 1", headers={"X-ClickHouse-Key": token})
    answer = connection.getresponse().read()
    connection.close()
    assert answer == b"1\n", f"the engine answered {answer!r} to SELECT 1"
    if ready_file is not None:
        _write_ready(ready_file, port=port)
    logger.info("ready on http://%s:%d", HOST, port)


def _write_ready(ready_file: Path, *, port: int) -> None:
    fresh = ready_file.with_name(f".{ready_file.name}.{os.getpid()}")
    try:
        ready_file.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps({"host": HOST, "port": port, "pid": os.getpid()}))
        os.replace(fresh, ready_file)
    except OSError as error:
        problem = error.strerror or str(error)
        raise Refusal(
            field=f"--ready-file {ready_file}", problem=problem, fix="name one that can be written"
        ) from error


def _withdraw(ready_file: Path | None) -> None:
    if ready_file is not None:
        with contextlib.suppress(OSError):  # where it cannot be removed it was not written
            ready_file.unlink()
