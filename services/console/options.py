"""What the console can be told, read from the command line, the environment and the file, and checked at its start."""

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tenure.domain.loopback import is_loopback
from tenure.domain.refusal import Refusal
from tenure.runtime.local_tokens import key_file
from tenure.runtime.settings.console import CONSOLE, OFF, check_console_reach, check_gateway_reach
from tenure.runtime.settings.flags import add_flags, flags_given, tell_arguments
from tenure.runtime.settings.given import Settings, load_settings
from tenure.runtime.telemetry_options import Address, TelemetryOptions, parse_listen, telemetry_options


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The role's options.

    `fall_back`: take a free port where the wanted one is taken. `os_users`: callers without a token are who the
    operating system says, as for the gateway; `local_key` signs their tokens. `gateway_name`: a name in the gateway's
    certificate, where that is not the one of its address.
    """

    cluster: str
    listen: Address
    fall_back: bool
    address_file: Path | None
    ready_file: Path | None
    certificate: Path | None
    key: Path | None
    gateway: str
    gateway_tls: bool
    gateway_ca: Path | None
    gateway_name: str
    gateway_certificate: Path | None
    gateway_key: Path | None
    clickhouse_url: str
    clickhouse_token_file: Path | None
    os_users: bool
    local_key: Path
    telemetry: TelemetryOptions

    @property
    def gateway_is_here(self) -> bool:
        """Whether the gateway answers this machine alone: then it, too, may know all its users."""
        return is_loopback(self.gateway.rpartition(":")[0])


def parse_options(argv: Sequence[str] | None) -> Options:
    """The options in `argv`. Raises `Refusal` naming the option; argparse exits with 2 on an unknown one."""
    given = _parser().parse_args(argv)
    settings = load_settings(
        role=CONSOLE, config=given.config, environment=os.environ, flags=flags_given(given, CONSOLE), sets=given.set
    )
    tell_arguments(settings, given)
    if given.data is None:
        raise Refusal(field="--data", problem="not given", fix="give the data folder: --data DIR, or data: DIR")
    if given.console_listen == OFF:
        raise Refusal(field="--console-listen", problem="off", fix="give an address, or do not start the console")
    listen = parse_listen(given.console_listen, "--console-listen")
    _check_pair("--console-cert", given.console_cert, given.console_cert_key)
    _check_pair("--console-gateway-cert", given.console_gateway_cert, given.console_gateway_cert_key)
    elsewhere = settings.value("identity.insecure_plaintext") is True  # something else encrypts
    check_console_reach(listen.host, encrypted=elsewhere or given.console_cert is not None)
    gateway_tls = given.console_gateway_tls or given.console_gateway_ca is not None
    check_gateway_reach(given.console_gateway, encrypted=elsewhere or gateway_tls)
    return Options(
        cluster=given.cluster,
        listen=listen,
        fall_back=given.fall_back,
        address_file=given.address_file,
        ready_file=given.ready_file,
        certificate=given.console_cert,
        key=given.console_cert_key,
        gateway=given.console_gateway,
        gateway_tls=gateway_tls,
        gateway_ca=given.console_gateway_ca,
        gateway_name=given.console_gateway_name or "",
        gateway_certificate=given.console_gateway_cert,
        gateway_key=given.console_gateway_cert_key,
        clickhouse_url=given.clickhouse or "",
        clickhouse_token_file=given.clickhouse_token_file,
        os_users=is_loopback(listen.host) and believes_os(settings),
        local_key=key_file(given.data),
        telemetry=telemetry_options(settings),
    )


def believes_os(settings: Settings) -> bool:
    """What `identity.os_users` says; where it says nothing, yes unless others than this machine's users are known."""
    said = settings.value("identity.os_users")
    elsewhere = settings.is_given("identity.issuer") or settings.is_given("identity.client_ca")
    return bool(said) if said is not None else not elsewhere


def _check_pair(flag: str, certificate: Path | None, key: Path | None) -> None:
    if (certificate is None) != (key is None):
        raise Refusal(field=flag, problem="a certificate and its key go together", fix=f"give {flag} and {flag}-key")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tenure serve console", description=__doc__)
    add_flags(parser, CONSOLE)
    parser.add_argument("--ready-file", type=Path, help="written when pages are answered: JSON with address and pid")
    parser.add_argument("--address-file", type=Path, help="keeps the address that it had, for the next start")
    parser.add_argument("--fall-back", action="store_true", help="take a free port where the wanted one is taken")
    return parser
