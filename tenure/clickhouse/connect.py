"""A client for one database of a ClickHouse server, over HTTP."""

import logging
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import clickhouse_connect
from clickhouse_connect.driver import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from tenure.domain.refusal import Refusal

DATABASE = "tenure"
CONNECT_TIMEOUT_S = 5
ANSWER_TIMEOUT_S = 120
_OPTION = "--clickhouse"

SETTINGS = {
    "insert_quorum": "auto",
    "insert_quorum_parallel": 0,
    "insert_quorum_timeout": 20_000,
    "select_sequential_consistency": 1,
    "distributed_ddl_task_timeout": 20,
}
"""Of every statement, for replicated tables; others pass them over. What is acknowledged is on most replicas, and one
that does not have all of that yet refuses to answer, whichever is asked (decision 0024). Milliseconds; seconds."""

_ERRNO = re.compile(r"\[Errno -?\d+\] ([^'\")]+)")
_ADDRESS = re.compile(r"with url: \S*")
_PASSWORD_CODES = ("(AUTHENTICATION_FAILED)", "(REQUIRED_PASSWORD)", "(WRONG_PASSWORD)", "code: 516", "code: 193")


def connect(url: str, token_file: Path | None = None, *, answer_timeout_s: int = ANSWER_TIMEOUT_S) -> Client:
    """A client for `http[s]://[user@]host:port[/database]`; safe for several threads. The database may not exist yet.

    `token_file` holds the user's password. Raises `Refusal` for a URL or password that cannot work, `ConnectionError`
    while the server does not answer.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Refusal(field=_OPTION, problem=f"{url[:80]!r} is no address", fix="write http://host:port[/database]")
    for library in ("clickhouse_connect", "urllib3.connectionpool"):
        logging.getLogger(library).setLevel(logging.ERROR)  # they warn at every retry; callers say it once
    try:
        port = parts.port or (8443 if parts.scheme == "https" else 8123)
        client = clickhouse_connect.get_client(
            interface=parts.scheme,
            host=parts.hostname,
            port=port,
            username=unquote(parts.username) if parts.username else "default",
            password=_password(token_file),
            autogenerate_session_id=False,
            connect_timeout=CONNECT_TIMEOUT_S,
            send_receive_timeout=answer_timeout_s,
            settings=SETTINGS,
        )
    except ValueError as error:
        raise Refusal(field=_OPTION, problem=str(error), fix="write http://host:port[/database]") from error
    except DatabaseError as error:
        if any(code in str(error) for code in _PASSWORD_CODES):
            fix = "put the user's password into the file of --clickhouse-token-file"
            raise Refusal(
                field=_OPTION, problem=f"{parts.hostname}:{port} does not accept the password", fix=fix
            ) from error
        raise ConnectionError(f"ClickHouse at {parts.hostname}:{port} does not answer: {brief(error)}") from error
    client.database = unquote(parts.path.strip("/")) or DATABASE
    return client


def brief(error: Exception) -> str:
    """What a server said, or what is wrong with the connection to it, short enough for a log line."""
    text = str(error)
    system = _ERRNO.search(text)
    if system is not None:
        return system[1]
    lines = _ADDRESS.sub("", text).splitlines() or [type(error).__name__]
    return lines[0][:300]


def _password(token_file: Path | None) -> str:
    if token_file is None:
        return ""
    try:
        return token_file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(
            field="--clickhouse-token-file", problem=f"{token_file} cannot be read", fix="name a readable text file"
        ) from error
