"""Real processes keep made-up GPUs busy."""

import time

from services.agent.gpu.virtual import CpuUsage, VirtualProvider
from tests.integration.agent.conftest import RealHost, until


def test_a_spinning_replica_is_busy_and_a_sleeping_one_is_not(play):
    usage = CpuUsage(now=lambda: time.monotonic_ns() // 1_000_000, period_ms=250)
    provider = VirtualProvider(host="h0", count=2, gpu_type="H100", memory_mib=80_000, usage=usage)

    async def story(host: RealHost) -> None:
        spinning = await host.start("sh", "-c", "sh -c 'while :; do :; done' & wait", run="j-1.1")
        sleeping = await host.start("sleep", "60", run="j-2.1")
        held = {0: [spinning.keeper_pid], 1: [sleeping.keeper_pid]}
        seen: list[dict[int, float | None]] = []

        def measured() -> bool:
            seen.append(dict(provider.utilisation(held)))
            return (seen[-1][0] or 0.0) > 0.2

        await until(measured)
        assert seen[0] == {0: None, 1: None}
        assert seen[-1][1] is not None and seen[-1][1] < 0.1

    play(story)
