"""The answer of `Explain`: the job's facts as steps, what stands before it, and whom its runs gave way to."""

import dataclasses
from collections.abc import Sequence

import msgspec

from services.gateway import convert_why
from services.gateway.answers import (
    say_gave_way,
    say_leaving,
    say_over,
    say_rejected,
    say_requeued,
    say_running,
    say_waiting,
)
from services.gateway.convert import from_why
from services.gateway.entries import JobEntry, RunEntry
from services.gateway.policy.discretion import without_values
from services.gateway.policy.expected_start import expected_start
from services.gateway.policy.sides import compared, side_of, with_hours
from services.gateway.policy.stands_before import stands_before
from services.gateway.policy.totals import RUNNING
from services.gateway.state import State
from services.gateway.story import tell, unit_of
from tenure.domain.ids import JobId, RunId, job_of
from tenure.domain.policy import Policy
from tenure.domain.reasons import JobState, Why
from tenure.domain.reasons_in_words import spoken_ahead
from tenure.domain.units import GpuMillis, Millis
from tenure.events.fact import Fact, Recorded
from tenure.events.intake import JobCancelRequested
from tenure.events.placing import JobRequeued, RunAssigned, RunEnded, RunPreemptionRequested, RunStopRequested
from tenure.log.codec import encode, kind_name
from tenure.v1 import jobs_pb2


class Explaining:
    """One question about one job, answered from the read model as it is at `now`."""

    def __init__(self, state: State, *, now: Millis, policy: Policy) -> None:
        self._state, self._now, self._policy = state, now, policy

    def fill(self, answer: jobs_pb2.ExplainJobResponse, entry: JobEntry, facts: Sequence[Recorded]) -> None:
        """All that is beside the steps. `facts` are the job's, in order."""
        unit = unit_of(entry.spec)
        answer.gave_way.extend(
            self._gave_way(each, entry, facts, unit=unit) for each in facts if _is_of(each.fact, entry.job)
        )
        if answer.gave_way and answer.gave_way[-1].run_id == entry.runs[-1].run:
            answer.answer.extend(answer.gave_way[-1].answer)  # what happened to it last
        if entry.state is JobState.QUEUED:
            self._fill_waiting(answer, entry, unit=unit)
        elif entry.state is JobState.REJECTED:
            _fill_rejected(answer, entry)
        else:
            said = self._say_other(entry, facts, unit=unit)
            answer.answer.extend(sentence for sentence in said if sentence not in answer.answer)

    def _fill_waiting(self, answer: jobs_pb2.ExplainJobResponse, entry: JobEntry, *, unit: str) -> None:
        before = stands_before(self._state, entry, now=self._now, policy=self._policy)
        expected = expected_start(entry, before, now=self._now)
        answer.answer.extend(say_waiting(entry, self._state, before, expected, now=self._now, unit=unit))
        convert_why.fill_before(answer.before, before)
        convert_why.fill_expected(answer.expected, expected, entry, now=self._now)

    def _say_other(self, entry: JobEntry, facts: Sequence[Recorded], *, unit: str) -> list[str]:
        """Of a job that neither waits nor was rejected."""
        if entry.state is JobState.SUBMITTED:
            return ["It was submitted and is not in the queue yet: the budget role has not answered."]
        if entry.state in RUNNING:
            return say_running(entry, side_of(self._state, entry.spec.budget), now=self._now, unit=unit)
        return [say_over(entry, cancelled_by=_cancelled_by(facts, entry.job), unit=unit)]

    def step(self, recorded: Recorded, *, to: JobId, unit: str, sees_inside: bool) -> jobs_pb2.Step:
        """One fact as a sentence, its reason, and as it was written: with the values it holds only if `sees_inside`."""
        fact = recorded.fact
        if not sees_inside:
            fact = without_values(fact)
        why: Why | None = getattr(fact, "why", None)
        ahead = self._ahead(fact)
        return jobs_pb2.Step(
            position=recorded.position,
            at_ms=fact.at,
            kind=kind_name(fact),
            text=tell(_with_ahead(fact, ahead), to=to, unit=unit),
            why=None if why is None else from_why(with_hours(why, ahead)),
            fact_json=encode(fact).decode(),
        )

    def _ahead(self, fact: Fact) -> dict[str, GpuMillis]:
        """How far ahead the budgets were whose ratios the fact compares."""
        if not isinstance(fact, RunAssigned | RunEnded | RunPreemptionRequested | RunStopRequested):
            return {}
        run = self._run(fact.run)
        if run is None:
            return {}
        return dict(run.ahead_at_start if isinstance(fact, RunAssigned) else run.ahead_at_stop)

    def _run(self, run: RunId) -> RunEntry | None:
        entry = self._state.jobs.get(job_of(run))
        return None if entry is None else next((each for each in entry.runs if each.run == run), None)

    def _gave_way(
        self, recorded: Recorded, entry: JobEntry, facts: Sequence[Recorded], *, unit: str
    ) -> jobs_pb2.GaveWay:
        fact = recorded.fact
        assert isinstance(fact, RunPreemptionRequested), "only such facts are asked about"
        run = next((each for each in entry.runs if each.run == fact.run), None)
        asker = self._state.jobs.get(JobId(fact.by)) if fact.escrow else None
        told = jobs_pb2.GaveWay(
            run_id=fact.run,
            position=recorded.position,
            at_ms=fact.at,
            by=fact.by,
            why=from_why(with_hours(fact.why, self._ahead(fact))),
            answer=[
                *say_gave_way(fact, asker, run, now=self._now, unit=unit),
                *self._followed(fact, entry, run, facts, unit=unit),
            ],
        )
        if asker is not None:
            told.by_budget, told.by_user = asker.spec.budget, asker.spec.user
        if run is not None and run.started_at is not None:
            told.ran_ms = max(0, fact.at - run.started_at)
            told.protected_until_ms = (run.protected_until or 0) if run.allocated else 0
        sides = compared(fact.why.numbers, self._ahead(fact))
        if sides is not None:
            told.sides.CopyFrom(convert_why.from_sides(sides))
        return told

    def _followed(
        self,
        fact: RunPreemptionRequested,
        entry: JobEntry,
        run: RunEntry | None,
        facts: Sequence[Recorded],
        *,
        unit: str,
    ) -> list[str]:
        """What became of the job by that, as it is recorded; what will, while the run stops. Nothing in between."""
        for each in facts:
            if isinstance(each.fact, JobRequeued) and each.fact.run == fact.run:
                return [say_requeued(each.fact, now=self._now, unit=unit)]
        if entry.state.final:
            return [say_over(entry, cancelled_by=_cancelled_by(facts, entry.job), unit=unit)]
        if run is None or run.ended_at is not None:
            return []
        return [say_leaving(fact, entry)]


def _fill_rejected(answer: jobs_pb2.ExplainJobResponse, entry: JobEntry) -> None:
    """The arithmetic, as the budget role wrote it."""
    said = {} if entry.why is None else {name: str(value) for name, value in entry.why.numbers.items()}
    field, problem, fix = (said.get(name, "") for name in ("field", "problem", "fix"))
    answer.rejection.CopyFrom(jobs_pb2.Rejection(field=field, problem=problem, fix=fix))
    answer.answer.extend(say_rejected(field, problem, fix))


def _is_of(fact: Fact, job: JobId) -> bool:
    """A run of the job was told to give way, and not another's for it."""
    return isinstance(fact, RunPreemptionRequested) and fact.job == job


def _cancelled_by(facts: Sequence[Recorded], job: JobId) -> str:
    """Who asked for the job to be cancelled; empty: nobody."""
    asked = (each.fact.by for each in facts if isinstance(each.fact, JobCancelRequested) and each.fact.job == job)
    return next(asked, "")


def _with_ahead(fact: Fact, ahead: dict[str, GpuMillis]) -> Fact:
    """The fact with how far budgets were ahead among its numbers, as its sentence has it."""
    why: Why | None = getattr(fact, "why", None)
    if why is None or not ahead:
        return fact
    numbers = {**why.numbers, **spoken_ahead(ahead)}
    return msgspec.structs.replace(fact, why=dataclasses.replace(why, numbers=numbers))
