"""How the log's servers are reached and what they are shown: addresses, an own key, TLS.

Off this machine the connection is encrypted and the server shows a certificate, or whoever starts the process says
aloud that it need not. Keys come from files: what stands in an address or on a command line, everybody can read.
"""

import logging
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from nats.aio.client import DEFAULT_INBOX_PREFIX, Client
from nats.errors import Error as NatsError

from tenure.domain.loopback import is_loopback
from tenure.domain.refusal import Refusal

logger = logging.getLogger(__name__)

TLS_SCHEME = "tls"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Files in PEM: who signed the servers' certificates (None: whom this machine trusts), our own if they want one."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """What encrypts a connection and looks at the server's certificate and name. Raises `Refusal`."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise Refusal(
                field="TLS files",
                problem=f"cannot be used: {error}",
                fix="give PEM files with --nats-ca, --nats-cert and --nats-cert-key",
            ) from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where the servers are (`url`, several separated by commas) and how to be let in.

    `client` is the name that the server shows, and with `seed_file` (an nkey's seed) part of the names on which answers
    come: the server lets nobody listen to another's (`tenure.log.permissions`). `insecure`: not encrypted, on purpose.
    """

    url: str
    client: str = "tenure"
    seed_file: Path | None = None
    tls: Tls | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        """Raises `Refusal` for what is no address, has a secret in it, or would be reached in the clear."""
        for part in self.url.split(","):
            address = _address(part)
            if address.username or address.password:
                raise Refusal(
                    field="--nats",
                    problem=f"the address of {address.hostname} has a secret in it, which every user of this machine "
                    "can read",
                    fix="leave it out and name the file of the key with --nats-key-file",
                )
            if not (self.encrypted or self.insecure or is_loopback(address.hostname or "")):
                raise Refusal(
                    field="--nats",
                    problem=f"{address.hostname} is another machine and would be reached without encryption",
                    fix="write tls://HOST:PORT (and --nats-ca FILE for an own authority), or accept that others may "
                    "read and change the log with --nats-insecure",
                )

    @property
    def encrypted(self) -> bool:
        """Whether it must be: there is no way back from there to a connection in the clear."""
        return self.tls is not None or any(part.startswith(f"{TLS_SCHEME}://") for part in self.url.split(","))

    @property
    def local(self) -> bool:
        """Whether every server is on this machine."""
        return all(is_loopback(_address(part).hostname or "") for part in self.url.split(","))

    @property
    def shown(self) -> str:
        """The addresses as people are shown them."""
        return ",".join(_address(part).netloc for part in self.url.split(","))

    def inbox_prefix_of(self, client: str) -> str:
        """The first word of the subjects on which `client` hears answers: the same for all where there are no keys."""
        return DEFAULT_INBOX_PREFIX.decode() if self.seed_file is None else inbox_of(client)

    def options(self) -> dict[str, Any]:
        """The arguments of `Client.connect` that say all this. Raises `Refusal` for files that cannot be used."""
        options: dict[str, Any] = {"servers": self.url.split(","), "name": self.client}
        if self.seed_file is not None:
            check_secret(self.seed_file)
            options |= {"nkeys_seed": str(self.seed_file), "inbox_prefix": self.inbox_prefix_of(self.client)}
        if self.encrypted:
            options["tls"] = (self.tls or Tls()).context()
        return options


def _is_worth_saying(record: logging.LogRecord) -> bool:
    """What asyncio says at the end of each connection that nats-py has turned into an encrypted one means nothing."""
    return "eof_received() has no effect" not in str(record.msg)


logging.getLogger("asyncio").addFilter(_is_worth_saying)


class SafeClient(Client):
    """A client that leaves a server which does not encrypt, where that was asked for: nats-py alone would stay."""

    encrypted = False

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if self.encrypted and initial_connection and not info.get("tls_required"):
            raise NatsError("it does not encrypt (no TLS), as it was told to")
        await super()._process_info(info, initial_connection=initial_connection)


async def open_client(access: Access, **options: Any) -> Client:
    """A plain connection. Raises `NatsError`, `OSError`, and `Refusal` for files that cannot be used."""
    client = SafeClient()
    client.encrypted = access.encrypted
    await client.connect(**{"error_cb": _note, **access.options(), **options})
    return client


async def _note(error: Exception) -> None:
    """One line, where nats-py would log a traceback for each attempt to reach a server that is away."""
    denied = "permissions violation" in str(error).lower()
    logger.log(logging.WARNING if denied else logging.DEBUG, "the log's server: %s", str(error) or type(error).__name__)


def inbox_of(client: str) -> str:
    """The first word of the subjects on which a client hears answers: no name is the beginning of another's."""
    return f"_INBOX_{client.replace('.', '/')}"


def check_secret(path: Path) -> None:
    """Raise `Refusal` unless the file is there and for its owner alone."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise Refusal(field=str(path), problem=error.strerror or "cannot be read", fix="name a key's file") from error
    if stat.S_IMODE(mode) & 0o077:
        raise Refusal(field=str(path), problem="others may read this key", fix=f"chmod 600 {path}; better, renew it")


def _address(part: str) -> SplitResult:
    """Raises `Refusal` for what is no address of a server; what stands before an '@' is not shown."""
    try:
        address = urlsplit(part)
        if address.scheme in ("nats", TLS_SCHEME) and address.hostname and (address.port or 1) > 0:
            return address
    except ValueError:
        pass
    shown = part.rpartition("@")[2]
    raise Refusal(field="--nats", problem=f"{shown[:80]!r} is no address of a server", fix="write nats://HOST:PORT")
