"""`tenure why JOB --replay`: the decisions about a job made again from the log, and whether they come out the same."""

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import typer

from tenure.cli import words
from tenure.cli.log import pieces, progress
from tenure.cli.terminal import Cell, clean, print_json, say
from tenure.domain.ids import LOG_START, JobId
from tenure.domain.nearest import shown
from tenure.domain.policy import Policy
from tenure.domain.refusal import Refusal
from tenure.sdk.errors import ServerUnreachable

if TYPE_CHECKING:
    from simulator.replay import Replayed, Sought
    from tenure.cli.log import Show
    from tenure.log.access import Access
    from tenure.log.port import Log

Document = dict[str, Any]


def run(job_id: str, access: "Access", cluster: str, *, as_json: bool) -> None:
    """Replay and tell. Raises `typer.Exit(1)` when a decision differs or cannot be made again, `Refusal` for an unknown
    job."""
    from tenure.log.port import Unavailable

    try:
        with progress() as show:
            sought, found = asyncio.run(_replay(access, cluster, JobId(job_id), show))
    except Unavailable as away:
        raise ServerUnreachable(str(away), code="UNAVAILABLE") from away
    report(sought, found, as_json=as_json)


def report(sought: "Sought", found: "list[Replayed]", *, as_json: bool) -> None:
    """Tell what came out. Raises `typer.Exit(1)` unless all that is in the log was decided again, and is the same."""
    differ = [one for one in found if not one.same]
    left = sought.left_out(found)
    if as_json:
        told = [document(one) for one in found]
        print_json({"job": sought.job, "same": not differ and not left, "left_out": left, "decisions": told})
    else:
        _tell(sought.job, found, left_out=left)
    if differ:
        print(
            f"tenure: {len(differ)} of {len(found)} facts come out differently: another version of tenure decided "
            "them, or something counted that is not in the log",
            file=sys.stderr,
        )
    if left:
        print(
            f"tenure: {left} of {sought.found} facts about {clean(sought.job)} cannot be decided again: their ids do "
            "not say which decision they were of, so another program or an older version of tenure wrote them",
            file=sys.stderr,
        )
    if differ or left:
        raise typer.Exit(1)


async def _replay(access: "Access", cluster: str, job: JobId, show: "Show") -> "tuple[Sought, list[Replayed]]":
    """Look through the log for the job, then decide again. Raises `Refusal`, `Unavailable`."""
    from simulator.replay import Sought
    from tenure.log.jetstream import JetStreamLog

    log = await JetStreamLog.connect(access, cluster=cluster)
    try:
        sought = Sought(job)
        await _look(log, sought, show)
        found = await _again(log, sought, show, every=False)
        if all(one.same for one in found):
            return sought, found
        as_it_ran = await _again(log, sought, show, every=True)
        return sought, [one if one.same else other for one, other in zip(found, as_it_ran, strict=True)]
    finally:
        await log.close()


async def _look(log: "Log", sought: "Sought", show: "Show") -> None:
    """What there is of the job. Raises `Refusal` where nothing is."""
    from simulator.replay import SOUGHT
    from tenure.events.intake import JobSubmitted

    submitted = False
    async for some in pieces(log, (*SOUGHT, JobSubmitted), show):
        for recorded in some:
            sought.look(recorded)
            submitted |= isinstance(recorded.fact, JobSubmitted) and recorded.fact.job == sought.job
    if not sought.found:
        problem = "nothing has been decided about it yet" if submitted else f"there is no job {shown(sought.job)}"
        raise Refusal(field="job", problem=problem, fix="see `tenure queue --all`")


async def _again(log: "Log", sought: "Sought", show: "Show", *, every: bool) -> "list[Replayed]":
    """In order of position."""
    from simulator.replay import JobReplay

    replay = JobReplay(sought, policy=Policy(), every=every)
    found: list[Replayed] = []
    async for some in pieces(log, replay.reads, show):
        for recorded in some:
            found += replay.take(recorded)
    found += replay.finish()
    return sorted(found, key=lambda one: one.recorded.position)


def document(one: "Replayed") -> Document:
    """A fact as it stands in the log, and as it was decided again where that is another."""
    from tenure.cli.documents import instant

    fact = one.recorded.fact
    return {
        "position": one.recorded.position,
        **instant("at", fact.at),
        "kind": type(fact).__name__,
        "role": one.stamp.role,
        "assumes": one.stamp.assumes,
        "policy_position": one.policy if one.policy != LOG_START else None,
        "same": one.same,
        "again": None if one.same or one.again is None else _plain(one.again),
        "written": None if one.same else _plain(fact),
    }


def _plain(fact: Any) -> Document:
    """The fact as JSON has it."""
    from tenure.log.codec import encode

    plain: Document = json.loads(encode(fact))
    return plain


def _tell(job_id: str, found: "list[Replayed]", *, left_out: int) -> None:
    """A line for each fact; below one that differs, in what."""
    width = max((len(type(one.recorded.fact).__name__) for one in found), default=0)
    for one in found:
        fact = one.recorded.fact
        policy = "no policy in the log yet" if one.policy == LOG_START else f"policy of {one.policy}"
        verdict = Cell("same", "green") if one.same else Cell("DIFFERENT", "red")
        say(
            Cell(f"{words.exact_clock(fact.at)}  ", "dim"),
            Cell(f"{type(fact).__name__:<{width}}  "),
            verdict,
            Cell(
                f"  at {one.recorded.position}: {one.stamp.role}, having read to {one.stamp.assumes}, {policy}", "dim"
            ),
        )
        for line in () if one.same else _difference(one):
            say(" " * 25, Cell(clean(line)))
    if not left_out and all(one.same for one in found):
        say(f"{len(found)} facts about {clean(job_id)} were decided again from the log: the same, to the byte.")


def _difference(one: "Replayed") -> list[str]:
    """Each field that is another now."""
    if one.again is None:
        return ["decided again, nothing comes in its place"]
    written, again = _plain(one.recorded.fact), _plain(one.again)
    names = [name for name in sorted(written | again) if name != "signature" and written.get(name) != again.get(name)]
    return [
        f"{name}: {json.dumps(written.get(name))} in the log, {json.dumps(again.get(name))} again" for name in names
    ]
