"""What the console is told, where it listens, and what it refuses to start with."""

import dataclasses
import json
import socket
from pathlib import Path

import pytest

from services.console.options import Options, parse_options
from services.console.shell import bind
from tenure.domain.refusal import Refusal
from tenure.runtime.data_dir import read_console_address
from tenure.runtime.settings.console import CONSOLE_LISTEN


def options(tmp_path: Path, *more: str) -> Options:
    return parse_options(["--data", str(tmp_path), *more])


def test_usual_options(tmp_path: Path) -> None:
    usual = options(tmp_path)
    assert usual.listen.shown == CONSOLE_LISTEN and usual.gateway == "127.0.0.1:7733"
    assert usual.os_users and usual.gateway_is_here and not usual.gateway_tls and usual.certificate is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--console-listen", "here"], "--console-listen: 'here' is no address; write 127.0.0.1:7734, or off"),
        (["--console-listen", "off"], "--console-listen: off"),
        (["--console-listen", "0.0.0.0:7734"], "0.0.0.0 is not loopback"),
        (["--console-cert", "/x.pem"], "--console-cert: a certificate and its key go together"),
        (["--console-gateway-cert-key", "/x.pem"], "--console-gateway-cert: a certificate and its key go together"),
        (["--console-gateway", "gw.lab:7733"], "--console-gateway: 'gw.lab:7733' is not on loopback"),
        (["--console-gateway", "[2001:db8::1]:7733"], "without TLS tokens could be read"),
        (["--set", "console.lissten=1"], "did you mean listen"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, more: list[str], words: str) -> None:
    with pytest.raises(Refusal) as refused:
        options(tmp_path, *more)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("sets", "believed"),
    [
        ((), True),
        (("identity.issuer=https://a.example", "identity.audience=tenure"), False),
        (("identity.client_ca=/etc/hostname",), False),
        (("identity.os_users=false",), False),
        (("identity.issuer=https://a.example", "identity.audience=tenure", "identity.os_users=true"), True),
    ],
)
def test_users_of_this_machine_are_known_where_the_gateway_knows_them(
    tmp_path: Path, sets: tuple[str, ...], believed: bool
) -> None:
    more = [word for each in sets for word in ("--set", each)]
    assert options(tmp_path, *more).os_users is believed


def test_never_on_an_address_that_others_reach(tmp_path: Path) -> None:
    elsewhere = options(tmp_path, "--console-listen", "0.0.0.0:0", "--set", "identity.insecure_plaintext=true")
    assert not elsewhere.os_users


@pytest.mark.parametrize(
    "more",
    [
        ["--console-gateway", "gw.lab:7733", "--console-gateway-tls"],
        ["--console-gateway", "gw.lab:7733", "--console-gateway-ca", "/etc/hostname"],
        ["--console-gateway", "gw.lab:7733", "--set", "identity.insecure_plaintext=true"],
        ["--console-gateway", "0.0.0.0:7733"],
        ["--console-gateway", "[::]:7733"],
        ["--console-gateway", "[::1]:7733"],
        ["--console-gateway", "localhost:7733"],
    ],
)
def test_gateways_that_no_one_can_listen_in_on_the_way_to(tmp_path: Path, more: list[str]) -> None:
    assert options(tmp_path, *more).gateway == more[1]


def test_a_taken_port_is_fallen_back_from_and_the_same_again_next_time(tmp_path: Path) -> None:
    file = tmp_path / "console.json"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wanted = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Refusal, match="--console-listen"):
            bind(options(tmp_path, "--console-listen", wanted))
        falling = options(tmp_path, "--console-listen", wanted, "--fall-back", "--address-file", str(file))
        with bind(falling) as first:
            port = first.getsockname()[1]
        assert f"127.0.0.1:{port}" != wanted
        url = f"http://127.0.0.1:{port}"
        file.write_text(json.dumps({"url": url, "host": "127.0.0.1", "port": port, "wanted": wanted}))
        with bind(falling) as again:
            assert again.getsockname()[1] == port
        other = options(tmp_path, "--console-listen", "127.0.0.1:0", "--fall-back", "--address-file", str(file))
        with bind(other) as elsewhere:
            assert elsewhere.getsockname()[1] != port, "another address is wanted now"
        file.write_text("{nonsense")
        assert read_console_address(file) is None
        with bind(falling) as after:
            assert after.getsockname()[1] > 0
    with bind(dataclasses.replace(falling, address_file=None)) as at_last:
        assert f"127.0.0.1:{at_last.getsockname()[1]}" == wanted
