"""The environment of a replica: a little of the agent's, the job's own, and what tenure says. A pure function.

Of the agent's environment only `INHERITED` passes: places and language, nothing that could be a secret (tokens,
proxies with passwords, cloud credentials) and nothing that belongs to the agent's own Python (PYTHONPATH, VIRTUAL_ENV).
The job may set anything but `RESERVED` and TENURE_*, which would make a replica work on other GPUs or as another rank;
MASTER_PORT it may choose. Each replica is one rank that sees its own GPUs alone, so LOCAL_RANK is 0 and WORLD_SIZE the
number of replicas; a launcher such as `torchrun --nnodes $NNODES --node-rank $NODE_RANK --master-addr $MASTER_ADDR
--master-port $MASTER_PORT` sets its own ranks for the processes it starts, one per GPU.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from services.agent.process.spec import Account
from tenure.domain.ids import BudgetPath, JobId, RunId
from tenure.domain.units import Millis

INHERITED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
)
"""What passes from the agent, and with it everything that starts with LC_."""

RESERVED = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "MASTER_ADDR",
    "WORLD_SIZE",
    "RANK",
    "LOCAL_RANK",
    "NODE_RANK",
    "NNODES",
)
NO_DEVICES = ("",)
"""The devices of a replica that holds CPUs: it sees no GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What a replica is told about the run it belongs to.

    `devices` are CUDA's names of its GPUs (`Gpu.device`), to be given where an index may come to mean another GPU;
    without them `gpus`, the indices, name them.
    """

    run: RunId
    job: JobId
    budget: BudgetPath
    replica: int
    replicas: int
    gpus: tuple[int, ...]
    master_address: str
    master_port: int
    min_runtime_ms: Millis
    launched_at: Millis
    checkpoint_dir: str
    resume_count: int
    devices: tuple[str, ...] = ()
    traceparent: str = ""
    """The trace that its start belongs to; empty: none."""


def replica_environment(
    context: RunContext,
    *,
    user: Mapping[str, str],
    inherited: Mapping[str, str] = os.environ,
    account: Account | None = None,
) -> dict[str, str]:
    """The whole environment of one replica, from the job's own variables (`user`) and the agent's (`inherited`).

    With an `account` the places and names of the agent's own user give way to those of the account.

    TENURE_PROTECTED_UNTIL (epoch seconds, rounded down) counts from the launch: the gang's protection starts when
    its last replica runs, so the true instant is never earlier. It is empty for an unallocated run.
    """
    own = {name: value for name, value in user.items() if name not in RESERVED and not name.startswith("TENURE_")}
    devices = ",".join(context.devices or map(str, context.gpus))
    protected = context.min_runtime_ms > 0
    traced = {"TRACEPARENT": context.traceparent} if context.traceparent else {}
    return {
        **{name: value for name, value in inherited.items() if name in INHERITED or name.startswith("LC_")},
        **({} if account is None else _of_account(account)),
        "MASTER_PORT": str(context.master_port),
        **own,
        **traced,
        "CUDA_VISIBLE_DEVICES": devices,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",  # the order NVML counts in
        "MASTER_ADDR": context.master_address,
        "WORLD_SIZE": str(context.replicas),
        "RANK": str(context.replica),
        "LOCAL_RANK": "0",
        "NODE_RANK": str(context.replica),
        "NNODES": str(context.replicas),
        "TENURE_JOB_ID": context.job,
        "TENURE_RUN_ID": context.run,
        "TENURE_REPLICA": str(context.replica),
        "TENURE_BUDGET": context.budget,
        "TENURE_MIN_RUNTIME_S": str(context.min_runtime_ms // 1000),
        "TENURE_PROTECTED_UNTIL": str((context.launched_at + context.min_runtime_ms) // 1000) if protected else "",
        "TENURE_CHECKPOINT_DIR": context.checkpoint_dir,
        "TENURE_RESUME_COUNT": str(context.resume_count),
    }


def _of_account(account: Account) -> dict[str, str]:
    return {"HOME": account.home, "USER": account.name, "LOGNAME": account.name, "SHELL": account.shell}
