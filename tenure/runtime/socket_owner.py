"""Whose socket it is: the operating system's user at the other end of a loopback connection, as the kernel says.

As PostgreSQL's `peer` does for its local connections. The kernel is asked for the very connection at every call
(sock_diag, some microseconds), so that no answer outlives its connection: a port is soon somebody else's.
"""

import ipaddress
import os
import pwd
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _ERROR, _REQUEST = 4, 20, 2, 1
_ANY_COOKIE, _ALL_STATES, _ESTABLISHED = b"\xff" * 8, 0xFFFFFFFF, 1
_UID_AT = 4 + 48 + 3 * 4
"""In an answer: family, state and two more bytes, the two ends, three numbers, then the uid."""
_ANSWER_S = 1.0
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


def owner_of_sockets() -> Callable[[Endpoint, Endpoint], int | None]:
    """Who tells the uid of the first end of a connection: the kernel, after a trial with one of our own, else /proc."""
    try:
        kernel = Kernel()
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as probe:
            answer = kernel.uid_of(Endpoint(*probe.getsockname()), Endpoint(*server.getsockname()))
    except OSError:
        return uid_in_proc
    return kernel.uid_of if answer == os.getuid() else uid_in_proc


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
