"""From what the agent wants (`LaunchSpec`) to what the keeper reads (`LaunchRecord`).

What no kernel can start is refused here.
"""

from services.agent.process.directory import LaunchRecord
from services.agent.process.spec import LOG_KEEP_BYTES_MIN, LaunchSpec
from tenure.domain.units import Millis


def problem_with(spec: LaunchSpec) -> str:
    """Why this can be started on no host, in one line; "" if it may be."""
    if not spec.command or not spec.command[0]:
        return "the command is empty: name a program to run"
    if any("\0" in argument for argument in spec.command):
        return "the command holds a NUL character, which no program can be given: remove it"
    for name, value in spec.environment.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            return f"environment variable {name[:64]!r} is unusable: its name is empty or holds '=', or there is a NUL"
    return ""


def intent_of(spec: LaunchSpec, *, asked_ms: Millis) -> LaunchRecord:
    """The record of a launch without a problem; the marks that find its processes are put into its environment."""
    assert spec.replica >= 0 and spec.grace_ms >= 0 and spec.log_keep_bytes >= LOG_KEEP_BYTES_MIN, spec
    environment = {**spec.environment, "TENURE_RUN_ID": spec.run, "TENURE_REPLICA": str(spec.replica)}
    return LaunchRecord(
        run_id=spec.run,
        job_id=spec.job,
        replica=spec.replica,
        argv=list(spec.command),
        working_dir=spec.working_directory or environment.get("HOME") or "/",
        environment=environment,
        gpus=list(spec.gpus),
        grace_ms=spec.grace_ms,
        log_keep_bytes=spec.log_keep_bytes,
        asked_ms=asked_ms,
        uid=-1 if spec.account is None else spec.account.uid,
        gid=-1 if spec.account is None else spec.account.gid,
        groups=[] if spec.account is None else list(spec.account.groups),
        own_folder=spec.own_folder,
        cgroup=spec.cgroup,
        memory_bytes_max=spec.memory_bytes_max,
        pids_max=spec.pids_max,
    )
