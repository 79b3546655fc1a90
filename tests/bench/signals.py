"""How fast the agent reads its host's kernel log: `python -m tests.bench.signals` prints JSON.

Lines a second of the processor's own time, best of some rounds, on made-up logs of 100,000 lines: a quiet one, storms
of Xid in each form of stamp, a flood of corrected PCIe errors; and, where `../shared/health` is there, the recorded
storm repeated. Also the size in bytes of what is said of it, and of a heartbeat of a host with eight GPUs and one run.
"""

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from services.agent.signals.kernel import parse_kernel_log
from tenure.domain.ids import BudgetPath, FactId, HostId, JobId, RunId, UserName
from tenure.domain.units import SECOND
from tenure.events.reports import Heartbeat, HostBeat, HostSignal, Segment
from tenure.log.codec import encode

LINES, ROUNDS = 100_000, 5
RECORDED = Path(__file__).parents[3] / "shared/health/kernel/dmesg_decode-iso_h100_xid13-storm_xid43.log"
XID = "NVRM: Xid (PCI:0000:{gpu:02x}:00): {code}, pid={pid}, name=python, Graphics Exception on (GPC 1, TPC 0)"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def storm(stamp: Callable[[int], str], code: int = 13) -> bytes:
    """A line a millisecond, over eight GPUs."""
    return _log(lambda number: stamp(number) + XID.format(gpu=number % 8, code=code, pid=number))


def since_boot(number: int) -> str:
    """As dmesg writes it."""
    return f"[{number / 1000:12.6f}] "


def decoded(number: int) -> str:
    """As `dmesg --decode --time-format iso` writes it."""
    return f"kern  :warn  : {_instant(number).isoformat(timespec='microseconds').replace('.', ',')} "


def readable(number: int) -> str:
    """As `dmesg -T` writes it."""
    return f"[{_instant(number).strftime('%a %b %d %H:%M:%S %Y')}] "


def record(number: int) -> str:
    """As /dev/kmsg holds it."""
    return f"4,{number},{number * 1000},-;"


def _instant(number: int) -> datetime:
    return BEGIN + timedelta(milliseconds=number)


def _log(line: Callable[[int], str]) -> bytes:
    return "".join(f"{line(number)}\n" for number in range(LINES)).encode()


def _quiet(number: int) -> str:
    return f"{since_boot(number)}usb 1-{number % 9}: new high-speed USB device number {number} using xhci_hcd"


def _pcie(number: int) -> str:
    return f"{since_boot(number)}pcieport 0000:00:01.0: AER: Corrected error message received from 0000:01:00.0"


def _mixed(number: int) -> str:
    return _quiet(number) if number % 2 else f"{since_boot(number)}{XID.format(gpu=1, code=31, pid=number)}"


def lines_per_s(log: bytes) -> int:
    """The best of some rounds, in lines a second of processor time."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        parse_kernel_log(log, read_at=0, booted_at=0)
        best = min(best, time.process_time() - began)
    return round(log.count(b"\n") / best)


def sizes() -> dict[str, int]:
    """What facts about a host's health cost in the log, in bytes."""
    host, run, job = HostId("h0123"), RunId("01K0ABCDEFGHJKMNPQRSTVWXYZ.1"), JobId("01K0ABCDEFGHJKMNPQRSTVWXYZ")
    at = 1_767_225_600_000

    def said(log: bytes) -> int:
        signals = tuple(parse_kernel_log(log, read_at=at, booted_at=at))
        return len(
            encode(HostSignal(at=at, id=FactId(f"{host}-health-{at}"), cluster="h100", host=host, signals=signals))
        )

    segment = Segment(
        run=run, job=job, budget=BudgetPath("science/chem"), user=UserName("ana"), charged=True, gpus=8,
        since=at, until=at + 10 * SECOND, busy_milli=993,
    )  # fmt: skip
    beat = HostBeat(host=host, gpus=8, runs=(run,), segments=(segment,))
    heartbeat = Heartbeat(at=at, id=FactId(f"{host}-beat-{at}"), cluster="h100", agent=host, hosts=(beat,))
    return {
        "heartbeat_of_8_gpus_and_a_run": len(encode(heartbeat)),
        "signal_of_a_lost_gpu": said(f"{since_boot(1)}{XID.format(gpu=1, code=79, pid=1)}\n".encode()),
        "storm_on_8_gpus": said(storm(since_boot)),
    }


def main() -> int:
    """Print the figures."""
    logs = {
        "quiet": _log(_quiet),
        "storm_since_boot": storm(since_boot),
        "storm_iso": storm(decoded),
        "storm_readable": storm(readable),
        "storm_kmsg": storm(record),
        "storm_of_echoes": storm(since_boot, code=45),
        "storm_between_other_lines": _log(_mixed),
        "corrected_pcie_errors": _log(_pcie),
    }
    if RECORDED.is_file():
        recorded = RECORDED.read_bytes()
        logs["recorded_storm"] = recorded * (LINES // recorded.count(b"\n"))
    figures = {
        "conditions": {"lines": LINES, "rounds": ROUNDS, "clock": "process time"},
        "kernel_log_lines_per_s": {name: lines_per_s(log) for name, log in logs.items()},
        "bytes": sizes(),
    }
    print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
