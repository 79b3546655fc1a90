"""`tenure budget report --weekly`: seven whole days as Markdown, as HTML for mail, and as JSON."""

import time
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tenure.cli.pages import Page, Section, as_html, as_markdown
from tenure.cli.weekly import whole_days
from tenure.v1 import budgets_pb2, hosts_pb2
from tests.unit.cli.canned import Canned
from tests.unit.cli.conftest import Run

HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture
def week(gateway: Canned) -> Canned:
    gateway.report_rows = [
        budgets_pb2.BudgetReportRow(path="science", owed_gpu_ms=110 * HOUR, delivered_gpu_ms=88 * HOUR),
        budgets_pb2.BudgetReportRow(
            path="science/bio",
            leaf=True,
            owed_gpu_ms=100 * HOUR,
            delivered_gpu_ms=60 * HOUR,
            entitlement_gpu_ms=90 * HOUR,
            refunded_gpu_ms=3 * HOUR,
        ),
        budgets_pb2.BudgetReportRow(
            path="science/chem",
            leaf=True,
            owed_gpu_ms=10 * HOUR,
            delivered_gpu_ms=28 * HOUR,
            entitlement_gpu_ms=20 * HOUR,
        ),
    ]
    gateway.users = [
        budgets_pb2.UserUsage(user="ana", budget="science/bio", delivered_gpu_ms=66 * HOUR),
        *(
            budgets_pb2.UserUsage(
                user=f"u{n:02}", budget="science/chem", delivered_gpu_ms=2 * HOUR, unallocated_gpu_ms=HOUR
            )
            for n in range(11)
        ),
    ]
    gateway.host_report = hosts_pb2.HostReportResponse(
        hosts=16,
        gpus=128,
        availability=0.9875,
        out_gpu_ms=40 * HOUR,
        refunded_gpu_ms=3 * HOUR,
        automatic_share=0.75,
        causes=[hosts_pb2.IncidentCause(reason="host_signal_fatal", automatic=3, human=1, refunded_gpu_ms=3 * HOUR)],
    )
    return gateway


def test_it_is_about_the_last_seven_whole_days(tenure: Run, week: Canned) -> None:
    assert tenure("budget", "report", "science", "--weekly").status == 0
    asked, of_hosts = week.last(budgets_pb2.BudgetReportRequest), week.last(hosts_pb2.HostReportRequest)
    assert asked.users and asked.path == "science" and asked.until_ms % DAY == 0
    assert asked.until_ms - asked.since_ms == 7 * DAY and 0 <= time.time() * 1000 - asked.until_ms < DAY + HOUR
    assert (of_hosts.since_ms, of_hosts.until_ms) == (asked.since_ms, asked.until_ms)


def test_a_week_in_which_the_clock_was_changed_is_whole_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        since, until = whole_days(int(time.mktime((2026, 10, 27, 9, 30, 0, 0, 0, -1))) * 1000)
        assert time.localtime(since / 1000)[:5] == (2026, 10, 20, 0, 0)
        assert time.localtime(until / 1000)[:5] == (2026, 10, 27, 0, 0)
        assert until - since == 7 * DAY + HOUR
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_markdown_says_who_got_what_and_what_hosts_cost(tenure: Run, week: Canned) -> None:
    lines = tenure("budget", "report", "--weekly").out.splitlines()
    assert lines[0].startswith("# GPU time of all budgets, 20")
    assert "63.6% of the 110.0 GPU-hours that were owed" in lines[2] and lines[2].endswith("got: science/bio.")
    assert "| science/bio | 100.0 | 60.0 | 60.0% | 30.0 behind | 0.00 | 3.00 |" in lines
    assert "| science/chem | 10.0 | 28.0 | 100.0% | 8.00 ahead | 0.00 | 0.00 |" in lines
    assert "| ana | science/bio | 66.0 | 75.0% | 0.00 |" in lines and "2 more used it." in lines
    assert "| signal fatal | 4 | 3 | 1 | 0 | 3.00 |" in lines
    assert any("available 98.8%" in line and "40.0 GPU-hours" in line for line in lines)
    assert "Without a person ended 75.0% of the unplanned incidents." in lines


class _Mail(HTMLParser):
    """What a mail reader would object to."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, []).append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_can_be_mailed(tenure: Run, week: Canned, tmp_path: Path) -> None:
    page, text = tmp_path / "week.html", tmp_path / "week.md"
    result = tenure("budget", "report", "--weekly", "--html", str(page), "--markdown", str(text))
    assert (result.status, result.out) == (0, "")
    mail = _Mail()
    mail.feed(page.read_text())
    assert not mail.open and not {"script", "style", "link", "img", "iframe", "form"} & set(mail.tags)
    assert not {"src", "href", "onload", "class"} & set(mail.attributes)
    assert not any("color:" in style or "url(" in style for style in mail.attributes["style"])
    assert "light dark" in mail.attributes["content"] and mail.tags.count("table") == 4
    assert "30.0 behind" in page.read_text() and text.read_text().startswith("# GPU time of")


def test_json_has_all_of_it(tenure: Run, week: Canned) -> None:
    told = tenure("budget", "report", "--weekly", "--json").json()
    assert [one["path"] for one in told["budgets"]] == ["science", "science/bio", "science/chem"]
    assert len(told["users"]) == 12 and told["users"][0]["delivered_gpu_ms"] == 66 * HOUR
    assert told["hosts"]["automatic_share"] == 0.75


def test_a_week_without_anything_says_so(tenure: Run, gateway: Canned) -> None:
    text = tenure("budget", "report", "--weekly").out
    for said in ("Nothing was owed", "No budgets.", "Nobody used it.", "No incidents.", "no GPUs are registered"):
        assert said in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--weekly", "--since", "3d"), "leave --since out"),
        (("--html", "x.html"), "are of --weekly"),
        (("--markdown", "x.md"), "are of --weekly"),
        (("--email", "a@b"), "are of --weekly"),
        (("--weekly", "--smtp", "smtp://h"), "give --email"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    tenure: Run, gateway: Canned, arguments: tuple[str, ...], said: str
) -> None:
    result = tenure("budget", "report", *arguments)
    assert result.status == 2 and said in result.err and not gateway.requests


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_asked(
    tenure: Run, gateway: Canned, tmp_path: Path
) -> None:
    result = tenure("budget", "report", "--weekly", "--html", str(tmp_path))
    assert result.status == 1 and "--html" in result.err and "a directory" in result.err and not gateway.requests


def test_without_a_mail_server_no_mail_is_promised(tenure: Run, gateway: Canned) -> None:
    result = tenure("budget", "report", "--weekly", "--email", "ana@example.org")
    assert result.status == 1 and "--smtp: no mail server is set" in result.err and not gateway.requests


def test_names_are_shown_not_obeyed() -> None:
    hostile = "<b>|`x`*\n[a](http://h)"
    section = Section(title=hostile, columns=("A", "B"), rows=((hostile, hostile),), empty="")
    page = Page(title=hostile, notes=(hostile,), sections=(section,))
    text = as_markdown(page)
    assert len(text.splitlines()) == 9 and "<b>" not in text.replace("\\<b\\>", "") and "](" in text
    assert "\\[a\\](" in text and text.splitlines()[8].count(" | ") == 1
    assert "<b>" not in as_html(page) and "&lt;b&gt;" in as_html(page)
