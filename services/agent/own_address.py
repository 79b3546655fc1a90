"""Where other hosts reach this one: what `MASTER_ADDR` of a gang is whose first replica runs here."""

import logging
import socket
from urllib.parse import urlsplit

from tenure.domain.loopback import is_loopback
from tenure.domain.refusal import Refusal
from tenure.log.access import Access
from tenure.log.options import URL

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"


def own_address(given: str | None, log: Access) -> str:
    """What was given for `agent.address`; else the address that this machine has towards the log's servers.

    Loopback only where the log is reached by loopback, too: then there are no other hosts. Raises `Refusal`.
    """
    if given is not None:
        if is_loopback(given) and not log.local:
            raise Refusal(
                field="agent.address",
                problem=f"{given} is every host's own, and the log is on other machines: no gang would find this host",
                fix="give an address or name by which other hosts reach this one, or leave it out",
            )
        return given
    if log.local:
        return LOOPBACK
    found = [_towards(part) for part in log.url.split(",")]
    known = [address for address in found if address is not None]
    if not known:
        raise Refusal(
            field="agent.address",
            problem=f"not given, and no way leads to the log's servers {log.shown}, by which this host would know it",
            fix="give an address by which other hosts reach this one: --address ADDRESS, or agent.address in the file",
        )
    address = next((each for each in known if not is_loopback(each)), LOOPBACK)
    logger.info("other hosts are told to reach this one at %s", address)
    return address


def _towards(server: str) -> str | None:
    """The source address of what this machine sends to a server; None if it knows no way there.

    Nothing is sent: to connect a datagram socket only chooses the way.
    """
    url = urlsplit(server)
    try:
        ways = socket.getaddrinfo(url.hostname, url.port or urlsplit(URL).port, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    for family, kind, protocol, _, target in ways:
        try:
            with socket.socket(family, kind, protocol) as sock:
                sock.connect(target)
                return str(sock.getsockname()[0])
        except OSError:
            continue
    return None
