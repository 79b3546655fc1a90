"""The options with which a process finds the log's servers and is let in. Each may come from the environment, too."""

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tenure.log.access import Access, Tls

URL = "nats://127.0.0.1:4222"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOption:
    """One option: its name in a configuration file (below `nats:`), its flag, its variable, and what it says."""

    name: str
    flag: str
    variable: str
    what: str

    @property
    def shown(self) -> str:
        """What the help shows for its value."""
        return "URL" if self.name == "url" else "FILE"


LOG_OPTIONS = (
    LogOption(
        name="url",
        flag="--nats",
        variable="TENURE_NATS",
        what="the log's servers, separated by commas; tls:// encrypts",
    ),
    LogOption(
        name="key_file",
        flag="--nats-key-file",
        variable="TENURE_NATS_KEY_FILE",
        what="file with the seed of this role's nkey",
    ),
    LogOption(
        name="ca",
        flag="--nats-ca",
        variable="TENURE_NATS_CA",
        what="PEM file of who signed the servers' certificates",
    ),
    LogOption(
        name="cert",
        flag="--nats-cert",
        variable="TENURE_NATS_CERT",
        what="PEM file of our certificate, where the servers want one",
    ),
    LogOption(name="cert_key", flag="--nats-cert-key", variable="TENURE_NATS_CERT_KEY", what="PEM file of its key"),
)
INSECURE = LogOption(
    name="insecure",
    flag="--nats-insecure",
    variable="TENURE_NATS_INSECURE",
    what="reach servers on other machines without encryption, on purpose",
)


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them. Secrets are named by their files: a command line can be read by everybody."""
    for option in LOG_OPTIONS:
        value = os.environ.get(option.variable) or (URL if option.name == "url" else None)
        parser.add_argument(
            option.flag, dest=f"nats_{option.name}", metavar=option.shown, default=value, help=option.what
        )
    parser.add_argument(INSECURE.flag, dest="nats_insecure", action="store_true", help=INSECURE.what)


def log_access(values: Mapping[str, object], *, client: str) -> Access:
    """What they say, by name; what is missing or None was not given. Raises `Refusal`."""
    files = {
        name: Path(str(values[name])) if values.get(name) else None for name in ("key_file", "ca", "cert", "cert_key")
    }
    has_tls = files["ca"] or files["cert"] or files["cert_key"]
    return Access(
        url=str(values.get("url") or URL),
        client=client,
        seed_file=files["key_file"],
        tls=Tls(ca=files["ca"], certificate=files["cert"], key=files["cert_key"]) if has_tls else None,
        insecure=bool(values.get("insecure")),
    )


def of_arguments(given: argparse.Namespace) -> dict[str, object]:
    """What `add_log_arguments` parsed, by name."""
    return {option.name: getattr(given, f"nats_{option.name}") for option in (*LOG_OPTIONS, INSECURE)}
