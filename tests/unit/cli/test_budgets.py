"""`tenure budget` and `tenure host`: the tree, its edits, reports, drains."""

from pathlib import Path

import pytest

from tenure.v1 import budgets_pb2, hosts_pb2
from tests.unit.cli.canned import NOW, Canned
from tests.unit.cli.conftest import Run

HOUR = 3_600_000


@pytest.fixture
def tree(gateway: Canned) -> Canned:
    gateway.budgets = [
        budgets_pb2.Budget(path="science", share_percent=60, fraction=0.6, managers=["ana"], entitlement_gpu_ms=HOUR),
        budgets_pb2.Budget(
            path="science/chem",
            leaf=True,
            share_percent=45,
            fraction=0.27,
            users_equal=True,
            charged_gpu_ms=6 * HOUR,
            commitment_gpu_ms=HOUR,
            entitlement_gpu_ms=10 * HOUR,
        ),
        budgets_pb2.Budget(path="scienceless", leaf=True, share_percent=40, fraction=0.4),
    ]
    return gateway


def test_the_tree_says_who_is_ahead_and_who_is_behind(tenure: Run, tree: Canned) -> None:
    lines = tenure("budget", "show").out.splitlines()
    assert lines[2].split() == [
        *("chem", "45%", "27.0%", "10.0", "6.00", "1.00", "0.70", "3.00", "behind", "0", "0", "0", "-"),
    ]
    assert lines[2].startswith("  chem") and lines[3].split()[6] == "-"


def test_a_path_chooses_a_budget_and_those_below_not_its_namesakes(tenure: Run, tree: Canned) -> None:
    document = tenure("budget", "show", "science", "--json").json()
    assert [one["path"] for one in document["budgets"]] == ["science", "science/chem"]
    assert document["budgets"][1]["ratio"] == 0.7 and document["budgets"][1]["ahead_gpu_ms"] == -3 * HOUR


def test_an_unknown_path_is_a_usage_error(tenure: Run, tree: Canned) -> None:
    result = tenure("budget", "show", "nope")
    assert result.status == 2 and "nope" in result.err


def test_setting_a_share_keeps_managers_and_assumes_the_tree_it_saw(tenure: Run, tree: Canned) -> None:
    assert tenure("budget", "set", "science=50%", "science/bio=20", "-m", "new year").status == 0
    request = tree.last(budgets_pb2.SetSharesRequest)
    assert request.merge and request.expected_position == 12 and request.comment == "new year"
    assert [(one.path, one.share_percent, list(one.managers)) for one in request.budgets] == [
        ("science", 50, ["ana"]),
        ("science/bio", 20, []),
    ]


def test_a_budget_is_removed(tenure: Run, tree: Canned) -> None:
    tenure("budget", "set", "--remove", "scienceless")
    request = tree.last(budgets_pb2.SetSharesRequest)
    assert list(request.remove) == ["scienceless"] and not request.budgets


def test_a_file_replaces_the_tree(tenure: Run, tree: Canned, tmp_path: Path) -> None:
    file = tmp_path / "budgets.yaml"
    file.write_text("budgets: {art: {share: 12.5, managers: [bo], children: {film: {share: 100, users: equal}}}}")
    assert tenure("budget", "set", "--file", str(file)).status == 0
    request = tree.last(budgets_pb2.SetSharesRequest)
    assert not request.merge
    assert [(one.path, one.share_percent, one.users_equal) for one in request.budgets] == [
        ("art", 12.5, False),
        ("art/film", 100, True),
    ]


def test_a_dry_run_asks_for_the_tree_and_writes_nothing(tenure: Run, tree: Canned) -> None:
    result = tenure("budget", "set", "science=50", "--dry-run")
    request = tree.last(budgets_pb2.SetSharesRequest)
    assert request.dry_run and request.merge and [one.share_percent for one in request.budgets] == [50]
    assert result.status == 1 and "log is not on this machine" in result.err and "--from-log FILE" in result.err


def test_a_time_without_a_dry_run_is_a_usage_error(tenure: Run, gateway: Canned) -> None:
    result = tenure("budget", "set", "science=50", "--since", "7d")
    assert result.status == 2 and "--dry-run" in result.err and not gateway.requests


def test_a_bad_file_is_refused_with_its_line(tenure: Run, gateway: Canned, tmp_path: Path) -> None:
    file = tmp_path / "budgets.yaml"
    file.write_text("budgets:\n  art: {share: 10}\n  art: {share: 20}\n")
    result = tenure("budget", "set", "--file", str(file))
    assert result.status == 1 and f"{file}:3" in result.err and len(result.err.splitlines()) == 1
    assert not gateway.requests


@pytest.mark.parametrize(
    "arguments", [("a",), ("a=x",), ("a=101",), ("a=-1",), ("a=nan",), ("=5",), ("a=1", "a=2"), (), ("a=1", "-f", "b")]
)
def test_what_is_no_share_is_a_usage_error(tenure: Run, gateway: Canned, arguments: tuple[str, ...]) -> None:
    result = tenure("budget", "set", *arguments)
    assert result.status == 2 and len(result.err.splitlines()) == 1
    assert not gateway.requests


def test_history_shows_what_came_and_went(tenure: Run, gateway: Canned) -> None:
    gateway.changes = [
        budgets_pb2.BudgetChange(at_ms=NOW, by="ana", path="a", share_percent_after=20, position=4),
        budgets_pb2.BudgetChange(at_ms=NOW, by="bo", path="a", share_percent_before=20, comment="moved", position=5),
    ]
    lines = tenure("budget", "history", "a").out.splitlines()
    assert lines[1].split()[2:] == ["a", "new", "20%", "ana", "-"]
    assert lines[2].split()[2:] == ["a", "20%", "removed", "bo", "moved"]
    changes = tenure("budget", "history", "--json").json()["changes"]
    assert changes[0]["share_percent_before"] is None and changes[1]["share_percent_after"] is None


def test_the_report_compares_delivered_with_owed(tenure: Run, gateway: Canned) -> None:
    gateway.report_rows = [
        budgets_pb2.BudgetReportRow(path="a", leaf=True, owed_gpu_ms=100 * HOUR, delivered_gpu_ms=98 * HOUR),
        budgets_pb2.BudgetReportRow(path="b", leaf=True, unallocated_gpu_ms=HOUR),
    ]
    lines = tenure("budget", "report", "--since", "7d").out.splitlines()
    assert lines[2].split()[:4] == ["a", "100.0", "98.0", "98.0%"]
    assert lines[3].split()[:5] == ["b", "0.00", "0.00", "-", "1.00"]
    request = gateway.last(budgets_pb2.BudgetReportRequest)
    assert request.until_ms - request.since_ms == 7 * 24 * HOUR
    rows = tenure("budget", "report", "--json").json()["budgets"]
    assert (rows[0]["ratio"], rows[1]["ratio"]) == (0.98, None)
    assert gateway.last(budgets_pb2.BudgetReportRequest).since_ms == 0


def test_hosts_are_listed(tenure: Run, gateway: Canned) -> None:
    gateway.hosts = [hosts_pb2.Host(host="h000", state="healthy", gpus=8, gpus_held=3, gpu_type="H100", runs=["j1.1"])]
    lines = tenure("host", "list", "--state", "healthy").out.splitlines()
    assert lines[1].split()[:5] == ["h000", "healthy", "3", "8", "H100"]
    assert list(gateway.last(hosts_pb2.ListHostsRequest).states) == ["healthy"]
    assert tenure("host", "list", "--json").json()["hosts"][0]["gpus_held"] == 3


def test_a_drain_says_when_the_host_will_be_empty(tenure: Run, gateway: Canned) -> None:
    result = tenure("host", "drain", "h000", "--reason", "fan", "--deadline", "2h", "--fatal")
    assert result.out.startswith("h000 draining, empty at ") and "waits for j1.1" in result.out
    request = gateway.last(hosts_pb2.DrainHostRequest)
    assert (request.comment, request.fatal) == ("fan", True) and request.deadline_ms > NOW


def test_a_drain_needs_a_reason(tenure: Run, gateway: Canned) -> None:
    result = tenure("host", "drain", "h000")
    assert result.status == 2 and "--reason" in result.err and not gateway.requests


def test_a_host_is_taken_back(tenure: Run, gateway: Canned) -> None:
    assert tenure("host", "resume", "h000").out == "h000 healthy\n"


def test_a_maintenance_window_is_a_time_or_a_length_of_time(tenure: Run, gateway: Canned) -> None:
    assert tenure("host", "drain", "h000", "--reason", "fan", "--empty-at", "2h").status == 0
    request = gateway.last(hosts_pb2.DrainHostRequest)
    assert request.accepts and request.deadline_ms > NOW
    assert tenure("host", "drain", "h000", "--reason", "fan", "--empty-at", "2030-01-02T03:00+00:00").status == 0
    assert gateway.last(hosts_pb2.DrainHostRequest).deadline_ms == 1_893_553_200_000


def test_a_window_that_is_none_is_refused(tenure: Run, gateway: Canned) -> None:
    result = tenure("host", "drain", "h000", "--reason", "fan", "--empty-at", "soon")
    assert result.status == 2 and "2026-12-01T22:00" in result.err
    result = tenure("host", "drain", "h000", "--reason", "fan", "--empty-at", "2h", "--deadline", "2h")
    assert result.status == 2 and "one of them" in result.err and not gateway.requests


def test_a_person_who_resumes_a_host_says_why(tenure: Run, gateway: Canned) -> None:
    assert tenure("host", "resume", "h000", "--reason", "new riser").status == 0
    assert gateway.last(hosts_pb2.ResumeHostRequest).comment == "new riser"


def test_the_numbers_of_the_hosts(tenure: Run, gateway: Canned) -> None:
    gateway.host_report = hosts_pb2.HostReportResponse(
        since_ms=NOW - 3_600_000,
        until_ms=NOW,
        hosts=4,
        gpus=32,
        availability=0.975,
        refunded_gpu_ms=7_200_000,
        repair=hosts_pb2.Spread(count=2, p50_ms=60_000, p90_ms=120_000, longest_ms=120_000),
        causes=[hosts_pb2.IncidentCause(reason="host_signals", automatic=2, still_open=1)],
        incidents=[
            hosts_pb2.Incident(
                incident="h001@5",
                host="h001",
                state="failed",
                ending="open",
                reason="host_signals",
                began_ms=NOW - 60_000,
                comment="no spare",
            )
        ],
    )
    out = tenure("host", "report", "--since", "1h").out
    assert "4 hosts, 32 GPUs: availability 97.50 %" in out and "refunded 2.0" in out
    assert "ended without a person: unknown" in out and "time to repair: p50 1m, p90 2m" in out
    assert "h001@5" in out and "no spare" in out
    document = tenure("host", "report", "--json").json()
    assert document["availability"] == 0.975 and document["automatic_share"] is None
    assert document["causes"] == [
        {"reason": "host_signals", "automatic": 2, "human": 0, "open": 1, "refunded_gpu_hours": 0.0}
    ]
    assert document["incidents"][0]["ending"] == "open" and document["repair"]["p90_s"] == 120
