"""How a replica is started: only what a trusted placer signed, on GPUs that are there, as its rank."""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from services.agent.environment import NO_DEVICES, RunContext, replica_environment
from services.agent.gpu.provider import Gpu, GpuProvider
from services.agent.log_clock import LogClock
from services.agent.metrics import StartMetrics
from services.agent.patience import in_time
from services.agent.process import spec as process
from services.agent.process.accounts import NoAccount, account_of
from services.agent.process.replicas import is_name
from services.agent.run_files import RunFiles
from tenure.domain.host import CPU
from tenure.domain.ids import HostId, JobId
from tenure.domain.job import ReplicaPlace
from tenure.domain.units import Millis
from tenure.events.placing import RunAssigned
from tenure.events.reports import ReplicaExit
from tenure.runtime.run_signing import Trust
from tenure.runtime.tracing import launching, now_ns, span_header

logger = logging.getLogger(__name__)

Launch = Callable[[process.LaunchSpec], Awaitable[process.Launched | process.LaunchFailed]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What an agent's operator asks of everything that is started. `trust` None: no signature is asked for."""

    trust: Trust | None = None
    as_submitter: bool = False
    """Processes belong to the job's submitter; else to the agent's own user."""
    cgroups: str = ""
    """Where each replica's control group is made; "": nowhere."""
    memory_per_gpu_bytes: int = 0
    pids_max: int = 0


NO_RULES = Rules()


class Starting:
    """Starts replicas on the hosts of one agent."""

    def __init__(
        self,
        *,
        launch: Launch,
        files: RunFiles,
        checkpoints: Path,
        providers: Mapping[HostId, GpuProvider],
        clock: LogClock,
        rules: Rules,
    ) -> None:
        self._launch, self._files, self._checkpoints = launch, files, checkpoints
        self._providers, self._clock, self._rules = providers, clock, rules
        self._judged: tuple[RunAssigned | None, str] = (None, "")
        self._metrics = StartMetrics()

    async def start(self, assigned: RunAssigned, place: ReplicaPlace) -> Millis | ReplicaExit:
        """The instant at which it was started, or its exit when it was not and why."""
        if not is_name(assigned.run) or not is_name(assigned.job):
            return self.never(place, error=f"the ids of run {assigned.run[:64]!r} cannot name folders")
        untrusted = self._trouble_with(assigned)
        if untrusted:
            self._metrics.refused("signature")
            return self.never(place, error=f"host {place.host} does not start it: {untrusted}", lost=True)
        account = None
        try:
            if self._rules.as_submitter:
                account = await asyncio.to_thread(account_of, assigned.user)
            self._files.note_assigned(assigned)
            checkpoint_dir = self._checkpoint_dir(assigned.job, account)
        except NoAccount as refused:
            self._metrics.refused("account")
            return self.never(place, error=str(refused))
        except OSError as error:
            return self.never(place, error=f"cannot write on host {place.host}: {error}")
        gpus = await self._gpus_of(place.host)
        unfit = _unfit(place, gpus)
        if gpus is None or unfit:
            return self.never(place, error=unfit, lost=True)
        devices = tuple(gpus[index].device for index in place.gpus if gpus[index].type != CPU) or NO_DEVICES
        launched = await self._launched(assigned, place, checkpoint_dir, account, devices)
        if isinstance(launched, process.LaunchFailed):
            return ReplicaExit(replica=place.replica, host=place.host, at=launched.at, error=launched.problem)
        return launched.at

    async def _gpus_of(self, host: HostId) -> Mapping[int, Gpu] | None:
        """The host's GPUs by index; None while its driver does not answer."""
        gpus = await in_time(self._providers[host].gpus, name=f"gpus-{host}")
        return None if gpus is None else {gpu.index: gpu for gpu in gpus}

    async def _launched(
        self,
        assigned: RunAssigned,
        place: ReplicaPlace,
        checkpoint_dir: Path,
        account: process.Account | None,
        devices: tuple[str, ...],
    ) -> process.Launched | process.LaunchFailed:
        """Start it; its span ends when its keeper says that the program runs."""
        began_s = time.perf_counter()
        attributes: dict[str, str | int] = {
            "tenure.run.id": assigned.run,
            "tenure.replica": place.replica,
            "tenure.host": place.host,
        }
        with launching(assigned.job, attributes) as first_instruction:
            launched = await self._launch(self._spec(assigned, place, checkpoint_dir, account, devices))
            if isinstance(launched, process.Launched):
                first_instruction(now_ns())
                self._metrics.launched(time.perf_counter() - began_s)
                logger.debug("run %s: replica %d runs on %s", assigned.run, place.replica, place.host)
        return launched

    def never(self, place: ReplicaPlace, *, error: str, lost: bool = False) -> ReplicaExit:
        """The exit of a replica that was not launched."""
        return ReplicaExit(replica=place.replica, host=place.host, at=self._clock.now(), error=error, lost=lost)

    def _trouble_with(self, assigned: RunAssigned) -> str:
        """Why it may not be started; looked at once for all replicas of a run."""
        if self._rules.trust is None:
            return ""
        if self._judged[0] is not assigned:
            self._judged = (assigned, self._rules.trust.trouble_with(assigned))
        return self._judged[1]

    def _checkpoint_dir(self, job: JobId, account: process.Account | None) -> Path:
        """The job's own folder, for its user alone. Raises OSError."""
        folder = self._checkpoints / job
        self._checkpoints.mkdir(mode=0o700 if account is None else 0o711, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if account is not None:
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fchown(opened, account.uid, account.gid)
            finally:
                os.close(opened)
        return folder

    def _spec(
        self,
        assigned: RunAssigned,
        place: ReplicaPlace,
        checkpoint_dir: Path,
        account: process.Account | None,
        devices: tuple[str, ...],
    ) -> process.LaunchSpec:
        context = RunContext(
            job=assigned.job,
            run=assigned.run,
            budget=assigned.budget,
            replica=place.replica,
            replicas=len(assigned.placement),
            gpus=place.gpus,
            devices=devices,
            master_address=assigned.master_address,
            master_port=assigned.master_port,
            min_runtime_ms=assigned.min_runtime_ms,
            launched_at=self._clock.now(),
            checkpoint_dir=str(checkpoint_dir),
            resume_count=assigned.resume_count,
            traceparent=span_header(),
        )
        return process.LaunchSpec(
            run=assigned.run,
            job=assigned.job,
            replica=place.replica,
            command=assigned.launch.command,
            environment=replica_environment(context, user=assigned.launch.environment, account=account),
            gpus=place.gpus,
            grace_ms=assigned.grace_ms,
            working_directory=assigned.launch.working_directory,
            account=account,
            own_folder="" if account is None else str(checkpoint_dir),
            cgroup=self._cgroup(assigned, place),
            memory_bytes_max=self._rules.memory_per_gpu_bytes * len(place.gpus),
            pids_max=self._rules.pids_max,
        )

    def _cgroup(self, assigned: RunAssigned, place: ReplicaPlace) -> str:
        return f"{self._rules.cgroups}/{assigned.run}-{place.replica}" if self._rules.cgroups else ""


def _unfit(place: ReplicaPlace, gpus: Mapping[int, Gpu] | None) -> str:
    """Why nothing is to be started on these GPUs of the host; "" where all of them work."""
    if gpus is None:
        return f"the driver of host {place.host} does not answer"
    for index in sorted(place.gpus):
        if index not in gpus:
            return f"GPU {index} of host {place.host} is gone"
        if gpus[index].fault:
            return f"GPU {index} of host {place.host} does not work: {gpus[index].fault}"
    return ""
