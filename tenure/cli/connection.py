"""Which running system a command talks to: `TENURE_SERVER`, else the default data directory, else the last `up`."""

import getpass
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.runtime.data_dir import DataDir, Endpoint, default_root, recent_roots
from tenure.runtime.processes import is_alive
from tenure.sdk.errors import ServerUnreachable

if TYPE_CHECKING:
    from tenure.sdk.client import Client

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


def check_address(text: str) -> str:
    """`host:port` of `text`. Raises `ServerUnreachable`."""
    address = text.removeprefix("http://").removeprefix("grpc://").rstrip("/")
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ServerUnreachable(f"{VARIABLE}: {text[:80]!r} is not an address; write host:port", code="UNAVAILABLE")
    return address


def connect() -> "Client":
    """A client of the system that `find` finds."""
    found = find()  # before the import, which takes most of the time
    from tenure.sdk.client import Client

    return Client(found.address)


def caller() -> str:
    """The name of the user who calls."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a uid without a name, as in some containers
        return f"uid{os.getuid()}"


def here() -> str:
    """The working directory as the user sees it (with the links in it)."""
    pwd = os.environ.get("PWD", "")
    if pwd and Path(pwd).is_absolute() and Path(pwd).exists() and Path(pwd).samefile("."):
        return pwd
    return str(Path.cwd())
