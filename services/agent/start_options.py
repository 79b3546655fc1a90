"""The options of what an agent starts: whose signature it takes, whom processes belong to, what holds them together."""

import argparse
import hashlib
import logging
import os
from pathlib import Path

from services.agent.process import cgroups
from services.agent.starting import Rules
from tenure.domain.refusal import Refusal
from tenure.runtime.run_signing import load_trust
from tenure.runtime.service import Service

logger = logging.getLogger(__name__)

SUBMITTER, AGENT = "submitter", "agent"


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
    memory: int = arguments.memory_per_gpu or 0
    limited = bool(memory or arguments.pids_max)
    return Rules(
        trust=None if path is None else load_trust(path),
        as_submitter=_as_submitter(arguments),
        cgroups=_groups(arguments, service.connection.data, limits=limited),
        memory_per_gpu_bytes=memory,
        pids_max=arguments.pids_max,
    )


REAL = ("nvidia", "cpus")
"""The providers of real hosts: this machine is one."""


def _as_submitter(arguments: argparse.Namespace) -> bool:
    root = os.geteuid() == 0
    chosen: str = arguments.run_as or (SUBMITTER if root and arguments.provider in REAL else AGENT)
    if chosen == SUBMITTER and not root:
        raise Refusal(
            field="--run-as", problem="only root can start processes of others", fix=f"run as root, or as {AGENT}"
        )
    if chosen == AGENT and root and arguments.provider in REAL:
        logger.warning("jobs of everybody run as root here: --run-as %s", AGENT)
    return chosen == SUBMITTER


def _groups(arguments: argparse.Namespace, data: Path, *, limits: bool) -> str:
    """Where control groups of replicas are made; "" for none. Raises `Refusal` where limits need them and cannot be."""
    if not limits and arguments.provider not in REAL:
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
