"""`tenure why` in plain sentences: the most important one first, hours ahead or behind beside every ratio. Pure."""

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime

from services.gateway.entries import JobEntry, RunEntry
from services.gateway.policy.expected_start import Basis, Expected
from services.gateway.policy.in_the_way import still_in_the_way
from services.gateway.policy.sides import Side
from services.gateway.policy.stands_before import Before, JobBefore, RunBefore
from services.gateway.policy.usable import must_be_one_block
from services.gateway.state import State
from tenure.domain.reasons import JobState, Reason
from tenure.domain.reasons_in_words import say_ahead, say_why, spoken_ahead
from tenure.domain.units import DAY, HOUR, MINUTE, SECOND, Millis, format_duration
from tenure.events.placing import JobRequeued, RunPreemptionRequested

NAMED = 3
"""Things named in one sentence; the tables below have more."""
_FAR: Millis = 12 * HOUR
_WORDS = {
    "lower_ratio": "{other} and {own}: the lower of the two comes first",
    "earlier_pick": "the order counts what the jobs in front of both are given, and by that it is the turn of "
    "{other_budget}; as of now {other} and {own}",
    "user_used_less": "it is of the same budget, whose users are equal, and {user} comes first by what each has used",
    "higher_priority": "it is of the same budget and has priority {priority}, against {own_priority}",
    "smaller_commitment": "it is of the same budget and asks for less GPU-time, which for a while counts more than age",
    "waited_longer": "it is of the same budget and has waited longer, long enough for what it asks",
    "submitted_earlier": "it is of the same budget and was submitted earlier",
    "allocated": "it has a contract, and jobs without one come after all that have",
    "less_unallocated_use": "its budget has had less unallocated GPU-time for its share",
}
"""Why a job comes before: what follows `because`."""


def say_waiting(
    asker: JobEntry, state: State, before: Before, expected: Expected, *, now: Millis, unit: str
) -> list[str]:
    """Why a queued job waits, and until when."""
    told = [
        _place(asker, before, unit=unit),
        _room(asker, before, unit=unit),
        _jobs(asker, before, unit=unit),
        *_runs(before, now=now, unit=unit),
        _promise(asker, state, unit=unit),
        _promises(before, now=now, unit=unit),
        _out(before, now=now, unit=unit),
        say_expected(expected, asker, now=now),
    ]
    return [sentence for sentence in told if sentence]


def say_expected(expected: Expected, asker: JobEntry, *, now: Millis) -> str:
    """The first and the last instant, and what they follow from."""
    latest = "" if expected.latest is None else f" At the latest it starts at {when(expected.latest, now=now)}."
    match expected.basis:
        case Basis.ESCROW:
            return f"It starts as soon as the runs that were told to go for it are gone.{latest}"
        case Basis.HOLD:
            assert expected.earliest is not None, "a hold has an end"
            return f"It is held back until {when(expected.earliest, now=now)}, as hosts gave up its launches.{latest}"
        case Basis.ROOM:
            return f"Nothing in its way is protected from it: it can start as soon as it is its turn.{latest}"
        case Basis.PROTECTION:
            assert expected.earliest is not None and expected.decides is not None, "a protection of a run ends"
            run = expected.decides.run
            at = when(expected.earliest, now=now)
            drained = expected.earliest != run.contract_ends_at
            ends = f"when {run.run} has to leave" if drained else f"when the protection of {run.run} ends"
            return f"By contracts and ratios as they are it cannot start before {at}, {ends}.{latest}"
        case Basis.RESERVATION:
            return latest.strip()
    if expected.basis is Basis.NO_HOST:
        return "No instant is recorded: it waits until a host that could hold it takes runs again."
    if not asker.spec.allocated:
        return "No instant is recorded: it is unallocated, so nobody gives way to it, and it fills what others leave."
    return (
        "No instant is recorded: as ratios and priorities are now, too few give way to it even when their protection "
        "ends. It starts when runs end by themselves, or when the ratios change."
    )


def say_running(asker: JobEntry, own: Side, *, now: Millis, unit: str) -> list[str]:
    """What a job with a live run has, and how safe it is."""
    run = asker.runs[-1]
    holds = f"Run {run.number} holds {run.gpus} {unit}s"
    if run.ended_at is not None:
        return [f"Run {run.number} ended at {when(run.ended_at, now=now)}; what becomes of the job is not decided yet."]
    if run.started_at is None:
        kept = "; nothing preempts it meanwhile" if run.allocated else ""
        return [f"{holds}; its processes have not all started yet{kept}."]
    since = when(run.started_at, now=now)
    if run.stopping:
        return [f"{holds} since {since}, and was told to end."]
    if not run.allocated:
        return [
            f"{holds} since {since}, unallocated: it costs nothing, and gives way at once to any job with a contract."
        ]
    until = run.contract_ends_at
    if now < until:
        return [f"{holds} since {since}. Nothing preempts it before {when(until, now=now)}."]
    return [
        f"{holds} since {since}. Its protection ended at {when(until, now=now)}: it may run on until a job of a budget "
        f"that has had clearly less of its share needs its {unit}s, or one of its own budget with a higher priority. "
        f"{_capital(_side(own, own=True))}."
    ]


def say_gave_way(
    fact: RunPreemptionRequested, asker: JobEntry | None, run: RunEntry | None, *, now: Millis, unit: str
) -> list[str]:
    """Why a run was told to go: who asked, what it had of its protection, the rule with both sides.

    `asker` is None for a host that drains, and for a job that is no longer kept.
    """
    who = fact.by if fact.escrow else f"a drain of host {fact.by}"
    if asker is not None:
        who = f"job {_named(asker, unit=unit)}"
    told = [f"Run {fact.run.rpartition('.')[2]} had to give way at {when(fact.at, now=now)} to {who}."]
    numbers = dict(fact.why.numbers)
    if run is not None:
        numbers |= spoken_ahead(run.ahead_at_stop)
        if run.started_at is not None and run.allocated:
            told.append(_had(fact.at - run.started_at, promised=run.min_runtime_ms))
    why = say_why(dataclasses.replace(fact.why, numbers=numbers), unit=unit)
    told.append(f"The rule is {fact.why.rule}: {why}.")
    return told


def _had(ran: Millis, *, promised: Millis) -> str:
    """What a run had of its contract when it was told to go."""
    length = format_duration(promised)
    if ran < promised:
        return (
            f"It had run for {rough(ran)}, and its contract promised {length}: only a lost host or a fatal drain ends "
            "a run sooner."
        )
    return f"It had run for {rough(ran)}; its contract protected the first {length} of that."


def say_leaving(fact: RunPreemptionRequested, victim: JobEntry) -> str:
    """What follows when a run that was told to go is gone: of one that is still there."""
    if victim.cancel_asked:
        return "It was cancelled meanwhile: when its run is gone, it is over."
    unless = "unless all of it ends with status 0 and has saved nothing since: then it is completed"
    if fact.why.reason is Reason.DISRUPT_HOST_FATAL:
        return (
            "When its run is gone, it goes back to the queue with its first submit time, as every job does that its "
            f"host fails, {unless}."
        )
    if victim.spec.resumable:
        return (
            "As it can resume, when its run is gone it goes back to the queue with its first submit time and what it "
            f"has saved, {unless}."
        )
    return (
        f"As it cannot resume, when its run is gone it is over, preempted, {unless}. A job submitted with --resumable "
        "is queued again instead."
    )


def say_requeued(fact: JobRequeued, *, now: Millis, unit: str) -> str:
    """That a job went back to the queue, and when."""
    return f"It was queued again at {when(fact.at, now=now)}: {say_why(fact.why, unit=unit)}."


def say_over(entry: JobEntry, *, cancelled_by: str, unit: str) -> str:
    """How a job ended that is over. `cancelled_by`: who asked for that, empty where nobody did."""
    if entry.state is JobState.PREEMPTED:
        return (
            "It is over, preempted: it cannot resume, so it ended with the run that had to give way. A job submitted "
            "with --resumable is queued again instead."
        )
    assert entry.why is not None, "every end has a reason"
    why = say_why(entry.why, unit=unit)
    if entry.state is JobState.CANCELLED and entry.why.reason is not Reason.STOP_CANCELLED:
        why = (
            f"{cancelled_by or 'somebody'} cancelled it while its run was ending"  # the reason is that of the run's end
        )
    return f"It is over, {entry.state}: {why}."


def say_rejected(field: str, problem: str, fix: str) -> list[str]:
    """Why a job never entered the queue."""
    return [f"It was rejected and has cost nothing: {field}: {problem}.", f"What would be accepted: {fix}."]


def when(at: Millis, *, now: Millis) -> str:
    """An instant in UTC and how far away it is: `14:20 UTC (in 2h10m)`; with its date from half a day on."""
    shape = "%H:%M" if abs(at - now) < _FAR else "%Y-%m-%d %H:%M"
    away = f"in {rough(at - now)}" if at > now else f"{rough(now - at)} ago"
    return f"{datetime.fromtimestamp(at / 1000, UTC).strftime(shape)} UTC ({away})"


def rough(length: Millis) -> str:
    """A length of time in its two biggest units."""
    for size, below in ((DAY, HOUR), (HOUR, MINUTE), (MINUTE, SECOND)):
        if length >= size:
            return format_duration(length // below * below)
    return format_duration(max(0, length) // SECOND * SECOND)


def _place(asker: JobEntry, before: Before, *, unit: str) -> str:
    spec, each = asker.spec, _count(asker.spec.gpus_per_replica, unit)
    gang = each if spec.replicas == 1 else f"{spec.replicas} replicas of {each}"
    one_block = " in one block" if must_be_one_block(spec) else ""
    where = f"at place {before.rank} of the order" if before.rank else "behind others that are just like it"
    return f"It waits for {gang}{one_block}, {where}; queued in all: {_count(before.queued, 'job')}."


def _room(asker: JobEntry, before: Before, *, unit: str) -> str:
    if not before.room:
        return "No host that takes runs now could hold a replica of it."
    free, holes = sum(room.free for room in before.room), sum(room.hosts_with_free for room in before.room)
    if not free:
        return f"None of the {sum(room.gpus for room in before.room)} {unit}s that it could use is free."
    largest, fit = max(room.largest_hole for room in before.room), max(room.replicas_fit for room in before.room)
    where = (
        f"{_count(free, unit)} {'is' if free == 1 else 'are'} free on {_count(holes, 'host')}, largest hole {largest}"
    )
    if fit >= asker.spec.replicas:
        return f"{where}: enough for it, if they were given to it."
    within = " in one block" if must_be_one_block(asker.spec) else ""
    fits = f"{fit} of its {asker.spec.replicas} replicas fit{within}" if asker.spec.replicas > 1 else "it does not fit"
    return f"{where}: {fits}."


def _jobs(asker: JobEntry, before: Before, *, unit: str) -> str:
    if not before.jobs:
        return "No job comes before it."
    count = before.jobs_count
    last, which = (before.jobs[-1], "the last") if count == len(before.jobs) else (before.jobs[0], "the first")
    if count == 1:
        told = f"One job comes before it: {_named(last.entry, unit=unit)}"
    else:
        told = f"{count} jobs for {before.jobs_gpus} {unit}s come before it; {which} is {_named(last.entry, unit=unit)}"
    return f"{told}, because {_because(asker, last)}."


def _because(asker: JobEntry, one: JobBefore) -> str:
    return _WORDS[one.because].format(
        own=_side(one.sides.own, own=True),
        other=_side(one.sides.other),
        other_budget=one.sides.other.budget,
        user=one.entry.spec.user,
        priority=one.entry.spec.priority,
        own_priority=asker.spec.priority,
    )


def _runs(before: Before, *, now: Millis, unit: str) -> list[str]:
    """How many runs hold what it could use, and of each thing that keeps them one by name."""
    if not before.runs:
        return []
    hold = "holds" if len(before.runs) == 1 else "hold"
    told = [f"{_count(len(before.runs), 'run')} {hold} {before.runs_gpus} {unit}s on hosts that it could use."]
    by_kept: dict[Reason | None, list[RunBefore]] = {}
    drained = [run for run in before.runs if run.kept is not None and run.drained_at is not None]
    for run in before.runs:
        if run.kept is None or run.drained_at is None:
            by_kept.setdefault(run.kept, []).append(run)
    told += [_kept(kept, runs, now=now, unit=unit) for kept, runs in by_kept.items()]
    return told + ([_drained(drained, now=now, unit=unit)] if drained else [])


def _drained(runs: Sequence[RunBefore], *, now: Millis, unit: str) -> str:
    """Runs that end for a drain, whatever the ratios are (P9)."""
    first, count = min(runs, key=lambda one: (one.drained_at or 0, one.run.run)), len(runs)
    assert first.drained_at is not None, "only such runs are asked about"
    name = f"{first.run.run} ({_whose(first.entry)}, {_count(first.run.gpus, unit)})"
    at = when(first.drained_at, now=now)
    if count == 1:
        return f"{name} is on a host that drains, so it has to leave at {at}, whoever asks (P9)."
    return f"{count} of them are on hosts that drain, so they have to leave whoever asks (P9), first {name} at {at}."


def _kept(kept: Reason | None, runs: Sequence[RunBefore], *, now: Millis, unit: str) -> str:
    first, count = runs[0], len(runs)
    name = f"{first.run.run} ({_whose(first.entry)}, {_count(first.run.gpus, unit)})"
    subject, such_as = (f"{name} is", "") if count == 1 else (f"{count} of them are", f", first {name}")
    match kept:
        case None:
            going = f"{name} ends or gives" if count == 1 else f"{count} of them end or give"
            return f"{going} way as soon as it is its turn{such_as}."
        case Reason.KEEP_PROTECTED:
            at = when(first.run.contract_ends_at, now=now)
            return f"{subject} protected by contract{such_as} until {at}."
        case Reason.KEEP_NOT_STARTED:
            return f"{subject} just starting{such_as}: a run that starts is protected."
        case Reason.KEEP_PRIORITY_NOT_HIGHER:
            rule = "inside a budget only a higher priority preempts"
            return f"{subject} past protection, but of its own budget with as high a priority{such_as}: {rule}."
        case Reason.KEEP_RATIO_NOT_LOWER:
            assert first.sides is not None, "ratios were compared"
            sides = f"{_side(first.sides.other)}, {_side(first.sides.own, own=True)}"
            rule = "only a budget that has had clearly less of its share preempts"
            return f"{subject} past protection, but kept{such_as}: {sides}; {rule}."
    return f"{subject} kept from it{such_as}: an unallocated job displaces nobody."


def _promise(asker: JobEntry, state: State, *, unit: str) -> str:
    """Its own reservation (P8)."""
    if asker.reservation is None:
        return ""
    gpus = sum(len(place.gpus) for place in asker.reservation.placement)
    hosts = len({place.host for place in asker.reservation.placement})
    runs = still_in_the_way(asker.reservation, state)
    names = ", ".join(run.run for _, run in runs[:NAMED]) + (
        f" and {len(runs) - NAMED} more" if len(runs) > NAMED else ""
    )
    waits = f", which {names} {'has' if len(runs) == 1 else 'have'} to leave first" if runs else ""
    counted = f"Its budget {asker.spec.budget} is counted as having had them"
    return f"It has a reservation (P8): {gpus} {unit}s on {_count(hosts, 'host')} are kept for it{waits}. {counted}."


def _promises(before: Before, *, now: Millis, unit: str) -> str:
    """Others' reservations."""
    if not before.promised:
        return ""
    entry, reservation = before.promised[0]
    at, count = when(reservation.latest_start, now=now), len(before.promised)
    gangs = "One gang has" if count == 1 else f"{count} gangs have"
    return (
        f"{gangs} a reservation on hosts that it could use, {'' if count == 1 else 'first '}{_named(entry, unit=unit)} "
        f"for {at} at the latest: until then only contracts that end before may use them."
    )


def _out(before: Before, *, now: Millis, unit: str) -> str:
    if not before.out:
        return ""
    first, count = before.out[0], len(before.out)
    gpus = sum(entry.spec.gpus for entry in before.out)
    why = f": {first.comment}" if first.comment else ""
    state = first.state if not first.overdue else f"{first.state}, with a run that it does not release"
    since = f" since {when(first.state_since, now=now)}" if first.state_since else ""
    hosts = f"One host with {gpus} {unit}s takes" if count == 1 else f"{count} hosts with {gpus} {unit}s take"
    return f"{hosts} no runs{', last' if count > 1 else ':'} {first.spec.host}, {state}{since}{why}."


def _side(side: Side, *, own: bool = False) -> str:
    """`chem has had 0.62 of its share (38 GPU-hours behind)`."""
    whose = f"its own {side.budget}" if own else side.budget
    if side.ratio is None:
        return f"{whose} has no share"
    return f"{whose} has had {side.ratio:.2f} of its share ({say_ahead(side.ahead_gpu_ms)})"


def _named(entry: JobEntry, *, unit: str) -> str:
    return f"{entry.job} ({_whose(entry)}, {_count(entry.spec.gpus, unit)})"


def _whose(entry: JobEntry) -> str:
    spec = entry.spec
    return ", ".join(word for word in (spec.name, spec.user, spec.budget) if word)


def _count(number: int, one: str) -> str:
    return f"{number} {one if number == 1 else one + 's'}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
