"""The answer to a question of a past: the replay, its report, and who gains and who loses.

What is compared is the same time replayed with and without the changes, so that what the simulation leaves out counts
on both sides. Without changes the replay is compared with what really happened.
"""

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection

import msgspec

from simulator.collector import resting_collector
from simulator.past.gains import ByName, gains, really, served_by
from simulator.past.plan import Question
from simulator.past.replay import Changes, Replay
from simulator.report import Report, build_report
from simulator.report.fields import WhatIf
from tenure.domain.units import DAY, Millis
from tenure.events.fact import Recorded

POLICY = "fair"
Passed = Callable[[Millis], None]
"""Told how much of the time is behind us, in milliseconds since its beginning."""


class Answer:
    """What came out."""

    def __init__(self, question: Question, *, passed: Passed) -> None:
        self.question = question
        unchanged = _Beside(question) if question.changes.any else None
        replay = _replay(question, question.changes)
        self.recorded: Sequence[Recorded] = replay.run(progress=lambda now: passed(now - question.start))
        self.jobs = sum(job.submitted_at < question.end for job in question.past.jobs.values())
        self.report: Report = build_report(
            self.recorded,
            policy_name=POLICY,
            kinds={},
            start=question.start,
            end=question.end,
            lookback_ms=replay.policy.lookback_ms,
            wall_seconds=0,
            work=question.work,
            rates_milli=replay.policy.rates_milli,
            origin=self.origin,
            gone=replay.gone,
        )
        what_if = self._compare(replay, unchanged)
        days = (question.end - question.start) / DAY
        self.report = msgspec.structs.replace(self.report, what_if=what_if, simulated_days=days)

    @property
    def origin(self) -> Millis:
        """The instant of t = 0 in the lines of the replay: where the log began, for its first facts are in it."""
        return min(self.question.start, self.question.past.first)

    def _compare(self, replay: Replay, unchanged: "_Beside | None") -> WhatIf:
        question = self.question
        start, end = question.start, question.end
        real = served_by(really(question.past), start=start, end=end)
        before = real if unchanged is None else unchanged.served()
        after = served_by(self.recorded, start=start, end=end)
        budgets, users = (gains(b, a, real=r) for b, a, r in zip(before, after, real, strict=True))
        return WhatIf(
            since_ms=start,
            until_ms=end,
            changes=list(question.told),
            compared_with="log" if unchanged is None else "replay",
            budgets=budgets,
            users=users,
            jobs_estimated=replay.behaviours.estimated,
            contracts_cut=replay.contracts_cut,
        )


class _Beside:
    """The same time replayed unchanged, in a process beside this one where there is a second processor for it."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._result: Connection | None = None
        if len(os.sched_getaffinity(0)) > 1:
            context = multiprocessing.get_context("fork")  # it has the past already
            self._result, theirs = context.Pipe(duplex=False)
            self._process = context.Process(target=_tell_unchanged, args=(question, theirs), daemon=True)
            self._process.start()
            theirs.close()

    def served(self) -> tuple[ByName, ByName]:
        """What budgets and users got in it."""
        if self._result is None:
            return _unchanged(self._question)
        try:
            budgets, users = self._result.recv()
        except EOFError as error:
            raise RuntimeError("the replay of the log as it was did not end well") from error
        self._process.join()
        return budgets, users


def _tell_unchanged(question: Question, result: Connection) -> None:
    with contextlib.suppress(KeyboardInterrupt):  # whoever waits for it is told as well
        result.send(_unchanged(question))
    result.close()


def _unchanged(question: Question) -> tuple[ByName, ByName]:
    with resting_collector():
        recorded = _replay(question, Changes()).run()
        return served_by(recorded, start=question.start, end=question.end)


def _replay(question: Question, changes: Changes) -> Replay:
    return Replay(question.past, start=question.start, end=question.end, changes=changes, work=question.work)
