"""The rows of the section `console:`: where the web console answers, and how it reaches the gateway."""

import ipaddress

from tenure.domain.loopback import is_loopback
from tenure.domain.refusal import Refusal
from tenure.runtime.settings.kinds import FILE, TEXT, TRUTH, read_text
from tenure.runtime.settings.setting import Kind, Setting
from tenure.runtime.telemetry_options import parse_listen

CONSOLE = "console"
"""The role, and its section."""
CONSOLE_SECTIONS = ("", "clickhouse", CONSOLE, "telemetry")
"""What it reads: it knows no log and no policy."""
OFF = "off"
CONSOLE_LISTEN = "127.0.0.1:7734"


def read_listen_or_off(value: object, field: str) -> str:
    """An address and a port as people write them, or off. Raises `Refusal`."""
    text = OFF if value is False else read_text(value, field)
    try:
        return text if text == OFF else parse_listen(text, field).shown
    except Refusal as refusal:
        raise Refusal(field=field, problem=refusal.problem, fix=f"write {CONSOLE_LISTEN}, or {OFF}") from refusal


def check_console_reach(host: str, *, encrypted: bool) -> None:
    """Raise `Refusal` for an address that others reach where tokens could be read on their way."""
    if not is_loopback(host) and not encrypted:
        raise Refusal(
            field="--console-listen",
            problem=f"{host} is not loopback, and without TLS tokens could be read on their way",
            fix="set console.cert and console.cert_key, or listen on 127.0.0.1; only where something else encrypts "
            "every connection, set identity.insecure_plaintext=true",
        )


def check_gateway_reach(address: str, *, encrypted: bool) -> None:
    """Raise `Refusal` for a gateway on another machine where tokens could be read on their way to it.

    An address of all interfaces is where a gateway beside the console listens.
    """
    host = address.rpartition(":")[0]
    if not (encrypted or is_loopback(host) or _is_every_address(host)):
        raise Refusal(
            field="--console-gateway",
            problem=f"{address[:80]!r} is not on loopback, and without TLS tokens could be read on their way to it",
            fix="set console.gateway_ca or console.gateway_tls; only where something else encrypts every connection, "
            "set identity.insecure_plaintext=true",
        )


def _is_every_address(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def _file(key: str, what: str, example: str, *, words: str = "", secret: bool = False) -> Setting:
    return Setting(
        path=f"{CONSOLE}.{key}",
        kind=FILE,
        example=example,
        what=what,
        default_in_words=words,
        flag=f"--console-{key.replace('_', '-')}",
        roles=(CONSOLE, "up") if key in ("cert", "cert_key") else (CONSOLE,),
        secret=secret,
    )


CONSOLE_SETTINGS = (
    Setting(
        path=f"{CONSOLE}.listen",
        kind=Kind(
            name="address and port, or off", example=CONSOLE_LISTEN, read=read_listen_or_off, metavar="HOST:PORT"
        ),
        what="where pages are answered; port 0: any free one; `tenure up` takes a free one, too, where it is taken",
        default=CONSOLE_LISTEN,
        flag="--console-listen",
        roles=(CONSOLE, "up"),
    ),
    _file("cert", "the console's certificate; with it, pages are answered by https", "/etc/tenure/console.crt"),
    _file("cert_key", "its key", "/etc/tenure/keys/console.key", secret=True),
    Setting(
        path=f"{CONSOLE}.gateway",
        kind=TEXT,
        what="host:port of the gateway",
        default="127.0.0.1:7733",
        flag="--console-gateway",
        roles=(CONSOLE,),
    ),
    Setting(
        path=f"{CONSOLE}.gateway_tls",
        kind=TRUTH,
        what="the gateway speaks TLS; its certificate is checked against what the system trusts",
        default=False,
        flag="--console-gateway-tls",
        roles=(CONSOLE,),
    ),
    _file("gateway_ca", "instead of that: who signs its certificate; with it, TLS", "/etc/tenure/ca.crt"),
    _file("gateway_cert", "what the console shows to a gateway that asks clients for one", "/etc/tenure/console.crt"),
    _file("gateway_cert_key", "its key", "/etc/tenure/keys/console.key", secret=True),
    Setting(
        path=f"{CONSOLE}.gateway_name",
        kind=TEXT,
        example="gateway",
        what="a name in the gateway's certificate, where it has another name than its address",
        flag="--console-gateway-name",
        roles=(CONSOLE,),
    ),
)
