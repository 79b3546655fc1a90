"""The operating system's user at the other end of a loopback connection: the kernel says who owns that socket.

`tenure/runtime/socket_owner.py` asks it. Only for a gateway that listens on loopback alone; whoever may reach it from
elsewhere comes through somebody's proxy.
"""

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias
from urllib.parse import unquote

from services.gateway.identity.source import Credentials, Known, checked_user
from services.gateway.refusals import Unauthenticated
from tenure.domain.rights import Caller, Role
from tenure.runtime.socket_owner import Endpoint, name_of, owner_of_sockets

PARSED_MAX = 4_096
"""Addresses that are not parsed again; who is behind one is asked each time."""

Ends: TypeAlias = tuple[Endpoint, Endpoint]
"""The caller's and ours."""


class OsUsers:
    """Identifies callers by the uid of their socket. `admins` are uids that are admins here: whoever runs it, root."""

    def __init__(self, listen: str, *, admins: frozenset[int], roles_of: Callable[[Caller], frozenset[Role]]) -> None:
        """`listen` is the gateway's address, with its port."""
        host, _, port = listen.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._admins, self._roles_of = admins, roles_of
        self._uid_of = owner_of_sockets()
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
