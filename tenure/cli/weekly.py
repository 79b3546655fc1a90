"""`tenure budget report --weekly`: what a manager reads on Monday, as Markdown and as HTML that mail readers show."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tenure.cli import words
from tenure.cli.files import replacing, writable
from tenure.cli.pages import Page, Section, as_html, as_markdown
from tenure.domain.refusal import Refusal
from tenure.domain.units import Millis

if TYPE_CHECKING:
    from tenure.cli.sending import Mail
    from tenure.sdk.client import Client
    from tenure.v1 import budgets_pb2, hosts_pb2

DAYS = 7
USERS_SHOWN = 10
ATTEMPTS, WAIT_FIRST_S = 4, 1.0
"""Of mail, longer and longer apart."""
TARGET = 0.95
"""Of what it was owed: a budget that got less is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """What the gateway says of seven whole days. `path` empty: of all budgets."""

    path: str
    budgets: "budgets_pb2.BudgetReportResponse"
    hosts: "hosts_pb2.HostReportResponse"


def whole_days(now: Millis) -> tuple[Millis, Millis]:
    """The last `DAYS` whole days by this machine's calendar, [since, until)."""
    today = time.localtime(now / 1000)
    since, until = (
        time.mktime((today.tm_year, today.tm_mon, day, 0, 0, 0, 0, 0, -1))
        for day in (today.tm_mday - DAYS, today.tm_mday)
    )
    return Millis(int(since * 1000)), Millis(int(until * 1000))


def ask(client: "Client", path: str) -> Week:
    """The week before today. Raises what the client raises."""
    since, until = whole_days(words.now_ms())
    return Week(
        path=path,
        budgets=client.budget_report(since_ms=since, until_ms=until, path=path, users=True),
        hosts=client.host_report(since_ms=since, until_ms=until),
    )


def tell(week: Week, *, html: Path | None, markdown: Path | None) -> None:
    """Write the files; where none is asked for, the Markdown goes to stdout. Raises `Refusal`."""
    page = as_page(week)
    for path, field, written in ((html, "--html", as_html), (markdown, "--markdown", as_markdown)):
        if path is not None:
            with replacing(writable(path, field=field)) as file:
                file.write(written(page).encode())
    if html is None and markdown is None:
        print(as_markdown(page), end="")


def post(week: Week, mail: "Mail") -> None:
    """Send it by mail, as Markdown and as HTML; what may pass is tried again. Raises `Refusal`."""
    import tenacity

    from tenure.cli.sending import Passing, Refused

    page, until = as_page(week), week.budgets.until_ms
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(Passing),
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        wait=tenacity.wait_exponential_jitter(multiplier=WAIT_FIRST_S),
        reraise=True,
    )
    try:
        key = f"weekly {week.path} {until}"
        retrying(mail.send_text, key, page.title, as_markdown(page), at=words.now_ms(), html=as_html(page))
    except (Passing, Refused) as trouble:
        fix = "see that the mail server takes mail from here"
        raise Refusal(field="--email", problem=str(trouble), fix=fix) from None


def document(week: Week) -> dict[str, Any]:
    """The same as JSON."""
    from tenure.cli import documents

    users = [
        {
            "user": one.user,
            "budget": one.budget,
            "delivered_gpu_ms": one.delivered_gpu_ms,
            "unallocated_gpu_ms": one.unallocated_gpu_ms,
            "refunded_gpu_ms": one.refunded_gpu_ms,
        }
        for one in week.budgets.users
    ]
    return {**documents.report(week.budgets), "users": users, "hosts": documents.host_report(week.hosts)}


def as_page(week: Week) -> Page:
    """What is told, without a form yet."""
    first, last = (
        time.strftime("%Y-%m-%d", time.localtime(at / 1000))
        for at in (week.budgets.since_ms, week.budgets.until_ms - 1)
    )
    zone = time.strftime("%Z", time.localtime(week.budgets.until_ms / 1000))
    return Page(
        title=f"GPU time of {week.path or 'all budgets'}, {first} to {last}",
        notes=(_summary(week), f"Whole days, {zone}. Figures are GPU-hours."),
        sections=(_budgets(week), _users(week), _hosts(week)),
    )


def _summary(week: Week) -> str:
    leaves = [row for row in week.budgets.rows if row.leaf]
    owed = sum(row.owed_gpu_ms for row in leaves)
    if not owed:
        return "Nothing was owed: no budget had demand."
    met = sum(min(row.owed_gpu_ms, row.delivered_gpu_ms) for row in leaves)
    short = [row.path for row in leaves if row.owed_gpu_ms and row.delivered_gpu_ms < TARGET * row.owed_gpu_ms]
    told = f"{words.percent(met / owed)} of the {words.hours(owed)} GPU-hours that were owed were delivered."
    if not short:
        return f"{told} No budget got less than {words.percent(TARGET)} of what it was owed."
    return f"{told} Less than {words.percent(TARGET)} of what they were owed got: {', '.join(short)}."


def _budgets(week: Week) -> Section:
    rows = []
    for row in week.budgets.rows:
        part = min(row.delivered_gpu_ms / row.owed_gpu_ms, 1.0) if row.owed_gpu_ms else None
        ahead = row.delivered_gpu_ms - row.entitlement_gpu_ms
        rows.append(
            (
                row.path,
                words.hours(row.owed_gpu_ms),
                words.hours(row.delivered_gpu_ms),
                "-" if part is None else words.percent(part),
                f"{words.hours(abs(ahead))} {'behind' if ahead < 0 else 'ahead'}",
                words.hours(row.unallocated_gpu_ms),
                words.hours(row.refunded_gpu_ms),
            )
        )
    return Section(
        title="Owed and delivered",
        columns=("Budget", "Owed", "Delivered", "Of owed", "Against entitlement", "Unallocated", "Refunded"),
        rows=tuple(rows),
        empty="No budgets.",
        notes=(
            "Owed is a budget's share as long as it had that much demand. A budget that asked for little is behind its "
            "entitlement and was still given what it was owed. Refunded is work that was lost with hosts: not charged.",
        ),
    )


def _users(week: Week) -> Section:
    everything = sum(one.delivered_gpu_ms for one in week.budgets.users)
    rows = [
        (
            one.user,
            one.budget,
            words.hours(one.delivered_gpu_ms),
            words.percent(one.delivered_gpu_ms / everything) if everything else "-",
            words.hours(one.unallocated_gpu_ms),
        )
        for one in week.budgets.users[:USERS_SHOWN]
    ]
    left = len(week.budgets.users) - len(rows)
    return Section(
        title="Who used it most",
        columns=("User", "Budget", "Delivered", "Of all", "Unallocated"),
        words=2,
        rows=tuple(rows),
        empty="Nobody used it.",
        notes=(f"{left} more used it.",) if left else (),
    )


def _hosts(week: Week) -> Section:
    told = week.hosts
    there = words.percent(told.availability) if told.HasField("availability") else "unknown: no GPUs are registered"
    alone = words.percent(told.automatic_share) if told.HasField("automatic_share") else ""
    return Section(
        title="What hosts cost",
        columns=("Cause", "Incidents", "Ended by themselves", "Ended by a person", "Open", "Refunded"),
        rows=tuple(
            (
                words.reason(one.reason),
                str(one.automatic + one.human + one.still_open),
                str(one.automatic),
                str(one.human),
                str(one.still_open),
                words.hours(one.refunded_gpu_ms),
            )
            for one in told.causes
        ),
        empty="No incidents.",
        notes=(
            f"All {told.hosts} hosts with {told.gpus} GPUs, whoever used them: available {there}. Out of service "
            f"{words.hours(told.out_gpu_ms)} GPU-hours, refunded {words.hours(told.refunded_gpu_ms)}.",
            *((f"Without a person ended {alone} of the unplanned incidents.",) if alone else ()),
        ),
    )
