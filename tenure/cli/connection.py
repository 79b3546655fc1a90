"""Which running system a command talks to: `TENURE_SERVER`, else the default data directory, else the last `up`."""

import getpass
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tenure.runtime.data_dir import DataDir, Endpoint, default_root, is_alive, last_root
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
    named = os.environ.get(VARIABLE, "").strip()
    if named:
        return Found(address=check_address(named))
    roots = [root for root in (default_root(), last_root()) if root is not None]
    for root in roots:
        endpoint = DataDir(root).endpoint()
        if endpoint is not None and is_alive(endpoint.pid):
            return Found(address=endpoint.address, endpoint=endpoint)
    looked = " or ".join(str(root) for root in dict.fromkeys(roots))
    raise ServerUnreachable(
        f"no running system: none in {looked}; start one with `tenure up`, or set {VARIABLE}=host:port",
        code="UNAVAILABLE",
    )


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
