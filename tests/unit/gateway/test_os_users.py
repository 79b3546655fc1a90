"""Whose socket it is: the kernel's answer, /proc's, and no answer for what is no loopback connection."""

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from services.gateway.identity.os_users import OsUsers, parse_peer
from services.gateway.identity.source import Credentials, Known
from services.gateway.refusals import Unauthenticated
from tenure.domain.rights import Role
from tenure.runtime.socket_owner import Endpoint, Kernel, uid_in_proc

Connection = tuple[Endpoint, Endpoint]


@pytest.fixture(params=["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def connection(request: pytest.FixtureRequest) -> Iterator[Connection]:
    """Both ends of a connection; the last is a call of an IPv4 address from an IPv6 socket."""
    host = request.param
    with ExitStack() as stack:
        listen = "127.0.0.1" if host == "::ffff:127.0.0.1" else host
        family = socket.AF_INET6 if ":" in listen else socket.AF_INET
        server = stack.enter_context(socket.create_server((listen, 0), family=family))
        port = server.getsockname()[1]
        client = stack.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
        client.connect((host, port))
        yield Endpoint(listen, client.getsockname()[1]), Endpoint(listen, port)


def test_the_kernel_and_proc_say_the_same(connection: Connection) -> None:
    assert Kernel().uid_of(*connection) == os.getuid()
    assert uid_in_proc(*connection) == os.getuid()


def test_a_connection_that_is_not_there_is_nobodys(connection: Connection) -> None:
    _, own = connection
    kernel = Kernel()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nobody = Endpoint("127.0.0.1", unused.getsockname()[1])
        assert kernel.uid_of(nobody, own) is None
        assert uid_in_proc(nobody, own) is None
    assert kernel.uid_of(*connection) == os.getuid(), "an error in between confuses nothing"


@pytest.mark.parametrize(
    ("peer", "end"),
    [
        ("ipv4:127.0.0.1:41234", Endpoint("127.0.0.1", 41234)),
        ("ipv6:%5B::1%5D:7", Endpoint("::1", 7)),
        ("ipv6:[::1]:7", Endpoint("::1", 7)),
        ("ipv6:%5B::ffff:127.0.0.1%5D:7", Endpoint("127.0.0.1", 7)),
        ("ipv6:%5Bfe80::1%25eth0%5D:7", Endpoint("fe80::1", 7)),
        ("unix:/run/x", None),
        ("ipv4:127.0.0.1", None),
        ("ipv4:nonsense:7", None),
        ("", None),
    ],
)
def test_a_peer_is_read(peer: str, end: Endpoint | None) -> None:
    assert parse_peer(peer) == end


def users(listen: str, *, admins: frozenset[int] = frozenset()) -> OsUsers:
    return OsUsers(listen, admins=admins, roles_of=lambda _: frozenset())


def test_only_connections_by_loopback_are_looked_up() -> None:
    source = users("127.0.0.1:7733")
    for peer in ("ipv4:192.0.2.1:41234", "unix:/run/x", "ipv6:%5B2001:db8::1%5D:7"):
        assert asyncio.run(source.identify(Credentials(peer=peer))) is None


def test_who_runs_it_is_admin_and_others_are_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        listen = f"127.0.0.1:{server.getsockname()[1]}"
        with socket.create_connection(server.getsockname()) as client:
            peer = f"ipv4:127.0.0.1:{client.getsockname()[1]}"

            def found(source: OsUsers) -> Known | None:
                return asyncio.run(source.identify(Credentials(peer=peer)))

            owner, other = found(users(listen, admins=frozenset({os.getuid()}))), found(users(listen))
            assert owner is not None and other is not None
            assert (owner.caller.roles, other.caller.roles) == ({Role.ADMIN}, frozenset())
            assert owner.until is None, "who is behind a port is asked each time"
        with pytest.raises(Unauthenticated, match="the connection is gone"):
            found(users(listen))
