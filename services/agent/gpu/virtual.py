"""The `virtual` provider: GPUs that are made up, as busy as the processes that hold them keep the CPU.

For trying tenure without a GPU, and for a thousand hosts on one machine: all providers of a process share one
`CpuUsage`, so the processes of the machine are looked at once, not once per host.
"""

import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence

from services.agent.gpu.provider import Gpu, Utilisation
from services.agent.process.proc import ProcessStat, all_stats
from tenure.domain.units import SECOND, Millis

_NAMESPACE = uuid.UUID("7f1c4f52-6e4c-4c43-9a3e-0d6f3b0f6c11")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class _Look:
    """All processes of the machine at one instant."""

    def __init__(self, *, at: Millis, stats: Sequence[ProcessStat]) -> None:
        self.at = at
        self._ticks = {stat.pid: stat.cpu_ticks for stat in stats}
        self._children: dict[int, list[int]] = {}
        for stat in stats:
            self._children.setdefault(stat.parent, []).append(stat.pid)

    def ticks_below(self, root: int) -> int:
        """CPU ticks that `root` and its descendants have used, those that ended included."""
        total, waiting = 0, [root]
        while waiting:
            pid = waiting.pop()
            total += self._ticks.get(pid, 0)
            waiting += self._children.get(pid, ())
        return total


class CpuUsage:
    """CPU shares of process trees, from looks at /proc at least `period_ms` apart (20 us a process and look)."""

    def __init__(
        self,
        *,
        now: Callable[[], Millis],
        look: Callable[[], Iterable[ProcessStat]] = all_stats,
        period_ms: Millis = 5 * SECOND,
    ) -> None:
        """`now` is a clock that does not jump; `look` lists the processes of the machine."""
        self._now, self._look, self._period_ms = now, look, period_ms
        self._before: _Look | None = None
        self._latest: _Look | None = None

    def refresh(self) -> None:
        """Look again if the latest look is older than the period."""
        now = self._now()
        if self._latest is None or now - self._latest.at >= self._period_ms:
            self._before, self._latest = self._latest, _Look(at=now, stats=list(self._look()))

    def cores(self, root: int) -> float | None:
        """CPUs the tree under `root` kept busy between the last two looks; None before the second look."""
        if self._before is None or self._latest is None:
            return None
        ticks = max(0, self._latest.ticks_below(root) - self._before.ticks_below(root))
        return ticks * SECOND / (_TICKS_PER_S * (self._latest.at - self._before.at))


class VirtualProvider:
    """`count` made-up GPUs of one type on a named host; the same names at every start."""

    def __init__(self, *, host: str, count: int, gpu_type: str, memory_mib: int, usage: CpuUsage) -> None:
        self._usage = usage
        self._gpus = tuple(
            Gpu(
                index=index,
                uuid=f"VGPU-{uuid.uuid5(_NAMESPACE, f'{host}/{index}')}",
                type=gpu_type,
                memory_mib=memory_mib,
                device=str(index),
            )
            for index in range(count)
        )

    def gpus(self) -> Sequence[Gpu]:
        """See `GpuProvider`."""
        return self._gpus

    def utilisation(self, held: Mapping[int, Sequence[int]]) -> Utilisation:
        """See `GpuProvider`: the CPUs of each replica, divided over the GPUs it holds, at most 1 each."""
        self._usage.refresh()
        gpus_of = {root: 0 for roots in held.values() for root in roots}
        for roots in held.values():
            for root in roots:
                gpus_of[root] += 1
        cores = {root: self._usage.cores(root) for root in gpus_of}
        busy: dict[int, float | None] = {}
        for gpu in self._gpus:
            parts = [(cores[root], gpus_of[root]) for root in held.get(gpu.index, ())]
            known = [used / shared for used, shared in parts if used is not None]
            busy[gpu.index] = min(1.0, sum(known)) if len(known) == len(parts) else None
        return busy
