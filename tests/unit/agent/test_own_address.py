"""Where others reach this host, as the way to the log's servers says."""

import socket

import psutil
import pytest

from services.agent.own_address import own_address
from tenure.domain.refusal import Refusal
from tenure.log.access import Access
from tests.unit.agent.test_start_options import hosts_of

PORT = 4222


def names(monkeypatch: pytest.MonkeyPatch, addresses: dict[str, str]) -> None:
    """Let these names be known and no others."""

    def look_up(host: str, port: int, **_: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        if host not in addresses:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, socket.SOCK_DGRAM, 0, "", (addresses[host], port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


@pytest.fixture
def own() -> str:
    """An address of this machine that is not loopback."""
    up = {name for name, each in psutil.net_if_stats().items() if each.isup}
    found = [
        address.address
        for name, addresses in psutil.net_if_addrs().items()
        for address in addresses
        if name in up and address.family is socket.AF_INET and not address.address.startswith("127.")
    ]
    if not found:
        pytest.skip("this machine has no network but loopback")
    return found[0]


def test_it_is_the_one_towards_the_log(own: str) -> None:
    assert own_address(None, Access(url=f"tls://{own}:{PORT}")) == own


def test_the_agents_real_host_is_told_with_it(own: str) -> None:
    (host,) = hosts_of("--provider", "cpus", "--nats", f"nats://{own}:{PORT}", "--nats-insecure")
    assert host.address == own


def test_a_server_on_this_machine_does_not_hide_those_elsewhere(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, {"nats-0": "127.0.0.1", "nats-2": own})
    url = f"tls://nats-0:{PORT},tls://nats-1,tls://nats-2"
    assert own_address(None, Access(url=url)) == own, "one is here by its name, one is unknown"


def test_a_log_that_is_here_by_its_name_has_one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, {"nats": "127.0.0.1"})
    assert own_address(None, Access(url="tls://nats")) == "127.0.0.1"
    assert own_address(None, Access(url="nats://localhost:4222")) == "127.0.0.1", "without looking anything up"


def test_where_no_way_is_known_it_has_to_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    names(monkeypatch, {})
    with pytest.raises(Refusal, match="no way leads to the log's servers nats:4222"):
        own_address(None, Access(url="tls://nats:4222"))
    assert own_address("10.0.0.7", Access(url="tls://nats:4222")) == "10.0.0.7"
