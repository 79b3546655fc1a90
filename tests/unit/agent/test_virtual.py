"""Made-up GPUs: always the same ones, as busy as the CPU is kept by what holds them."""

import os

from services.agent.gpu.virtual import CpuUsage, VirtualProvider
from services.agent.process.proc import ProcessStat
from tenure.domain.units import SECOND

TICKS = os.sysconf("SC_CLK_TCK")


class Machine:
    """A clock and a process table that a test sets."""

    def __init__(self) -> None:
        self.now = 0
        self.looks = 0
        self.processes: dict[int, ProcessStat] = {}
        self.usage = CpuUsage(now=lambda: self.now, look=self.look, period_ms=5 * SECOND)

    def look(self) -> list[ProcessStat]:
        self.looks += 1
        return list(self.processes.values())

    def has(self, pid: int, *, parent: int, cpu_s: float) -> None:
        self.processes[pid] = ProcessStat(
            pid=pid, state="R", parent=parent, group=pid, session=pid, cpu_ticks=round(cpu_s * TICKS), start_ticks=1
        )

    def provider(self, name: str = "h0") -> VirtualProvider:
        return VirtualProvider(host=name, count=4, gpu_type="H100", memory_mib=80_000, usage=self.usage)


def test_the_same_gpus_at_every_start_and_others_on_every_host():
    first, again, other = (Machine().provider(name).gpus() for name in ("h0", "h0", "h1"))
    assert first == again
    assert len({gpu.uuid for gpu in [*first, *other]}) == 8
    assert [(gpu.index, gpu.device, gpu.type, gpu.memory_mib) for gpu in first][3] == (3, "3", "H100", 80_000)


def test_cpu_of_the_whole_tree_is_divided_over_its_gpus_and_capped():
    machine = Machine()
    provider = machine.provider()
    held = {0: [10], 1: [10], 2: [20]}
    for pid, parent in [(10, 1), (11, 10), (12, 11), (20, 1), (21, 20), (30, 1)]:
        machine.has(pid, parent=parent, cpu_s=100.0)
    assert provider.utilisation(held) == {0: None, 1: None, 2: None, 3: 0.0}
    machine.now += 10 * SECOND
    machine.has(11, parent=10, cpu_s=104.0)
    machine.has(12, parent=11, cpu_s=102.0)
    machine.has(21, parent=20, cpu_s=130.0)
    machine.has(30, parent=1, cpu_s=200.0)  # somebody else's
    assert provider.utilisation(held) == {0: 0.3, 1: 0.3, 2: 1.0, 3: 0.0}


def test_a_replica_that_started_between_two_looks_counts_from_its_start():
    machine = Machine()
    provider = machine.provider()
    provider.utilisation({})
    machine.now += 10 * SECOND
    machine.has(10, parent=1, cpu_s=0.0)
    machine.has(11, parent=10, cpu_s=5.0)
    assert provider.utilisation({0: [10]})[0] == 0.5


def test_time_that_vanishes_with_a_process_is_not_negative():
    machine = Machine()
    provider = machine.provider()
    machine.has(10, parent=1, cpu_s=1.0)
    machine.has(11, parent=10, cpu_s=50.0)
    provider.utilisation({0: [10]})
    del machine.processes[11]
    machine.now += 10 * SECOND
    assert provider.utilisation({0: [10]})[0] == 0.0


def test_many_hosts_look_at_the_processes_once():
    machine = Machine()
    providers = [machine.provider(f"h{number}") for number in range(100)]
    for _ in range(3):
        for provider in providers:
            provider.utilisation({})
        machine.now += 5 * SECOND
    assert machine.looks == 3
