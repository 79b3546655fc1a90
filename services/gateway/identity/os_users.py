"""The operating system's user at the other end of a loopback connection: the kernel says who owns that socket.

As PostgreSQL's `peer` does for its local connections. The kernel is asked for the very connection at every call
(sock_diag, some microseconds), so that no answer outlives its connection: a port is soon somebody else's.
Only for a gateway that listens on loopback alone; whoever may reach it from elsewhere comes through somebody's proxy.
"""

import ipaddress
import os
import pwd
import socket
import struct
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote

from services.gateway.identity.source import Credentials, Known, checked_user
from services.gateway.refusals import Unauthenticated
from tenure.domain.rights import Caller, Role

_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _ERROR, _REQUEST = 4, 20, 2, 1
_ANY_COOKIE, _ALL_STATES, _ESTABLISHED = b"\xff" * 8, 0xFFFFFFFF, 1
_UID_AT = 4 + 48 + 3 * 4
"""In an answer: family, state and two more bytes, the two ends, three numbers, then the uid."""
_ANSWER_S = 1.0
PARSED_MAX = 4_096
"""Addresses that are not parsed again; who is behind one is asked each time."""
_PROC = {socket.AF_INET: Path("/proc/net/tcp"), socket.AF_INET6: Path("/proc/net/tcp6")}
_UID_COLUMN = 7


@dataclass(frozen=True)
class Endpoint:
    """One end of a TCP connection."""

    host: str
    port: int

    @cached_property
    def packed(self) -> bytes:
        """The address as the kernel writes it."""
        return ipaddress.ip_address(self.host).packed


Ends: TypeAlias = tuple[Endpoint, Endpoint]
"""The caller's and ours."""


class OsUsers:
    """Identifies callers by the uid of their socket. `admins` are uids that are admins here: whoever runs it, root."""

    def __init__(self, listen: str, *, admins: frozenset[int], roles_of: Callable[[Caller], frozenset[Role]]) -> None:
        """`listen` is the gateway's address, with its port."""
        host, _, port = listen.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._admins, self._roles_of = admins, roles_of
        self._uid_of = _kernel() or uid_in_proc
        self._ends: OrderedDict[str, Ends | None] = OrderedDict()
        self._users: dict[int, Known] = {}

    async def identify(self, credentials: Credentials) -> Known | None:
        """The owner of the socket at the other end; None where a token says who it is, good or not."""
        if credentials.token:
            return None
        ends = self._ends_of(credentials.peer)
        if ends is None:
            return None
        uid = self._uid_of(*ends)
        if uid is None:
            raise Unauthenticated(
                field="credentials",
                problem="the connection is gone, or its owner cannot be seen from here",
                fix="call again, or send a token (`tenure token create`)",
            )
        known = self._users.get(uid)
        if known is None:
            known = self._users[uid] = self._known(uid)
        return known

    def _known(self, uid: int) -> Known:
        """Who a uid is: the system's users do not change while a gateway runs, their connections do."""
        caller = Caller(user=checked_user(name_of(uid), field="the operating system's user"))
        roles = self._roles_of(caller) | (frozenset({Role.ADMIN}) if uid in self._admins else frozenset())
        return Known(caller=replace(caller, roles=roles), how=f"uid {uid}")

    def _ends_of(self, peer: str) -> "Ends | None":
        """Both ends of the connection of `peer`, from the text alone; None where it does not come by loopback."""
        if peer in self._ends:
            return self._ends[peer]
        client = parse_peer(peer)
        if client is not None and not ipaddress.ip_address(client.host).is_loopback:
            client = None
        ends = self._ends[peer] = None if client is None else (client, self._own_end(client))
        if len(self._ends) > PARSED_MAX:
            self._ends.popitem(last=False)
        return ends

    def _own_end(self, client: Endpoint) -> Endpoint:
        """Our end of the connection."""
        if self._host == "localhost":
            return Endpoint("127.0.0.1" if len(client.packed) == 4 else "::1", self._port)
        return Endpoint(self._host, self._port)


def parse_peer(peer: str) -> Endpoint | None:
    """The address in `ipv4:127.0.0.1:41234` or `ipv6:%5B::1%5D:41234`; None for anything else."""
    family, _, address = unquote(peer).partition(":")
    host, _, port = address.rpartition(":")
    if family not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    host = host.strip("[]").partition("%")[0]
    try:
        parsed = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return Endpoint(str(mapped or parsed), int(port))


def name_of(uid: int) -> str:
    """The name of a user of this machine; `uid1000` where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid{uid}"


class Kernel:
    """Asks the kernel who owns one connection. Raises OSError where it answers no such questions."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC, _SOCK_DIAG)
        self._socket.settimeout(_ANSWER_S)
        self._number = 0

    def uid_of(self, client: Endpoint, own: Endpoint) -> int | None:
        """The uid of the socket of `client` that is connected to `own`; None if there is none."""
        for family in _families(client):
            ends = struct.pack("!HH", client.port, own.port) + _wide(client, family) + _wide(own, family)
            wanted = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES) + ends
            answer = self._ask(wanted + struct.pack("=I", 0) + _ANY_COOKIE)
            if answer is not None and answer[1] == _ESTABLISHED:
                return int(struct.unpack_from("=I", answer, _UID_AT)[0])
        return None

    def _ask(self, question: bytes) -> bytes | None:
        """The kernel's answer to this very question; None for an error."""
        self._number = (self._number + 1) & 0xFFFFFFFF
        header = struct.pack("=IHHII", 16 + len(question), _SOCK_DIAG_BY_FAMILY, _REQUEST, self._number, 0)
        self._socket.send(header + question)
        while True:
            answer = self._socket.recv(4096)
            _, kind, _, number, _ = struct.unpack_from("=IHHII", answer)
            if number == self._number:  # not a late answer to an earlier question
                return None if kind == _ERROR else answer[16:]


def _kernel() -> "Callable[[Endpoint, Endpoint], int | None] | None":
    """The kernel as an oracle, after a trial with a connection of our own; None where it is not one."""
    try:
        kernel = Kernel()
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as probe:
            answer = kernel.uid_of(Endpoint(*probe.getsockname()), Endpoint(*server.getsockname()))
    except OSError:
        return None
    return kernel.uid_of if answer == os.getuid() else None


def uid_in_proc(client: Endpoint, own: Endpoint) -> int | None:
    """The same from /proc/net/tcp and tcp6, for where the kernel does not answer."""
    for family in _families(client):
        wanted = [_in_proc(client, family), _in_proc(own, family), f"{_ESTABLISHED:02X}"]
        for line in _PROC[family].read_text().splitlines()[1:] if _PROC[family].exists() else ():
            columns = line.split()
            if columns[1:4] == wanted:
                return int(columns[_UID_COLUMN])
    return None


def _families(client: Endpoint) -> tuple[socket.AddressFamily, ...]:
    """A client that calls an IPv4 address may do so from a socket of either family."""
    return (socket.AF_INET, socket.AF_INET6) if len(client.packed) == 4 else (socket.AF_INET6,)


def _wide(end: Endpoint, family: socket.AddressFamily) -> bytes:
    """An address in 16 bytes; IPv4 in an IPv6 socket is mapped."""
    packed = end.packed
    if family == socket.AF_INET6 and len(packed) == 4:
        return b"\0" * 10 + b"\xff\xff" + packed
    return packed.ljust(16, b"\0")


def _in_proc(end: Endpoint, family: socket.AddressFamily) -> str:
    """An address as /proc writes it: words of four bytes, each as this machine reads a number."""
    packed = end.packed if family == socket.AF_INET else _wide(end, family)
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{end.port:04X}"
