"""How a replica is started: only what a trusted placer signed, on GPUs that are there, as its rank."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from services.agent.environment import RunContext, replica_environment
from services.agent.gpu.provider import GpuProvider
from services.agent.log_clock import LogClock
from services.agent.metrics import StartMetrics
from services.agent.process import spec as process
from services.agent.run_files import RunFiles
from tenure.domain.ids import HostId
from tenure.domain.job import ReplicaPlace
from tenure.domain.units import Millis
from tenure.events.placing import RunAssigned
from tenure.events.reports import ReplicaExit
from tenure.runtime.run_signing import Trust

Launch = Callable[[process.LaunchSpec], Awaitable[process.Launched | process.LaunchFailed]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What an agent's operator asks of everything that is started. `trust` None: no signature is asked for."""

    trust: Trust | None = None


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
        untrusted = self._trouble_with(assigned)
        if untrusted:
            self._metrics.refused("signature")
            return self.never(place, error=f"host {place.host} does not start it: {untrusted}", lost=True)
        checkpoint_dir = self._checkpoints / assigned.job
        try:
            self._files.note_assigned(assigned)
            checkpoint_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            return self.never(place, error=f"cannot write on host {place.host}: {error}")
        missing = sorted(set(place.gpus) - {gpu.index for gpu in self._providers[place.host].gpus()})
        if missing:
            return self.never(place, error=f"GPU {missing[0]} of host {place.host} is gone", lost=True)
        launched = await self._launch(self._spec(assigned, place, checkpoint_dir))
        if isinstance(launched, process.LaunchFailed):
            return ReplicaExit(replica=place.replica, host=place.host, at=launched.at, error=launched.problem)
        return launched.at

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

    def _spec(self, assigned: RunAssigned, place: ReplicaPlace, checkpoint_dir: Path) -> process.LaunchSpec:
        context = RunContext(
            job=assigned.job,
            run=assigned.run,
            budget=assigned.budget,
            replica=place.replica,
            replicas=len(assigned.placement),
            gpus=place.gpus,
            devices=self._devices(place.host, place.gpus),
            master_address=assigned.master_address,
            master_port=assigned.master_port,
            min_runtime_ms=assigned.min_runtime_ms,
            launched_at=self._clock.now(),
            checkpoint_dir=str(checkpoint_dir),
            resume_count=assigned.resume_count,
        )
        return process.LaunchSpec(
            run=assigned.run,
            job=assigned.job,
            replica=place.replica,
            command=assigned.launch.command,
            environment=replica_environment(context, user=assigned.launch.environment),
            gpus=place.gpus,
            grace_ms=assigned.grace_ms,
            working_directory=assigned.launch.working_directory,
        )

    def _devices(self, host: HostId, gpus: tuple[int, ...]) -> tuple[str, ...]:
        known = {gpu.index: gpu.device for gpu in self._providers[host].gpus()}
        return tuple(known[index] for index in gpus)
