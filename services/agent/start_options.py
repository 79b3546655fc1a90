"""The options of what an agent starts: whose signature it takes, whom processes belong to, what holds them together."""

import argparse
import hashlib
import logging
import os
import re
from pathlib import Path

from services.agent.process import cgroups
from services.agent.starting import Rules
from tenure.domain.refusal import Refusal
from tenure.runtime.run_signing import load_trust
from tenure.runtime.service import Service

logger = logging.getLogger(__name__)

SUBMITTER, AGENT = "submitter", "agent"
_SIZE = re.compile(r"([1-9][0-9]*)([KMGT])i?B?")
_POWERS = {"K": 10, "M": 20, "G": 30, "T": 40}


def add_start_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    parser.add_argument(
        "--run-keys-file", type=Path, metavar="FILE", help="PEM file of the public keys whose signed runs are started"
    )
    parser.add_argument(
        "--run-as",
        choices=(SUBMITTER, AGENT),
        help="whose processes jobs are; by default their submitter's with provider nvidia for root, else the agent's",
    )
    parser.add_argument("--memory-per-gpu", default="", metavar="SIZE", help="most memory of a replica (cgroup v2)")
    parser.add_argument("--pids-max", type=int, default=0, metavar="N", help="most processes of a replica (cgroup v2)")


def start_rules(service: Service) -> Rules:
    """What is asked of everything that is started. Raises `Refusal` for what this process cannot see to."""
    arguments, log = service.arguments, service.connection.log
    path: Path | None = arguments.run_keys_file
    if path is None and not (log.local or log.insecure):
        raise Refusal(
            field="--run-keys-file",
            problem="not given, and the log is on other machines: whoever writes there would start processes here",
            fix="give the placer's public key: openssl pkey -in runs.key -pubout -out runs.pub",
        )
    memory = parse_size(arguments.memory_per_gpu, field="--memory-per-gpu")
    limited = bool(memory or arguments.pids_max)
    return Rules(
        trust=None if path is None else load_trust(path),
        as_submitter=_as_submitter(arguments),
        cgroups=_groups(arguments, service.connection.data, limits=limited),
        memory_per_gpu_bytes=memory,
        pids_max=arguments.pids_max,
    )


def parse_size(text: str, *, field: str) -> int:
    """Bytes of `120G`, `64M` (powers of 1024); 0 of nothing. Raises `Refusal`."""
    if not text:
        return 0
    found = _SIZE.fullmatch(text)
    if found is None:
        raise Refusal(field=field, problem=f"{text[:40]!r} is no size", fix="write a number and K, M, G or T: 120G")
    return int(found[1]) << _POWERS[found[2]]


def _as_submitter(arguments: argparse.Namespace) -> bool:
    root = os.geteuid() == 0
    chosen: str = arguments.run_as or (SUBMITTER if root and arguments.provider == "nvidia" else AGENT)
    if chosen == SUBMITTER and not root:
        raise Refusal(
            field="--run-as", problem="only root can start processes of others", fix=f"run as root, or as {AGENT}"
        )
    if chosen == AGENT and root and arguments.provider == "nvidia":
        logger.warning("jobs of everybody run as root here: --run-as %s", AGENT)
    return chosen == SUBMITTER


def _groups(arguments: argparse.Namespace, data: Path, *, limits: bool) -> str:
    """Where control groups of replicas are made; "" for none. Raises `Refusal` where limits need them and cannot be."""
    if not limits and arguments.provider != "nvidia":
        return ""
    name = f"tenure-{hashlib.sha256(str(data.absolute()).encode()).hexdigest()[:12]}"
    try:
        return cgroups.parent_for(name, limits=limits)
    except OSError as error:
        if limits:
            raise Refusal(
                field="--memory-per-gpu, --pids-max",
                problem=f"need control groups, which cannot be had: {error}",
                fix="run the agent as a systemd service with Delegate=yes, or as root where cgroup v2 is mounted",
            ) from error
        logger.warning("no control groups here (%s): each keeper ends what descends from its command", error)
        return ""
