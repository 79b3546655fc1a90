"""`tenure follow`: what happens to jobs, on the terminal or sent on, as long as the command runs (decision 0032)."""

import dataclasses
import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tenure.cli import completion, parsing
from tenure.cli.connection import connect
from tenure.cli.options import JOBS, EmailFrom, Json, Smtp, SmtpPasswordFile
from tenure.domain.refusal import Refusal
from tenure.domain.units import DAY, SECOND, Millis
from tenure.sdk.errors import ServerError, ServerUnreachable

if TYPE_CHECKING:
    from tenure.cli.notices import Notice
    from tenure.cli.outbox import Outbox, Told
    from tenure.cli.sending import Channel
    from tenure.sdk.client import Client
    from tenure.v1 import jobs_pb2

EVERY_MS = 5 * SECOND
JOBS_MAX = 50
LISTED_MAX = 5_000
FORGOTTEN_MS = DAY
"""Of a budget: nothing is remembered of jobs that were over so long ago."""
_STATES = ("starting", "running", "stopping", "completed", "failed", "preempted", "cancelled", "rejected")
"""Of a budget: the queue is not looked at, nothing is said of who waits."""


def register(app: typer.Typer) -> None:
    """Add the command to the tree."""
    app.command(rich_help_panel=JOBS)(follow)


def follow(
    job_ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="JOB...", help="Ids of jobs.", show_default=False, autocompletion=completion.jobs),
    ] = None,
    budget: Annotated[
        str, typer.Option("--budget", metavar="PATH", help="All jobs of it and of those below.", show_default=False)
    ] = "",
    webhook: Annotated[
        str, typer.Option(metavar="URL|@FILE", help="Send JSON to a web server.", show_default=False)
    ] = "",
    slack: Annotated[
        str, typer.Option(metavar="URL|@FILE", help="Send text to a hook of Slack's kind.", show_default=False)
    ] = "",
    email: Annotated[str, typer.Option(metavar="ADDRESS", help="Send mail by --smtp.", show_default=False)] = "",
    secret_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Sign what the webhook is sent with the secret in it.")
    ] = None,
    smtp: Smtp = "",
    smtp_password_file: SmtpPasswordFile = None,
    email_from: EmailFrom = "",
    state: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Remember what arrived: it is not sent again after a restart.")
    ] = None,
    every: Annotated[
        Any, typer.Option(parser=parsing.duration, metavar="TIME", help="How often it looks.", show_default="5s")
    ] = EVERY_MS,
    as_json: Json = False,
) -> None:
    """Say when jobs start, are about to lose their protection, are preempted and why, queued again, and over.

    It runs until the jobs are over; for a budget until Ctrl-C. Status 1 if something could not be sent.
    """
    jobs = list(dict.fromkeys(job_ids or []))
    if bool(jobs) == bool(budget):
        raise typer.BadParameter("give either JOB or --budget PATH", param_hint="'JOB...'")
    if len(jobs) > JOBS_MAX:
        raise typer.BadParameter(f"at most {JOBS_MAX} jobs: follow their budget instead", param_hint="'JOB...'")
    if every < SECOND:
        raise typer.BadParameter("look once a second at most: 1s or longer", param_hint="'--every'")
    given = {"--smtp": smtp, "--email-from": email_from}
    channel = _channel(webhook, slack, email, given, secret_file=secret_file, password_file=smtp_password_file)
    from tenure.cli.outbox import Outbox, Told

    told = Told(state, [budget, *jobs, webhook, slack, email])
    outbox = None if channel is None else Outbox(channel, lambda notice: _arrived(told, notice))
    with connect() as client:
        following = _Following(client, jobs=jobs, budget=budget, told=told, outbox=outbox, as_json=as_json)
        following.run(every_s=every / 1000)
    if outbox is not None and outbox.close():
        raise typer.Exit(1)


def _channel(
    webhook: str,
    slack: str,
    email: str,
    given: dict[str, str],
    *,
    secret_file: Path | None,
    password_file: Path | None,
) -> "Channel | None":
    """Where notices go; None: to the terminal alone. Raises `Refusal`."""
    from tenure.cli.sending import SlackHook, Webhook, mail_to, secret_from, web_address

    if sum(map(bool, (webhook, slack, email))) > 1:
        raise typer.BadParameter("one of --webhook, --slack and --email: run one command for each")
    if secret_file is not None and not webhook:
        raise typer.BadParameter("--secret-file signs what a webhook is sent: give --webhook")
    if (any(given.values()) or password_file is not None) and not email:
        raise typer.BadParameter("--smtp and what belongs to it are of mail: give --email")
    if webhook:
        secret = b"" if secret_file is None else secret_from(secret_file)
        return Webhook(url=web_address(webhook, field="--webhook"), secret=secret)
    if slack:
        return SlackHook(url=web_address(slack, field="--slack"))
    return mail_to(email, given, password_file=password_file) if email else None


def _arrived(told: "Told", notice: "Notice") -> None:
    told.note(notice.job, {notice.key})
    try:
        told.save()
    except (OSError, Refusal) as error:
        print(f"tenure follow: what arrived cannot be remembered: {error}", file=sys.stderr)


class _Following:
    """Looks, and says what is new."""

    def __init__(
        self,
        client: "Client",
        *,
        jobs: Sequence[str],
        budget: str,
        told: "Told",
        outbox: "Outbox | None",
        as_json: bool,
    ) -> None:
        self._client, self._jobs, self._budget, self._told = client, list(jobs), budget, told
        self._outbox, self._as_json = outbox, as_json
        self._said: set[str] = set()
        self._live: list[str] = []

    def run(self, *, every_s: float) -> None:
        """Until all jobs are over. Raises what the client raises at the first look, later only a refusal."""
        away, first, clock = False, True, threading.Event()
        while True:
            try:
                left = self._look()
            except ServerUnreachable as trouble:
                if first:
                    raise
                if not away:
                    print(f"tenure follow: {trouble}; looking again until it answers", file=sys.stderr, flush=True)
                away = True
            else:
                away = False
                if not left:
                    return
            first = False
            clock.wait(every_s)

    def _look(self) -> bool:
        """Say what is new; whether anything is left to follow."""
        from tenure.cli.notices import is_over, keys_before, notices_of

        client, told = self._client, self._told
        listing = client.jobs(states=_STATES, budget=self._budget, limit=LISTED_MAX if self._budget else 1)
        now, whole = listing.cluster.now_ms, not told.since
        jobs = self._of_budget(listing.jobs) if self._budget else [client.job(each) for each in self._jobs]
        for job in jobs:
            if not told.knows(job.job_id):
                seen = keys_before(job, now=now, last_run_too=bool(self._budget)) if whole else set()
                told.note(job.job_id, seen)
            for notice in notices_of(job, now=now):
                if notice.key not in self._said and not told.has(notice):
                    self._said.add(notice.key)
                    self._say(self._with_reason(notice))
        if whole:
            told.since = now
            told.save()
        elif self._budget:
            self._forget(listing.jobs, jobs, now=now)
        self._jobs = [job.job_id for job in jobs if not is_over(job)] if not self._budget else []
        return bool(self._jobs or self._budget)

    def _of_budget(self, listed: "Sequence[jobs_pb2.Job]") -> "list[jobs_pb2.Job]":
        """Those that run or ended since it was begun to look, and those that ran at the last look and wait again."""
        from tenure.cli.notices import is_over

        found = [job for job in listed if not is_over(job) or job.finished_at_ms >= (self._told.since or 2**62)]
        there = {job.job_id for job in listed}
        found += [self._client.job(each) for each in self._live if each not in there]
        self._live = [job.job_id for job in found if not is_over(job)]
        return found

    def _forget(self, listed: "Sequence[jobs_pb2.Job]", jobs: "Sequence[jobs_pb2.Job]", *, now: Millis) -> None:
        """What was over for long is not looked at again, so that nothing need be remembered of it."""
        ends = [job.finished_at_ms for job in listed if job.finished_at_ms]
        cut_off = min(ends, default=0) if len(listed) >= LISTED_MAX else 0
        self._told.since = max(self._told.since, now - FORGOTTEN_MS, cut_off)
        self._told.keep({job.job_id for job in jobs})
        self._said = {key for key in self._said if self._told.knows(key.partition(":")[0].partition(".")[0])}

    def _with_reason(self, notice: "Notice") -> "Notice":
        """A preemption with the sentence of `tenure why`, where the story can be had."""
        from tenure.cli.notices import Event

        if notice.event is not Event.PREEMPTED:
            return notice
        try:
            steps = self._client.explain(notice.job).steps
        except ServerError:
            return notice
        asked = [step for step in steps if step.kind == "RunPreemptionRequested" and step.fact_json]
        found = [step.text for step in asked if json.loads(step.fact_json).get("run") == notice.run]
        return dataclasses.replace(notice, text=f"{notice.text} {found[-1]}") if found else notice

    def _say(self, notice: "Notice") -> None:
        from tenure.cli.terminal import clean

        print(json.dumps(notice.document) if self._as_json else clean(notice.text), flush=True)
        if self._outbox is not None:
            self._outbox.put(notice)
        else:
            _arrived(self._told, notice)
