"""Which running system a command talks to: `TENURE_SERVER`, else the default data directory, else the last `up`."""

import getpass
import os
import pwd
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.domain.ids import UserName
from tenure.domain.loopback import is_loopback
from tenure.domain.rights import Role
from tenure.domain.units import HOUR
from tenure.runtime.data_dir import DataDir, Endpoint, default_root, recent_roots
from tenure.runtime.local_tokens import key_file, load_key
from tenure.runtime.processes import is_alive
from tenure.sdk.errors import ServerUnreachable

if TYPE_CHECKING:
    from tenure.sdk.client import Client
    from tenure.sdk.credentials import Credentials

VARIABLE = "TENURE_SERVER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The address of a system; `endpoint` only when it runs on this machine and was found by its data directory."""

    address: str
    endpoint: Endpoint | None = None


def find() -> Found:
    """Find the system to talk to. Raises `ServerUnreachable` saying where was looked."""
    recent = recent_roots()
    named = os.environ.get(VARIABLE, "").strip()
    if named:
        address = check_address(named)
        everywhere = (running_in(root) for root in [default_root(), *recent])
        here = [endpoint for endpoint in everywhere if endpoint is not None and endpoint.address == address]
        return Found(address=address, endpoint=here[0] if here else None)
    roots = list(dict.fromkeys([default_root(), *recent[:1]]))
    endpoints = [endpoint for root in roots if (endpoint := running_in(root)) is not None]
    if endpoints:
        return Found(address=endpoints[0].address, endpoint=endpoints[0])
    raise ServerUnreachable(
        f"no running system: none in {' or '.join(map(str, roots))}; start one with `tenure up`, or set "
        f"{VARIABLE}=host:port",
        code="UNAVAILABLE",
    )


def running_in(root: Path) -> Endpoint | None:
    """Where the system of this data directory answers; None if its `up` does not run."""
    endpoint = DataDir(root).endpoint()
    return endpoint if endpoint is not None and is_alive(endpoint.pid) else None


def running_root() -> Path | None:
    """The data directory of the system that commands talk to; None if it is not one of this machine."""
    try:
        endpoint = find().endpoint
    except ServerUnreachable:
        return None
    return None if endpoint is None else Path(endpoint.data)


def check_address(text: str) -> str:
    """`host:port` of `text`. Raises `ServerUnreachable`."""
    address = text.removeprefix("http://").removeprefix("grpc://").rstrip("/")
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ServerUnreachable(f"{VARIABLE}: {text[:80]!r} is not an address; write host:port", code="UNAVAILABLE")
    return address


def connect() -> "Client":
    """A client of the system that `find` finds."""
    return client_of(find())  # found before the import, which takes most of the time


def client_of(found: Found, *, deadline_s: float | None = None) -> "Client":
    """A client of a system that was found, with what it asks of who calls. Raises `Refusal`."""
    from tenure.sdk.client import DEADLINE_S, Client

    return Client(found.address, deadline_s=deadline_s or DEADLINE_S, credentials=credentials_for(found.endpoint))


def credentials_for(endpoint: Endpoint | None) -> "Credentials":
    """What the environment says; for a system of this machine, the rest from its data directory.

    Where its gateway does not listen on loopback, it knows the caller by a token, which who may read its key can make.
    """
    from tenure.sdk.credentials import Credentials

    given = Credentials.from_environment()
    if endpoint is None:
        return given
    if endpoint.tls_name and not given.tls:
        ca = Path(endpoint.tls_ca) if endpoint.tls_ca else None
        given = replace(given, tls=True, ca=ca, server_name=given.server_name or endpoint.tls_name)
    if not given.names_somebody and not is_loopback(endpoint.address.rpartition(":")[0]):
        given = replace(given, token=_own_token(Path(endpoint.data)))
    return given


def _own_token(data: Path) -> str:
    """A token for the moment, for who owns the data directory; none for others."""
    path = key_file(data)
    if not os.access(path, os.R_OK):
        return ""
    key = load_key(path)
    return key.sign(user=UserName(_login()), roles=[Role.ADMIN], now=time.time_ns() // 1_000_000, lifetime_ms=HOUR)


def caller() -> str:
    """The name of the user who calls; empty where a token or a certificate says it."""
    from tenure.sdk.credentials import Credentials

    return "" if Credentials.from_environment().names_somebody else _login()


def _login() -> str:
    """Root may be who it likes (`LOGNAME`), as its word counts anyway; others are who the system says."""
    try:
        return getpass.getuser() if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    except (OSError, KeyError):  # a uid without a name, as in some containers
        return f"uid{os.getuid()}"


def here() -> str:
    """The working directory as the user sees it (with the links in it)."""
    pwd = os.environ.get("PWD", "")
    if pwd and Path(pwd).is_absolute() and Path(pwd).exists() and Path(pwd).samefile("."):
        return pwd
    return str(Path.cwd())
