"""Each reason in words a researcher understands, with the numbers that were compared. Pure, a table.

A reason has several wordings, the one with the most numbers first; the first whose numbers are all there is used.
Ratios are of what a budget is entitled to: 1.00 has had exactly its share of the window.
"""

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from tenure.domain.reasons import Number, Reason, Why
from tenure.domain.units import GpuMillis, Millis, format_duration, gpu_hours

GPU = "GPU"
"""What the wordings speak of; where hosts count CPUs, those take their place."""
_R = Reason
WORDINGS: dict[Reason, tuple[str, ...]] = {
    _R.START_IN_ORDER: (
        "its turn came, at place {rank} of the order with its budget at {ratio} of its share ({ahead}), after "
        "{waited_ms}",
        "its turn came, at place {rank} of the order with its budget at {ratio} of its share, after {waited_ms}",
        "its turn came after {waited_ms}",
        "its turn came",
    ),
    _R.START_ESCROW_COMPLETE: (
        "the {gpus} GPUs that were freed for it are all there, after {waited_ms}",
        "the GPUs that were freed for it are all there",
    ),
    _R.START_UNALLOCATED_FILL: (
        "no job with a contract could use these {gpus} GPUs now; it waited {waited_ms}",
        "no job with a contract could use these GPUs now",
    ),
    _R.START_AT_RISK: (
        "these {gpus} GPUs are idle and it may be preempted: {team} holds {team_protected} of the {team_limit} "
        "protected GPUs it may have",
        "its team is at its limit of protected GPUs, so it may be preempted",
    ),
    _R.DISRUPT_UNALLOCATED: (
        "it runs unallocated (budget {victim_budget}), and such runs give way at once",
        "it runs unallocated, and such runs give way at once",
    ),
    _R.DISRUPT_HOST_DRAINS: (
        "its host {host} drains and its protection ended at {protected_until_ms}",
        "its host drains and its protection is over",
    ),
    _R.DISRUPT_HOST_FATAL: ("its host {host} cannot go on", "its host cannot go on"),
    _R.DISRUPT_LOWER_RATIO: (
        "its protection ended at {protected_until_ms}, and {level} has had {ratio} of its share ({ahead}) while "
        "{victim_level} has had {victim_ratio} ({victim_ahead}; margin {margin})",
        "its protection ended at {protected_until_ms}, and {level} has had {ratio} of its share while {victim_level} "
        "has had {victim_ratio} (margin {margin})",
        "its protection is over, and the asking budget is further below its share",
    ),
    _R.DISRUPT_HIGHER_PRIORITY: (
        "its protection ended at {protected_until_ms}, and in the same budget {budget} the asking job has priority "
        "{priority} against {victim_priority}",
        "its protection is over, and the asking job of the same budget has a higher priority",
    ),
    _R.DISRUPT_AT_RISK: (
        "it ran beyond its team's limit ({victim_budget}), and {team} holds {team_protected} of the {team_limit} "
        "protected GPUs it may have",
        "it ran beyond its team's limit of protected GPUs",
    ),
    _R.KEEP_NOT_STARTED: ("the run in its way has not started yet", "the run in its way has not started yet"),
    _R.KEEP_PROTECTED: (
        "the run in its way is protected until {protected_until_ms}",
        "the run in its way is protected",
    ),
    _R.KEEP_ASKER_UNALLOCATED: ("an unallocated job never displaces another",),
    _R.KEEP_RATIO_NOT_LOWER: (
        "{level} has had {ratio} of its share and {victim_level} {victim_ratio}: not lower by the margin {margin}",
        "its budget is not further below its share than the other",
    ),
    _R.KEEP_PRIORITY_NOT_HIGHER: (
        "its priority {priority} is not higher than {victim_priority}",
        "its priority is not higher",
    ),
    _R.STOP_CANCELLED: ("{by} cancelled it", "it was cancelled"),
    _R.STOP_GANG_BROKEN: (
        "replica {replica} on {host} died of signal {signal}, and a gang runs whole or not at all",
        "replica {replica} on {host} failed with status {exit_code}, and a gang runs whole or not at all",
        "replica {replica} on {host} could not be started ({error}), and a gang runs whole or not at all",
        "one of its replicas failed, and a gang runs whole or not at all",
    ),
    _R.STOP_HOST_LOST: ("its host {host} was lost", "a host of it was lost"),
    _R.END_COMPLETED: ("every replica ended with status 0",),
    _R.END_FAILED: (
        "replica {replica} on {host} died of signal {signal}",
        "replica {replica} on {host} failed with status {exit_code}",
        "replica {replica} on {host} could not be started: {error}",
        "a replica failed",
    ),
    _R.DEFER_NO_ROOM: (
        "it asks for {gpus_asked} GPUs in one block and {gpus_free} are free in all: {replicas_fit_one_block} of its "
        "{replicas} replicas fit the roomiest block, {roomiest_block}",
        "it asks for {gpus_asked} GPUs and {gpus_free} are free on {hosts_with_gpus_free} hosts, largest hole "
        "{largest_hole}; with {gpus_releasing} that are being released {gpus_short} are missing; the next protection "
        "ends at {next_protection_ends_ms}",
        "it asks for {gpus_asked} GPUs and {gpus_free} are free on {hosts_with_gpus_free} hosts, largest hole "
        "{largest_hole}; the next protection ends at {next_protection_ends_ms}",
        "it asks for {gpus_asked} GPUs and {gpus_free} are free; with {gpus_releasing} that are being released "
        "{gpus_short} are missing; the next protection ends at {next_protection_ends_ms}",
        "it asks for {gpus_asked} GPUs and {gpus_free} are free on {hosts_with_gpus_free} hosts, largest hole "
        "{largest_hole}",
        "it asks for {gpus_asked} GPUs and {gpus_free} are free; the next protection ends at {next_protection_ends_ms}",
        "it asks for {gpus_asked} GPUs and {gpus_free} are free",
        "there are not enough free GPUs",
    ),
    _R.DEFER_FRAGMENTED: (
        "it asks for {gpus_asked} GPUs and {gpus_free} are free on {hosts_with_gpus_free} hosts, largest hole "
        "{largest_hole}: {replicas_fit} of its {replicas} replicas fit",
        "enough GPUs are free, but in pieces that are too small",
    ),
    _R.DEFER_NO_BLOCK: (
        "enough GPUs are free, but not in one block: {replicas_fit_one_block} of its {replicas} replicas "
        "fit the roomiest, {roomiest_block}",
        "enough GPUs are free, but not in one block: {replicas_fit_one_block} of its {replicas} replicas "
        "fit the roomiest",
        "enough GPUs are free, but not in one block",
    ),
    _R.DEFER_RESERVED: (
        "{gpus_free} GPUs are free, but gangs that were promised hosts start on them before its contract would be over",
        "GPUs are free, but gangs that were promised hosts start on them before its contract would be over",
    ),
    _R.DEFER_VICTIMS_STOPPING: (
        "{victims} runs are being stopped for it (of {runs_to_look_at} that could be, {runs_looked_at} were looked at)",
        "{victims} runs are being stopped for it ({hosts_looked_at} of {hosts_to_look_at} hosts were looked at)",
        "{victims} runs are being stopped for it",
        "the runs that make room for it are being stopped",
    ),
    _R.DEFER_ESCROW_EXPIRED: (
        "the GPUs held for it were given up at {deadline_ms}: {victims_still_there} of {victims} runs had not gone",
        "the GPUs that were held for it were not freed in time",
    ),
    _R.DISRUPT_PROMISED: (
        "its protection ended at {protected_until_ms}, and its GPUs were promised to a gang that starts at "
        "{latest_start_ms} at the latest",
        "its GPUs were promised to a gang with a latest start",
    ),
    _R.DEFER_NO_TIMETABLE: (
        "its {gpus_asked} GPUs cannot be promised for any time yet: {gpus_free} are free on {hosts_with_gpus_free} "
        "hosts, largest hole {largest_hole}, and too many others belong to budgets that are not ahead of its own",
        "its {gpus_asked} GPUs cannot be promised for any time yet: too many belong to budgets that are not ahead of "
        "its own",
        "its GPUs cannot be promised for any time yet",
    ),
    _R.RESERVE_EARLIEST: (
        "its {gpus} GPUs on {hosts} hosts can be had then at the latest, {runs_in_the_way} runs are in the way",
        "its GPUs can be had then at the latest",
    ),
    _R.RESERVE_HOST_GONE: ("its host {host} cannot be had any more", "a host of it cannot be had any more"),
    _R.DEFER_NO_SUCH_HOSTS: ("no host that takes runs now could hold one of its replicas",),
    _R.REQUEUE_PREEMPTED: (
        "it can resume, so it is back in the queue with its submit time {submitted_at_ms} and its checkpoint of "
        "{checkpoint_at_ms}",
        "it can resume, so it is back in the queue with its submit time {submitted_at_ms}",
        "it can resume, so it is back in the queue",
    ),
    _R.REQUEUE_HOST_LOST: (
        "its host was lost, so it is back in the queue with its submit time {submitted_at_ms}",
        "its host was lost, so it is back in the queue",
    ),
    _R.REQUEUE_LAUNCH_FAILED: (
        "its host gave up its launch ({launches_given_up} in a row), so it is back in the queue and held for {hold_ms}",
        "its host gave up its launch, so it is back in the queue",
    ),
    _R.REJECT_ADMISSION: ("{field}: {problem}; {fix}", "it could not be admitted"),
    _R.CHARGE_RUN: ("all that it held",),
    _R.CHARGE_REFUNDED: (
        "it held GPUs for {occupied_gpu_ms}, of which the last {lost_work_ms} were lost with a host",
        "the work lost with a host is given back",
    ),
    _R.HOST_REGISTERED: ("it reported {gpus} working GPUs", "it reported its GPUs"),
    _R.HOST_SILENT: (
        "it has been silent for {silent_ms} (the limit is {suspect_after_ms})",
        "it has been silent for {silent_ms}",
        "it has been silent for too long",
    ),
    _R.HOST_SILENT_TOO_LONG: (
        "it has been silent for {silent_ms} (the limit is {lost_after_ms}) while {hosts_silent} of {hosts_watched} "
        "hosts were silent",
        "it has been silent for far too long",
    ),
    _R.HOST_HEARD_AGAIN: ("it is heard again",),
    _R.HOST_OVERDUE: (
        "{runs} runs that were told to end are still there, {run} among them, beyond their grace",
        "runs that were told to end are still there, beyond their grace",
    ),
    _R.HOST_RELEASED: ("the runs that it did not release in time are over",),
    _R.HOST_DRAIN_REQUESTED: ("a drain was asked for, with {runs} runs on it", "a drain was asked for"),
    _R.HOST_EMPTY: ("its last run is gone, {drained_ms} after the drain was asked for", "its last run is gone"),
    _R.HOST_RESUMED: ("an operator resumed it",),
    _R.HOST_REPAIRED: ("it was repaired",),
    _R.HOST_SIGNAL_FATAL: (
        "{source} says {code} of {device}, which nothing on it survives; {runs} runs on it",
        "{source} says {code} of {device}, which nothing on it survives",
        "a device of it is gone",
    ),
    _R.HOST_SIGNALS: (
        "{source} says {code} of {device}, for {lasted_ms} by now; {signals} signals ask for care",
        "signals ask for care",
    ),
    _R.HOST_GPUS_MISSING: (
        "only {gpus} of its {gpus_registered} GPUs work, for {lasted_ms} by now",
        "not all of its GPUs work",
    ),
    _R.HOST_JOBS_FAIL: (
        "{runs_died} runs of {jobs} jobs and {users} users died on it first within {window_ms}, and "
        "{ended_well_here} ended well",
        "runs that go well elsewhere die on it",
    ),
    _R.HOST_LAUNCHES_FAIL: ("it gave up {launches} launches within {window_ms}", "it gives up launches"),
    _R.HOST_NAMED_TWICE: (
        "the machines {agent} and {other_agent} both speak for it; give one of the machines another name",
        "two machines speak for it; give one of the machines another name",
    ),
    _R.HOST_HELD_BACK: (
        "there is evidence against it, but automation holds {held} of the {hosts} hosts of {group} already and may "
        "hold {allowed}",
        "there is evidence against it, but {hosts_silent} of {hosts_watched} hosts are silent, so automation rests",
        "there is evidence against it, but automation may not take it",
    ),
    _R.HOST_DOUBTED: (
        "{source} says {code} of {device}: nothing starts on it until that is over or has lasted for {confirm_ms}",
        "only {gpus} of its {gpus_registered} GPUs work: nothing starts on it until that is over or has lasted for "
        "{confirm_ms}",
        "nothing starts on it until what is said against it is over or confirmed",
    ),
    _R.HOST_CLEARED: ("what was said against it is over for {clear_ms}", "what was said against it is over"),
    _R.HOST_REPAIR_BEGUN: ("its repair was asked for (incident {incidents} of the day)", "its repair was asked for"),
    _R.HOST_REPAIR_FAILED: (
        "its {step} did not bring it back within {waited_ms}; a person has to look",
        "its repair did not bring it back; a person has to look",
    ),
    _R.HOST_TESTED: ("it passed its acceptance test in {waited_ms}", "it passed its acceptance test"),
    _R.HOST_BREAKS_AGAIN: (
        "this is its incident {incidents} within {window_ms}; a person has to look",
        "it breaks again and again; a person has to look",
    ),
}

BY_AUTOMATION = (
    _R.HOST_SIGNAL_FATAL,
    _R.HOST_SIGNALS,
    _R.HOST_GPUS_MISSING,
    _R.HOST_JOBS_FAIL,
    _R.HOST_LAUNCHES_FAIL,
    _R.HOST_NAMED_TWICE,
    _R.HOST_HELD_BACK,
    _R.HOST_DOUBTED,
    _R.HOST_CLEARED,
    _R.HOST_REPAIR_FAILED,
    _R.HOST_TESTED,
    _R.HOST_BREAKS_AGAIN,
)
"""Why a host is where it is by no order of a person: shown as the comment on it."""

KEPT: dict[Reason, str] = {
    _R.KEEP_NOT_STARTED: "just starting",
    _R.KEEP_PROTECTED: "protected",
    _R.KEEP_ASKER_UNALLOCATED: "not to be displaced by unallocated jobs",
    _R.KEEP_RATIO_NOT_LOWER: "of budgets that are not far enough above it",
    _R.KEEP_PRIORITY_NOT_HIGHER: "of its own budget with as high a priority",
}
"""What is said of runs in a waiting job's way; the numbers of the reason say how many there are of each."""

_INSTANTS = ("until_ms", "at_ms", "now_ms", "ends_ms", "deadline_ms", "start_ms", "since_ms", "seen_ms")
"""Endings of the names of instants; every other name that ends in `_ms` is a length of time."""


def say_why(why: Why, *, unit: str = GPU) -> str:
    """The reason and its numbers as a clause without capital or full stop. `unit`: what hosts are counted in."""
    spoken = {name: say_number(name, value, unit=unit) for name, value in why.numbers.items() if value is not None}
    if not why.numbers.get("gpus_releasing"):
        spoken.pop("gpus_releasing", None)
    if why.numbers.get("gpus_free") == 0:
        spoken.pop("hosts_with_gpus_free", None)  # there is nowhere to tell of
    kept = [f"{spoken[reason.value]} {words}" for reason, words in KEPT.items() if reason.value in spoken]
    tail = f"; of the runs in its way are {', '.join(kept)}" if kept else ""
    for wording in WORDINGS[why.reason]:
        try:
            return wording.replace(GPU, unit).format_map(spoken) + tail
        except KeyError:
            continue  # a number is not there: an older role, or one that does not apply
    raise AssertionError(f"{why.reason}: its last wording must need no numbers")


def say_number(name: str, value: Number, *, unit: str = GPU) -> str:
    """A number as people read it; its unit is in its name."""
    if isinstance(value, bool | str):
        return str(value)
    assert value is not None, "an absent number is not spoken of"
    if name.endswith("gpu_ms"):
        return f"{gpu_hours(int(value)):.4g} {unit}-hours"
    if name.endswith(_INSTANTS):
        return say_instant(int(value))
    if name.endswith("_ms"):
        return format_duration(int(value))
    if isinstance(value, float):
        return f"{value:.2f}" if math.isfinite(value) else "no"
    return str(value)


def spoken_ahead(ahead: Mapping[str, GpuMillis]) -> dict[str, str]:
    """By the name that the wordings have for it, how far a budget was ahead; `ahead` is by the name of its ratio."""
    return {name.replace("ratio", "ahead"): say_ahead(gpu_ms) for name, gpu_ms in ahead.items()}


def say_ahead(gpu_ms: GpuMillis) -> str:
    """How far a budget is ahead of its share, or behind it: what stands beside every ratio."""
    hours = gpu_hours(abs(gpu_ms))
    if not gpu_ms:
        return "level with it"
    size = f"{hours:,.0f}" if hours >= 100 else f"{hours:.1f}" if hours >= 1 else f"{max(hours, 0.01):.2f}"
    return f"{size} GPU-hours {'ahead' if gpu_ms > 0 else 'behind'}"


def say_instant(when: Millis) -> str:
    """An instant to the second, in UTC."""
    return datetime.fromtimestamp(when / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
