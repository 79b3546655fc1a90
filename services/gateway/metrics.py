"""The cluster as metrics: the figures of `tenure queue --fragmentation` and `tenure host report`, now and then.

An instant is no label: what protections to come will free is told for a few lengths of time from now.
"""

import asyncio
import contextlib

from services.gateway.gateway import Gateway
from services.gateway.policy.fragmentation import Placeable, fragmentation
from services.gateway.policy.host_report import host_report
from services.gateway.refusals import Away
from services.gateway.state import State
from tenure.domain.host import HostState
from tenure.domain.units import DAY, HOUR, SECOND, Millis, format_duration
from tenure.runtime.telemetry import Gauges, Reading

EVERY_S = 15.0
REPORT_MS = 7 * DAY
WITHIN: tuple[Millis, ...] = (HOUR, 2 * HOUR, 4 * HOUR, 8 * HOUR)
UNITS = {
    "tenure.gpus.free": "{gpu}",
    "tenure.gpus.largest_hole": "{gpu}",
    "tenure.gpus.giving_way": "{gpu}",
    "tenure.gpus.in_escrow": "{gpu}",
    "tenure.gpus.reserved": "{gpu}",
    "tenure.gpus.past_protection": "{gpu}",
    "tenure.hosts.with_gpus_free": "{host}",
    "tenure.hosts.wholly_free": "{host}",
    "tenure.placeable.whole_hosts": "{host}",
    "tenure.placeable.replicas": "{replica}",
    "tenure.hosts.in_state": "{host}",
    "tenure.hosts.availability": "1",
    "tenure.hosts.out": "h",
    "tenure.incidents": "{incident}",
    "tenure.incidents.time": "s",
    "tenure.incidents.automatic_share": "1",
    "tenure.incidents.refunded": "h",
}


def fragmentation_gauges() -> Gauges:
    """The gauges, which nobody has set yet."""
    return Gauges("gateway", UNITS)


async def measure(gateway: Gateway, gauges: Gauges, *, every_s: float = EVERY_S) -> None:
    """Set the gauges again and again until the gateway stops, if anybody is told."""
    while gauges.wanted and not gateway.progress.stopping:
        with contextlib.suppress(Away):  # still reading the log
            now = gateway.now()
            gauges.set(readings(gateway.state, now=now))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(gateway.progress.stopped.wait(), every_s)


def readings(state: State, *, now: Millis) -> dict[str, list[Reading]]:
    """The value of each gauge for each pool, and for the prospects for each length of time."""
    found: dict[str, list[Reading]] = {name: [] for name in UNITS}
    for pool in fragmentation(state, now=now, instants=[now + within for within in WITHIN]):
        of = {"cluster": pool.cluster, "gpu_type": pool.gpu_type}
        for name, value in (
            ("tenure.gpus.free", pool.free),
            ("tenure.gpus.largest_hole", pool.largest_hole),
            ("tenure.gpus.giving_way", pool.giving_way),
            ("tenure.gpus.in_escrow", pool.in_escrow),
            ("tenure.gpus.reserved", pool.reserved),
            ("tenure.gpus.past_protection", pool.past_protection),
            ("tenure.hosts.with_gpus_free", pool.hosts_with_free),
            ("tenure.hosts.wholly_free", pool.hosts_wholly_free),
        ):
            found[name].append((value, of))
        for prospect in pool.prospects:
            within = format_duration(prospect.at - now)
            for p5, placeable in (("sure", prospect.placeable), ("if_p5_gives", prospect.if_p5_gives)):
                _add(found, placeable, {**of, "within": within, "given": p5})
    _add_hosts(found, state, now=now)
    return found


def _add_hosts(found: dict[str, list[Reading]], state: State, *, now: Millis) -> None:
    """`tenure host report` of the last seven days, and how many hosts are in each state now."""
    states = [entry.state for entry in state.hosts.values()]
    for name in HostState:
        found["tenure.hosts.in_state"].append((states.count(name), {"state": name.value}))
    report = host_report(state, since=now - REPORT_MS, until=now)
    for cause in report.causes:
        for ending, number in (("automatic", cause.automatic), ("human", cause.human), ("open", cause.still_open)):
            found["tenure.incidents"].append((number, {"cause": cause.reason.value, "ending": ending}))
    found["tenure.incidents.refunded"].append((report.refunded_gpu_ms / HOUR, {}))
    found["tenure.hosts.out"].append((report.out_gpu_ms / HOUR, {}))
    for step, spread in (("detect", report.detect), ("drain", report.drain), ("repair", report.repair)):
        if spread.count:
            for of, length_ms in (("p50", spread.p50_ms), ("p90", spread.p90_ms), ("longest", spread.longest_ms)):
                found["tenure.incidents.time"].append((length_ms / SECOND, {"step": step, "of": of}))
    if report.availability is not None:
        found["tenure.hosts.availability"].append((report.availability, {}))
    if report.automatic_share is not None:
        found["tenure.incidents.automatic_share"].append((report.automatic_share, {}))


def _add(found: dict[str, list[Reading]], placeable: Placeable, of: dict[str, str]) -> None:
    found["tenure.placeable.whole_hosts"].append((placeable.whole_hosts, of))
    for size, replicas in placeable.replicas.items():
        found["tenure.placeable.replicas"].append((replicas, {**of, "gpus_per_replica": str(size)}))
