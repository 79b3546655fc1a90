"""The options with which a process finds the log's servers and is let in. Each may come from the environment, too."""

import argparse
import os
from pathlib import Path

from tenure.log.access import Access, Tls


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them. Secrets are named by their files: a command line can be read by everybody."""
    at = os.environ.get("TENURE_NATS", "nats://127.0.0.1:4222")
    parser.add_argument("--nats", default=at, help="the log's servers, separated by commas; tls:// encrypts")
    for option, name, what in (
        ("--nats-key-file", "TENURE_NATS_KEY_FILE", "file with the seed of this role's nkey"),
        ("--nats-ca", "TENURE_NATS_CA", "PEM file of who signed the servers' certificates"),
        ("--nats-cert", "TENURE_NATS_CERT", "PEM file of our certificate, where the servers want one"),
        ("--nats-cert-key", "TENURE_NATS_CERT_KEY", "PEM file of its key"),
    ):
        parser.add_argument(option, type=Path, default=os.environ.get(name), metavar="FILE", help=what)
    parser.add_argument(
        "--nats-insecure", action="store_true", help="reach servers on other machines without encryption, on purpose"
    )


def log_access(arguments: argparse.Namespace, *, client: str) -> Access:
    """What they say. Raises `Refusal`."""
    files = (arguments.nats_ca, arguments.nats_cert, arguments.nats_cert_key)
    return Access(
        url=arguments.nats,
        client=client,
        seed_file=arguments.nats_key_file,
        tls=Tls(ca=files[0], certificate=files[1], key=files[2]) if any(files) else None,
        insecure=arguments.nats_insecure,
    )
